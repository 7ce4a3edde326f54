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
static inline const char *bytes_text_end_sse2(const char *p, const char *end)
{
    const __m128i last_control = _mm_set1_epi8(0x1f);
    const __m128i tab = _mm_set1_epi8('\t'), del = _mm_set1_epi8(0x7f);

    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, last_control), v);
        __m128i bad = _mm_or_si128(_mm_andnot_si128(_mm_cmpeq_epi8(v, tab), control),
                                   _mm_cmpeq_epi8(v, del));
        int mask = _mm_movemask_epi8(bad);
        if (mask)
            return p + __builtin_ctz((unsigned)mask);
    }
    return bytes_text_end_scalar(p, end);
}
#define bytes_text_end bytes_text_end_sse2
#else
#define bytes_text_end bytes_text_end_scalar
#endif

#endif
