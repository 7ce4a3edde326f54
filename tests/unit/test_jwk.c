#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "jwt_test.h"

static const char *read_jwk(const char *text, struct jwk *key)
{
    json_t *json = bounded_object(span_of(text));
    const char *wrong;
    assert_non_null(json);
    wrong = jwk_from_jwk(json, key);
    json_decref(json);
    return wrong;
}

static void reads_each_kind(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < KEY_KINDS; kind++) {
        char *text = jwk_text((enum key_kind)kind, ",\"kid\":\"k1\",\"use\":\"sig\"");
        struct jwk key, copy;
        assert_null(read_jwk(text, &key));
        assert_int_equal(key.kind, kind);
        assert_int_equal(key.only, ALG_COUNT);
        assert_true(span_eq(key.kid, SPAN("k1")));
        assert_true(jwk_copy(&key, &copy));
        assert_true(jwk_is_same(&key, &copy));
        jwk_done(&copy);
        jwk_done(&key);
        free(text);
    }
}

static void refuses(const char *text)
{
    struct jwk key;
    const char *wrong = read_jwk(text, &key);
    if (!wrong)
        fail_msg("taken: %s", text);
    assert_null(key.pkey);
    assert_int_equal(ERR_peek_error(), 0); /* a TLS session would take it for its own */
}

static void refuses_what_is_no_key(void **state)
{
    (void)state;
    refuses("{}");
    refuses("{\"kty\":\"DSA\"}");
    refuses("{\"kty\":\"RSA\"}");
    refuses("{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}"); /* 17 bits */
    refuses("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQAB\",\"y\":\"AQAB\"}");
    refuses("{\"kty\":\"EC\",\"crv\":\"secp256k1\",\"x\":\"AQAB\",\"y\":\"AQAB\"}");
    /* Right lengths, but no point of the curve. */
    refuses("{\"kty\":\"EC\",\"crv\":\"P-256\","
            "\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\","
            "\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\"}");
    refuses("{\"kty\":\"OKP\",\"crv\":\"Ed448\",\"x\":\"AQAB\"}");
    refuses("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AQAB\"}");
    refuses("{\"kty\":\"oct\",\"k\":\"c2hvcnQ\"}");
    refuses("{\"kty\":\"oct\",\"k\":7}");
}

static void refuses_keys_for_something_else(void **state)
{
    static const char *const more[] = {
        ",\"use\":\"enc\"",        ",\"use\":1",         ",\"key_ops\":[\"sign\"]",
        ",\"key_ops\":\"verify\"", ",\"alg\":\"RS256\"", ",\"alg\":\"ES384\"",
        ",\"alg\":\"none\"",       ",\"alg\":5",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        char *text = jwk_text(KEY_P256, more[i]);
        refuses(text);
        free(text);
    }
}

static void fits_only_its_algorithms(void **state)
{
    char *text = jwk_text(KEY_P256, ",\"alg\":\"ES256\",\"key_ops\":[\"verify\"]");
    struct jwk key;
    (void)state;
    assert_null(read_jwk(text, &key));
    for (unsigned alg = 0; alg < ALG_COUNT; alg++)
        assert_int_equal(jwk_fits(&key, (enum alg)alg), alg == ALG_ES256);
    jwk_done(&key);
    free(text);
    text = jwk_text(KEY_RSA, ",\"alg\":\"PS384\"");
    assert_null(read_jwk(text, &key));
    for (unsigned alg = 0; alg < ALG_COUNT; alg++)
        assert_int_equal(jwk_fits(&key, (enum alg)alg), alg == ALG_PS384);
    jwk_done(&key);
    free(text);
}

static void wants_secrets_as_long_as_the_digest(void **state)
{
    struct jwk key;
    (void)state;
    assert_non_null(jwk_from_secret((struct postern_str){SECRET_64, 31}, &key));
    assert_null(jwk_from_secret((struct postern_str){SECRET_64, 47}, &key));
    assert_true(jwk_fits(&key, ALG_HS256));
    assert_false(jwk_fits(&key, ALG_HS384));
    jwk_done(&key);
}

static char *pem_of(EVP_PKEY *pkey, bool private)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data, *text;
    long n;
    if (private)
        PEM_write_bio_PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL);
    else
        PEM_write_bio_PUBKEY(bio, pkey);
    n = BIO_get_mem_data(bio, &data);
    text = strndup(data, (size_t)n);
    BIO_free(bio);
    return text;
}

static void reads_pem_cut_at_every_byte(void **state)
{
    (void)state;
    for (unsigned kind = KEY_RSA; kind < KEY_KINDS; kind++) {
        char *text = pem_of(private_key((enum key_kind)kind), false);
        struct jwk key;
        size_t whole = strlen(text) - 1; /* the newline at the end may be missing */
        for (size_t n = 0; n < whole; n++)
            assert_non_null(jwk_from_pem((struct postern_str){text, n}, &key));
        assert_int_equal(ERR_peek_error(), 0);
        assert_null(jwk_from_pem(span_of(text), &key));
        assert_int_equal(key.kind, kind);
        assert_null(key.kid.p);
        jwk_done(&key);
        free(text);
    }
}

static void refuses_a_private_key_in_pem(void **state)
{
    char *text = pem_of(private_key(KEY_P256), true);
    struct jwk key;
    (void)state;
    assert_non_null(jwk_from_pem(span_of(text), &key));
    free(text);
}

static void refuses_small_rsa_keys(void **state)
{
    EVP_PKEY *small = EVP_RSA_gen(1024);
    char *text = pem_of(small, false);
    struct jwk key;
    (void)state;
    assert_string_equal(jwk_from_pem(span_of(text), &key),
                        "an RSA key needs 2048 bits or more");
    free(text);
    EVP_PKEY_free(small);
}

static void tells_keys_apart(void **state)
{
    char *one = jwk_text(KEY_P256, ",\"kid\":\"a\""),
         *two = jwk_text(KEY_P256, ",\"kid\":\"b\"");
    struct jwk a, b;
    (void)state;
    assert_null(read_jwk(one, &a));
    assert_null(read_jwk(two, &b));
    assert_false(jwk_is_same(&a, &b));
    jwk_done(&a);
    jwk_done(&b);
    free(one);
    free(two);
}

static int clean(void **state)
{
    (void)state;
    free_private_keys();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_each_kind),
        cmocka_unit_test(refuses_what_is_no_key),
        cmocka_unit_test(refuses_keys_for_something_else),
        cmocka_unit_test(fits_only_its_algorithms),
        cmocka_unit_test(wants_secrets_as_long_as_the_digest),
        cmocka_unit_test(reads_pem_cut_at_every_byte),
        cmocka_unit_test(refuses_a_private_key_in_pem),
        cmocka_unit_test(refuses_small_rsa_keys),
        cmocka_unit_test(tells_keys_apart),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
