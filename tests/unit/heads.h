/* Heads in pieces: what the tests of the HTTP/1 head parser share. */
#ifndef POSTERN_TESTS_UNIT_HEADS_H
#define POSTERN_TESTS_UNIT_HEADS_H

#include <stdlib.h>

#include "http/h1_parse.h"

#define COUNT(a)   (sizeof(a) / sizeof((a)[0]))
#define MAX_FIELDS 16

static const struct h1_limits limits = {.header_bytes = 1024, .headers = 8, .target_bytes = 64};

static struct field fields[MAX_FIELDS];
static struct head head;
static struct h1_fault fault;

/* A copy that ends where its memory ends, so that ASan sees every byte read too far. */
static char *copy_of(struct str s)
{
    char *p = malloc(s.n ? s.n : 1);
    memcpy(p, s.p, s.n);
    return p;
}

/* Feeds `s` in two pieces, cut at `cut`, and returns h1_head_end's verdict. */
static long end_of(struct str s, bool request, size_t cut)
{
    struct h1_scan scan = {0};
    char *p = copy_of((struct str){s.p, cut});
    long end = h1_head_end(&scan, request, p, cut, &limits, &fault);
    free(p);
    if (end)
        return end;
    p = copy_of(s);
    end = h1_head_end(&scan, request, p, s.n, &limits, &fault);
    free(p);
    return end;
}

static int parse(struct str s, bool request, enum method method)
{
    char *p = copy_of(s); /* spans must be used before the next parse */
    static char *last;
    free(last);
    last = p;
    memset(&head, 0xee, sizeof(head));
    head.fields = fields;
    head.cap = MAX_FIELDS;
    return request ? h1_parse_request(p, s.n, &limits, &head, &fault)
                   : h1_parse_response(p, s.n, &limits, method, &head, &fault);
}

/* What both steps say together: 0, or the reason. Whole and cut at every byte. */
static enum reason verdict(struct str s, bool request, size_t *ret_offset)
{
    struct h1_scan scan = {0};
    enum reason reason = R_NONE;
    size_t offset = 0;
    long end = h1_head_end(&scan, request, s.p, s.n, &limits, &fault);
    if (end < 0) {
        reason = fault.reason;
        offset = fault.offset;
    }
    for (size_t cut = 0; cut <= s.n; cut++) {
        assert_int_equal(end_of(s, request, cut), end);
        if (end < 0) {
            assert_int_equal(fault.reason, reason);
            assert_int_equal(fault.offset, offset);
        }
    }
    if (end >= 0) {
        assert_int_equal(end, s.n); /* the tests' heads are whole */
        assert_true(scan.lines >= 1);
        if (parse(s, request, M_GET) < 0) {
            reason = fault.reason;
            offset = fault.offset;
        }
    }
    *ret_offset = offset;
    return reason;
}

static void assert_str(struct str got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

#endif
