#include "http/h1_write.h"

#include "http/bytes.h"

/* Version, status or blanks of the first line, the longest framing line, the longest
 * Connection line, the final empty line; Upgrade's value is counted apart. */
#define FIRST_LINE_EXTRA 24
#define FRAMING_MAX      48
#define PERSIST_MAX      48

size_t h1_write_bound(const struct head *head)
{
    size_t n = FIRST_LINE_EXTRA + FRAMING_MAX + PERSIST_MAX + 2;

    n += head->method_text.n + head->target.n + head->reason_phrase.n + head->upgrade.n;
    for (uint32_t i = 0; i < head->count; i++)
        n += head->fields[i].name.n + head->fields[i].value.n + 4;
    return n;
}

/* Most names and values are short: two overlapping words do for them, without a call. */
static char *put(char *out, struct str s)
{
    if (s.n > 32 || s.n < 4) {
        if (s.n)
            memcpy(out, s.p, s.n);
    } else if (s.n >= 16) {
        struct {
            uint64_t a, b;
        } head, tail;
        memcpy(&head, s.p, 16);
        memcpy(&tail, s.p + s.n - 16, 16);
        memcpy(out, &head, 16);
        memcpy(out + s.n - 16, &tail, 16);
    } else if (s.n >= 8) {
        uint64_t head, tail;
        memcpy(&head, s.p, 8);
        memcpy(&tail, s.p + s.n - 8, 8);
        memcpy(out, &head, 8);
        memcpy(out + s.n - 8, &tail, 8);
    } else {
        uint32_t head, tail;
        memcpy(&head, s.p, 4);
        memcpy(&tail, s.p + s.n - 4, 4);
        memcpy(out, &head, 4);
        memcpy(out + s.n - 4, &tail, 4);
    }
    return out + s.n;
}

/* Framing is written from head->framing or not at all. */
static bool is_framing(const struct field *field)
{
    return field->id == F_CONTENT_LENGTH || field->id == F_TRANSFER_ENCODING;
}

/* The bytes of the line that a field still is in memory, its CR LF included; 0: it is none.
 * Framing never is: who reads it keeps no field of it. */
static size_t line_bytes(const struct field *field)
{
    const char *end = field->value.p + field->value.n;

    if (!field->line || field->value.p != field->name.p + field->name.n + 2)
        return 0;
    return end[0] == '\r' && end[1] == '\n' ? field->name.n + field->value.n + 4 : 0;
}

/* What came from one peer goes to the other in runs of lines: copies all that stand one behind
 * the other from *i on, and moves *i behind them. */
static char *put_lines(char *out, const struct head *head, uint32_t *i)
{
    const char *start = head->fields[*i].name.p;
    size_t n = 0, line;

    while (*i < head->count && head->fields[*i].name.p == start + n &&
           (line = line_bytes(&head->fields[*i])) > 0) {
        n += line;
        ++*i;
    }
    memcpy(out, start, n);
    return out + n;
}

static char *put_fields(char *out, const struct head *head)
{
    for (uint32_t i = 0; i < head->count;) {
        const struct field *field = &head->fields[i];
        const char *line = out;

        if (line_bytes(field)) {
            out = put_lines(out, head, &i);
            continue;
        }
        i++;
        if (is_framing(field))
            continue;
        /* names that we know are tokens */
        if (!field->checked && field->id == F_OTHER && !head_is_token(field->name))
            return NULL;
        out = put(out, field->name);
        *out++ = ':';
        *out++ = ' ';
        out = put(out, field->value);
        if (!field->checked && bytes_text_end(line, out) != out)
            return NULL;
        *out++ = '\r';
        *out++ = '\n';
    }
    return out;
}

static char *put_length(char *out, uint64_t length)
{
    out = put(out, STR("Content-Length: "));
    out += str_put_u64(out, length);
    return put(out, STR("\r\n"));
}

static char *put_persist(char *out, const struct head *head, enum h1_persist persist)
{
    switch (persist) {
    case H1_PERSIST_DEFAULT:
        break;
    case H1_PERSIST_CLOSE:
        return put(out, STR("Connection: close\r\n"));
    case H1_PERSIST_KEEP:
        return put(out, STR("Connection: keep-alive\r\n"));
    case H1_PERSIST_UPGRADE:
        if (head->upgrade.n == 0 || !head_is_field_value(head->upgrade))
            return NULL;
        out = put(out, STR("Connection: upgrade\r\nUpgrade: "));
        return put(put(out, head->upgrade), STR("\r\n"));
    }
    return out;
}

static bool is_target(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!byte_is(s.p[i], BYTE_TARGET))
            return false;
    return s.n > 0;
}

static size_t finish(const char *start, char *out, const struct head *head,
                     enum h1_persist persist)
{
    out = put_persist(out, head, persist);
    return out ? (size_t)(put(out, STR("\r\n")) - start) : 0;
}

