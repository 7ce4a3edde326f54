#include "jwk.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include "base64url.h"

#define KEY_BYTES_MAX (KEY_RSA_BITS_MAX / 8)

static const char no_memory[] = "there is no memory for it";

static const char *sort_ec(const char *group, struct jwk *key)
{
    if (strcmp(group, "prime256v1") == 0 || strcmp(group, "P-256") == 0)
        key->kind = KEY_P256;
    else if (strcmp(group, "secp384r1") == 0 || strcmp(group, "P-384") == 0)
        key->kind = KEY_P384;
    else if (strcmp(group, "secp521r1") == 0 || strcmp(group, "P-521") == 0)
        key->kind = KEY_P521;
    else
        return "its curve is none of P-256, P-384 and P-521";
    return NULL;
}

/* What kind it is, and whether it can be trusted to be one. */
static const char *sort_key(struct jwk *key)
{
    char group[32];

    switch (EVP_PKEY_get_base_id(key->pkey)) {
    case EVP_PKEY_RSA:
    case EVP_PKEY_RSA_PSS:
        key->kind = KEY_RSA;
        if (EVP_PKEY_get_bits(key->pkey) < KEY_RSA_BITS_MIN)
            return "an RSA key needs 2048 bits or more";
        return EVP_PKEY_get_bits(key->pkey) > KEY_RSA_BITS_MAX
                   ? "an RSA key may have 8192 bits at most"
                   : NULL;
    case EVP_PKEY_EC:
        if (EVP_PKEY_get_group_name(key->pkey, group, sizeof(group), NULL) != 1)
            return "its curve has no name";
        return sort_ec(group, key);
    case EVP_PKEY_ED25519:
        key->kind = KEY_ED25519;
        return NULL;
    default:
        return "it is neither RSA nor EC nor Ed25519";
    }
}

static const char *take(EVP_PKEY *pkey, struct jwk *key)
{
    const char *wrong;

    *key = (struct jwk){.pkey = pkey, .only = ALG_COUNT};
    wrong = sort_key(key);
    if (wrong) {
        ERR_clear_error();
        jwk_done(key);
    }
    return wrong;
}

const char *jwk_from_pem(struct postern_str pem, struct jwk *key)
{
    BIO *bio;
    X509 *certificate = NULL;
    EVP_PKEY *pkey;

    *key = (struct jwk){.only = ALG_COUNT};
    if (pem.n > 1 << 20)
        return "it is larger than 1 MiB";
    bio = BIO_new_mem_buf(pem.p, (int)pem.n);
    if (!bio)
        return no_memory;
    pkey = PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL);
    if (!pkey && BIO_reset(bio) == 1)
        certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    if (certificate)
        pkey = X509_get_pubkey(certificate);
    X509_free(certificate);
    BIO_free(bio);
    ERR_clear_error(); /* of what it was not; the thread's next TLS session would look there */
    return pkey ? take(pkey, key) : "it holds no public key or certificate in PEM";
}

const char *jwk_from_secret(struct postern_str secret, struct jwk *key)
{
    *key = (struct jwk){.kind = KEY_HMAC, .only = ALG_COUNT, .bytes = secret.n};
    if (secret.n < 32)
        return "a secret needs 32 bytes or more";
    key->pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, NULL,
                                             (const unsigned char *)secret.p, secret.n);
    return key->pkey ? NULL : no_memory;
}

/* The bytes of a member in base64url; false: it has none, or too many. */
static bool jwk_bytes(const json_t *jwk, const char *name, uint8_t *out, size_t *ret_n)
{
    struct postern_str text = bounded_string(jwk, name);
    size_t n = base64url_size(text.n);

    if (n == 0 || n > KEY_BYTES_MAX || !base64url_decode(text, out))
        return false;
    *ret_n = n;
    return true;
}

/* A public key from what was collected. Takes the builder; NULL: it is none. */
static EVP_PKEY *build(const char *type, OSSL_PARAM_BLD *builder)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(builder);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *pkey = NULL;

    if (params && ctx && EVP_PKEY_fromdata_init(ctx) == 1 &&
        EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1)
        pkey = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(builder);
    return pkey;
}

static EVP_PKEY *build_rsa(const json_t *jwk)
{
    uint8_t n[KEY_BYTES_MAX], e[KEY_BYTES_MAX];
    size_t n_size, e_size;
    BIGNUM *modulus, *exponent;
    OSSL_PARAM_BLD *builder;
    EVP_PKEY *pkey = NULL;

    /* An exponent beyond 64 bits only makes each signature cost more. */
    if (!jwk_bytes(jwk, "n", n, &n_size) || !jwk_bytes(jwk, "e", e, &e_size) || e_size > 8)
        return NULL;
    modulus = BN_bin2bn(n, (int)n_size, NULL);
    exponent = BN_bin2bn(e, (int)e_size, NULL);
    builder = OSSL_PARAM_BLD_new();
    if (modulus && exponent && builder && BN_is_odd(modulus) && BN_is_odd(exponent) &&
        !BN_is_one(exponent) &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, modulus) == 1 &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, exponent) == 1)
        pkey = build("RSA", builder);
    else
        OSSL_PARAM_BLD_free(builder);
    BN_free(modulus);
    BN_free(exponent);
    return pkey;
}

