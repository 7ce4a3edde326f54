#include "signature.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include "base64url.h"

/* r and s of `bytes` each (RFC 7518 3.4) as OpenSSL wants them. Returns the length; 0: they are
 * no such numbers. */
static size_t to_der(const uint8_t *raw, size_t n, size_t bytes, uint8_t *out, size_t room)
{
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r, *s;
    int length = -1;

    if (n == 2 * bytes && pair) {
        r = BN_bin2bn(raw, (int)bytes, NULL);
        s = BN_bin2bn(raw + bytes, (int)bytes, NULL);
        if (r && s && ECDSA_SIG_set0(pair, r, s) == 1) {
            length = i2d_ECDSA_SIG(pair, NULL);
            if (length > 0 && (size_t)length <= room)
                length = i2d_ECDSA_SIG(pair, &out);
            else
                length = -1;
        } else {
            BN_free(r);
            BN_free(s);
        }
    }
    ECDSA_SIG_free(pair);
    return length > 0 ? (size_t)length : 0;
}

static bool verify(const struct jwk *key, enum alg alg, struct postern_str input,
                   const uint8_t *signature, size_t n)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *options;
    bool good = ctx && EVP_DigestVerifyInit_ex(ctx, &options, alg_info[alg].digest, NULL, NULL,
                                               key->pkey, NULL) == 1;

    /* RFC 7518 3.5: the salt is as long as the digest, and MGF1 uses the same one. */
    if (good && alg_is_pss(alg))
        good = EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) > 0 &&
               EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST) > 0;
    good = good &&
           EVP_DigestVerify(ctx, signature, n, (const unsigned char *)input.p, input.n) == 1;
    EVP_MD_CTX_free(ctx);
    return good;
}

static bool verify_hmac(const struct jwk *key, enum alg alg, struct postern_str input,
                        const uint8_t *signature, size_t n)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    uint8_t own[EVP_MAX_MD_SIZE];
    size_t size = sizeof(own);
    bool good = ctx &&
                EVP_DigestSignInit_ex(ctx, NULL, alg_info[alg].digest, NULL, NULL, key->pkey,
                                      NULL) == 1 &&
                EVP_DigestSign(ctx, own, &size, (const unsigned char *)input.p, input.n) == 1;

    EVP_MD_CTX_free(ctx);
    good = good && size == n && CRYPTO_memcmp(own, signature, n) == 0;
    OPENSSL_cleanse(own, sizeof(own));
    return good;
}

bool signature_is_good(const struct jwk *key, enum alg alg, struct postern_str input,
                       struct postern_str signature)
{
    uint8_t raw[SIGNATURE_MAX], der[160];
    size_t n = base64url_size(signature.n);
    bool good = false;

    assert(jwk_fits(key, alg));
    if (n == 0 || n > sizeof(raw) || !base64url_decode(signature, raw))
        return false;
    switch (key->kind) {
    case KEY_HMAC:
        good = verify_hmac(key, alg, input, raw, n);
        break;
    case KEY_P256:
    case KEY_P384:
    case KEY_P521:
        n = to_der(raw, n, alg_info[alg].bytes, der, sizeof(der));
        good = n > 0 && verify(key, alg, input, der, n);
        break;
    default:
        good = verify(key, alg, input, raw, n);
    }
    /* A failed check leaves its story in the thread's queue, where the next one to look, a TLS
     * session say, would take it for its own. */
    if (!good)
        ERR_clear_error();
    return good;
}
