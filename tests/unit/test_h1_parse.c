#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"

static void accept_request(struct str s)
{
    size_t offset;
    assert_int_equal(verdict(s, true, &offset), R_NONE);
}

static void reads_all_parts_of_a_request(void **state)
{
    (void)state;
    accept_request(STR("POST /a/b?x=1&y HTTP/1.1\r\n"
                       "hOST: example.com:8080\r\n"
                       "X-Empty:\r\n"
                       "X-Blank: \t \r\n"
                       "X-Padded:\t a\tb \xff \r\n"
                       "Content-Length: 0042\r\n"
                       "Cookie:a=1\r\n"
                       "\r\n"));
    assert_int_equal(head.method, M_POST);
    assert_str(head.method_text, "POST");
    assert_str(head.target, "/a/b?x=1&y");
    assert_str(head.path, "/a/b");
    assert_str(head.query, "x=1&y");
    assert_str(head.authority, "example.com:8080");
    assert_int_equal(head.minor, 1);
    assert_true(head.keep_alive);
    assert_int_equal(head.framing, FRAMING_LENGTH);
    assert_true(head.has_length);
    assert_int_equal(head.length, 42);
    assert_false(head.expect_continue);
    assert_null(head.upgrade.p);
    assert_int_equal(head.count, 5); /* without the framing field */
    assert_int_equal(head.fields[0].id, F_HOST);
    assert_str(head.fields[0].name, "hOST");
    assert_str(head.fields[1].value, "");
    assert_str(head.fields[2].value, "");
    assert_str(head.fields[3].value, "a\tb \xff");
    assert_int_equal(head.fields[4].id, F_COOKIE);
    assert_str(head.fields[4].value, "a=1");
}

static void reads_every_form_of_target(void **state)
{
    static const struct {
        const char *line, *path, *query, *authority;
    } cases[] = {
        {"GET / HTTP/1.1", "/", NULL, "h"},
        {"GET /? HTTP/1.1", "/", "", "h"},
        {"GET /a?b?c HTTP/1.1", "/a", "b?c", "h"},
        {"GET //a HTTP/1.1", "//a", NULL, "h"},
        {"GET /a:b@c\"<>[]{}|\\^` HTTP/1.1", "/a:b@c\"<>[]{}|\\^`", NULL, "h"},
        {"OPTIONS * HTTP/1.1", "*", NULL, "h"},
        {"OPTIONS /* HTTP/1.1", "/*", NULL, "h"},
        {"GET http://h HTTP/1.1", "/", NULL, "h"},
        {"GET HTTPS://H/ HTTP/1.1", "/", NULL, "H"},
        {"GET https://h HTTP/1.1", "/", NULL, "h"},
        {"GET http://h?q HTTP/1.1", "/", "q", "h"},
        {"GET http://h/p?q HTTP/1.1", "/p", "q", "h"},
        {"GET http://other:81/p HTTP/1.1", "/p", NULL, "other:81"}, /* RFC 9112 3.2.2 */
        {"OPTIONS http://h HTTP/1.1", "*", NULL, "h"},              /* RFC 9112 3.2.4 */
        {"OPTIONS http://h/ HTTP/1.1", "/", NULL, "h"},
        {"OPTIONS http://h? HTTP/1.1", "/", "", "h"},
        {"M-SEARCH / HTTP/1.1", "/", NULL, "h"},
        {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1", "/", NULL, "h"}, /* 32 */
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128];
        snprintf(text, sizeof(text), "%s\r\nHost: h\r\n\r\n", cases[i].line);
        accept_request(str_of(text));
        assert_str(head.path, cases[i].path);
        assert_str(head.authority, cases[i].authority);
        if (cases[i].query)
            assert_str(head.query, cases[i].query);
        assert_int_equal(head.query.p != NULL, cases[i].query != NULL);
    }
}

