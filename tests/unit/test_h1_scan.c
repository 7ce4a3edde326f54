#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"

#define OK   "GET / HTTP/1.1\r\nHost: h\r\n"
#define BASE (sizeof(OK) - 1)

static void a_target_is_too_long_from_one_byte_more_on(void **state)
{
    static const struct h1_limits small = {
        .header_bytes = 200, .headers = 2, .target_bytes = 10};
    char text[400];
    (void)state;

    /* in a line short enough to be read whole */
    assert_int_equal(parse(STR("GET /2345678901234567890123456789012345678901234567890123456789"
                               "01234 HTTP/1.1\r\nHost: h\r\n\r\n"),
                           true, M_GET),
                     0);

    /* a line too long for any target: by its target, or by what is behind one that is not */
    static const char long_end[] =
        " HTTP/1.1                                                  ";
    for (size_t n = 10; n <= 11; n++) {
        size_t length =
            (size_t)snprintf(text, sizeof(text), "GET %.*s%s", (int)n, "/2345678901", long_end);
        assert_int_equal(end_by_bytes((struct str){text, length}, true, &small), -1);
        assert_int_equal(fault.reason, n == 10 ? R_BAD_REQUEST_LINE : R_CLIENT_TARGET_TOO_LONG);
        assert_int_equal(fault.offset, n == 10 ? 14 : 4);
        if (n == 11)
            assert_int_equal(fault.actual, 11);
    }
}

static void names_the_limit_that_was_met(void **state)
{
    static const struct h1_limits small = {
        .header_bytes = 200, .headers = 2, .target_bytes = 10};
    char text[400];
    (void)state;

    /* a target one byte too long, in a line short enough to be read whole */
    assert_int_equal(parse(STR("GET /2345678901234567890123456789012345678901234567890123456789"
                               "012345 HTTP/1.1\r\nHost: h\r\n\r\n"),
                           true, M_GET),
                     -1);
    assert_int_equal(fault.reason, R_CLIENT_TARGET_TOO_LONG);
    assert_int_equal(fault.limit, 64);
    assert_int_equal(fault.actual, 65);
    assert_int_equal(fault.offset, 4);

    /* a line that will not end */
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET /", 5);
    assert_int_equal(end_by_bytes((struct str){text, 100}, true, &small), -1);
    assert_int_equal(fault.reason, R_CLIENT_TARGET_TOO_LONG);
    assert_int_equal(fault.limit, 10);
    assert_true(fault.actual > 10);

    /* nor does this, and it has no target yet */
    assert_int_equal(end_by_bytes((struct str){text + 5, 100}, true, &small), -1);
    assert_int_equal(fault.reason, R_BAD_METHOD);

    /* one field too many: it is named */
    assert_int_equal(
        end_by_bytes(STR("GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\nCc: 3\r\n\r\n"), true, &small), -1);
    assert_int_equal(fault.reason, R_CLIENT_HEADERS_TOO_LARGE);
    assert_int_equal(fault.limit, 2);
    assert_int_equal(fault.actual, 3);
    assert_int_equal(fault.field.n, 2);
    assert_int_equal(fault.offset, 28);
    assert_int_equal(end_by_bytes(STR("GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n"), true, &small),
                     28 + 2);

    /* too many bytes: the field under way is named */
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET / HTTP/1.1\r\nLong: ", 22);
    assert_int_equal(end_by_bytes((struct str){text, 300}, true, &small), -1);
    assert_int_equal(fault.reason, R_CLIENT_HEADERS_TOO_LARGE);
    assert_int_equal(fault.limit, 200);
    assert_int_equal(fault.actual, 201);
    assert_int_equal(fault.field.n, 4);

    /* a head of exactly the limit is taken, one byte more is not */
    memcpy(text + 196, "\r\n\r\n", 4);
    assert_int_equal(end_by_bytes((struct str){text, 200}, true, &small), 200);
    text[196] = 'a';
    memcpy(text + 197, "\r\n\r\n", 4);
    assert_int_equal(end_by_bytes((struct str){text, 201}, true, &small), -1);
    assert_int_equal(fault.reason, R_CLIENT_HEADERS_TOO_LARGE);

    /* of a backend's head it is a malformed answer, with the same numbers */
    memcpy(text, "HTTP/1.1 200\r\nL: ", 17);
    assert_int_equal(end_by_bytes((struct str){text, 300}, false, &small), -1);
    assert_int_equal(fault.reason, R_UPSTREAM_PROTOCOL);
    assert_int_equal(fault.limit, 200);
}