size_t h1_write_request(char *out, const struct head *head, enum h1_persist persist)
{
    const char *start = out;

    if (!head_is_token(head->method_text) || !is_target(head->target))
        return 0;
    out = put(out, head->method_text);
    *out++ = ' ';
    out = put(out, head->target);
    out = put_fields(put(out, STR(" HTTP/1.1\r\n")), head);
    if (!out)
        return 0;
    if (head->framing == FRAMING_LENGTH)
        out = put_length(out, head->length);
    else if (head->framing == FRAMING_CHUNKED)
        out = put(out, STR("Transfer-Encoding: chunked\r\n"));
    return finish(start, out, head, persist);
}

/* RFC 9110 8.6: a length says nothing on these, and must not be there. */
static bool has_no_length(unsigned status)
{
    return status < 200 || status == 204;
}

size_t h1_write_response(char *out, const struct head *head, enum h1_persist persist)
{
    const char *start = out;

    if (head->status < 100 || head->status > 999 || !head_is_field_value(head->reason_phrase))
        return 0;
    out = put(out, STR("HTTP/1.1 "));
    *out++ = (char)('0' + head->status / 100);
    *out++ = (char)('0' + head->status / 10 % 10);
    *out++ = (char)('0' + head->status % 10);
    *out++ = ' ';
    out = put(put(out, head->reason_phrase), STR("\r\n"));
    out = put_fields(out, head);
    if (!out)
        return 0;
    if (head->framing == FRAMING_CHUNKED)
        out = put(out, STR("Transfer-Encoding: chunked\r\n"));
    else if (!has_no_length(head->status) &&
             (head->framing == FRAMING_LENGTH ||
              (head->framing == FRAMING_NONE && head->has_length)))
        out = put_length(out, head->length);
    return finish(start, out, head, persist);
}

size_t h1_write_trailers(char *out, const struct head *trailers)
{
    const char *start = out;

    out = put_fields(out, trailers);
    return out ? (size_t)(put(out, STR("\r\n")) - start) : 0;
}

size_t h1_write_chunk_line(char out[H1_CHUNK_LINE_MAX], uint64_t size)
{
    size_t n = str_put_hex(out, size);

    out[n] = '\r';
    out[n + 1] = '\n';
    return n + 2;
}

/* RFC 9110 15 and the registry. */
static const char *const phrases[600] = {
    [100] = "Continue",
    [101] = "Switching Protocols",
    [102] = "Processing",
    [103] = "Early Hints",
    [200] = "OK",
    [201] = "Created",
    [202] = "Accepted",
    [203] = "Non-Authoritative Information",
    [204] = "No Content",
    [205] = "Reset Content",
    [206] = "Partial Content",
    [207] = "Multi-Status",
    [208] = "Already Reported",
    [226] = "IM Used",
    [300] = "Multiple Choices",
    [301] = "Moved Permanently",
    [302] = "Found",
    [303] = "See Other",
    [304] = "Not Modified",
    [305] = "Use Proxy",
    [307] = "Temporary Redirect",
    [308] = "Permanent Redirect",
    [400] = "Bad Request",
    [401] = "Unauthorized",
    [402] = "Payment Required",
    [403] = "Forbidden",
    [404] = "Not Found",
    [405] = "Method Not Allowed",
    [406] = "Not Acceptable",
    [407] = "Proxy Authentication Required",
    [408] = "Request Timeout",
    [409] = "Conflict",
    [410] = "Gone",
    [411] = "Length Required",
    [412] = "Precondition Failed",
    [413] = "Content Too Large",
    [414] = "URI Too Long",
    [415] = "Unsupported Media Type",
    [416] = "Range Not Satisfiable",
    [417] = "Expectation Failed",
    [421] = "Misdirected Request",
    [422] = "Unprocessable Content",
    [423] = "Locked",
    [424] = "Failed Dependency",
    [425] = "Too Early",
    [426] = "Upgrade Required",
    [428] = "Precondition Required",
    [429] = "Too Many Requests",
    [431] = "Request Header Fields Too Large",
    [451] = "Unavailable For Legal Reasons",
    [500] = "Internal Server Error",
    [501] = "Not Implemented",
    [502] = "Bad Gateway",
    [503] = "Service Unavailable",
    [504] = "Gateway Timeout",
    [505] = "HTTP Version Not Supported",
    [506] = "Variant Also Negotiates",
    [507] = "Insufficient Storage",
    [508] = "Loop Detected",
    [511] = "Network Authentication Required",
};

struct str h1_phrase(unsigned status)
{
    const char *phrase = status < sizeof(phrases) / sizeof(phrases[0]) ? phrases[status] : NULL;
    return str_of(phrase ? phrase : "");
}
