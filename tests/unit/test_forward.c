#include "forward_test.h"

static void a_strangers_word_about_others_is_dropped(void **state)
{
    (void)state;
    begin("", "192.0.2.7");
    const char *out = forwarded("GET /a?b HTTP/1.1\r\nHost: H.example:80\r\n"
                                "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\n"
                                "X-Forwarded-Host: evil\r\nX_Forwarded_For: 2.2.2.2\r\n"
                                "X.Request.Id: twin\r\nForwarded: for=3.3.3.3\r\n"
                                "X-Request-Id: mine\r\nExpect: 100-continue\r\n"
                                "Accept: x\r\n\r\n");
    assert_has(out, "/a?b\nHost: H.example:80\nAccept: x\n");
    assert_has(out, "\nX-Forwarded-For: 192.0.2.7\n");
    assert_has(out, "\nX-Forwarded-Proto: http\n");
    assert_has(out, "\nX-Forwarded-Host: H.example:80\n");
    assert_has(out, "\nVia: 1.1 postern\n");
    static const char *const gone[] = {"1.1.1.1", "2.2.2.2", "3.3.3.3", "evil",
                                       "twin",    "mine",    "Expect"};
    for (size_t i = 0; i < sizeof(gone) / sizeof(*gone); i++)
        assert_lacks(out, gone[i]);
    assert_str(ex.host, "h.example");
    assert_str(ex.client_ip, "192.0.2.7");
    assert_int_equal(ex.req_id.n, ID_LEN);
    end();
}

static void a_trusted_proxys_word_is_kept(void **state)
{
    (void)state;
    begin("", "10.0.0.1");
    const char *out = forwarded("GET / HTTP/1.1\r\nHost: h\r\n"
                                "X-Forwarded-For: 6.6.6.6, 192.0.2.9\r\n"
                                "X-Forwarded-For: 10.1.2.3\r\n"
                                "X-Forwarded-Proto: https\r\nX-Request-Id: abc-1\r\n\r\n");
    assert_has(out, "\nX-Forwarded-For: 6.6.6.6, 192.0.2.9, 10.1.2.3, 10.0.0.1\n");
    assert_has(out, "\nX-Forwarded-Proto: https\n");
    assert_has(out, "\nX-Request-Id: abc-1\n");
    assert_str(ex.client_ip, "192.0.2.9"); /* whom the last trusted hop names */
    end();
}

static void spellings_of_the_framing_are_dropped(void **state)
{
    (void)state;
    begin("", "192.0.2.7");
    const char *out = forwarded("GET / HTTP/1.1\r\nHost: h\r\nContent_Length: 5\r\n"
                                "transfer.encoding: chunked\r\nContent_Type: kept\r\n\r\n");
    assert_lacks(out, "Content_Length");
    assert_lacks(out, "transfer.encoding");
    assert_has(out, "\nContent_Type: kept\n");
    end();
}

static void a_trace_or_options_goes_as_far_as_it_may(void **state)
{
    (void)state;
#define HOPS(method, text) method " / HTTP/1.1\r\nHost: h\r\n" text "\r\n"
    static const struct {
        const char *request, *left;
        enum hops hops;
    } cases[] = {
        {HOPS("OPTIONS", ""), NULL, HOPS_ON},
        {HOPS("OPTIONS", "Max-Forwards: 3\r\n"), "2", HOPS_ON},
        {HOPS("TRACE", "max-forwards: 01\r\n"), "0", HOPS_ON},
        {HOPS("TRACE", "Max-Forwards: 0\r\n"), "0", HOPS_HERE},
        {HOPS("TRACE", "Max-Forwards: -1\r\n"), "-1", HOPS_BAD},
        {HOPS("TRACE", "Max-Forwards:\r\n"), "", HOPS_BAD},
        {HOPS("TRACE", "Max-Forwards: 4294967296\r\n"), "4294967296", HOPS_BAD},
        {HOPS("OPTIONS", "Max-Forwards: 3\r\nX: 1\r\nmax-forwards: 3\r\n"), "3", HOPS_BAD},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        begin("", "192.0.2.7");
        assert_int_equal(identify(cases[i].request), R_NONE);
        assert_int_equal(forward_hops(&ex), cases[i].hops);
        const struct field *field = head_find_name(ex.head, STR("Max-Forwards"));
        assert_true(!field == !cases[i].left);
        if (field)
            assert_str(field->value, cases[i].left);
        end();
    }
#undef HOPS
}