static EVP_PKEY *build_ec(const json_t *jwk)
{
    static const struct {
        const char *name, *group;
        size_t bytes; /* of a coordinate, RFC 7518 6.2.1.2 */
    } curves[] = {
        {"P-256", "prime256v1", 32}, {"P-384", "secp384r1", 48}, {"P-521", "secp521r1", 66}};
    struct postern_str curve = bounded_string(jwk, "crv");
    uint8_t x[KEY_BYTES_MAX], y[KEY_BYTES_MAX], point[1 + 2 * 66];
    size_t x_size, y_size, i = 0;
    OSSL_PARAM_BLD *builder;

    while (i < 3 && !span_eq(curve, span_of(curves[i].name)))
        i++;
    if (i == 3 || !jwk_bytes(jwk, "x", x, &x_size) || !jwk_bytes(jwk, "y", y, &y_size) ||
        x_size != curves[i].bytes || y_size != x_size)
        return NULL;
    point[0] = 4; /* uncompressed; OpenSSL looks whether it is on the curve */
    memcpy(point + 1, x, x_size);
    memcpy(point + 1 + x_size, y, y_size);
    builder = OSSL_PARAM_BLD_new();
    if (builder &&
        OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, curves[i].group,
                                        0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point,
                                         1 + 2 * x_size) == 1)
        return build("EC", builder);
    OSSL_PARAM_BLD_free(builder);
    return NULL;
}

static EVP_PKEY *build_okp(const json_t *jwk)
{
    uint8_t x[KEY_BYTES_MAX];
    size_t n;

    if (!span_eq(bounded_string(jwk, "crv"), SPAN("Ed25519")) || !jwk_bytes(jwk, "x", x, &n) ||
        n != 32)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x, n);
}

/* use, key_ops and alg, when they are there, must allow signatures (RFC 7517 4.2 to 4.4). */
static const char *jwk_purpose(const json_t *jwk, enum alg *ret_only)
{
    const json_t *use = json_object_get(jwk, "use"), *ops = json_object_get(jwk, "key_ops");
    const json_t *alg = json_object_get(jwk, "alg");
    const json_t *op;
    size_t i;
    bool verifies = !ops;

    if (use && !span_eq(bounded_string(jwk, "use"), SPAN("sig")))
        return "its use is not \"sig\"";
    json_array_foreach(ops, i, op) verifies |=
        json_is_string(op) && strcmp(json_string_value(op), "verify") == 0;
    if (!verifies)
        return "its key_ops are without \"verify\"";
    *ret_only = ALG_COUNT;
    if (alg && (*ret_only = alg_find(bounded_string(jwk, "alg"))) == ALG_COUNT)
        return "its alg is no signature algorithm of RFC 7518 or RFC 8037";
    return NULL;
}

static const char *jwk_material(const json_t *jwk, struct jwk *key)
{
    struct postern_str type = bounded_string(jwk, "kty");
    EVP_PKEY *pkey = NULL;
    uint8_t secret[KEY_BYTES_MAX];
    const char *wrong;
    size_t n;

    if (span_eq(type, SPAN("oct"))) {
        if (!jwk_bytes(jwk, "k", secret, &n))
            return "its \"k\" is no base64url of 1 to 1024 bytes";
        wrong = jwk_from_secret((struct postern_str){(const char *)secret, n}, key);
        OPENSSL_cleanse(secret, sizeof(secret));
        return wrong;
    }
    if (span_eq(type, SPAN("RSA")))
        pkey = build_rsa(jwk);
    else if (span_eq(type, SPAN("EC")))
        pkey = build_ec(jwk);
    else if (span_eq(type, SPAN("OKP")))
        pkey = build_okp(jwk);
    else
        return "its kty is none of RSA, EC, OKP and oct";
    ERR_clear_error();
    return pkey ? take(pkey, key) : "its members make no public key";
}

static bool copy_kid(struct postern_str kid, struct jwk *key)
{
    char *copy;

    key->kid = (struct postern_str){NULL, 0};
    if (!kid.p)
        return true;
    copy = malloc(kid.n + 1);
    if (!copy)
        return false;
    memcpy(copy, kid.p, kid.n);
    key->kid = (struct postern_str){copy, kid.n};
    return true;
}

const char *jwk_from_jwk(const json_t *jwk, struct jwk *key)
{
    enum alg only;
    const char *wrong;

    *key = (struct jwk){.only = ALG_COUNT};
    if (!json_is_object(jwk))
        return "it is no JSON object";
    wrong = jwk_purpose(jwk, &only);
    if (!wrong)
        wrong = jwk_material(jwk, key);
    if (wrong)
        return wrong;
    key->only = only;
    if (only != ALG_COUNT && !jwk_fits(key, only))
        wrong = "its alg is not for a key like this";
    else if (!copy_kid(bounded_string(jwk, "kid"), key))
        wrong = no_memory;
    if (wrong)
        jwk_done(key);
    return wrong;
}

bool jwk_copy(const struct jwk *from, struct jwk *to)
{
    *to = *from;
    if (EVP_PKEY_up_ref(from->pkey) != 1 || !copy_kid(from->kid, to)) {
        *to = (struct jwk){.only = ALG_COUNT};
        return false;
    }
    return true;
}

void jwk_done(struct jwk *key)
{
    EVP_PKEY_free(key->pkey);
    free((char *)key->kid.p);
    *key = (struct jwk){.only = ALG_COUNT};
}

bool jwk_fits(const struct jwk *key, enum alg alg)
{
    return alg_info[alg].kind == key->kind && (key->only == ALG_COUNT || key->only == alg) &&
           (key->kind != KEY_HMAC || key->bytes >= alg_info[alg].bytes);
}

bool jwk_is_same(const struct jwk *a, const struct jwk *b)
{
    return a->kind == b->kind && a->only == b->only && span_eq(a->kid, b->kid) &&
           EVP_PKEY_eq(a->pkey, b->pkey) == 1;
}
