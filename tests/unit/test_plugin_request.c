#include "plugged_test.h"

#define S(text) ((postern_str){(text), sizeof(text) - 1})

/* Runs in a hook of the one plugin there is, and looks at the request from there. */
static void inside(const char *request, void (*look)(postern_request *r))
{
    add_actor("a", GO)->inside = look;
    ask(request);
    assert_non_null(strstr(heard, "a.request"));
}

static void assert_span(postern_str got, const char *expected)
{
    if (!expected) {
        assert_null(got.p);
        return;
    }
    assert_non_null(got.p);
    assert_int_equal(got.n, strlen(expected));
    assert_memory_equal(got.p, expected, got.n);
}

/* The request's fields as they would go out, "Name=value " each. */
static const char *fields_left(void)
{
    static char text[1024];
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < head.count; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%.*s=%.*s ",
                              (int)head.fields[i].name.n, head.fields[i].name.p,
                              (int)head.fields[i].value.n, head.fields[i].value.p);
    return text;
}

static void look_at_all(postern_request *r)
{
    static const struct {
        enum postern_field field;
        const char *value;
    } cases[] = {
        {POSTERN_METHOD, "POST"},
        {POSTERN_SCHEME, "http"},
        {POSTERN_PROTOCOL, "HTTP/1.1"},
        {POSTERN_CLIENT_IP, "192.0.2.7"},
        {POSTERN_HOST, "shop.example"},
        {POSTERN_PATH, "/b"},
        {POSTERN_TARGET, "/a/../b?c=%64"},
        {POSTERN_QUERY, "c=%64"},
        {POSTERN_LISTENER, "l"},
        {POSTERN_ROUTE, "r"},
        {POSTERN_UPSTREAM, NULL},
        {POSTERN_CREDENTIAL, NULL},
        {POSTERN_TLS_SUBJECT, NULL},
        {POSTERN_REASON, NULL},
        {POSTERN_AUTHORITY, "Shop.Example:81"},
        {(enum postern_field)0, NULL},
        {(enum postern_field)99, NULL},
    };
    uint8_t address[16];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_span(host_api.get(r, cases[i].field), cases[i].value);
    assert_int_equal(host_api.address(r, address), 4);
    assert_memory_equal(address, "\xc0\x00\x02\x07", 4);
    assert_int_equal(host_api.status(r), 0);
    assert_ptr_equal(host_api.worker(r), cx.station);
}

static void tells_what_the_request_is(void **state)
{
    (void)state;
    inside("POST /a/../b?c=%64 HTTP/1.1\r\nHost: Shop.Example:81\r\nContent-Length: 0\r\n\r\n",
           look_at_all);
}

static void look_at_old(postern_request *r)
{
    static struct tls_facts tls;
    tls.subject = STR("CN=ann");
    assert_span(host_api.get(r, POSTERN_PROTOCOL), "HTTP/1.0");
    assert_span(host_api.get(r, POSTERN_QUERY), NULL);
    peer.tls = &tls;
    assert_span(host_api.get(r, POSTERN_SCHEME), "https");
    assert_span(host_api.get(r, POSTERN_TLS_SUBJECT), "CN=ann");
    peer.tls = NULL;
}

static void tells_of_tls_and_of_old_versions(void **state)
{
    (void)state;
    inside("GET / HTTP/1.0\r\nHost: h\r\n\r\n", look_at_old);
}

static void look_for_values(postern_request *r)
{
    static const struct {
        enum postern_part part;
        postern_str name;
        size_t i;
        const char *value;
    } cases[] = {
        {POSTERN_HEADER, {"x-one", 5}, 0, "1"},
        {POSTERN_HEADER, {"X-One", 5}, 1, "2"},
        {POSTERN_HEADER, {"X-One", 5}, 2, NULL},
        {POSTERN_HEADER, {"X-On", 4}, 0, NULL},
        {POSTERN_HEADER, {"Accept", 6}, 0, NULL},
        {POSTERN_HEADER, {"cookie", 6}, 1, "c=; b=4"},
        {POSTERN_ANSWER_HEADER, {"X-One", 5}, 0, NULL},
        {POSTERN_PARAMETER, {"a", 1}, 0, "1 2"},
        {POSTERN_PARAMETER, {"a", 1}, 1, "%zz"},
        {POSTERN_PARAMETER, {"a", 1}, 2, ""},
        {POSTERN_PARAMETER, {"a", 1}, 3, NULL},
        {POSTERN_PARAMETER, {"b c", 3}, 0, "x=y"},
        {POSTERN_PARAMETER, {"ab", 2}, 0, "=%4"},
        {POSTERN_PARAMETER, {"A", 1}, 0, NULL},
        {POSTERN_COOKIE, {"a", 1}, 0, "1"},
        {POSTERN_COOKIE, {"b", 1}, 0, "2=3"},
        {POSTERN_COOKIE, {"b", 1}, 1, "4"},
        {POSTERN_COOKIE, {"b", 1}, 2, NULL},
        {POSTERN_COOKIE, {"c", 1}, 0, ""},
        {POSTERN_COOKIE, {"aa", 2}, 0, NULL},
    };
    struct postern_header header;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_span(host_api.value(r, cases[i].part, cases[i].name, cases[i].i),
                    cases[i].value);
    assert_true(host_api.header_at(r, POSTERN_HEADER, 1, &header));
    assert_span(header.name, "X-One");
    assert_span(header.value, "1");
    assert_false(host_api.header_at(r, POSTERN_HEADER, head.count, &header));
    assert_false(host_api.header_at(r, POSTERN_ANSWER_HEADER, 0, &header));
    assert_false(host_api.header_at(r, POSTERN_COOKIE, 0, &header));
}

