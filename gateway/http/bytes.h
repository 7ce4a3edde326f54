/* What each byte may be part of, and the scan for the end of a line's text. The table is in
 * head.c. Pure; any thread. */
#ifndef POSTERN_HTTP_BYTES_H
#define POSTERN_HTTP_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    BYTE_TOKEN = 1,      /* RFC 9110 5.6.2 tchar */
    BYTE_TARGET = 2,     /* VCHAR but "#": a fragment never travels */
    BYTE_UNRESERVED = 4, /* RFC 3986 2.3 */
    BYTE_HEX = 8,
    BYTE_PATH = 16, /* of a path and always itself: no escape, parameter or backslash */
};
extern const uint8_t byte_classes[256];

static inline bool byte_is(char c, unsigned classes)
{
    return byte_classes[(unsigned char)c] & classes;
}

/* RFC 9110 5.5: HTAB, SP, VCHAR and obs-text are text; other control bytes are not. */
static inline bool byte_is_text(char c)
{
    return ((unsigned char)c >= 0x20 && c != 0x7f) || c == '\t';
}

/* The first byte from `p` that is not text, or `end`. */
static inline const char *bytes_text_end_scalar(const char *p, const char *end)
{
    while (p < end && byte_is_text(*p))
        p++;
    return p;
}

#ifdef __SSE2__
/* One bit for each of 16 bytes, set where it is not text. */
static inline unsigned bytes_not_text(const char *p)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v);
    __m128i tab = _mm_cmpeq_epi8(v, _mm_set1_epi8('\t'));
    __m128i del = _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f));

    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, control), del));
}

/* Reads within [start, end) only, whose bytes before `p` are of no other interest: the last 16
 * are looked at once more. */
static inline const char *bytes_text_end_sse2(const char *start, const char *p, const char *end)
{
    unsigned mask;

    for (; end - p >= 16; p += 16) {
        mask = bytes_not_text(p);
        if (mask)
            return p + __builtin_ctz(mask);
    }
    if (end - start < 16)
        return bytes_text_end_scalar(p, end);
    mask = bytes_not_text(end - 16) & (unsigned)(0xffff0000u >> (end - p));
    return mask ? end - 16 + __builtin_ctz(mask) : end;
}
#define bytes_text_end_in bytes_text_end_sse2
#else
#define bytes_text_end_in(start, p, end) bytes_text_end_scalar(p, end)
#endif

static inline const char *bytes_text_end(const char *p, const char *end)
{
    return bytes_text_end_in(p, p, end);
}

/* How many bytes from `p` on come before the first ':', as far as 16 or 32 bytes tell at once;
 * else anything up to 32. A hint only. */
static inline unsigned bytes_to_colon(const char *p, const char *end)
{
#ifdef __SSE2__
    if (end - p >= 16) {
        const __m128i colon = _mm_set1_epi8(':');
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned mask = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, colon));
        if (mask || end - p < 32)
            return mask ? (unsigned)__builtin_ctz(mask) : 0;
        v = _mm_loadu_si128((const __m128i *)(const void *)(p + 16));
        mask = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, colon));
        return mask ? 16 + (unsigned)__builtin_ctz(mask) : 32;
    }
#else
    (void)p, (void)end;
#endif
    return 0;
}

#endif