static void who_is_behind_trusted_proxies(void **state)
{
    (void)state;
    static const struct {
        const char *value, *client;
    } cases[] = {
        {"192.0.2.9", "192.0.2.9"},
        {"10.2.2.2, 10.3.3.3", "10.2.2.2"}, /* all trusted: the furthest */
        {"192.0.2.9, unknown", "10.0.0.1"}, /* beyond what is no address: anybody's word */
        {"192.0.2.9, unknown, 10.9.9.9", "10.9.9.9"},
        {"[2001:db8::1]:5000", "2001:db8::1"},
        {",", "10.0.0.1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char request[256];
        begin("", "10.0.0.1");
        snprintf(request, sizeof(request),
                 "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: %s\r\n\r\n", cases[i].value);
        assert_int_equal(identify(request), R_NONE);
        assert_str(ex.client_ip, cases[i].client);
        end();
    }
}

static void a_trace_is_kept_or_started(void **state)
{
    (void)state;
#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
    begin("", "192.0.2.7");
    const char *out = forwarded("GET / HTTP/1.1\r\nHost: h\r\n"
                                "traceparent: 00-" ID "-00f067aa0ba902b7-01\r\n"
                                "tracestate: a=b\r\n\r\n");
    assert_has(out, "00-" ID "-00f067aa0ba902b7-01\n");
    assert_has(out, "tracestate: a=b\n");
    assert_str(ex.trace_id, ID);
    end();

    static const char *const broken[] = {
        "00-" ID "-0000000000000000-01",
        "ff-" ID "-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-" ID "-00f067aa0ba902b7-01-x",
        "cc-" ID "-00f067aa0ba902b7-01x",
        "cc-" ID "-00f067aa0ba902b7-0",
        "00-" ID "-00f067aa0ba902b7-01\r\ntraceparent: 00-" ID "-00f067aa0ba902b7-01",
    };
    for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++) {
        char request[256];
        begin("", "192.0.2.7");
        snprintf(request, sizeof(request),
                 "GET / HTTP/1.1\r\nHost: h\r\ntraceparent: %s\r\ntracestate: a=b\r\n\r\n",
                 broken[i]);
        out = forwarded(request);
        assert_lacks(out, broken[i]);
        assert_lacks(out, "tracestate"); /* it belongs to the other trace */
        char mine[64];
        snprintf(mine, sizeof(mine), "\nTraceparent: 00-%.*s-", ID_LEN, ex.trace_id.p);
        assert_has(out, mine);
        end();
    }
}

/* W3C Trace Context 3.2.2: a version to come begins like this one. */
static void a_trace_of_a_later_version_is_kept(void **state)
{
    (void)state;
    static const char *const later[] = {"01-" ID "-00f067aa0ba902b7-01",
                                        "cc-" ID "-00f067aa0ba902b7-01-what-is-new"};
    for (size_t i = 0; i < sizeof(later) / sizeof(*later); i++) {
        char request[256], line[128];
        begin("", "192.0.2.7");
        snprintf(request, sizeof(request),
                 "GET / HTTP/1.1\r\nHost: h\r\ntraceparent: %s\r\ntracestate: a=b\r\n\r\n",
                 later[i]);
        snprintf(line, sizeof(line), "\nTraceparent: %s\n", later[i]);
        const char *out = forwarded(request);
        assert_has(out, line);
        assert_has(out, "\ntracestate: a=b\n");
        assert_str(ex.trace_id, ID);
        end();
    }
}

static void hop_by_hop_fields_stay_behind(void **state)
{
    (void)state;
    begin("", "192.0.2.7");
    const char *out =
        forwarded("GET / HTTP/1.1\r\nHost: h\r\nConnection: X-Private, close\r\n"
                  "X-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nA: b\r\n\r\n");
    assert_has(out, "A: b\n");
    assert_lacks(out, "Private");
    assert_lacks(out, "Keep-Alive");
    assert_lacks(out, "TE:");
    assert_lacks(out, "Connection");
    assert_int_equal(identify("GET / HTTP/1.1\r\nHost: h\r\nConnection: Authorization\r\n"
                              "Authorization: x\r\n\r\n"),
                     R_BAD_CONNECTION);
    end();
}