static void finds_values_wherever_they_stand(void **state)
{
    (void)state;
    inside("GET /?a=1+2&%61=%zz&&a&b%20c=x=y&%61b==%4&=n HTTP/1.1\r\nHost: h\r\nX-One: 1\r\n"
           "x-one: 2\r\nCookie: a=1; b=2=3\r\nCookie: c=; b=4\r\n\r\n",
           look_for_values);
}

static void take_values_away(postern_request *r)
{
    host_api.remove(r, POSTERN_PARAMETER, S("k"));
    assert_span(host_api.get(r, POSTERN_QUERY), "a=1&kk=2&K=3");
    assert_span(host_api.get(r, POSTERN_TARGET), "/x?a=1&kk=2&K=3");
    assert_str(ex.log_query, "a=1&kk=2&K=3");
    host_api.remove(r, POSTERN_PARAMETER, S("none"));
    assert_span(host_api.get(r, POSTERN_QUERY), "a=1&kk=2&K=3");
    host_api.remove(r, POSTERN_COOKIE, S("k"));
    host_api.remove(r, POSTERN_HEADER, S("X-Key"));
    host_api.remove(r, POSTERN_HEADER, S("Host"));
    assert_string_equal(fields_left(), "Host=h Cookie=a=1; kk=2 X-Keys=3 ");
    host_api.remove(r, POSTERN_COOKIE, S("a"));
    host_api.remove(r, POSTERN_COOKIE, S("kk"));
    host_api.remove(r, POSTERN_PARAMETER, S("a"));
    host_api.remove(r, POSTERN_PARAMETER, S("kk"));
    host_api.remove(r, POSTERN_PARAMETER, S("K"));
    assert_string_equal(fields_left(), "Host=h X-Keys=3 ");
    assert_span(host_api.get(r, POSTERN_TARGET), "/x");
    assert_span(host_api.get(r, POSTERN_QUERY), NULL);
}

/* A credential in another spelling, in a second place or in the log is still one. */
static void takes_all_of_a_value_away(void **state)
{
    (void)state;
    inside(
        "GET /x?k=1&a=1&%6B=2&kk=2&k&K=3 HTTP/1.1\r\nHost: h\r\nCookie: k=1; a=1; k=2; kk=2\r\n"
        "Cookie: k=3\r\nX-Key: 1\r\nx_key: 2\r\nX.Key: 3\r\nX-Keys: 3\r\n\r\n",
        take_values_away);
}

static void forget_and_look(postern_request *r)
{
    char name[] = "k";
    mem_fail_at(1);
    host_api.remove(r, POSTERN_PARAMETER, (postern_str){name, 1});
    mem_fail_at(0);
    assert_null(memmem(ex.head->target.p, ex.head->target.n, "secret", 6));
    assert_true(!ex.log_query.n || !memmem(ex.log_query.p, ex.log_query.n, "secret", 6));
    mem_fail_at(1);
    host_api.remove(r, POSTERN_COOKIE, S("k"));
    mem_fail_at(0);
    assert_null(strstr(fields_left(), "secret"));
    mem_fail_at(1);
    assert_false(host_api.fact_set(r, S("f"), (postern_str){ex.head->fields[0].value.p, 6000}));
    mem_fail_at(0);
    assert_null(host_api.fact(r, S("f")).p);
    assert_non_null(host_api.slot(r));
}

/* More may go than was asked for, never less. */
static void without_memory_too(void **state)
{
    static char request[24000];
    size_t n = (size_t)snprintf(request, sizeof(request), "GET /?k=secret&a=");
    (void)state;
    memset(request + n, 'x', 800);
    n += 800;
    n += (size_t)snprintf(request + n, sizeof(request) - n, " HTTP/1.1\r\nHost: h\r\nX-Long: ");
    n += (size_t)snprintf(request + n, sizeof(request) - n, "1\r\nCookie: k=secret; a=");
    memset(request + n, 'y', 3000);
    n += 3000;
    snprintf(request + n, sizeof(request) - n, "\r\n\r\n");
    add_actor("a", GO)->inside = forget_and_look;
    prepare(request);
    while (ex.arena.end - ex.arena.p > 700)
        assert_non_null(arena_alloc(&ex.arena, 8));
    go();
    assert_non_null(strstr(heard, "a.request"));
}

