/* Spans of bytes: a pointer and a length, never NUL-terminated, never owning.
 *
 * A span is valid as long as the memory it points into: a block, an arena, a literal.
 * Everything here is pure: no allocation, no locale, any thread. */
#ifndef POSTERN_BASE_STR_H
#define POSTERN_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})

static inline struct str str_of(const char *z)
{
    return (struct str){z, z ? strlen(z) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* ASCII case is folded; other bytes must be equal. */
bool str_eq_nocase(struct str a, struct str b);

/* Whole span must be plain decimal digits, 1 to 19 of them, value at most `max`.
 * Returns 0, -EINVAL (not such a number) or -ERANGE. The only way an integer from the
 * wire becomes a number. */
int str_to_u64(struct str s, uint64_t max, uint64_t *ret);

/* As str_to_u64, for 1 to 16 hexadecimal digits (RFC 9112 7.1 chunk-size). */
int str_hex_to_u64(struct str s, uint64_t max, uint64_t *ret);

/* Writes `value` in decimal (at most 20 bytes, no NUL) and returns the length. */
size_t str_put_u64(char *out, uint64_t value);
/* Writes `value` in lower-case hexadecimal without leading zeros (at most 16 bytes). */
size_t str_put_hex(char *out, uint64_t value);

/* Without the leading and trailing SP and HTAB (RFC 9110 5.6.3 OWS). */
struct str str_trim(struct str s);

/* Next element of a comma-separated list (RFC 9110 5.6.1), trimmed; empty elements are
 * stepped over. Returns false at the end. `rest` moves along. Quoted strings are not looked
 * into: use it for lists of tokens only. */
bool str_next_token(struct str *rest, struct str *ret_token);

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

#endif
