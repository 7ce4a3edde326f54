/* base64url without padding (RFC 7515 appendix C). Pure. */
#ifndef JWT_BASE64URL_H
#define JWT_BASE64URL_H

#include "span.h"

/* How many bytes `n` characters hold. */
static inline size_t base64url_size(size_t n)
{
    return n / 4 * 3 + (n % 4 * 3) / 4;
}

/* `out` has room for base64url_size(text.n). False: a character that is none, padding, a
 * length that no bytes have, or bits behind the last byte that are not 0, so that each value
 * has one spelling only. */
bool base64url_decode(struct postern_str text, uint8_t *out);

#endif