static void looks_at_each_byte_once_and_stops_at_the_end(void **state)
{
    struct h1_scan scan = {0};
    struct str s = STR(OK "\r\nGET /next");
    (void)state;
    assert_int_equal(h1_head_end(&scan, true, s.p, 20, &limits, &fault), 0);
    assert_int_equal(scan.pos, 20);
    assert_int_equal(scan.line, 16);
    assert_int_equal(scan.lines, 1);
    assert_int_equal(h1_head_end(&scan, true, s.p, s.n, &limits, &fault), BASE + 2);
    assert_int_equal(scan.lines, 2);
}

static void skips_whole_empty_lines_only(void **state)
{
    (void)state;
    assert_int_equal(h1_skip_empty("", 0), 0);
    assert_int_equal(h1_skip_empty("\r", 1), 0);
    assert_int_equal(h1_skip_empty("\r\n", 2), 2);
    assert_int_equal(h1_skip_empty("\r\n\r", 3), 2);
    assert_int_equal(h1_skip_empty("\r\n\r\nG", 5), 4);
    assert_int_equal(h1_skip_empty("\n\r\n", 3), 0);
}

static void glances_at_what_cannot_be_read(void **state)
{
    static const struct {
        const char *bytes, *method, *target;
    } cases[] = {
        {"GET /a?b=1 HTTP/1.1\r\nX", "GET", "/a?b=1"},
        {"PURGE /a", "PURGE", "/a"},
        {"GET /a\rb HTTP", "GET", "/a"},
        {"GET http://u:p@h/ HTTP/1.1", "GET", NULL},
        {"GET ", "GET", NULL},
        {"GET", NULL, NULL},
        {"", NULL, NULL},
        {"G(T /a HTTP/1.1", NULL, NULL},
        {" /a HTTP/1.1", NULL, NULL},
        {"\x16\x03\x01 /a", NULL, NULL},
        {"A23456789012345678901234567890123 /a", NULL, NULL}, /* longer than any method */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct str method = {NULL, 0}, target = {NULL, 0}, accept = {NULL, 0};
        h1_glance(cases[i].bytes, strlen(cases[i].bytes), &method, &target, &accept);
        assert_true(cases[i].method ? str_eq(method, str_of(cases[i].method)) : !method.p);
        assert_true(cases[i].target ? str_eq(target, str_of(cases[i].target)) : !target.p);
        assert_null(accept.p);
    }
}

static void glances_at_what_the_client_likes_to_read(void **state)
{
    static const char *const cases[][2] = {
        {"GET /a HTTP/9\r\naccept: text/html\r\n", " text/html"},
        {"\x16\r\nX: y\r\nACCEPT:a\r\nAccept: b\r\n", "a"},
        {"GET /a\r\nAccept-Encoding: a\r\nX-Accept: b\r\nAccept:\r\n", NULL},
        {"GET /a\r\nAccept: text/ht", NULL},         /* not all of it is there */
        {"GET /a\r\nX:\r\n\r\nAccept: c\r\n", NULL}, /* of a body */
        {"Accept: text/html\r\n", NULL},             /* the first line is no field */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct str method, target, accept = {NULL, 0};
        h1_glance(cases[i][0], strlen(cases[i][0]), &method, &target, &accept);
        assert_true(cases[i][1] ? str_eq(accept, str_of(cases[i][1])) : !accept.p);
    }
}

/* A head that is there at once is found where a search byte by byte finds it, whatever follows,
 * however long its lines are and wherever its memory ends. */
