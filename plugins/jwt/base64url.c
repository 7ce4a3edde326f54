#include "base64url.h"

/* The value of a character, or 64. */
static unsigned value_of(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26u;
    if (c >= '0' && c <= '9')
        return c - '0' + 52u;
    if (c == '-')
        return 62;
    return c == '_' ? 63 : 64;
}

bool base64url_decode(struct postern_str text, uint8_t *out)
{
    unsigned bits = 0, have = 0;

    if (text.n % 4 == 1)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        unsigned value = value_of((unsigned char)text.p[i]);

        if (value == 64)
            return false;
        bits = (bits << 6 | value) & 0xfff;
        have += 6;
        if (have >= 8) {
            have -= 8;
            *out++ = (uint8_t)(bits >> have);
        }
    }
    return (bits & ((1u << have) - 1)) == 0;
}
