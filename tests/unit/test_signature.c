#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/err.h>

#include "jwt_test.h"
#include "signature.h"
#include "token.h"

#define JOE                                                                                    \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0" \
    "cnVlfQ."

/* The examples of RFC 7515 appendix A and RFC 8037 appendix A.4. */
static const struct {
    enum alg alg;
    const char *jwk, *token;
} examples[] = {
    {ALG_HS256,
     "{\"kty\":\"oct\",\"k\":\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-"
     "1qS0gZH75aKtMN3Yj0iPS4"
     "hcgUuTwjAzZr1Z9CAow\"}",
     "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." JOE
     "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"},
    {ALG_RS256,
     "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_"
     "wWJcyQoTbji9k0l8W2"
     "6mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_"
     "YpRPEwOWvG6b32690r2jZ47"
     "soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-"
     "UTo7WTBEMa2R2CapHg665xsmtdVMT"
     "BQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_"
     "h9iaGNj8q2ethFkMLs91kzk2PAcDT"
     "W9gb54h4FRWyuXpoQ\"}",
     "eyJhbGciOiJSUzI1NiJ9." JOE "cC4hiUPoj9Eetdgtv3hF80EGrhuB__"
     "dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2F"
     "p5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_"
     "nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQB"
     "MHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-"
     "eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeY"
     "I2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"},
    {ALG_ES256,
     "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
     "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}",
     "eyJhbGciOiJFUzI1NiJ9." JOE
     "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
    {ALG_ES512,
     "{\"kty\":\"EC\",\"crv\":\"P-521\",\"x\":"
     "\"AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5"
     "EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk\",\"y\":\"ADSmRA43Z1DSNx_"
     "RvcLI87cdL07l6jQyyBXMoxVg_l"
     "2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2\"}",
     "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA.AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_"
     "UxMi70cwnZOYaRI1bKPWRO"
     "c-mZZqwqT2SI-KGDKB34XO0aw_"
     "7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcn"
     "wNrmxYbSW9ERBXukOXolLzeO_Jn"},
    {ALG_EDDSA,
     "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_"
     "7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}",
     "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-"
     "09PGc"
     "vMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"},
};

static void key_of(const char *text, struct jwk *key)
{
    json_t *json = bounded_object(span_of(text));
    const char *wrong = jwk_from_jwk(json, key);
    if (wrong)
        fail_msg("%s: %s", wrong, text);
    json_decref(json);
}

static bool good(const struct jwk *key, enum alg alg, const char *text)
{
    struct token token;
    assert_true(token_split(span_of(text), &token));
    return signature_is_good(key, alg, token.input, token.signature);
}

static void verifies_the_examples_of_the_rfcs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        struct jwk key;
        key_of(examples[i].jwk, &key);
        if (!good(&key, examples[i].alg, examples[i].token))
            fail_msg("example %zu", i);
        jwk_done(&key);
    }
}

/* A bit anywhere: of what is signed, or of the signature. */
static void refuses_one_other_bit_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        char *text = strdup(examples[i].token);
        struct jwk key;
        key_of(examples[i].jwk, &key);
        for (size_t at = 0; text[at]; at++) {
            char was = text[at];
            if (was == '.')
                continue;
            text[at] = was == 'A' ? 'B' : 'A';
            if (good(&key, examples[i].alg, text))
                fail_msg("example %zu with another byte at %zu", i, at);
            text[at] = was;
        }
        assert_int_equal(ERR_peek_error(), 0);
        jwk_done(&key);
        free(text);
    }
}

static void refuses_signatures_cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        struct token token;
        struct jwk key;
        key_of(examples[i].jwk, &key);
        assert_true(token_split(span_of(examples[i].token), &token));
        for (size_t n = 0; n < token.signature.n; n++)
            assert_false(signature_is_good(&key, examples[i].alg, token.input,
                                           (struct postern_str){token.signature.p, n}));
        for (size_t n = 0; n < token.input.n; n++)
            assert_false(signature_is_good(&key, examples[i].alg,
                                           (struct postern_str){token.input.p, n},
                                           token.signature));
        jwk_done(&key);
    }
}

/* Every algorithm against what every other one signed. */
static void verifies_its_own_algorithm_only(void **state)
{
    (void)state;
    for (unsigned signer = 0; signer < ALG_COUNT; signer++) {
        char *text = make_token((enum alg)signer, "{}", "{\"sub\":\"ann\"}");
        for (unsigned alg = 0; alg < ALG_COUNT; alg++) {
            char *jwk = jwk_text(alg_info[alg].kind, "");
            struct jwk key;
            key_of(jwk, &key);
            if (good(&key, (enum alg)alg, text) != (alg == signer))
                fail_msg("%s signed, %s asked", alg_names[signer], alg_names[alg]);
            jwk_done(&key);
            free(jwk);
        }
        free(text);
    }
}

/* r or s of 0, of the group's order and beyond, and DER where r and s belong (RFC 7518 3.4). */
static void refuses_numbers_that_are_no_signature(void **state)
{
    uint8_t raw[64] = {0};
    char *text;
    struct jwk key;
    (void)state;
    key_of(examples[2].jwk, &key);
    for (int fill = 0; fill < 2; fill++) {
        memset(raw, fill ? 0xff : 0, sizeof(raw));
        text = encode(raw, sizeof(raw));
        assert_false(signature_is_good(&key, ALG_ES256, SPAN("input"), span_of(text)));
        free(text);
    }
    assert_false(signature_is_good(&key, ALG_ES256, SPAN("input"), SPAN("MAYCAQECAQE")));
    jwk_done(&key);
}

static void refuses_signatures_longer_than_any(void **state)
{
    char *text = malloc(65536);
    struct jwk key;
    (void)state;
    memset(text, 'A', 65536);
    key_of(examples[1].jwk, &key);
    assert_false(
        signature_is_good(&key, ALG_RS256, SPAN("input"), (struct postern_str){text, 65536}));
    jwk_done(&key);
    free(text);
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
        cmocka_unit_test(verifies_the_examples_of_the_rfcs),
        cmocka_unit_test(refuses_one_other_bit_anywhere),
        cmocka_unit_test(refuses_signatures_cut_at_every_byte),
        cmocka_unit_test(verifies_its_own_algorithm_only),
        cmocka_unit_test(refuses_numbers_that_are_no_signature),
        cmocka_unit_test(refuses_signatures_longer_than_any),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
