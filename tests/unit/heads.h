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

/* Byte by byte; the verdict of the first call that has one. */
static long end_by_bytes(struct str s, bool request, const struct h1_limits *lim)
{
    struct h1_scan scan = {0};
    long end = 0;
    for (size_t n = 0; n <= s.n && end == 0; n++) {
        char *p = copy_of((struct str){s.p, n});
        end = h1_head_end(&scan, request, p, n, lim, &fault);
        free(p);
    }
    return end;
}

/* What both steps say together: 0, or the reason. The same however it is cut. */
static enum reason verdict(struct str s, bool request, size_t *ret_offset)
{
    enum reason reason = R_NONE;
    long end = end_by_bytes(s, request, &limits);
    *ret_offset = 0;
    if (end >= 0)
        assert_int_equal(end, s.n); /* the tests' heads are whole */
    if (end < 0 || parse(s, request, M_GET) < 0) {
        reason = fault.reason;
        *ret_offset = fault.offset;
    }
    for (size_t cut = 0; cut <= s.n; cut++) {
        long again = end_of(s, request, cut);
        bool good = again >= 0 && parse(s, request, M_GET) == 0;
        assert_true(again == end || (end < 0 && again == (long)s.n && !good));
        assert_int_equal(good, reason == R_NONE);
        if (!good) {
            assert_int_equal(fault.reason, reason);
            assert_int_equal(fault.offset, *ret_offset);
        }
    }
    return reason;
}

static void assert_str(struct str got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

#endif