static void targets_are_rewritten_as_the_route_says(void **state)
{
    (void)state;
    static const struct {
        const char *route, *target, *out;
    } cases[] = {
        {"", "/a/%7Eb?q=1", "/a/%7Eb?q=1"},
        {"", "http://other/a?q", "/a?q"},
        {"", "/a?", "/a?"},
        {"strip_prefix = \"/api\" path = \"/api/{rest...}\"", "/api/x?q=1", "/x?q=1"},
        {"strip_prefix = \"/api\" path = \"/api\"", "/api", "/"},
        {"path = \"/u/{id}\" rewrite = \"/v2/{id}/x\"", "/u/7?q", "/v2/7/x?q"},
        {"path = \"/u/{r...}\" rewrite = \"/{r}\"", "/u/", "/"},
        {"path = \"/u/{r...}\" rewrite = \"/v/{r}\"", "/u/?", "/v/?"},
        {"path = \"/u/{r...}\" rewrite = \"/{host}/{r}\"", "/u/a%2Cb", "/other/a%2Cb"},
        {"path = \"/u/{r...}\" rewrite = \"{path}/{r}\"", "/u/./a//b", "/u/a/b/a/b"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char request[256], line[128];
        begin(cases[i].route, "192.0.2.7");
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: other\r\n\r\n",
                 cases[i].target);
        snprintf(line, sizeof(line), "%s\nHost: other\n", cases[i].out);
        const char *out = forwarded(request);
        if (strncmp(out, line, strlen(line)) != 0)
            fail_msg("%s gives %s", cases[i].target, out);
        end();
    }
}

