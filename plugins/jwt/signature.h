/* Checking a signature with OpenSSL: all of the cryptography of tokens. Any thread. */
#ifndef JWT_SIGNATURE_H
#define JWT_SIGNATURE_H

#include "jwk.h"

#define SIGNATURE_MAX (KEY_RSA_BITS_MAX / 8) /* bytes */

/* Whether `signature` (in base64url) is that key's, by that algorithm, of `input`. The key must
 * fit the algorithm. False as well when there is no memory. */
bool signature_is_good(const struct jwk *key, enum alg alg, struct postern_str input,
                       struct postern_str signature);

#endif
