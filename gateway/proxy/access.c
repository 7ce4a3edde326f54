#include "proxy/access.h"

#include <assert.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "base/utf8.h"

/* The most that a value may take in the line, escaped. Together with keys and numbers (under
 * 800 bytes) they stay below ACCESS_LINE_MAX, so nothing else needs to look at a bound. */
#define MAX_ID         160
#define MAX_SHORT      80
#define MAX_NAME       256
#define MAX_PATH       4096
#define MAX_USER_AGENT 768

/* A line in the making: JSON and combined differ in how an escape is spelt. */
struct line {
    char *p;
    const struct access_policy *policy;
};

#define PUT(line, literal) put_bytes(line, literal, sizeof(literal) - 1)

static inline void put_bytes(struct line *line, const char *bytes, size_t n)
{
    memcpy(line->p, bytes, n);
    line->p += n;
}

static inline void put_u64(struct line *line, uint64_t value)
{
    if (value < 10)
        *line->p++ = (char)('0' + value);
    else
        line->p += str_put_u64(line->p, value);
}

static void put_ms(struct line *line, uint64_t ns)
{
    uint64_t us = ns / 1000 + (ns % 1000 >= 500);
    unsigned below = (unsigned)(us % 1000);

    if (ns == UINT64_MAX) {
        PUT(line, "null");
        return;
    }
    put_u64(line, us / 1000);
    line->p[0] = '.';
    line->p[1] = (char)('0' + below / 100);
    line->p[2] = (char)('0' + below / 10 % 10);
    line->p[3] = (char)('0' + below % 10);
    line->p += 4;
}

/* ---- text ---- */

/* Bytes that go out as they are: printable ASCII without the quote and the backslash. */
static inline bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x7f && c != '"' && c != '\\';
}

#ifdef __SSE2__
/* A bit for each byte that is not plain. The signed comparison finds controls and bytes from
 * 0x80 up in one. */
static inline unsigned odd_bytes(__m128i v)
{
    __m128i odd = _mm_cmplt_epi8(v, _mm_set1_epi8(0x20));

    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f)));
    return (unsigned)_mm_movemask_epi8(odd);
}

/* Copies 16, 8 or 4 bytes and returns how many at their front are plain. */
static inline size_t copy_16(char *out, const char *p)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);

    _mm_storeu_si128((__m128i *)(void *)out, v);
    return (size_t)__builtin_ctz(odd_bytes(v) | 1u << 16);
}

static inline size_t copy_8(char *out, const char *p)
{
    __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)p);

    _mm_storel_epi64((__m128i *)(void *)out, v);
    return (size_t)__builtin_ctz(odd_bytes(v) | 1u << 8);
}

static inline size_t copy_4(char *out, const char *p)
{
    int word;

    memcpy(&word, p, 4);
    memcpy(out, &word, 4);
    return (size_t)__builtin_ctz(odd_bytes(_mm_cvtsi32_si128(word)) | 1u << 4);
}
#endif

/* Copies the plain bytes at the front and returns how many these are. Up to `n` bytes of
 * `out` may be written whatever it returns. What does not fill a last step is covered by a
 * step that ends with it and overlaps the one before. */
static size_t copy_plain(char *out, const char *p, size_t n)
{
    size_t i = 0, k;

#ifdef __SSE2__
    if (n >= 16) {
        for (; n - i >= 16; i += 16) {
            k = copy_16(out + i, p + i);
            if (k < 16)
                return i + k;
        }
        return i == n ? n : n - 16 + copy_16(out + n - 16, p + n - 16);
    }
    if (n >= 8) {
        k = copy_8(out, p);
        return k < 8 ? k : n - 8 + copy_8(out + n - 8, p + n - 8);
    }
    if (n >= 4) {
        k = copy_4(out, p);
        return k < 4 ? k : n - 4 + copy_4(out + n - 4, p + n - 4);
    }
#endif
    for (k = i; k < n && is_plain(p[k]); k++)
        out[k] = p[k];
    return k;
}

#define ESCAPE_MAX 6 /* \u00XX */

/* Writes the sequence at the front of `s`, which is not a plain byte, as the line's format
 * spells it. Returns how many bytes of `s` it stood for. */
static size_t put_odd(struct line *line, struct str s)
{
    static const char hex[] = "0123456789abcdef";
    size_t len = utf8_len(s.p, s.n);
    unsigned char c = (unsigned char)s.p[0];
    /* U+0080 to U+009F command terminals as the controls below a blank do. */
    bool control = c < 0x20 || c == 0x7f || (c == 0xc2 && len == 2 && (s.p[1] & 0x20) == 0);

    if (len > 1 && !control) {
        put_bytes(line, s.p, len);
        return len;
    }
    if (line->policy->combined) {
        PUT(line, "\\x");
        len = 1;
    } else if (control) {
        PUT(line, "\\u00");
        c = (unsigned char)s.p[len - 1]; /* of both, the last byte is the number */
    } else if (len == 1) {
        *line->p++ = '\\';
        *line->p++ = (char)c;
        return 1;
    } else {
        PUT(line, "\\\\x");
        len = 1;
    }
    *line->p++ = hex[c >> 4];
    *line->p++ = hex[c & 15];
    return len;
}

