/* Signers of tokens for the tests of the plugin jwt. Include behind cmocka.h. */
#ifndef POSTERN_TESTS_JWT_TEST_H
#define POSTERN_TESTS_JWT_TEST_H

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>

#include "jwk.h"

#define SECRET_64                                                                              \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" /* enough for HS512 */

/* malloc'd, NUL-terminated. */
static inline char *encode(const void *bytes, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *p = bytes;
    char *out = malloc(n * 4 / 3 + 5), *at = out;
    for (size_t i = 0; i < n; i += 3) {
        unsigned word =
            p[i] << 16 | (i + 1 < n ? p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        size_t count = n - i >= 3 ? 4 : n - i + 1;
        for (size_t k = 0; k < count; k++)
            *at++ = digits[word >> (18 - 6 * k) & 63];
    }
    *at = '\0';
    return out;
}

/* One key for each kind, made once: RSA keys take their time. */
static inline EVP_PKEY *private_key(enum key_kind kind)
{
    static EVP_PKEY *keys[KEY_KINDS];
    static const char *const groups[] = {
        [KEY_P256] = "P-256", [KEY_P384] = "P-384", [KEY_P521] = "P-521"};
    if (keys[kind])
        return keys[kind];
    if (kind == KEY_HMAC)
        keys[kind] = EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, NULL,
                                                  (const unsigned char *)SECRET_64, 64);
    else if (kind == KEY_RSA)
        keys[kind] = EVP_RSA_gen(2048);
    else if (kind == KEY_ED25519)
        keys[kind] = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    else
        keys[kind] = EVP_EC_gen(groups[kind]);
    assert_non_null(keys[kind]);
    return keys[kind];
}

/* A JWK of that kind's public key (of the secret, for HMAC); `more` are further members with a
 * comma before each, or "". malloc'd. */
static inline char *jwk_text(enum key_kind kind, const char *more)
{
    EVP_PKEY *key = private_key(kind);
    static const char *const curves[] = {
        [KEY_P256] = "P-256", [KEY_P384] = "P-384", [KEY_P521] = "P-521"};
    uint8_t bytes[1024];
    size_t n = sizeof(bytes);
    char *text = NULL, *a = NULL, *b = NULL;
    if (kind == KEY_HMAC) {
        a = encode(SECRET_64, 64);
        assert_true(asprintf(&text, "{\"kty\":\"oct\",\"k\":\"%s\"%s}", a, more) > 0);
    } else if (kind == KEY_ED25519) {
        assert_int_equal(EVP_PKEY_get_raw_public_key(key, bytes, &n), 1);
        a = encode(bytes, n);
        assert_true(asprintf(&text, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%s\"%s}", a,
                             more) > 0);
    } else if (kind == KEY_RSA) {
        BIGNUM *modulus = NULL;
        assert_int_equal(EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &modulus), 1);
        a = encode(bytes, (size_t)BN_bn2bin(modulus, bytes));
        BN_free(modulus);
        assert_true(
            asprintf(&text, "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"%s\"%s}", a, more) > 0);
    } else {
        assert_int_equal(EVP_PKEY_get_octet_string_param(
                             key, OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY, bytes, sizeof(bytes), &n),
                         1);
        a = encode(bytes + 1, n / 2);
        b = encode(bytes + 1 + n / 2, n / 2);
        assert_true(asprintf(&text,
                             "{\"kty\":\"EC\",\"crv\":\"%s\",\"x\":\"%s\",\"y\":\"%s\"%s}",
                             curves[kind], a, b, more) > 0);
    }
    free(a);
    free(b);
    return text;
}

/* ECDSA's DER as r and s. */
static inline size_t to_raw(const uint8_t *der, size_t n, size_t bytes, uint8_t *out)
{
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &der, (long)n);
    assert_non_null(pair);
    BN_bn2binpad(ECDSA_SIG_get0_r(pair), out, (int)bytes);
    BN_bn2binpad(ECDSA_SIG_get0_s(pair), out + bytes, (int)bytes);
    ECDSA_SIG_free(pair);
    return 2 * bytes;
}

static inline size_t sign_input(enum alg alg, const char *input, uint8_t out[1024])
{
    const struct alg_info *info = &alg_info[alg];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *options;
    uint8_t signature[1024];
    size_t n = sizeof(signature);
    assert_int_equal(EVP_DigestSignInit_ex(ctx, &options, info->digest, NULL, NULL,
                                           private_key(info->kind), NULL),
                     1);
    if (alg_is_pss(alg)) {
        EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING);
        EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST);
    }
    assert_int_equal(
        EVP_DigestSign(ctx, signature, &n, (const unsigned char *)input, strlen(input)), 1);
    EVP_MD_CTX_free(ctx);
    if (info->kind >= KEY_P256 && info->kind <= KEY_P521)
        return to_raw(signature, n, info->bytes, out);
    memcpy(out, signature, n);
    return n;
}

/* A token that says so, signed as `alg` has it whatever its header says. malloc'd. */
static inline char *make_token(enum alg alg, const char *header, const char *payload)
{
    char *a = encode(header, strlen(header)), *b = encode(payload, strlen(payload)), *c;
    char *input, *text;
    uint8_t signature[1024];
    assert_true(asprintf(&input, "%s.%s", a, b) > 0);
    c = encode(signature, sign_input(alg, input, signature));
    assert_true(asprintf(&text, "%s.%s", input, c) > 0);
    free(a);
    free(b);
    free(c);
    free(input);
    return text;
}

static inline void free_private_keys(void)
{
    for (unsigned kind = 0; kind < KEY_KINDS; kind++)
        EVP_PKEY_free(private_key((enum key_kind)kind));
}

#endif
