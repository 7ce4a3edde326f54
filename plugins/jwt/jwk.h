/* One key that signatures are checked with, from PEM, a JWK (RFC 7517) or a secret. A key is
 * made, belongs to a keyset, and does not change; any number of threads verify with it. */
#ifndef JWT_JWK_H
#define JWT_JWK_H

#include <openssl/types.h>

#include "alg.h"
#include "bounded.h"

#define KEY_RSA_BITS_MIN 2048 /* RFC 7518 3.3 */
#define KEY_RSA_BITS_MAX 8192 /* what a signature costs grows with it */

struct jwk {
    EVP_PKEY *pkey;
    enum key_kind kind;
    enum alg only; /* the one algorithm that its JWK allows; ALG_COUNT: any that fits */
    size_t bytes;  /* of a secret */
    struct postern_str kid; /* .p NULL: none. Owned */
    uint64_t until_ms;      /* wall clock; 0: for ever. After that it is as if not there */
};

/* Each returns NULL, or what is wrong, as the end of a sentence; then *key is empty. */
const char *jwk_from_pem(struct postern_str pem, struct jwk *key); /* or a certificate */
const char *jwk_from_secret(struct postern_str secret, struct jwk *key);
const char *jwk_from_jwk(const json_t *jwk, struct jwk *key);

bool jwk_copy(const struct jwk *from, struct jwk *to); /* false: no memory */
void jwk_done(struct jwk *key);                        /* an empty one is fine */

/* Whether that algorithm may be used with this key: RFC 7518 3.2 wants secrets as long as the
 * digest. */
bool jwk_fits(const struct jwk *key, enum alg alg);
bool jwk_is_same(const struct jwk *a, const struct jwk *b); /* material and kid */

#endif