static void write_headers(postern_request *r)
{
    static const char *const ours[] = {"Host",
                                       "Content-Length",
                                       "Transfer-Encoding",
                                       "Via",
                                       "Expect",
                                       "X-Forwarded-For",
                                       "x-request-id",
                                       "TE",
                                       "Forwarded",
                                       "Traceparent",
                                       "X-SSL-Client-S-DN",
                                       "Upgrade",
                                       "a b",
                                       ""};
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
        postern_str name = {ours[i], strlen(ours[i])};
        assert_false(host_api.may_put(POSTERN_HEADER, name));
        assert_false(host_api.set(r, POSTERN_HEADER, name, S("v")));
        assert_false(host_api.add(r, POSTERN_HEADER, name, S("v")));
    }
    assert_false(host_api.may_put(POSTERN_COOKIE, S("X-A")));
    assert_false(host_api.set(r, POSTERN_COOKIE, S("X-A"), S("v")));
    assert_false(host_api.set(r, POSTERN_HEADER, S("X-A"), S("a\r\nb: c")));
    assert_true(host_api.may_put(POSTERN_HEADER, S("X-A")));
    assert_string_equal(fields_left(), "Host=h X-A=1 x_a=2 X-B=3 ");
    assert_true(host_api.add(r, POSTERN_HEADER, S("X-B"), S(" 4 ")));
    assert_true(host_api.set(r, POSTERN_HEADER, S("X-A"), S("new")));
    assert_string_equal(fields_left(), "Host=h X-B=3 X-B=4 X-A=new ");
    assert_true(host_api.may_put(POSTERN_ANSWER_HEADER, S("Via")));
    assert_false(host_api.may_put(POSTERN_ANSWER_HEADER, S("Content-Length")));
    assert_true(host_api.set(r, POSTERN_ANSWER_HEADER, S("X-Any"), S("1")));
    assert_true(host_api.add(r, POSTERN_ANSWER_HEADER, S("X-Any"), S("2")));
    assert_true(host_api.set(r, POSTERN_ANSWER_HEADER, S("Content-Type"), S("text/y")));
}

static void writes_headers_but_not_the_gateways(void **state)
{
    (void)state;
    inside("GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx_a: 2\r\nX-B: 3\r\n\r\n", write_headers);
    assert_string_equal(answered, "200 X-Any=1 X-Any=2 Content-Type=text/y [on]");
}

static void leave_words(postern_request *r)
{
    char name[] = "ann", *text;
    assert_true(host_api.credential(r, S("eve")) && host_api.credential(r, S("ann")));
    assert_true(host_api.fact_set(r, S("scope"), (postern_str){name, 3}));
    assert_true(host_api.fact_set(r, S("scopes"), S("other")));
    name[0] = '?'; /* they are copies */
    assert_span(host_api.get(r, POSTERN_CREDENTIAL), "ann");
    assert_span(host_api.fact(r, S("scope")), "ann");
    assert_true(host_api.fact_set(r, S("scope"), S("")));
    assert_span(host_api.fact(r, S("scope")), "");
    assert_span(host_api.fact(r, S("scopes")), "other");
    assert_span(host_api.fact(r, S("scop")), NULL);
    text = host_api.alloc(r, 10);
    assert_non_null(text);
    *host_api.slot(r) = text;
}

static void look_at_the_others(postern_request *r)
{
    assert_null(*host_api.slot(r)); /* its own */
    assert_span(host_api.fact(r, S("scopes")), "other");
    assert_span(host_api.get(r, POSTERN_CREDENTIAL), "ann");
}

static void remember(postern_request *r)
{
    assert_non_null(*host_api.slot(r));
}

static void plugins_hear_of_each_other_and_remember(void **state)
{
    (void)state;
    add_actor("a", GO)->inside = leave_words;
    add_actor("b", GO)->inside = look_at_the_others;
    ask(GET);
    assert_string_equal(heard, "a.request b.request b.response a.response");
    ex.plugged->at = 0;
    remember(ex.plugged);
    assert_str(ex.credential, "ann");
}

static void wait_too_late(postern_request *r)
{
    r->phase = PHASE_RESPONSE;
    struct postern_token token = host_api.wait(r);
    assert_true(token.id[0] == 0 && token.id[1] == 0);
    r->phase = PHASE_REQUEST;
    assert_false(r->waiting);
}

static void only_requests_can_wait(void **state)
{
    (void)state;
    inside(GET, wait_too_late);
    assert_non_null(strstr(answered, "[on]"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_plugged, tear_down_plugged)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tells_what_the_request_is),
        TEST(tells_of_tls_and_of_old_versions),
        TEST(finds_values_wherever_they_stand),
        TEST(takes_all_of_a_value_away),
        TEST(without_memory_too),
        TEST(writes_headers_but_not_the_gateways),
        TEST(plugins_hear_of_each_other_and_remember),
        TEST(only_requests_can_wait),
    };
    return cmocka_run_group_tests_name("plugin_request", tests, NULL, NULL);
}