/* Writes `s` escaped, not past `end` but for the "..." that says that it was cut; then
 * returns false. */
static bool put_text(struct line *line, struct str s, const char *end)
{
    while (s.n > 0) {
        size_t room = (size_t)(end - line->p);
        size_t n = copy_plain(line->p, s.p, s.n < room ? s.n : room);
        line->p += n;
        s.p += n;
        s.n -= n;
        if (s.n == 0)
            return true;
        if (end - line->p < ESCAPE_MAX) {
            PUT(line, "...");
            return false;
        }
        n = put_odd(line, s);
        s.p += n;
        s.n -= n;
    }
    return true;
}

/* ---- query strings ---- */

/* Parameters whose values are credentials, in lower case, with "-" as "_", by length. */
static const struct str secret_names[] = {
#define S(name)                                                                                \
    {                                                                                          \
        name, sizeof(name) - 1                                                                 \
    }
    S("key"),
    S("pwd"),
    S("sig"),
    S("jwt"),
    S("code"),
    S("auth"),
    S("token"),
    S("apikey"),
    S("secret"),
    S("passwd"),
    S("api_key"),
    S("session"),
    S("password"),
    S("id_token"),
    S("x_api_key"),
    S("api_token"),
    S("signature"),
    S("auth_token"),
    S("access_token"),
    S("refresh_token"),
    S("client_secret"),
    S("authorization"),
    S("x_amz_signature"),
    S("x_goog_signature"),
    S("client_assertion"),
    S("x_amz_security_token"),
#undef S
};
#define SECRETS    (sizeof(secret_names) / sizeof(*secret_names))
#define SECRET_MIN 3
#define SECRET_MAX 20

/* By length, the letters that such a name may begin with: most others end here. */
#define F(letter) (1u << (letter - 'a'))
static const uint32_t secret_firsts[SECRET_MAX + 1] = {
    [3] = F('k') | F('p') | F('s') | F('j'),
    [4] = F('c') | F('a'),
    [5] = F('t'),
    [6] = F('a') | F('s') | F('p'),
    [7] = F('a') | F('s'),
    [8] = F('p') | F('i'),
    [9] = F('x') | F('a') | F('s'),
    [10] = F('a'),
    [12] = F('a'),
    [13] = F('r') | F('c') | F('a'),
    [15] = F('x'),
    [16] = F('x') | F('c'),
    [20] = F('x'),
};
#undef F

static inline bool may_be_secret(const char *name, size_t n)
{
    return n >= SECRET_MIN && n <= SECRET_MAX &&
           (secret_firsts[n] >> ((unsigned)(ascii_lower(name[0]) - 'a') & 31) & 1);
}

static bool is_secret(const char *name, size_t n)
{
    if (!may_be_secret(name, n))
        return false;
    for (size_t i = 0; i < SECRETS && secret_names[i].n <= n; i++) {
        if (secret_names[i].n == n && memcmp(secret_names[i].p, name, n) == 0)
            return true;
    }
    return false;
}

static int hex_value(char c)
{
    char low = ascii_lower(c);

    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static bool is_named(const struct access_policy *policy, const char *name, size_t n)
{
    for (size_t i = 0; i < policy->secrets.count; i++)
        if (str_eq((struct str){name, n}, str_of(policy->secrets.list[i])))
            return true;
    return false;
}

/* Whether a parameter's name, percent-encoded as it may be, stands for a credential; so do
 * "user[password]" and "token[]". A very long name is judged by its end. */
static bool is_secret_parameter(const struct access_policy *policy, const char *name, size_t n)
{
    char whole[64];
    size_t len = 0, word = 0;
    bool secret = false;

    if (n > sizeof(whole)) {
        name += n - sizeof(whole);
        n = sizeof(whole);
    }
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (c == '%' && n - i > 2 && hex_value(name[i + 1]) >= 0 &&
            hex_value(name[i + 2]) >= 0) {
            c = (char)(hex_value(name[i + 1]) * 16 + hex_value(name[i + 2]));
            i += 2;
        }
        if (c == '[' || c == ']' || c == '.') {
            secret |= is_secret(whole + word, len - word);
            word = len + 1;
        }
        whole[len++] = c == '-' ? '_' : ascii_lower(c);
    }
    return secret || is_secret(whole + word, len - word) || is_named(policy, whole, len);
}

