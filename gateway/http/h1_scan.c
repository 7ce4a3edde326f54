#include "http/h1_parse_parts.h"

/* What a request line has besides its target: METHOD SP ... SP HTTP/1.1 */
#define REQUEST_LINE_EXTRA (H1_METHOD_MAX + 1 + 1 + 8)

/* The name at the start of a field line, if it has come whole. */
static struct str name_of_line(const char *line, const char *end)
{
    const char *p = line;

    while (p < end && byte_is(*p, BYTE_TOKEN))
        p++;
    return p < end && *p == ':' && p > line ? (struct str){line, (size_t)(p - line)}
                                            : h1_no_field;
}

/* A byte that is neither text nor a line's CR LF. */
static int fail_byte(struct h1_fault *fault, bool request, const struct h1_scan *scan,
                     const char *p, size_t at)
{
    struct str field = scan->lines ? name_of_line(p + scan->line, p + at) : h1_no_field;
    enum reason reason = R_BAD_FIELD_VALUE;

    if (p[at] == '\n' || p[at] == '\r')
        reason = R_BAD_LINE_ENDING;
    else if (scan->lines == 0)
        reason = at == 0 && p[0] == 0x16 ? R_BAD_TLS : R_BAD_REQUEST_LINE;
    else if (!memchr(p + scan->line, ':', at - scan->line))
        reason = R_BAD_FIELD_NAME;
    return h1_fail(fault, request, reason, at, field);
}

/* A request line that goes on behind the last byte it may have. */
static int fail_request_line(struct h1_fault *fault, const char *p, size_t n,
                             const struct h1_limits *limits)
{
    const char *space = memchr(p, ' ', H1_METHOD_MAX + 1);
    const char *end = p + n, *q;

    if (!space)
        return h1_fail(fault, true, R_BAD_METHOD, H1_METHOD_MAX, h1_no_field);
    for (q = space + 1; q < end && byte_is(*q, BYTE_TARGET); q++)
        ;
    if ((size_t)(q - space - 1) <= limits->target_bytes)
        return h1_fail(fault, true, R_BAD_REQUEST_LINE, (size_t)(q - p), h1_no_field);
    return h1_fail_limit(fault, true, R_CLIENT_TARGET_TOO_LONG, (size_t)(space + 1 - p),
                         h1_no_field, limits->target_bytes, (size_t)(q - space - 1));
}

/* The value of the first line that looks like an Accept field. */
static void glance_accept(const char *p, const char *end, struct str *ret_accept)
{
    static const struct str name = STR("accept:");
    const char *lf;

    while ((lf = memchr(p, '\n', (size_t)(end - p)))) {
        const char *line = lf + 1;
        const char *cr = memchr(line, '\r', (size_t)(end - line));
        if (!cr || cr == line) /* nothing, or what is behind the head */
            return;
        if ((size_t)(cr - line) > name.n && str_eq_nocase((struct str){line, name.n}, name)) {
            *ret_accept = (struct str){line + name.n, (size_t)(cr - line) - name.n};
            return;
        }
        p = line;
    }
}

void h1_glance(const char *p, size_t n, struct str *ret_method, struct str *ret_target,
               struct str *ret_accept)
{
    const char *space = memchr(p, ' ', n < H1_METHOD_MAX + 1 ? n : H1_METHOD_MAX + 1);
    const char *end = p + n, *q;

    glance_accept(p, end, ret_accept);
    if (!space || !head_is_token((struct str){p, (size_t)(space - p)}))
        return;
    *ret_method = (struct str){p, (size_t)(space - p)};
    for (q = space + 1; q < end && byte_is(*q, BYTE_TARGET); q++)
        ;
    /* Not an authority's: a password may stand in it. */
    if (q > space + 1 && space[1] == '/')
        *ret_target = (struct str){space + 1, (size_t)(q - space - 1)};
}

/* A line is complete, its CR at `at`. Returns 1 for the head's last, 0 to go on, or -1. */
static int scan_line(struct h1_scan *scan, bool request, const char *p, size_t at,
                     const struct h1_limits *limits, struct h1_fault *fault)
{
    size_t len = at - scan->line;

    if (scan->lines == 0) {
        static const char preface[] = "PRI * HTTP/2.0"; /* RFC 9113 3.4 */
        if (len == 0)
            return h1_fail(fault, request, R_BAD_REQUEST_LINE, at, h1_no_field);
        if (request && len == sizeof(preface) - 1 && memcmp(p, preface, len) == 0)
            return h1_fail(fault, request, R_BAD_HTTP2, 0, h1_no_field);
    } else if (len == 0) {
        return 1;
    } else if (scan->lines > limits->headers) {
        return h1_fail_limit(fault, request, R_CLIENT_HEADERS_TOO_LARGE, scan->line,
                             name_of_line(p + scan->line, p + at), limits->headers,
                             scan->lines);
    }
    scan->lines++;
    return 0;
}

/* The bytes of the line under way that may be looked at: behind them a fault is certain. */
static size_t scan_window(const struct h1_scan *scan, bool request, size_t n,
                          const struct h1_limits *limits)
{
    uint64_t line_max = (uint64_t)limits->target_bytes + REQUEST_LINE_EXTRA + 2;
    size_t max = limits->header_bytes;

    if (request && scan->lines == 0 && line_max < max)
        max = line_max;
    return n < max ? n : max;
}

