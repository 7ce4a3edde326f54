#include "base/str.h"

#include <errno.h>

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    if (a.n == 0 || memcmp(a.p, b.p, a.n) == 0) /* mostly it is spelt as expected */
        return true;
    for (size_t i = 0; i < a.n; i++)
        if (a.p[i] != b.p[i] && ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
}

int str_to_u64(struct str s, uint64_t max, uint64_t *ret)
{
    uint64_t value = 0;

    if (s.n < 1 || s.n > 19) /* 19 nines are below 2^64: no step can wrap */
        return -EINVAL;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned)(unsigned char)s.p[i] - '0';
        if (digit > 9)
            return -EINVAL;
        value = value * 10 + digit;
    }
    if (value > max)
        return -ERANGE;
    *ret = value;
    return 0;
}

static unsigned hex_digit(unsigned char c) /* 16: not one */
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10u : 16;
}

int str_hex_to_u64(struct str s, uint64_t max, uint64_t *ret)
{
    uint64_t value = 0;

    if (s.n < 1 || s.n > 16) /* 16 digits are 64 bits */
        return -EINVAL;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = hex_digit((unsigned char)s.p[i]);
        if (digit > 15)
            return -EINVAL;
        value = value << 4 | digit;
    }
    if (value > max)
        return -ERANGE;
    *ret = value;
    return 0;
}

size_t str_put_u64(char *out, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    memcpy(out, digits + at, sizeof(digits) - at);
    return sizeof(digits) - at;
}

size_t str_put_hex(char *out, uint64_t value)
{
    char digits[16];
    size_t at = sizeof(digits);

    do {
        digits[--at] = "0123456789abcdef"[value & 15];
        value >>= 4;
    } while (value);
    memcpy(out, digits + at, sizeof(digits) - at);
    return sizeof(digits) - at;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

struct str str_trim(struct str s)
{
    while (s.n && is_blank(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n && is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

bool str_next_token(struct str *rest, struct str *ret_token)
{
    while (rest->n) {
        const char *comma = memchr(rest->p, ',', rest->n);
        size_t n = comma ? (size_t)(comma - rest->p) : rest->n;
        struct str token = str_trim((struct str){rest->p, n});
        size_t step = comma ? n + 1 : n;

        rest->p += step;
        rest->n -= step;
        if (token.n) {
            *ret_token = token;
            return true;
        }
    }
    return false;
}
