/* What the fuzz targets of HTTP/1 heads hold true of any input: the same verdict however the
 * bytes arrive, a model that is within its own rules, and a form that, once written, reads and
 * writes as itself. A broken promise aborts. */
#ifndef POSTERN_TESTS_FUZZ_MESSAGE_H
#define POSTERN_TESTS_FUZZ_MESSAGE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/h1_parse.h"
#include "http/h1_write.h"

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

#define MAX_FIELDS 32

/* Small, so that inputs meet them. */
static const struct h1_limits limits = {
    .header_bytes = 2048, .headers = MAX_FIELDS, .target_bytes = 256};
/* A head that was written anew may be longer: "a:b" becomes "a: b". */
static const struct h1_limits limits_again = {
    .header_bytes = 65536, .headers = MAX_FIELDS, .target_bytes = 256};

/* Arriving byte by byte must come to the verdict of arriving whole, which for a head that is
 * there at once may only be told by who reads it. */
static long find_end(bool request, const char *p, size_t n, struct h1_fault *fault)
{
    struct h1_scan whole = {0}, bytes = {0};
    struct h1_fault other;
    long end = h1_head_end(&whole, request, p, n, &limits, fault), again = 0;

    for (size_t i = 0; i <= n && again == 0; i++)
        again = h1_head_end(&bytes, request, p, i, &limits, &other);
    if (again < 0 && end > 0) {
        struct field fields[MAX_FIELDS];
        struct head head = {.fields = fields, .cap = MAX_FIELDS};
        REQUIRE((request
                     ? h1_parse_request(p, (size_t)end, &limits, &head, fault)
                     : h1_parse_response(p, (size_t)end, &limits, M_GET, &head, fault)) < 0);
        end = -1;
    }
    REQUIRE(again == end);
    if (end < 0) {
        REQUIRE(other.reason == fault->reason && fault->reason != R_NONE);
        REQUIRE(other.offset == fault->offset && fault->offset <= n);
        REQUIRE(request || fault->reason == R_UPSTREAM_PROTOCOL);
    }
    REQUIRE(end <= (long)n && end <= (long)limits.header_bytes);
    REQUIRE(end <= 0 ||
            (whole.lines == bytes.lines && whole.lines >= 1 && whole.lines <= MAX_FIELDS + 1));
    return end;
}

static void check_model(const struct head *head)
{
    REQUIRE(head->count <= MAX_FIELDS && head->minor <= 1);
    REQUIRE(head->framing != FRAMING_LENGTH || head->has_length);
    REQUIRE(head->framing != FRAMING_CHUNKED || (!head->has_length && head->minor == 1));
    for (uint32_t i = 0; i < head->count; i++) {
        const struct field *field = &head->fields[i];
        REQUIRE(head_is_token(field->name) && head_is_field_value(field->value));
        REQUIRE(str_eq(field->value, str_trim(field->value)));
        REQUIRE(field->id == field_id_of(field->name));
        REQUIRE(field->id != F_CONTENT_LENGTH && field->id != F_TRANSFER_ENCODING);
    }
}

static bool same_fields(const struct head *a, const struct head *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!str_eq(a->fields[i].name, b->fields[i].name) ||
            !str_eq(a->fields[i].value, b->fields[i].value))
            return false;
    return true;
}

static int parse(bool request, const char *p, size_t n, enum method method,
                 const struct h1_limits *lim, struct head *head, struct h1_fault *fault)
{
    return request ? h1_parse_request(p, n, lim, head, fault)
                   : h1_parse_response(p, n, lim, method, head, fault);
}

static char *write_head(bool request, const struct head *head, size_t *ret_n)
{
    size_t bound = h1_write_bound(head);
    char *out = malloc(bound);

    REQUIRE(out);
    *ret_n = request ? h1_write_request(out, head, H1_PERSIST_DEFAULT)
                     : h1_write_response(out, head, H1_PERSIST_DEFAULT);
    REQUIRE(*ret_n > 0 && *ret_n <= bound); /* what was read can always be written */
    return out;
}

/* parse(write(parse(x))) is parse(x), but for the version: we always write 1.1. */
static void check_fixed_point(bool request, const struct head *head, enum method method)
{
    struct field fields[MAX_FIELDS];
    struct head again = {.fields = fields, .cap = MAX_FIELDS};
    struct h1_fault fault;
    struct h1_scan scan = {0};
    size_t n, m;
    char *once, *twice;

    if (request && head->minor == 0 && !head_find(head, F_HOST))
        return; /* the forwarder gives it a Host; the writer does not */
    once = write_head(request, head, &n);
    REQUIRE(h1_head_end(&scan, request, once, n, &limits_again, &fault) == (long)n);
    if (head->minor == 0 && head_find(head, F_UPGRADE)) { /* now it would count */
        free(once);
        return;
    }
    REQUIRE(parse(request, once, n, method, &limits_again, &again, &fault) == 0);
    check_model(&again);
    REQUIRE(same_fields(head, &again));
    REQUIRE(head->framing == again.framing);
    REQUIRE(head->framing != FRAMING_LENGTH || head->length == again.length);
    REQUIRE(str_eq(head->method_text, again.method_text) && head->method == again.method);
    REQUIRE(str_eq(head->target, again.target) && str_eq(head->path, again.path));
    REQUIRE(str_eq(head->query, again.query) && str_eq(head->authority, again.authority));
    REQUIRE(head->status == again.status);
    REQUIRE(str_eq(head->reason_phrase, again.reason_phrase));
    twice = write_head(request, &again, &m);
    REQUIRE(n == m && memcmp(once, twice, n) == 0);
    free(once);
    free(twice);
}

/* After it, nothing of the hop is left, and what must survive does. */
static void check_strip(struct head *head)
{
    static const enum field_id gone[] = {
        F_CONNECTION, F_KEEP_ALIVE,     F_PROXY_CONNECTION,   F_TE,
        F_UPGRADE,    F_HTTP2_SETTINGS, F_PROXY_AUTHORIZATION};
    bool has_host = head_find(head, F_HOST);
    uint32_t count = head->count;

    if (head_strip_hop(head) != R_NONE) {
        REQUIRE(head->count == count);
        return;
    }
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
        REQUIRE(!head_find(head, gone[i]));
    REQUIRE(has_host == (head_find(head, F_HOST) != NULL));
    check_model(head);
}

static void check_message(bool request, const char *p, size_t n, enum method method)
{
    struct field fields[MAX_FIELDS];
    struct head head = {.fields = fields, .cap = MAX_FIELDS};
    struct h1_fault fault = {.reason = R_NONE};
    long end = find_end(request, p, n, &fault);
    size_t len = end > 0 ? (size_t)end : n;

    /* The parser stands by itself: it must hold on what is no head, too. */
    if (parse(request, p, len, method, &limits, &head, &fault) < 0) {
        REQUIRE(fault.reason != R_NONE && fault.offset <= len);
        REQUIRE(request || fault.reason == R_UPSTREAM_PROTOCOL);
        return;
    }
    if (end < 0 && fault.limit == limits.headers)
        return; /* it counts the fields that it keeps, not the lines that frame */
    REQUIRE(end > 0 && (size_t)end == len);
    check_model(&head);
    check_fixed_point(request, &head, method);
    check_strip(&head);
}

#endif
