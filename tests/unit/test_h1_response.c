#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"

static void accept_response(const char *text)
{
    size_t offset;
    assert_int_equal(verdict(str_of(text), false, &offset), R_NONE);
}

static void reads_all_parts_of_a_response(void **state)
{
    (void)state;
    accept_response("HTTP/1.1 404 Not Found\t\xff\r\nServer: x\r\nContent-Length: 3\r\n\r\n");
    assert_int_equal(head.status, 404);
    assert_str(head.reason_phrase, "Not Found\t\xff");
    assert_int_equal(head.framing, FRAMING_LENGTH);
    assert_int_equal(head.length, 3);
    assert_int_equal(head.count, 1);
    assert_true(head.keep_alive);
    accept_response("HTTP/1.1 200 \r\n\r\n");
    assert_int_equal(head.reason_phrase.n, 0);
    accept_response("HTTP/1.1 599\r\n\r\n");
    assert_int_equal(head.reason_phrase.n, 0);
}

static void knows_where_a_response_ends(void **state)
{
    static const struct {
        const char *text;
        enum method method;
        enum framing framing;
        int has_length, keep_alive;
    } cases[] = {
        {"HTTP/1.1 200\r\n\r\n", M_GET, FRAMING_CLOSE, 0, 0},
        {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", M_GET, FRAMING_LENGTH, 1, 1},
        {"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", M_GET, FRAMING_CHUNKED, 0, 1},
        {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", M_HEAD, FRAMING_NONE, 1, 1},
        {"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", M_HEAD, FRAMING_NONE, 0, 1},
        {"HTTP/1.1 200\r\n\r\n", M_HEAD, FRAMING_NONE, 0, 1},
        {"HTTP/1.1 204\r\nContent-Length: 5\r\n\r\n", M_GET, FRAMING_NONE, 1, 1},
        {"HTTP/1.1 204\r\nTransfer-Encoding: chunked\r\n\r\n", M_GET, FRAMING_NONE, 0, 1},
        {"HTTP/1.1 304\r\nContent-Length: 5\r\n\r\n", M_GET, FRAMING_NONE, 1, 1},
        {"HTTP/1.1 100\r\nContent-Length: 5\r\n\r\n", M_POST, FRAMING_NONE, 1, 1},
        {"HTTP/1.1 205\r\n\r\n", M_GET, FRAMING_CLOSE, 0, 0},
        {"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\n", M_GET, FRAMING_LENGTH, 1, 0},
        {"HTTP/1.0 200\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n", M_GET,
         FRAMING_LENGTH, 1, 1},
        {"HTTP/1.0 200\r\nConnection: keep-alive\r\n\r\n", M_GET, FRAMING_CLOSE, 0, 0},
        {"HTTP/1.1 200\r\nContent-Length: 1\r\nConnection: close\r\n\r\n", M_GET,
         FRAMING_LENGTH, 1, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        accept_response(cases[i].text);
        assert_int_equal(parse(str_of(cases[i].text), false, cases[i].method), 0);
        assert_int_equal(head.framing, cases[i].framing);
        assert_int_equal(head.has_length, cases[i].has_length);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
    }
}

static void tells_which_protocol_a_101_switches_to(void **state)
{
    (void)state;
    accept_response(
        "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_int_equal(head.framing, FRAMING_NONE);
    assert_str(head.upgrade, "websocket");
    accept_response("HTTP/1.1 200\r\nConnection: upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n");
    assert_null(head.upgrade.p); /* an offer, on its way out with the hop's other fields */
}

static void refuses_responses_that_read_in_two_ways(void **state)
{
#define R200 "HTTP/1.1 200 OK\r\n"
    static const char *const cases[] = {
        "\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 \r\n\r\n",
        "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1 +20 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1\t200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        " HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 O\x01K\r\n\r\n",
        "HTTP/1.1 200 OK\n\r\n\r\n",
        R200 "A: 1\r\n b\r\n\r\n",
        R200 "A : 1\r\n\r\n",
        R200 "A: \x01\r\n\r\n",
        R200 "A: 1\n\r\n",
        R200 "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        R200 "Content-Length: 1, 1\r\n\r\n",
        R200 "Content-Length: x\r\n\r\n",
        R200 "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        R200 "Transfer-Encoding: gzip, chunked\r\n\r\n",
        R200 "Transfer-Encoding: identity\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 204\r\nContent-Length: x\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t offset;
        assert_int_equal(verdict(str_of(cases[i]), false, &offset), R_UPSTREAM_PROTOCOL);
    }
}

static int parse_trailers(const char *text, bool request)
{
    char *p = copy_of(str_of(text));
    static char *last;
    free(last);
    last = p;
    head.fields = fields;
    head.cap = MAX_FIELDS;
    return h1_parse_trailers(p, strlen(text), request, &limits, &head, &fault);
}

static void keeps_only_harmless_trailers(void **state)
{
    (void)state;
    assert_int_equal(parse_trailers("\r\n", true), 0);
    assert_int_equal(head.count, 0);
    assert_int_equal(parse_trailers("Content-Length: 5\r\nX-Sum: 1\r\nHost: a\r\n"
                                    "transfer-encoding: x\r\nX_Forwarded_For: 1.2.3.4\r\n"
                                    "Set-Cookie: a\r\nx.request.id: 1\r\nEtag: 2\r\n\r\n",
                                    true),
                     0);
    assert_int_equal(head.count, 2);
    assert_str(head.fields[0].name, "X-Sum");
    assert_str(head.fields[1].value, "2");
    assert_int_equal(head.framing, FRAMING_NONE);
}

static void refuses_malformed_trailers(void **state)
{
    static const char *const cases[] = {
        "",
        "A: 1\r\n",
        "A : 1\r\n\r\n",
        "A: 1\n\r\n",
        "A: 1\r\n b\r\n\r\n",
        "A: \x01\r\n\r\n",
        "\r\nA: 1\r\n\r\n",
        "A\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(parse_trailers(cases[i], true), -1);
        assert_int_equal(fault.reason, R_BAD_TRAILER);
        assert_int_equal(parse_trailers(cases[i], false), -1);
        assert_int_equal(fault.reason, R_UPSTREAM_PROTOCOL);
    }
    assert_int_equal(
        parse_trailers("A:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nB:\r\n\r\n", true), -1);
    assert_int_equal(fault.reason, R_CLIENT_HEADERS_TOO_LARGE);
    assert_str(fault.field, "B");
    assert_int_equal(fault.limit, 8);
}

static void finds_the_end_of_a_trailer_section_cut_anywhere(void **state)
{
    static const char *const cases[] = {"\r\n", "A: 1\r\n\r\n", "A: 1\r\nB: 2\r\n\r\n"};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t n = strlen(cases[i]);
        for (size_t cut = 0; cut <= n; cut++) {
            struct h1_scan scan = {.lines = 1};
            long end = h1_head_end(&scan, true, cases[i], cut, &limits, &fault);
            assert_int_equal(end, cut == n ? (long)n : 0);
            end = h1_head_end(&scan, true, cases[i], n, &limits, &fault);
            assert_int_equal(end, n);
        }
    }
    struct h1_scan scan = {.lines = 1};
    assert_int_equal(h1_head_end(&scan, true, "A: 1\n", 5, &limits, &fault), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_parts_of_a_response),
        cmocka_unit_test(knows_where_a_response_ends),
        cmocka_unit_test(tells_which_protocol_a_101_switches_to),
        cmocka_unit_test(refuses_responses_that_read_in_two_ways),
        cmocka_unit_test(keeps_only_harmless_trailers),
        cmocka_unit_test(refuses_malformed_trailers),
        cmocka_unit_test(finds_the_end_of_a_trailer_section_cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