enum { NAME_END = 1, VALUE_END = 2, NAME_COMPOUND = 4 };
static const unsigned char query_marks[256] = {
    ['='] = NAME_END,
    ['&'] = NAME_END | VALUE_END,
    [';'] = NAME_END | VALUE_END,
    ['#'] = NAME_END | VALUE_END,
    ['%'] = NAME_COMPOUND,
    ['['] = NAME_COMPOUND,
    [']'] = NAME_COMPOUND,
    ['.'] = NAME_COMPOUND,
};

/* The first byte that ends the name or the value that begins at `p`, or `stop`; in *ret_marks
 * all marks seen on the way. */
static inline const char *query_end(const char *p, const char *stop, unsigned mark,
                                    unsigned *ret_marks)
{
    unsigned marks = 0;

    while (p < stop && !((marks |= query_marks[(unsigned char)*p]) & mark))
        p++;
    *ret_marks = marks;
    return p;
}

/* The query, each credential's value written as "***". */
static bool put_query(struct line *line, struct str query, const char *end)
{
    const char *stop = query.p + query.n, *written = query.p;

    for (const char *p = query.p; p < stop; p++) {
        const char *name = p, *value;
        unsigned marks, ignored;
        p = query_end(name, stop, NAME_END, &marks);
        if (p == stop || *p != '=')
            continue;
        value = p + 1;
        p = query_end(value, stop, VALUE_END, &ignored);
        if (!(marks & NAME_COMPOUND) && !line->policy->secrets.count &&
            !may_be_secret(name, (size_t)(value - 1 - name)))
            continue;
        if (p == value || !is_secret_parameter(line->policy, name, (size_t)(value - 1 - name)))
            continue;
        if (!put_text(line, (struct str){written, (size_t)(value - written)}, end) ||
            !put_text(line, STR("***"), end))
            return false;
        written = p;
    }
    return put_text(line, (struct str){written, (size_t)(stop - written)}, end);
}

/* Path and query in one value. */
static void put_target(struct line *line, struct str path, struct str query)
{
    const char *end = line->p + MAX_PATH;

    if (put_text(line, path, end) && query.p && put_text(line, STR("?"), end))
        put_query(line, query, end);
}

/* ---- combined ---- */

static void put_field(struct line *line, struct str s, size_t max)
{
    if (!s.p || s.n == 0)
        *line->p++ = '-';
    else
        put_text(line, s, line->p + max);
}

/* The user is not quoted in this format: a blank in it would make one column two. */
static void put_user(struct line *line, struct str user)
{
    const char *end = line->p + MAX_NAME;

    for (;;) {
        const char *blank = user.n > 0 ? memchr(user.p, ' ', user.n) : NULL;
        size_t n = blank ? (size_t)(blank - user.p) : user.n;
        if (!put_text(line, (struct str){user.p, n}, end) || !blank)
            return;
        if (end - line->p < ESCAPE_MAX) {
            PUT(line, "...");
            return;
        }
        PUT(line, "\\x20");
        user.p += n + 1;
        user.n -= n + 1;
    }
}

static void put_clf_date(struct line *line, uint64_t wall_ms)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char iso[CLOCK_ISO_LEN];

    clock_put_iso(iso, wall_ms);
    put_bytes(line, iso + 8, 2);
    *line->p++ = '/';
    put_bytes(line, months + 3 * ((iso[5] - '0') * 10 + iso[6] - '0' - 1), 3);
    *line->p++ = '/';
    put_bytes(line, iso, 4);
    *line->p++ = ':';
    put_bytes(line, iso + 11, 8);
    PUT(line, " +0000");
}

static void put_referer(struct line *line, struct str referer)
{
    const char *mark = referer.p ? memchr(referer.p, '?', referer.n) : NULL;
    size_t n = mark ? (size_t)(mark - referer.p) : referer.n;
    const char *end = line->p + MAX_USER_AGENT;

    if (!mark)
        put_field(line, referer, MAX_USER_AGENT);
    else if (put_text(line, (struct str){referer.p, n + 1}, end))
        put_query(line, (struct str){mark + 1, referer.n - n - 1}, end);
}

static void put_combined(struct line *line, const struct access_record *record)
{
    put_field(line, record->client_ip, MAX_SHORT);
    PUT(line, " - ");
    if (record->credential.p && record->credential.n > 0)
        put_user(line, record->credential);
    else
        *line->p++ = '-';
    PUT(line, " [");
    put_clf_date(line, record->wall_ms);
    PUT(line, "] \"");
    if (record->method.p) {
        put_text(line, record->method, line->p + MAX_SHORT);
        *line->p++ = ' ';
        put_target(line, record->path, record->query);
        *line->p++ = ' ';
        put_field(line, record->proto, MAX_SHORT);
    } else {
        *line->p++ = '-';
    }
    PUT(line, "\" ");
    put_u64(line, record->status);
    *line->p++ = ' ';
    put_u64(line, record->bytes_out);
    PUT(line, " \"");
    put_referer(line, record->referer);
    PUT(line, "\" \"");
    put_field(line, record->user_agent, MAX_USER_AGENT);
    PUT(line, "\"\n");
}

