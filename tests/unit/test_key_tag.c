#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/params.h>

#include "key_tag.h"

/* What OpenSSL makes of the same: 16 bytes, the two words in little-endian order. */
static void reference(EVP_MAC *mac, const uint8_t secret[16], const char *p, size_t n,
                      uint8_t out[16])
{
    size_t size = 16;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t("size", &size),
                           OSSL_PARAM_construct_end()};
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    assert_non_null(ctx);
    assert_int_equal(EVP_MAC_CTX_set_params(ctx, params), 1);
    assert_int_equal(EVP_MAC_init(ctx, secret, 16, NULL), 1);
    assert_int_equal(EVP_MAC_update(ctx, (const unsigned char *)p, n), 1);
    assert_int_equal(EVP_MAC_final(ctx, out, &size, 16), 1);
    EVP_MAC_CTX_free(ctx);
}

static void is_siphash_as_others_have_it(void **state)
{
    uint8_t secret[16], expected[16];
    uint64_t words[2];
    char text[80];
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    (void)state;
    assert_non_null(mac);
    for (size_t i = 0; i < sizeof(secret); i++)
        secret[i] = (uint8_t)(i * 37 + 200);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i * 11 + 130);
    memcpy(words, secret, sizeof(words)); /* on a little-endian machine */
    for (size_t n = 0; n <= sizeof(text); n++) {
        reference(mac, secret, text, n, expected);
        struct key_tag tag = key_tag_of(words, text, n);
        assert_memory_equal(&tag.a, expected, 8);
        assert_memory_equal(&tag.b, expected + 8, 8);
    }
    EVP_MAC_free(mac);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_siphash_as_others_have_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