/* Where doubled slashes are kept, what is left of a path may begin with one. */
static void no_target_begins_with_two_slashes_by_our_doing(void **state)
{
    (void)state;
    static const char *const routes[] = {"path = \"/u/{r...}\" rewrite = \"/{r}\"",
                                         "path = \"/u/{r...}\" strip_prefix = \"/u\""};
    for (size_t i = 0; i < 2; i++) {
        begin_with("paths { double_slash = keep }", "", routes[i], "192.0.2.7");
        const char *out = forwarded("GET /u///evil.example//x HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(strncmp(out, "/evil.example//x\n", 17), 0);
        end();
    }
}

static void fields_are_edited_as_the_route_says(void **state)
{
    (void)state;
    begin("path = \"/{name}\" request_headers { set = {\"X-A: {name}-{client_ip}-{host}\"} "
          "add = {\"X-B: {header:X-In}\"} remove = {\"X-C\"} }\n"
          "response_headers { set = {\"Server: p\"} remove = {\"X-D\"} }",
          "192.0.2.7");
    const char *out = forwarded("GET /n HTTP/1.1\r\nHost: h\r\nX-A: old\r\nX-In: q\tr\r\n"
                                "x-c: gone\r\nX-B: one\r\n\r\n");
    assert_has(out, "\nX-A: n-192.0.2.7-h\n");
    assert_lacks(out, "old");
    assert_has(out, "\nX-B: one\n");
    assert_has(out, "\nX-B: q r\n");
    assert_lacks(out, "gone");

    struct field answer[8] = {{.name = STR("Server"), .value = STR("nginx"), .id = F_SERVER},
                              {.name = STR("X-D"), .value = STR("1"), .id = F_OTHER},
                              {.name = STR("X-E"), .value = STR("2"), .id = F_OTHER}};
    struct head response = {
        .fields = answer, .count = 3, .cap = 8, .present = UINT64_MAX, .status = 200};
    assert_int_equal(forward_response(&ex, &response), R_NONE);
    assert_int_equal(response.count, 2);
    assert_str(head_find(&response, F_SERVER)->value, "p");
    end();
}

static void all_x_forwarded_fields_are_a_proxys_word(void **state)
{
    (void)state;
    const char *request = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Prefix: /p\r\n"
                          "x_forwarded-port: 1\r\nX-Forwarded: a\r\nX-Forwarded-: b\r\n"
                          "X-Forward-Port: c\r\nY-Forwarded-Port: d\r\n\r\n";
    begin("", "192.0.2.7");
    const char *out = forwarded(request);
    assert_lacks(out, "forwarded-prefix");
    assert_lacks(out, "x_forwarded-port");
    assert_has(out,
               "\nX-Forwarded: a\nX-Forwarded-: b\nX-Forward-Port: c\nY-Forwarded-Port: d\n");
    end();
    begin("", "10.0.0.1");
    out = forwarded(request);
    assert_has(out, "\nX-Forwarded-Prefix: /p\nx_forwarded-port: 1\n");
    end();
}

/* A field is renamed by one edit, two are exchanged, and what is added may say what was set. */
static void edits_see_the_request_as_it_was(void **state)
{
    (void)state;
    begin("request_headers { remove = {\"X-Old\"} set = {\"X-New: {header:X-Old}\", "
          "\"X-A: {header:X-B}\", \"X-B: {header:X-A}\"} add = {\"X-C: {header:X-A}\"} }",
          "192.0.2.7");
    const char *out = forwarded("GET / HTTP/1.1\r\nHost: h\r\nX-Old: o\r\nX-A: 1\r\n"
                                "X-B: 2\r\n\r\n");
    assert_has(out, "\nX-New: o\nX-A: 2\nX-B: 1\nX-C: 1\n");
    assert_lacks(out, "X-Old");
    end();
}

static void cookies_are_found_by_their_whole_name(void **state)
{
    (void)state;
    struct field some[] = {
        {.name = STR("Cookie"), .value = STR("xid=1; id2=2;id=three ; e="), .id = F_COOKIE},
        {.name = STR("Cookie"), .value = STR("late=4; id=5"), .id = F_COOKIE}};
    struct head with = {.fields = some, .count = 2, .cap = 2};
    assert_str(forward_cookie(&with, STR("id")), "three");
    assert_str(forward_cookie(&with, STR("late")), "4");
    assert_str(forward_cookie(&with, STR("e")), "");
    assert_null(forward_cookie(&with, STR("ID")).p); /* case counts */
    assert_null(forward_cookie(&with, STR("i")).p);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char request[] = "GET /n HTTP/1.1\r\nHost: h\r\nX-In: q\r\n\r\n";
    unsigned long nth = 1;
    for (bool whole = false; !whole; nth++) {
        assert_true(nth < 50);
        begin("path = \"/{name}\" request_headers { set = {\"X-A: {name}{header:X-In}\"} }",
              "10.0.0.1");
        mem_fail_at(nth);
        enum reason reason = identify(request);
        if (!reason)
            reason = forward_request(&ex);
        mem_fail_at(0);
        whole = !reason;
        assert_true(whole || reason == R_NO_MEMORY);
        end();
    }
    assert_true(nth > 1);
}

static void host_is_passed_set_or_the_servers_own(void **state)
{
    (void)state;
    const char *request = "GET / HTTP/1.1\r\nHost: Client.example\r\n\r\n";
    begin_with("", "host = pass", "", "192.0.2.7");
    assert_has(forwarded(request), "\nHost: Client.example\n");
    end();
    begin_with("", "host = \"inner:8080\"", "", "192.0.2.7");
    const char *out = forwarded(request);
    assert_has(out, "\nHost: inner:8080\n");
    assert_has(out, "\nX-Forwarded-Host: Client.example\n");
    assert_lacks(out, "\nHost: Client");
    end();
    begin_with("", "host = upstream", "", "192.0.2.7");
    assert_has(forwarded(request), "\nHost: 127.0.0.1:2\n");
    end();
    begin_with("", "host = upstream", "request_headers { set = {\"Host: route\"} }",
               "192.0.2.7");
    assert_has(forwarded(request), "\nHost: route\n");
    forward_again(&ex);
    assert_true(str_eq(head_find(&head, F_HOST)->value, STR("route")));
    end();
}

static void the_next_server_is_called_by_its_own_name(void **state)
{
    (void)state;
    begin_with("", "server \"unix:/s\" {} server \"127.0.0.3:3\" {} host = upstream", "",
               "192.0.2.7");
    assert_has(forwarded("GET / HTTP/1.0\r\n\r\n"), "\nHost: 127.0.0.1:2\n");
    ex.server = 1;
    forward_again(&ex);
    assert_true(str_eq(head_find(&head, F_HOST)->value, STR("localhost")));
    ex.server = 2;
    forward_again(&ex);
    assert_true(str_eq(head_find(&head, F_HOST)->value, STR("127.0.0.3:3")));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_is_passed_set_or_the_servers_own),
        cmocka_unit_test(the_next_server_is_called_by_its_own_name),
        cmocka_unit_test(a_strangers_word_about_others_is_dropped),
        cmocka_unit_test(a_trusted_proxys_word_is_kept),
        cmocka_unit_test(spellings_of_the_framing_are_dropped),
        cmocka_unit_test(a_trace_or_options_goes_as_far_as_it_may),
        cmocka_unit_test(who_is_behind_trusted_proxies),
        cmocka_unit_test(a_trace_is_kept_or_started),
        cmocka_unit_test(a_trace_of_a_later_version_is_kept),
        cmocka_unit_test(all_x_forwarded_fields_are_a_proxys_word),
        cmocka_unit_test(edits_see_the_request_as_it_was),
        cmocka_unit_test(hop_by_hop_fields_stay_behind),
        cmocka_unit_test(targets_are_rewritten_as_the_route_says),
        cmocka_unit_test(no_target_begins_with_two_slashes_by_our_doing),
        cmocka_unit_test(fields_are_edited_as_the_route_says),
        cmocka_unit_test(cookies_are_found_by_their_whole_name),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("forward", tests, NULL, NULL);
}