static void finds_at_once_what_is_found_byte_by_byte(void **state)
{
    static const char tail[] = "\r\n\r\nx: 1\r\n\r\n";
    (void)state;
    for (size_t pad = 0; pad < 70; pad++)
        for (size_t behind = 0; behind <= sizeof(tail) - 1 - 4; behind++)
            for (int lines = 1; lines <= 4; lines++) {
                char text[200] = "GET /";
                size_t n = 5;
                for (int i = 1; i < lines; i++)
                    n += (size_t)sprintf(text + n,
                                         i == 1 ? " HTTP/1.1\r\nA%d: b" : "\r\nA%d: b", i);
                memset(text + n, 'y', pad);
                memcpy(text + n + pad, tail, sizeof(tail));
                struct str s = {text, n + pad + 4 + behind};
                struct h1_scan whole = {0};
                char *p = copy_of(s);
                assert_int_equal(h1_head_end(&whole, true, p, s.n, &limits, &fault),
                                 n + pad + 4);
                assert_int_equal(whole.lines, lines);
                free(p);
                assert_int_equal(end_by_bytes(s, true, &limits), n + pad + 4);
            }
}

/* What only looks like an end is none. */
static void is_not_deceived_about_the_end(void **state)
{
    static const char *const ends[] = {"\n\r\n", "\r\n\n", "\n\n", "\r\nx\n", "\n\n\n\n"};
    (void)state;
    for (size_t i = 0; i < COUNT(ends); i++)
        for (size_t pad = 0; pad < 40; pad++) {
            char text[128] = "GET / HTTP/1.1\r\nA: ";
            size_t offset, n = strlen(text);
            memset(text + n, 'y', pad);
            strcpy(text + n + pad, ends[i]);
            strcat(text, "\r\n\r\n");
            assert_int_equal(verdict(str_of(text), true, &offset), R_BAD_LINE_ENDING);
        }
}

/* Limits hold for a head that is there at once, and are told with the same numbers. */
static void limits_hold_for_heads_that_come_whole(void **state)
{
    char text[2048] = "GET / HTTP/1.1\r\nHost: h\r\n";
    size_t n = strlen(text), offset;
    (void)state;
    for (int i = 1; i < 8; i++)
        n += (size_t)sprintf(text + n, "F%d: v\r\n", i);
    strcpy(text + n, "\r\n");
    assert_int_equal(verdict((struct str){text, n + 2}, true, &offset), R_NONE);
    strcpy(text + n, "Content-Length: 0\r\n\r\n"); /* it counts, though it is not kept */
    struct h1_scan scan = {0};
    assert_int_equal(h1_head_end(&scan, true, text, n + 21, &limits, &fault), -1);
    assert_int_equal(fault.reason, R_CLIENT_HEADERS_TOO_LARGE);
    assert_str(fault.field, "Content-Length");
    assert_int_equal(fault.limit, 8);
    assert_int_equal(fault.actual, 9);
    assert_int_equal(fault.offset, n);

    n = strlen(OK);
    memset(text + n, 'y', sizeof(text) - n);
    memcpy(text + n, "Long: ", 6);
    memcpy(text + limits.header_bytes - 3, "\r\n\r\n", 4);
    scan = (struct h1_scan){0};
    assert_int_equal(h1_head_end(&scan, true, text, limits.header_bytes + 1, &limits, &fault),
                     -1);
    assert_int_equal(fault.reason, R_CLIENT_HEADERS_TOO_LARGE);
    assert_int_equal(fault.limit, limits.header_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_too_long_from_one_byte_more_on),
        cmocka_unit_test(names_the_limit_that_was_met),
        cmocka_unit_test(looks_at_each_byte_once_and_stops_at_the_end),
        cmocka_unit_test(skips_whole_empty_lines_only),
        cmocka_unit_test(glances_at_what_cannot_be_read),
        cmocka_unit_test(glances_at_what_the_client_likes_to_read),
        cmocka_unit_test(finds_at_once_what_is_found_byte_by_byte),
        cmocka_unit_test(is_not_deceived_about_the_end),
        cmocka_unit_test(limits_hold_for_heads_that_come_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
