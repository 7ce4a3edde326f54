#include "alg.h"

const struct alg_info alg_info[ALG_COUNT] = {
#define X(symbol, name, kind, digest, bytes) {name, kind, digest, bytes},
    ALGS(X)
#undef X
};

const char *const alg_names[ALG_COUNT + 1] = {
#define X(symbol, name, kind, digest, bytes) name,
    ALGS(X)
#undef X
        NULL};

const char *const key_kind_names[KEY_KINDS] = {
    [KEY_HMAC] = "a secret",          [KEY_RSA] = "an RSA key",
    [KEY_P256] = "an EC key (P-256)", [KEY_P384] = "an EC key (P-384)",
    [KEY_P521] = "an EC key (P-521)", [KEY_ED25519] = "an Ed25519 key",
};

enum alg alg_find(struct postern_str name)
{
    for (unsigned i = 0; i < ALG_COUNT; i++)
        if (span_eq(name, span_of(alg_info[i].name)))
            return (enum alg)i;
    return ALG_COUNT;
}
