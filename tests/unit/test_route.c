#include "route_test.h"

static void check_lookup(const struct router *router, const struct lookup *lookup)
{
    struct route_match match;
    struct field field;
    struct head head = head_of(lookup->field, lookup->query, &field);
    router_find(router, lookup->listener, str_of(lookup->host), str_of(lookup->path),
                str_of(lookup->method), &head, &match);
    const char *got = match.route ? match.route->name : match.wrong_method ? match.allow : NULL;
    const char *expected = lookup->expected;
    bool allow = expected && expected[0] == '!';
    if (match.wrong_method != allow || !got != !expected ||
        (got && strcmp(got, expected + allow) != 0))
        fail_msg("%s %s%s: expected %s, got %s", lookup->method, lookup->host, lookup->path,
                 expected ? expected : "none", got ? got : "none");
    assert_string_equal(match.allow, allow ? expected + 1 : "");
}

static void check_lookups(const char *const *lines, size_t n, const struct lookup *lookups,
                          size_t count)
{
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(lines, n);
    struct router *router = router_new(conf, &faults);
    if (!router)
        fail_msg("%s", faults_text(&faults));
    for (size_t i = 0; i < count; i++)
        check_lookup(router, &lookups[i]);
    router_free(router);
    conf_free(conf);
}

static void the_longest_literal_host_wins(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "any path = /x",
        "wild host = \"*.example.org\" path = /x",
        "deep host = \"*.eu.example.org\" path = /x",
        "exact host = {a.eu.example.org, h} path = /x",
        "other host = a.eu.example.org path = /only-here",
        "rest host = \"*.example.org\" path = /y",
        "six host = \"[::1]\" path = /x",
    };
    static const struct lookup lookups[] = {
        {"a.eu.example.org", "/x", "GET", "exact", 0, NULL, NULL},
        {"h", "/x", "GET", "exact", 0, NULL, NULL},
        {"b.eu.example.org", "/x", "GET", "deep", 0, NULL, NULL},
        {"a.b.eu.example.org", "/x", "GET", "deep", 0, NULL, NULL},
        {"eu.example.org", "/x", "GET", "wild", 0, NULL, NULL},
        {"a.example.org", "/x", "GET", "wild", 0, NULL, NULL},
        {"example.org", "/x", "GET", "any", 0, NULL, NULL},
        {"evilexample.org", "/x", "GET", "any", 0, NULL, NULL},
        {".example.org", "/x", "GET", "any", 0, NULL, NULL},
        {"", "/x", "GET", "any", 0, NULL, NULL},
        {"a.eu.example.org", "/y", "GET", "rest", 0, NULL, NULL},
        {"a.eu.example.org", "/z", "GET", NULL, 0, NULL, NULL},
        {"b.eu.example.org", "/only-here", "GET", NULL, 0, NULL, NULL},
        {"[::1]", "/x", "GET", "six", 0, NULL, NULL},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void a_host_longer_than_any_name_matches_no_pattern(void **state)
{
    (void)state;
    static const char *const routes[] = {"wild host = \"*.a\"", "any"};
    char host[4096];
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(routes, 2);
    struct router *router = router_new(conf, &faults);
    for (size_t n = 2; n < sizeof(host) - 1; n += n < 600 ? 2 : 1000) {
        memset(host, 0, sizeof(host));
        for (size_t i = 0; i < n; i += 2)
            memcpy(host + i, "a.", 2);
        host[n] = 'a';
        struct lookup lookup = {host, "/", "GET", n + 1 <= 255 ? "wild" : "any", 0, NULL, NULL};
        check_lookup(router, &lookup);
    }
    check_lookup(router, &(struct lookup){"..........a", "/", "GET", "any", 0, NULL, NULL});
    memset(host, '.', 255);
    host[0] = 'x';
    host[255] = '\0';
    check_lookup(router, &(struct lookup){host, "/", "GET", "any", 0, NULL, NULL});
    router_free(router);
    conf_free(conf);
}

static void the_most_specific_path_wins_segment_by_segment(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "rest path = \"/{r...}\"",
        "users path = /users",
        "id path = \"/users/{id}\"",
        "me path = /users/me",
        "posts path = \"/users/{id}/posts\"",
        "tree path = \"/users/{all...}\"",
        "dir path = /dir",
        "slash path = \"/dir/\"",
        "mid path = \"/{a}/x/y\"",
        "lit path = \"/lit/{b...}\"",
        "v1 path = \"/v1/{r...}\"",
        "star path = \"*\"",
    };
    static const struct lookup lookups[] = {
        {"h", "/", "GET", "rest", 0, NULL, NULL},
        {"h", "/users", "GET", "users", 0, NULL, NULL},
        {"h", "/users/7", "GET", "id", 0, NULL, NULL},
        {"h", "/users/me", "GET", "me", 0, NULL, NULL},
        {"h", "/users/men", "GET", "id", 0, NULL, NULL},
        {"h", "/users/m", "GET", "id", 0, NULL, NULL},
        {"h", "/users/7/posts", "GET", "posts", 0, NULL, NULL},
        {"h", "/users/me/posts", "GET", "posts", 0, NULL, NULL},
        {"h", "/users/7/8", "GET", "tree", 0, NULL, NULL},
        {"h", "/users/me/", "GET", "tree", 0, NULL, NULL},
        {"h", "/users/", "GET", "tree", 0, NULL, NULL},
        {"h", "/users//posts", "GET", "tree", 0, NULL, NULL},
        {"h", "/dir", "GET", "dir", 0, NULL, NULL},
        {"h", "/dir/", "GET", "slash", 0, NULL, NULL},
        {"h", "/dirx", "GET", "rest", 0, NULL, NULL},
        {"h", "/q/x/y", "GET", "mid", 0, NULL, NULL},
        {"h", "/lit/x/y", "GET", "lit", 0, NULL, NULL},
        {"h", "/lit", "GET", "rest", 0, NULL, NULL},
        {"h", "/q/x/z", "GET", "rest", 0, NULL, NULL},
        {"h", "/v1/", "GET", "v1", 0, NULL, NULL},
        {"h", "/v1", "GET", "rest", 0, NULL, NULL},
        {"h", "/v1/a/b", "GET", "v1", 0, NULL, NULL},
        {"h", "*", "OPTIONS", "star", 0, NULL, NULL},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void a_star_only_matches_its_own(void **state)
{
    (void)state;
    static const char *const routes[] = {"rest"};
    static const struct lookup lookups[] = {{"h", "*", "OPTIONS", NULL, 0, NULL, NULL}};
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void methods_come_before_none_and_then_file_order(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "any path = /x",
        "get path = /x methods = GET",
        "first path = /y methods = {GET, PUT}",
        "second path = /y methods = {GET, POST}",
        "purge path = /z methods = {PURGE, get2}",
        "less path = \"/{a...}\" methods = DELETE",
    };
    static const struct lookup lookups[] = {
        {"h", "/x", "GET", "get", 0, NULL, NULL},
        {"h", "/x", "PUT", "any", 0, NULL, NULL},
        {"h", "/x", "BREW", "any", 0, NULL, NULL},
        {"h", "/y", "GET", "first", 0, NULL, NULL},
        {"h", "/y", "POST", "second", 0, NULL, NULL},
        {"h", "/y", "HEAD", "!GET, PUT, POST, DELETE", 0, NULL, NULL},
        {"h", "/z", "PURGE", "purge", 0, NULL, NULL},
        {"h", "/z", "purge", "!PURGE, get2, DELETE", 0, NULL, NULL},
        {"h", "/z", "DELETE", "less", 0, NULL, NULL},
        {"h", "/q", "GET", "!DELETE", 0, NULL, NULL},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void more_conditions_come_first_and_leave_the_rest(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "any path = /x",
        "get path = /x methods = GET",
        "canary path = /x match_header X-Canary { equals = 1 }",
        "both path = /x methods = GET match_header X-Canary { equals = 1 }",
        "third path = /x match_query v { equals = 3 } match_header X-Canary { present = true }",
        "put path = /y methods = PUT match_header X-Canary { equals = 1 }",
        "post path = /y methods = POST",
        "deep path = /z match_query v { regex = '^[0-9]+$' }",
        "rest path = '/{r...}' match_query v { present = true }",
        "hosted host = h path = /h match_query v { equals = 1 }",
        "anywhere path = /h",
    };
    static const struct lookup lookups[] = {
        {"h", "/x", "PUT", "any", 0, NULL, NULL},
        {"h", "/x", "GET", "get", 0, NULL, NULL},
        {"h", "/x", "PUT", "canary", 0, "x-canary=1", NULL},
        {"h", "/x", "GET", "both", 0, "x-canary=1", NULL},
        {"h", "/x", "GET", "get", 0, "x-canary=2", NULL},
        {"h", "/x", "PUT", "any", 0, "x-canary=2", NULL},
        {"h", "/x", "PUT", "third", 0, "x-canary=1", "v=3"},
        {"h", "/x", "GET", "both", 0, "x-canary=1", "v=3"}, /* as many: file order */
        {"h", "/y", "GET", "!POST", 0, NULL, NULL},
        {"h", "/y", "GET", "!PUT, POST", 0, "X-Canary=1", NULL},
        {"h", "/y", "PUT", "!POST", 0, NULL, NULL},
        {"h", "/y", "PUT", "put", 0, "X-Canary=1", NULL},
        {"h", "/z", "GET", "deep", 0, NULL, "v=12"},
        {"h", "/z", "GET", "rest", 0, NULL, "v=a"},
        {"h", "/z", "GET", NULL, 0, NULL, "w=12"},
        {"h", "/h", "GET", "hosted", 0, NULL, "v=1"},
        {"h", "/h", "GET", "anywhere", 0, NULL, "v=2"},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void listeners_keep_their_routes_to_themselves(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "one path = /x listener = one",
        "two path = /x listener = {two}",
        "both path = /b",
        "secret path = /s listener = two methods = GET",
        "more path = \"/s\" listener = one methods = PUT",
    };
    static const struct lookup lookups[] = {
        {"h", "/x", "GET", "one", 0, NULL, NULL},  {"h", "/x", "GET", "two", 1, NULL, NULL},
        {"h", "/b", "GET", "both", 0, NULL, NULL}, {"h", "/b", "GET", "both", 1, NULL, NULL},
        {"h", "/s", "GET", "!PUT", 0, NULL, NULL}, {"h", "/s", "GET", "secret", 1, NULL, NULL},
        {"h", "/s", "PUT", "!GET", 1, NULL, NULL},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void allow_is_collected_over_all_hosts_and_bounded(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "a host = h path = /x methods = GET",
        "b path = /x methods = {PUT, GET}",
        "c path = \"/{y}\" methods = {AVERYLONGMETHODNAMEOFTHIRTYTWO01, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO02, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO03, AVERYLONGMETHODNAMEOFTHIRTYTWO04, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO05, AVERYLONGMETHODNAMEOFTHIRTYTWO06, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO07, AVERYLONGMETHODNAMEOFTHIRTYTWO08, POST}",
    };
    static const struct lookup lookups[] = {
        {"h", "/x", "HEAD",
         "!GET, PUT, AVERYLONGMETHODNAMEOFTHIRTYTWO01, AVERYLONGMETHODNAMEOFTHIRTYTWO02, "
         "AVERYLONGMETHODNAMEOFTHIRTYTWO03, AVERYLONGMETHODNAMEOFTHIRTYTWO04, "
         "AVERYLONGMETHODNAMEOFTHIRTYTWO05, AVERYLONGMETHODNAMEOFTHIRTYTWO06, "
         "AVERYLONGMETHODNAMEOFTHIRTYTWO07, POST",
         0, NULL, NULL},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void captures_are_spans_of_the_path(void **state)
{
    (void)state;
    static const char *const routes[] = {"r path = \"/{a}/x/{b}/{rest...}\"",
                                         "q path = \"/{a...}\""};
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(routes, 2);
    struct router *router = router_new(conf, &faults);
    struct str path = STR("/1/x/two/3/4/");
    struct route_match match;
    router_find(router, 0, STR("h"), path, STR("GET"), NULL, &match);
    assert_int_equal(match.index, 0);
    assert_ptr_equal(match.captures[0].p, path.p + 1);
    assert_true(str_eq(match.captures[0], STR("1")));
    assert_true(str_eq(match.captures[1], STR("two")));
    assert_true(str_eq(match.captures[2], STR("3/4/")));
    router_find(router, 0, STR("h"), STR("/1/x/two"), STR("GET"), NULL, &match);
    assert_int_equal(match.index, 1);
    assert_true(str_eq(match.captures[0], STR("1/x/two")));
    router_find(router, 0, STR("h"), STR("/1/x/2/"), STR("GET"), NULL, &match);
    assert_int_equal(match.index, 0);
    assert_int_equal(match.captures[2].n, 0);
    router_free(router);
    conf_free(conf);
}

static void expect_twins(const char *a, const char *b, const char *expected)
{
    const char *const lines[] = {a, b};
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(lines, 2);
    struct router *router = router_new(conf, &faults);
    char *said = faults_text(&faults);
    if (expected ? router || faults.count != 1 || !strstr(said, expected) : !router)
        fail_msg("%s | %s: expected %s, got %s", a, b, expected ? expected : "none", said);
    free(said);
    conf_faults_done(&faults);
    router_free(router);
    conf_free(conf);
}

static void a_route_without_requests_is_a_fault_that_names_both(void **state)
{
    (void)state;
    const char *second = "t:3: route \"b\" can never be told apart from route \"a\" (t:2)";
    expect_twins("a path = /x", "b path = /x", second);
    expect_twins("a path = \"/{x}\"", "b path = \"/{y}\"", second);
    expect_twins("a path = \"/{x...}\"", "b path = \"/{y...}\"", second);
    expect_twins("a host = {h, i}", "b host = H", second);
    expect_twins("a methods = {GET, PUT}", "b methods = PUT", second);
    expect_twins("a", "b listener = two", second);
    expect_twins("a listener = {one, two}", "b listener = two", second);
    expect_twins("a path = /x", "b path = /y", NULL);
    expect_twins("a path = /x", "b path = \"/x/\"", NULL);
    expect_twins("a path = \"/{x}\"", "b path = \"/{x...}\"", NULL);
    expect_twins("a host = h", "b", NULL);
    expect_twins("a host = h", "b host = {h, i}", NULL);
    expect_twins("a host = a.b", "b host = \"*.b\"", NULL);
    expect_twins("a methods = GET", "b", NULL);
    expect_twins("a", "b methods = GET", NULL);
    expect_twins("a methods = GET", "b methods = {GET, PUT}", NULL);
    expect_twins("a listener = one", "b listener = two", NULL);
    expect_twins("a listener = one", "b", NULL);
    expect_twins("a match_header X { equals = 1 }", "b match_header x { equals = 1 }", second);
    expect_twins("a match_header X { present = true }", "b match_header X { regex = y }",
                 second);
    expect_twins("a match_header X { equals = 1 } methods = {GET, PUT}",
                 "b match_header X { equals = 1 } methods = GET", second);
    expect_twins("a match_header X { equals = 1 }", "b match_header X { equals = 2 }", NULL);
    expect_twins("a match_header X { equals = 1 }", "b match_query X { equals = 1 }", NULL);
    expect_twins("a", "b match_header X { equals = 1 }", NULL);
    expect_twins("a match_header X { equals = 1 }", "b", NULL);
    expect_twins("a match_header X { equals = 1 }", "b methods = GET", NULL);
}

static void explains_what_it_does(void **state)
{
    (void)state;
    static const char *const routes[] = {"get host = h path = \"/{x}\" methods = GET",
                                         "wild path = \"/{rest...}\" methods = PUT"};
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(routes, 2);
    struct router *router = router_new(conf, &faults);
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    router_explain(router, 0, STR("h"), STR("/a"), STR("PUT"), NULL, out);
    router_explain(router, 0, STR("h"), STR("/a"), STR("HEAD"), NULL, out);
    router_explain(router, 0, STR("h"), STR("*"), STR("GET"), NULL, out);
    fclose(out);
    assert_string_equal(
        text, "host h\n  route \"get\" (t:2) with path /{x} does not take this method\n"
              "any host\n  route \"wild\" (t:3) with path /{rest...} is taken\n"
              "    {rest} is \"a\"\n    answered here with 200\n"
              "host h\n  route \"get\" (t:2) with path /{x} does not take this method\n"
              "any host\n  route \"wild\" (t:3) with path /{rest...} does not take this "
              "method\nno route takes this method: 405 with Allow: GET, PUT\n"
              "host h\nany host\nno route matches: 404\n");
    free(text);
    router_free(router);
    conf_free(conf);
}

static void explains_conditions_and_splits(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(FIRST "upstream \"v\" { server \"a:1\" {} }\n"
                      "route \"a\" { match_query q { regex = '^1' }\n"
                      "match_header X { present = true } upstream = u }\n"
                      "route \"b\" { split { u = 95 v = 5 } }\n"
                      "route \"c\" { path = /c split { u = 1 sticky = cookie:id } }\n"
                      "route \"d\" { path = /d redirect { to = /x } }\n");
    struct conf_faults faults = {0};
    struct router *router = router_new(conf, &faults);
    struct field field;
    struct head with = head_of("X=1", "q=12", &field), without = head_of(NULL, "q=12", &field);
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    router_explain(router, 0, STR("h"), STR("/"), STR("GET"), &with, out);
    router_explain(router, 0, STR("h"), STR("/"), STR("GET"), &without, out);
    router_explain(router, 0, STR("h"), STR("/c"), STR("GET"), NULL, out);
    router_explain(router, 0, STR("h"), STR("/d"), STR("GET"), NULL, out);
    fclose(out);
    assert_string_equal(
        text, "any host\n  route \"a\" (t:2) with path /{rest...} is taken\n"
              "    has match_header \"X\" { present = true }\n"
              "    has match_query \"q\" { regex = '^1' }\n"
              "    {rest} is \"\"\n    upstream \"u\"\n"
              "any host\n  route \"a\" (t:2) with path /{rest...} asks for more: "
              "match_header \"X\" { present = true }\n"
              "  route \"b\" (t:4) with path /{rest...} is taken\n    {rest} is \"\"\n"
              "    split: upstream \"u\" 95 of 100, upstream \"v\" 5 of 100, by turns\n"
              "any host\n  route \"c\" (t:5) with path /c is taken\n"
              "    split: upstream \"u\" 1 of 1, the same for the same cookie:id\n"
              "any host\n  route \"d\" (t:6) with path /d is taken\n    redirected with 308\n");
    free(text);
    router_free(router);
    conf_free(conf);
}

static void says_when_there_is_no_memory(void **state)
{
    (void)state;
    static const char *const routes[] = {"a host = {h, \"*.h\"} path = \"/{x}/y\"",
                                         "b path = /b"};
    struct conf *conf = routes_of(routes, 2);
    for (unsigned long n = 1;; n++) {
        struct conf_faults faults = {0};
        mem_fail_at(n);
        struct router *router = router_new(conf, &faults);
        mem_fail_at(0);
        assert_true(router || faults.count > 0);
        router_free(router);
        conf_faults_done(&faults);
        if (router)
            break;
        assert_true(n < 100);
    }
    conf_free(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_literal_host_wins),
        cmocka_unit_test(a_host_longer_than_any_name_matches_no_pattern),
        cmocka_unit_test(the_most_specific_path_wins_segment_by_segment),
        cmocka_unit_test(a_star_only_matches_its_own),
        cmocka_unit_test(methods_come_before_none_and_then_file_order),
        cmocka_unit_test(more_conditions_come_first_and_leave_the_rest),
        cmocka_unit_test(listeners_keep_their_routes_to_themselves),
        cmocka_unit_test(allow_is_collected_over_all_hosts_and_bounded),
        cmocka_unit_test(captures_are_spans_of_the_path),
        cmocka_unit_test(a_route_without_requests_is_a_fault_that_names_both),
        cmocka_unit_test(explains_what_it_does),
        cmocka_unit_test(explains_conditions_and_splits),
        cmocka_unit_test(says_when_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