/* ---- JSON ---- */

static void put_string(struct line *line, struct str s, size_t max)
{
    if (!s.p) {
        PUT(line, "null");
        return;
    }
    *line->p++ = '"';
    put_text(line, s, line->p + max);
    *line->p++ = '"';
}

static inline void put_bool(struct line *line, bool value)
{
    if (value)
        PUT(line, "true");
    else
        PUT(line, "false");
}

static void put_status(struct line *line, unsigned status)
{
    if (status == 0)
        PUT(line, "null");
    else
        put_u64(line, status);
}

#define STRING(name, max)                                                                      \
    do {                                                                                       \
        PUT(line, ",\"" #name "\":");                                                          \
        put_string(line, record->name, max);                                                   \
    } while (0)
#define MS(name)                                                                               \
    do {                                                                                       \
        PUT(line, ",\"" #name "_ms\":");                                                       \
        put_ms(line, record->name);                                                            \
    } while (0)

static void put_json_request(struct line *line, const struct access_record *record)
{
    PUT(line, "{\"ts\":\"");
    clock_put_iso(line->p, record->wall_ms);
    line->p += CLOCK_ISO_LEN;
    PUT(line, "\"");
    STRING(req_id, MAX_ID);
    STRING(trace_id, MAX_SHORT);
    STRING(client_ip, MAX_SHORT);
    STRING(proto, MAX_SHORT);
    PUT(line, ",\"tls\":");
    put_bool(line, record->tls);
    STRING(sni, MAX_NAME);
    STRING(method, MAX_SHORT);
    STRING(host, MAX_NAME);
    if (record->path.p) {
        PUT(line, ",\"path\":\"");
        put_target(line, record->path, record->query);
        PUT(line, "\"");
    } else {
        PUT(line, ",\"path\":null");
    }
    STRING(route, MAX_NAME);
}

static void put_json_answer(struct line *line, const struct access_record *record)
{
    PUT(line, ",\"status\":");
    put_status(line, record->status);
    PUT(line, ",\"reason\":");
    put_string(line,
               record->reason == R_NONE ? (struct str){NULL, 0}
                                        : str_of(reason_texts[record->reason].name),
               MAX_SHORT);
    PUT(line, ",\"bytes_in\":");
    put_u64(line, record->bytes_in);
    PUT(line, ",\"bytes_out\":");
    put_u64(line, record->bytes_out);
    MS(dur);
    MS(gw);
    MS(connect);
    MS(ttfb);
    STRING(upstream, MAX_NAME);
    STRING(server, MAX_NAME);
    PUT(line, ",\"upstream_status\":");
    put_status(line, record->upstream_status);
    PUT(line, ",\"attempts\":");
    put_u64(line, record->attempts);
    PUT(line, ",\"reused\":");
    put_bool(line, record->reused);
    STRING(credential, MAX_NAME);
    STRING(user_agent, MAX_USER_AGENT);
    PUT(line, ",\"generation\":");
    put_u64(line, record->generation);
    if (record->tls) {
        STRING(tls_version, MAX_SHORT);
        STRING(tls_cipher, MAX_SHORT);
        STRING(client_subject, MAX_NAME);
    }
    if (record->offset != 0) {
        PUT(line, ",\"offset\":");
        put_u64(line, record->offset);
    }
    PUT(line, "}\n");
}

size_t access_format(char *out, size_t cap, const struct access_policy *policy,
                     const struct access_record *record)
{
    struct line line = {.p = out, .policy = policy};

    if (cap < ACCESS_LINE_MAX)
        return 0;
    assert(record->reason < REASON_MAX);
    if (policy->combined) {
        put_combined(&line, record);
    } else {
        put_json_request(&line, record);
        put_json_answer(&line, record);
    }
    assert((size_t)(line.p - out) <= cap);
    return (size_t)(line.p - out);
}

bool access_wants(const struct access_policy *policy, uint32_t *counter,
                  const struct access_record *record)
{
    if (record->status >= 400 || record->reason != R_NONE)
        return true;
    if (record->dur < policy->slower_than)
        return false;
    if (++*counter < policy->sample)
        return false;
    *counter = 0;
    return true;
}

void access_write(struct log_ring *ring, const struct access_policy *policy,
                  const struct access_record *record)
{
    char *room = log_line_reserve(ring, ACCESS_LINE_MAX);

    if (room)
        log_line_commit(ring, access_format(room, ACCESS_LINE_MAX, policy, record));
}
