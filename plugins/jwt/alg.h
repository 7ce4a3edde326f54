/* The signature algorithms of RFC 7518 3.1 and RFC 8037, and the kind of key each one needs.
 * "none" is not among them, so no configuration can allow it. Pure. */
#ifndef JWT_ALG_H
#define JWT_ALG_H

#include "span.h"

enum key_kind { KEY_HMAC, KEY_RSA, KEY_P256, KEY_P384, KEY_P521, KEY_ED25519, KEY_KINDS };

/* ALGS(X): X(symbol, name, kind of key, digest or NULL, bytes of the digest or of r and s) */
#define ALGS(X)                                                                                \
    X(HS256, "HS256", KEY_HMAC, "SHA256", 32)                                                  \
    X(HS384, "HS384", KEY_HMAC, "SHA384", 48)                                                  \
    X(HS512, "HS512", KEY_HMAC, "SHA512", 64)                                                  \
    X(RS256, "RS256", KEY_RSA, "SHA256", 0)                                                    \
    X(RS384, "RS384", KEY_RSA, "SHA384", 0)                                                    \
    X(RS512, "RS512", KEY_RSA, "SHA512", 0)                                                    \
    X(PS256, "PS256", KEY_RSA, "SHA256", 32)                                                   \
    X(PS384, "PS384", KEY_RSA, "SHA384", 48)                                                   \
    X(PS512, "PS512", KEY_RSA, "SHA512", 64)                                                   \
    X(ES256, "ES256", KEY_P256, "SHA256", 32)                                                  \
    X(ES384, "ES384", KEY_P384, "SHA384", 48)                                                  \
    X(ES512, "ES512", KEY_P521, "SHA512", 66)                                                  \
    X(EDDSA, "EdDSA", KEY_ED25519, NULL, 0)

enum alg {
#define X(symbol, name, kind, digest, bytes) ALG_##symbol,
    ALGS(X)
#undef X
        ALG_COUNT
};

struct alg_info {
    const char *name;
    enum key_kind kind;
    const char *digest;
    size_t bytes;
};

extern const struct alg_info alg_info[ALG_COUNT];
extern const char *const alg_names[ALG_COUNT + 1]; /* ended by NULL, in the order of the enum */
extern const char *const key_kind_names[KEY_KINDS];

static inline bool alg_is_pss(enum alg alg)
{
    return alg >= ALG_PS256 && alg <= ALG_PS512;
}

/* ALG_COUNT: there is no such algorithm. Names are case-sensitive. */
enum alg alg_find(struct postern_str name);

#endif
