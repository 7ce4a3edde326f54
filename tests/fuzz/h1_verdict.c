/* What the HTTP/1 parsers make of requests, for comparison with another parser. Reads inputs
 * from standard input, each behind its length (four bytes, big-endian), and prints one line
 * for each:
 *
 *     refused REASON | more
 *     ok METHOD TARGET 1.MINOR FRAMING BODY FIELDS
 *
 * FRAMING is none, a length, or "chunked"; BODY the payload in hexadecimal, with "+" behind it
 * when it is not complete; FIELDS "name: value\n" for each field, in hexadecimal. "-" stands
 * for nothing. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/h1_chunk.h"
#include "http/h1_parse.h"

#define MAX_FIELDS 100

static const struct h1_limits limits = {
    .header_bytes = 32768, .headers = MAX_FIELDS, .target_bytes = 8192};

enum verdict { WHOLE, MORE, REFUSED };

static void put_hex(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%02x", (unsigned char)p[i]);
}

static enum verdict read_trailers(const char *p, size_t n, enum reason *ret_reason)
{
    struct field fields[MAX_FIELDS];
    struct head trailers = {.fields = fields, .cap = MAX_FIELDS};
    struct h1_scan scan = {.lines = 1};
    struct h1_fault fault;
    long end = h1_head_end(&scan, true, p, n, &limits, &fault);

    if (end == 0)
        return MORE;
    if (end < 0 || h1_parse_trailers(p, (size_t)end, true, &limits, &trailers, &fault) < 0) {
        *ret_reason = fault.reason;
        return REFUSED;
    }
    return WHOLE;
}

/* The payload goes to `body`, which has room for all of the input. */
static enum verdict read_chunked(const char *p, size_t n, char *body, size_t *ret_n,
                                 enum reason *ret_reason)
{
    struct h1_chunk chunk;
    size_t at = 0;

    h1_chunk_init(&chunk);
    while (chunk.state != CHUNK_TRAILERS) {
        struct str data;
        size_t bad;
        long taken = h1_chunk_read(&chunk, p + at, n - at, &data, &bad);
        if (taken < 0) {
            *ret_reason = R_BAD_CHUNK;
            return REFUSED;
        }
        if (taken == 0)
            return MORE;
        if (data.n)
            memcpy(body + *ret_n, data.p, data.n);
        *ret_n += data.n;
        at += (size_t)taken;
    }
    return read_trailers(p + at, n - at, ret_reason);
}

static enum verdict read_body(const struct head *head, const char *p, size_t n, char *body,
                              size_t *ret_n, enum reason *ret_reason)
{
    *ret_n = 0;
    if (head->framing == FRAMING_CHUNKED)
        return read_chunked(p, n, body, ret_n, ret_reason);
    if (head->framing != FRAMING_LENGTH)
        return WHOLE;
    *ret_n = n < head->length ? n : (size_t)head->length;
    memcpy(body, p, *ret_n);
    return *ret_n == head->length ? WHOLE : MORE;
}

static void put_request(const struct head *head, const char *body, size_t n, bool is_whole)
{
    printf("ok %.*s %.*s 1.%u ", (int)head->method_text.n, head->method_text.p,
           (int)head->target.n, head->target.p, head->minor);
    if (head->framing == FRAMING_LENGTH)
        printf("%" PRIu64 " ", head->length);
    else
        printf("%s ", head->framing == FRAMING_CHUNKED ? "chunked" : "none");
    put_hex(body, n);
    printf("%s%s ", n ? "" : "-", is_whole ? "" : "+");
    for (uint32_t i = 0; i < head->count; i++) {
        put_hex(head->fields[i].name.p, head->fields[i].name.n);
        put_hex(": ", 2);
        put_hex(head->fields[i].value.p, head->fields[i].value.n);
        put_hex("\n", 1);
    }
    puts(head->count ? "" : "-");
}

static void judge(const char *p, size_t n, char *body)
{
    struct field fields[MAX_FIELDS];
    struct head head = {.fields = fields, .cap = MAX_FIELDS};
    struct h1_scan scan = {0};
    struct h1_fault fault;
    long end = h1_head_end(&scan, true, p, n, &limits, &fault);
    enum verdict verdict = REFUSED;
    size_t body_n;

    if (end == 0) {
        puts("more");
        return;
    }
    if (end > 0 && h1_parse_request(p, (size_t)end, &limits, &head, &fault) == 0)
        verdict = read_body(&head, p + end, n - (size_t)end, body, &body_n, &fault.reason);
    if (verdict == REFUSED)
        printf("refused %s\n", reason_texts[fault.reason].name);
    else
        put_request(&head, body, body_n, verdict == WHOLE);
}

int main(void)
{
    unsigned char prefix[4];

    while (fread(prefix, 1, sizeof(prefix), stdin) == sizeof(prefix)) {
        size_t n = (size_t)prefix[0] << 24 | (size_t)prefix[1] << 16 | (size_t)prefix[2] << 8 |
                   prefix[3];
        char *p = malloc(n + 1), *body = malloc(n + 1);
        bool is_read = p && body && fread(p, 1, n, stdin) == n;
        if (is_read)
            judge(p, n, body);
        free(p);
        free(body);
        if (!is_read)
            return EXIT_FAILURE;
    }
    return ferror(stdin) ? EXIT_FAILURE : EXIT_SUCCESS;
}