/* No end within the window, and more bytes came than may be in it. */
static int fail_window(struct h1_fault *fault, bool request, const struct h1_scan *scan,
                       const char *p, size_t n, size_t window, const struct h1_limits *limits)
{
    if (window < limits->header_bytes)
        return fail_request_line(fault, p, n, limits);
    return h1_fail_limit(fault, request, R_CLIENT_HEADERS_TOO_LARGE, scan->line,
                         scan->lines ? name_of_line(p + scan->line, p + n) : h1_no_field,
                         limits->header_bytes, n);
}

#ifdef __SSE2__
static inline uint64_t feeds_of_16(const char *p)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')));
}

/* One bit for each of the first 64 of `n` bytes, set where it is a line feed. Reads bytes
 * before `p` where there are less than 16. */
static inline uint64_t feeds_of(const char *p, size_t n)
{
    uint64_t feeds = 0, rest;
    size_t at = 0;

    if (n >= 64)
        return feeds_of_16(p) | feeds_of_16(p + 16) << 16 | feeds_of_16(p + 32) << 32 |
               feeds_of_16(p + 48) << 48;
    for (; at + 16 <= n; at += 16)
        feeds |= feeds_of_16(p + at) << at;
    if (at == n)
        return feeds;
    rest = feeds_of_16(p + n - 16);
    return feeds | (n >= 16 ? rest << (n - 16) : rest >> (16 - n));
}

/* Few: a line has more than sixteen bytes on average, and not every processor that this is
 * built for counts bits by itself. */
static inline uint32_t count_bits(uint64_t bits)
{
    uint32_t n = 0;

    for (; bits; bits &= bits - 1)
        n++;
    return n;
}

/* The first CR LF CR LF, where a head ends if all of it is well-formed; nothing is judged,
 * which makes it three times as fast. Returns the length up to there and how many lines it is,
 * or 0 for "look closer". */
static long find_end(const char *p, size_t n, uint32_t *ret_lines)
{
    uint64_t last = 0; /* the line feeds among the two bytes before */

    *ret_lines = 0;
    for (size_t at = 0; n >= 16 && at < n; at += 64) {
        uint64_t feeds = feeds_of(p + at, n - at), ends = feeds & (feeds << 2 | last);
        if (ends) {
            const char *end = p + at + __builtin_ctzll(ends);
            *ret_lines += count_bits(feeds & ((ends & -ends) - 1));
            return end - p >= 3 && end[-1] == '\r' && end[-3] == '\r' ? end + 1 - p : 0;
        }
        *ret_lines += count_bits(feeds);
        last = feeds >> 62;
    }
    return 0;
}
#else
static long find_end(const char *p, size_t n, uint32_t *ret_lines)
{
    (void)p, (void)n, (void)ret_lines;
    return 0;
}
#endif

/* Looks at each byte once, and at no more of a line than it may have. */
static long search(struct h1_scan *scan, bool request, const char *p, size_t n,
                   const struct h1_limits *limits, struct h1_fault *ret_fault)
{
    size_t window = scan_window(scan, request, n, limits);
    uint32_t at = scan->pos;

    while (at < window) {
        at = (uint32_t)(bytes_text_end_in(p, p + at, p + window) - p);
        if (at == window || (p[at] == '\r' && at + 1 == window))
            break; /* the next byte decides */
        if (p[at] != '\r' || p[at + 1] != '\n')
            return fail_byte(ret_fault, request, scan, p, at);
        if (scan->lines && at != scan->line && scan->lines <= limits->headers) {
            scan->lines++; /* what most lines are: a field, and not one too many */
        } else {
            int done = scan_line(scan, request, p, at, limits, ret_fault);
            if (done)
                return done < 0 ? -1 : (long)at + 2;
            window = scan_window(scan, request, n, limits);
        }
        at += 2;
        scan->line = at;
    }
    scan->pos = at;
    if (n <= window)
        return 0;
    return fail_window(ret_fault, request, scan, p, n, window, limits);
}

long h1_head_end(struct h1_scan *scan, bool request, const char *p, size_t n,
                 const struct h1_limits *limits, struct h1_fault *ret_fault)
{
    if (scan->pos == 0 && scan->lines == 0) {
        uint32_t lines;
        long end = find_end(p, n < limits->header_bytes ? n : limits->header_bytes, &lines);
        if (end > 0 && lines - 1 <= limits->headers) {
            scan->lines = lines;
            return end;
        }
    }
    return search(scan, request, p, n, limits, ret_fault);
}

bool h1_head_judge(bool request, const char *p, size_t n, const struct h1_limits *limits,
                   struct h1_fault *ret_fault)
{
    struct h1_scan scan = {0};
    return search(&scan, request, p, n, limits, ret_fault) >= 0;
}

size_t h1_skip_empty(const char *p, size_t n)
{
    size_t at = 0;

    while (n - at >= 2 && p[at] == '\r' && p[at + 1] == '\n')
        at += 2;
    return at;
}
