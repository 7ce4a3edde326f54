/* Which bytes are well-formed UTF-8 (RFC 3629 4): what both logs may pass on as it is. Pure. */
#ifndef POSTERN_BASE_UTF8_H
#define POSTERN_BASE_UTF8_H

#include <stddef.h>

static inline int utf8_is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* Length of the well-formed sequence at the front of `p`: 1 to 4, or 0 when the first byte
 * does not begin one within `n`. No overlong forms, no surrogates, nothing past U+10FFFF. */
static inline size_t utf8_len(const char *p, size_t n)
{
    const unsigned char *s = (const unsigned char *)p;

    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2)
        return 0;
    if (s[0] < 0xe0)
        return n >= 2 && utf8_is_tail(s[1]) ? 2 : 0;
    if (s[0] < 0xf0) {
        if (n < 3 || !utf8_is_tail(s[1]) || !utf8_is_tail(s[2]))
            return 0;
        return (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ? 0 : 3;
    }
    if (s[0] > 0xf4 || n < 4 || !utf8_is_tail(s[1]) || !utf8_is_tail(s[2]) ||
        !utf8_is_tail(s[3]))
        return 0;
    return (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f) ? 0 : 4;
}

#endif