static void takes_http_1_0_without_host(void **state)
{
    (void)state;
    accept_request(STR("GET / HTTP/1.0\r\n\r\n"));
    assert_int_equal(head.minor, 0);
    assert_false(head.keep_alive);
    assert_int_equal(head.authority.n, 0);
    assert_int_equal(head.framing, FRAMING_NONE);
    accept_request(STR("GET http://h/ HTTP/1.0\r\n\r\n"));
    assert_str(head.authority, "h");
    accept_request(STR("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
    assert_true(head.keep_alive);
}

static void reads_what_connection_says_in_any_number_of_fields(void **state)
{
    static const struct {
        const char *fields;
        int minor, keep_alive;
    } cases[] = {
        {"", 1, 1},
        {"Connection: close\r\n", 1, 0},
        {"Connection: x\r\nConnection: y, CLOSE\r\n", 1, 0},
        {"Connection: keep-alive, close\r\n", 1, 0},
        {"Connection: keep-alive\r\nConnection: close\r\n", 0, 0},
        {"Connection: x,\tkeep-alive ,\r\n", 0, 1},
        {"Connection: closed\r\n", 1, 1},
        {"Connection:\r\n", 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128];
        snprintf(text, sizeof(text), "GET / HTTP/1.%d\r\nHost: h\r\n%s\r\n", cases[i].minor,
                 cases[i].fields);
        accept_request(str_of(text));
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
    }
}

static void reads_framing_and_expectation(void **state)
{
    (void)state;
    accept_request(STR("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \t Chunked \r\n\r\n"));
    assert_int_equal(head.framing, FRAMING_CHUNKED);
    assert_false(head.has_length);
    assert_int_equal(head.count, 1);
    accept_request(STR("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"));
    assert_int_equal(head.framing, FRAMING_LENGTH);
    accept_request(
        STR("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775807\r\n\r\n"));
    assert_true(head.length == INT64_MAX);
    accept_request(STR("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n"
                       "Expect: 100-continue, 100-continue\r\n\r\n"));
    assert_true(head.expect_continue);
    /* RFC 9110 10.1.1: a 1.0 client cannot mean it */
    accept_request(STR("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n"));
    assert_false(head.expect_continue);
}

static void takes_an_upgrade_only_when_connection_names_it(void **state)
{
#define UP "GET / HTTP/1.1\r\nHost: h\r\n"
    static const struct {
        const char *text, *upgrade;
    } cases[] = {
        {UP "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\r\n", "websocket"},
        {UP "Connection: upgrade\r\nUpgrade: a/1, b\r\n\r\n", "a/1, b"},
        {UP "Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n", "x"},
        {UP "Upgrade: websocket\r\n\r\n", NULL},
        {UP "Connection: upgrade\r\n\r\n", NULL},
        {UP "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
         NULL},
        {UP "Connection: upgrade\r\nUpgrade: websocket, H2C\r\n\r\n", NULL},
        {UP "Connection: upgrade\r\nUpgrade: h2c/1\r\n\r\n", NULL},
        {UP "Connection: upgrade\r\nUpgrade: h2-14, a\r\n\r\n", NULL},
        {UP "Connection: upgrade\r\nUpgrade: a, http/1.1\r\n\r\n", NULL},
        {UP "Connection: upgrade\r\nUpgrade: TLS/1.0\r\n\r\n", NULL},
        {UP "Connection: upgrade\r\nUpgrade: tlsx, https\r\n\r\n", "tlsx, https"},
        /* an offer that is not taken does not forbid the body */
        {UP "Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\n", NULL},
        {UP "Upgrade: x\r\nContent-Length: 1\r\n\r\n", NULL},
        {"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        accept_request(str_of(cases[i].text));
        if (cases[i].upgrade)
            assert_str(head.upgrade, cases[i].upgrade);
        else
            assert_null(head.upgrade.p);
    }
}

/* Behind the request line and a good Host, the fields at fault; the offset counts from
 * where they begin. */
#define OK   "GET / HTTP/1.1\r\nHost: h\r\n"
#define BASE (sizeof(OK) - 1)

static void refuses_request_lines_that_are_none(void **state)
{
    static const struct {
        const char *line;
        enum reason reason;
        size_t offset;
    } cases[] = {
        {" GET / HTTP/1.1", R_BAD_REQUEST_LINE, 0},
        {"GET", R_BAD_REQUEST_LINE, 3},
        {"GET ", R_BAD_REQUEST_LINE, 4},
        {"GET /", R_BAD_REQUEST_LINE, 5}, /* HTTP/0.9 */
        {"GET / ", R_BAD_REQUEST_LINE, 6},
        {"GET  / HTTP/1.1", R_BAD_REQUEST_LINE, 4},
        {"GET /  HTTP/1.1", R_BAD_REQUEST_LINE, 6},
        {"GET / HTTP/1.1 ", R_BAD_REQUEST_LINE, 14},
        {"GET / HTTP/1.10", R_BAD_REQUEST_LINE, 14},
        {"GET / HTTP/1.", R_BAD_REQUEST_LINE, 6},
        {"GET / HTTP/11", R_BAD_REQUEST_LINE, 6},
        {"GET / http/1.1", R_BAD_REQUEST_LINE, 6},
        {"GET / HTTPS/1.1", R_BAD_REQUEST_LINE, 6},
        {"GET / x HTTP/1.1", R_BAD_REQUEST_LINE, 6},
        {"GET\t/ HTTP/1.1", R_BAD_METHOD, 3},
        {"G(T / HTTP/1.1", R_BAD_METHOD, 1},
        {"G\xc3T / HTTP/1.1", R_BAD_METHOD, 1},
        {"(GET / HTTP/1.1", R_BAD_METHOD, 0},
        {"GET\x01 / HTTP/1.1", R_BAD_REQUEST_LINE, 3}, /* seen before the line is whole */
        {"GET /\x7f HTTP/1.1", R_BAD_REQUEST_LINE, 5},
        {"CONNECT h:443 HTTP/1.1", R_BAD_METHOD, 0},
        {"CONNECT / HTTP/1.1", R_BAD_METHOD, 0},
        {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1", R_BAD_METHOD, 32}, /* 33 */
        {"GET * HTTP/1.1", R_BAD_TARGET, 4},
        {"GET a HTTP/1.1", R_BAD_TARGET, 4},
        {"GET ? HTTP/1.1", R_BAD_TARGET, 4},
        {"GET h:80 HTTP/1.1", R_BAD_TARGET, 4},
        {"GET ftp://h/ HTTP/1.1", R_BAD_TARGET, 4},
        {"GET http:/h/ HTTP/1.1", R_BAD_TARGET, 4},
        {"GET http:///a HTTP/1.1", R_BAD_TARGET, 11},
        {"GET http://u@h/ HTTP/1.1", R_BAD_TARGET, 11},
        {"GET http://h:x/ HTTP/1.1", R_BAD_TARGET, 11},
        {"GET /# HTTP/1.1", R_BAD_TARGET, 5},
        {"GET /\t HTTP/1.1", R_BAD_TARGET, 5},
        {"GET /\xc3\xa4 HTTP/1.1", R_BAD_TARGET, 5},
        {"GET / HTTP/0.9", R_BAD_VERSION, 6},
        {"GET / HTTP/1.2", R_BAD_VERSION, 6},
        {"GET / HTTP/2.0", R_BAD_VERSION, 6},
        {"GET / HTTP/9.9", R_BAD_VERSION, 6},
        {"PRI * HTTP/2.0", R_BAD_HTTP2, 0},
        {"PRI * HTTP/1.1", R_BAD_TARGET, 4},
        {"\x16\x03\x01\x02", R_BAD_TLS, 0},
        {"\x15", R_BAD_REQUEST_LINE, 0},
        {"", R_BAD_REQUEST_LINE, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128];
        size_t offset;
        snprintf(text, sizeof(text), "%s\r\nHost: h\r\n\r\n", cases[i].line);
        assert_int_equal(verdict(str_of(text), true, &offset), cases[i].reason);
        assert_int_equal(offset, cases[i].offset);
    }
}

static void refuses_field_lines_that_are_none(void **state)
{
    static const struct {
        struct str line;
        enum reason reason;
        size_t offset; /* in the line */
        const char *field;
    } cases[] = {
        {STR("A : 1"), R_BAD_FIELD_NAME, 1, NULL}, /* blank before the colon */
        {STR("A\t: 1"), R_BAD_FIELD_NAME, 1, NULL},
        {STR(": 1"), R_BAD_FIELD_NAME, 0, NULL},
        {STR("A"), R_BAD_FIELD_NAME, 1, NULL},
        {STR("A(: 1"), R_BAD_FIELD_NAME, 1, NULL},
        {STR("\xc3: 1"), R_BAD_FIELD_NAME, 0, NULL},
        {STR("A\x01: 1"), R_BAD_FIELD_NAME, 1, NULL},
        {STR("A\0: 1"), R_BAD_FIELD_NAME, 1, NULL},
        {STR(" A: 1"), R_BAD_FOLDING, 0, NULL},
        {STR("\tA: 1"), R_BAD_FOLDING, 0, NULL},
        {STR("A: 1\r\n b"), R_BAD_FOLDING, 6, NULL},
        {STR("A: \0"), R_BAD_FIELD_VALUE, 3, "A"},
        {STR("A: 1\x0b"), R_BAD_FIELD_VALUE, 4, "A"},
        {STR("A: \x7f"), R_BAD_FIELD_VALUE, 3, "A"},
        {STR("Abc: \x1f"), R_BAD_FIELD_VALUE, 5, "Abc"},
        {STR("A: 1\nB: 2"), R_BAD_LINE_ENDING, 4, "A"},
        {STR("A: 1\rB: 2"), R_BAD_LINE_ENDING, 4, "A"},
        {STR("A: 1\r\r"), R_BAD_LINE_ENDING, 4, "A"},
        {STR("A: 1\n"), R_BAD_LINE_ENDING, 4, "A"},
        {STR("\nA: 1"), R_BAD_LINE_ENDING, 0, NULL},
        {STR("\rA: 1"), R_BAD_LINE_ENDING, 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128] = OK;
        size_t n = BASE, offset;
        memcpy(text + n, cases[i].line.p, cases[i].line.n);
        n += cases[i].line.n;
        memcpy(text + n, "\r\n\r\n", 4);
        assert_int_equal(verdict((struct str){text, n + 4}, true, &offset), cases[i].reason);
        assert_int_equal(offset, BASE + cases[i].offset);
        if (cases[i].field)
            assert_int_equal(fault.field.n, strlen(cases[i].field));
        else
            assert_null(fault.field.p);
    }
}

/* The parser by itself, without h1_head_end before it, for each byte in each place. */
static void parser_alone_finds_every_foreign_byte(void **state)
{
    static const char good[] = "GET /a HTTP/1.1\r\nHost: h\r\nAb: cd\r\n\r\n";
    (void)state;
    for (size_t at = 0; at < sizeof(good) - 1; at++) {
        for (int c = 0; c < 256; c++) {
            char text[sizeof(good)];
            int is_control = (c < 0x20 && c != '\t') || c == 0x7f;
            memcpy(text, good, sizeof(good));
            text[at] = (char)c;
            int err = parse((struct str){text, sizeof(good) - 1}, true, M_GET);
            if (good[at] == (char)c)
                assert_int_equal(err, 0);
            else if (is_control || good[at] == '\r' || good[at] == '\n')
                assert_int_equal(err, -1);
        }
    }
    assert_int_equal(parse(STR("GET / HTTP/1.1\r\nHost: h\r\n\r\nA: 1\r\n\r\n"), true, M_GET),
                     -1);
    for (size_t n = 0; n < sizeof(good) - 1; n++) /* and every cut */
        assert_int_equal(parse((struct str){good, n}, true, M_GET), -1);
}

#define NO_HOST "GET / HTTP/1.1\r\n"

struct refusal {
    const char *text;
    enum reason reason;
};

static void refuse_all(const struct refusal *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t offset;
        assert_int_equal(verdict(str_of(cases[i].text), true, &offset), cases[i].reason);
    }
}

static void refuses_hosts_that_route_in_two_ways(void **state)
{
    static const struct refusal cases[] = {
        {NO_HOST "\r\n", R_BAD_HOST},
        {NO_HOST "Host:\r\n\r\n", R_BAD_HOST},
        {NO_HOST "Host: a b\r\n\r\n", R_BAD_HOST},
        {NO_HOST "Host: a,b\r\n\r\n", R_BAD_HOST},
        {NO_HOST "Host: u@a\r\n\r\n", R_BAD_HOST},
        {NO_HOST "Host: a/b\r\n\r\n", R_BAD_HOST},
        {OK "Host: h\r\n\r\n", R_BAD_HOST},
        {OK "hoST: other\r\n\r\n", R_BAD_HOST},
        {"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", R_BAD_HOST},
        {"GET http://a/ HTTP/1.1\r\n\r\n", R_BAD_HOST},
    };
    (void)state;
    refuse_all(cases, COUNT(cases));
}

static void refuses_fields_that_frame_in_two_ways(void **state)
{
    static const struct refusal cases[] = {
        {OK "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 1, 1\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length:\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: +1\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: -1\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 0x1\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 1 0\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 1_0\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: \"1\"\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 9223372036854775808\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 18446744073709551617\r\n\r\n", R_BAD_LENGTH},
        {OK "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", R_BAD_FRAMING},
        {OK "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", R_BAD_FRAMING},
        {OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: chunked, chunked\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: chunked, gzip\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: chunked,\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: ,\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding:\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: \"chunked\"\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: chunked;q=1\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: chun ked\r\n\r\n", R_BAD_TRANSFER},
        {OK "Transfer-Encoding: gzip, chunked\r\n\r\n", R_BAD_CODING},
        {OK "Transfer-Encoding: cow\r\n\r\n", R_BAD_CODING},
        {OK "Transfer-Encoding: identity\r\n\r\n", R_BAD_CODING},
        {OK "Transfer-Encoding: xchunked\r\n\r\n", R_BAD_CODING},
        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", R_BAD_TRANSFER},
    };
    (void)state;
    refuse_all(cases, COUNT(cases));
}

static void refuses_expectations_and_upgrades_it_cannot_keep(void **state)
{
    static const struct refusal cases[] = {
        {OK "Expect: 200-ok\r\n\r\n", R_CLIENT_EXPECT},
        {OK "Expect: 100-continue, x\r\n\r\n", R_CLIENT_EXPECT},
        {OK "Expect: 100-continue\r\nExpect: x\r\n\r\n", R_CLIENT_EXPECT},
        {UP "Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\n", R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n",
         R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade: x\r\nUpgrade: y\r\n\r\n", R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade: a b\r\n\r\n", R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade: /1\r\n\r\n", R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade: a/\r\n\r\n", R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade: a/1/2\r\n\r\n", R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade: b, a/(\r\n\r\n", R_BAD_UPGRADE},
        {UP "Connection: upgrade\r\nUpgrade:\r\n\r\n", R_BAD_UPGRADE},
    };
    (void)state;
    refuse_all(cases, COUNT(cases));
}

static void points_at_the_field_at_fault(void **state)
{
    size_t offset;
    (void)state;
    verdict(STR(OK "content-LENGTH:  x\r\n\r\n"), true, &offset);
    assert_str(fault.field, "content-LENGTH");
    assert_int_equal(offset, BASE + 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_parts_of_a_request),
        cmocka_unit_test(reads_every_form_of_target),
        cmocka_unit_test(takes_http_1_0_without_host),
        cmocka_unit_test(reads_what_connection_says_in_any_number_of_fields),
        cmocka_unit_test(reads_framing_and_expectation),
        cmocka_unit_test(takes_an_upgrade_only_when_connection_names_it),
        cmocka_unit_test(refuses_request_lines_that_are_none),
        cmocka_unit_test(refuses_field_lines_that_are_none),
        cmocka_unit_test(parser_alone_finds_every_foreign_byte),
        cmocka_unit_test(refuses_hosts_that_route_in_two_ways),
        cmocka_unit_test(refuses_fields_that_frame_in_two_ways),
        cmocka_unit_test(refuses_expectations_and_upgrades_it_cannot_keep),
        cmocka_unit_test(points_at_the_field_at_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
