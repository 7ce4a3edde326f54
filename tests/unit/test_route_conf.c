#include "conf_test.h"

static void has_the_defaults_of_the_manual(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER UPSTREAM ROUTE);
    const struct conf_route *route = &conf->routes[0];
    assert_string_equal(route->name, "r");
    assert_int_equal(route->where.line, 3);
    assert_int_equal(route->listeners.count, 0);
    assert_int_equal(route->hosts.count, 0);
    assert_string_equal(route->path, "/{rest...}");
    assert_int_equal(route->methods.count, 0);
    assert_int_equal(route->action, ACTION_UPSTREAM);
    assert_string_equal(route->upstream, "u");
    assert_null(route->strip_prefix);
    assert_int_equal(route->rewrite.count, 0);
    assert_int_equal(route->timeout, 0);
    assert_int_equal(route->retry, ROUTE_RETRY_IDEMPOTENT);
    assert_true(route->body_bytes == UINT64_MAX);
    assert_true(route->access_log);
    conf_free(conf);
}

static void takes_every_option(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER UPSTREAM
                "route \"r\" { listener = l host = {API.Example.com, \"*.example.org\", "
                "\"[::1]\", \"10.0.0.1\"}\npath = \"/a/{id}\" methods = {GET, PURGE}\n"
                "upstream = u rewrite = \"/b/{id}\" timeout = 5s body_bytes = 0\n"
                "access_log = false }");
    const struct conf_route *route = &conf->routes[0];
    assert_string_equal(route->listeners.list[0], "l");
    assert_string_equal(route->hosts.list[0], "api.example.com");
    assert_string_equal(route->hosts.list[1], "*.example.org");
    assert_int_equal(route->hosts.count, 4);
    assert_string_equal(route->methods.list[1], "PURGE");
    assert_int_equal(route->rewrite.count, 2);
    assert_int_equal(route->timeout, 5000);
    assert_int_equal(route->body_bytes, 0);
    assert_false(route->access_log);
    conf_free(conf);
}

static void addresses_of_hosts_have_one_spelling(void **state)
{
    (void)state;
    struct conf *conf = conf_of(
        LISTENER "route \"r\" { host = {\"[0:0::0:1]\", \"[2001:DB8::a]\"} respond {} }");
    assert_string_equal(conf->routes[0].hosts.list[0], "[::1]");
    assert_string_equal(conf->routes[0].hosts.list[1], "[2001:db8::a]");
    conf_free(conf);
}

static void checks_hosts_methods_and_numbers(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"host = a_b.example", NULL},
        {"host = \"\"", "route.host has \"\", expected"},
        {"host = \"a..b\"", "route.host has \"a..b\""},
        {"host = \".a\"", "route.host has \".a\""},
        {"host = \"a.\"", "route.host has \"a.\""},
        {"host = \"a:80\"", "route.host has \"a:80\""},
        {"host = \"*\"", "route.host has \"*\""},
        {"host = \"*a.b\"", "route.host has \"*a.b\""},
        {"host = \"a.*.b\"", "route.host has \"a.*.b\""},
        {"host = \"-a.b\"", "route.host has \"-a.b\""},
        {"host = \"a b\"", "route.host has \"a b\""},
        {"host = \"[::g]\"", "route.host has \"[::g]\""},
        {"host = {a, A}", "route.host has \"a\" twice"},
        {"methods = get", "route.methods has \"get\", did you mean GET?"},
        {"methods = \"G T\"", "route.methods has \"G T\", expected methods such as GET"},
        {"methods = CONNECT", "route.methods has CONNECT, which is always refused"},
        {"methods = {GET, GET}", "route.methods has \"GET\" twice"},
        {"listener = {l, l}", "route.listener has \"l\" twice"},
        {"timeout = 24h", NULL},
        {"retry = any", NULL},
        {"retry = never", NULL},
        {"retry = all", "route.retry is all, expected idempotent, any or never"},
        {"timeout = 25h", "route.timeout is 25h"},
        {"body_bytes = 1048576g", NULL},
        {"body_bytes = 1x", "route.body_bytes is 1x"},
        {"access_log = off", "route.access_log is off, expected false or true"},
    };
    CHECK_OPTIONS(FIRST "route \"r\" { upstream = u", "}", cases);
}

static void an_empty_list_would_match_nothing(void **state)
{
    (void)state;
    expect_faults(LISTENER UPSTREAM
                  "route \"r\" { upstream = u host = {} methods = {} listener = {} }",
                  "t:3: route.listener is empty: nothing would match, leave it out for all\n"
                  "t:3: route.host is empty: nothing would match, leave it out for all\n"
                  "t:3: route.methods is empty: nothing would match, leave it out for all\n");
}

static void checks_what_the_path_becomes(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"path = \"/api/users/{id}\" strip_prefix = /api", NULL},
        {"path = \"/api/users/{id}\" strip_prefix = /api/users", NULL},
        {"path = \"/{rest...}\" strip_prefix = /api", NULL},
        {"path = \"/{x}/y\" strip_prefix = /api", NULL},
        {"path = /api strip_prefix = /api", NULL},
        {"path = /api strip_prefix = /ap", "which no path that matches \"/api\" begins with"},
        {"path = /api strip_prefix = /api/x", "which no path that matches"},
        {"path = \"*\" strip_prefix = /api", "which no path that matches"},
        {"strip_prefix = api", "route.strip_prefix is \"api\", expected a path"},
        {"strip_prefix = /", "route.strip_prefix is \"/\""},
        {"strip_prefix = /api/", "route.strip_prefix is \"/api/\""},
        {"strip_prefix = \"\"", "route.strip_prefix is \"\""},
        {"strip_prefix = \"/{x}\"", "route.strip_prefix is \"/{x}\""},
        {"rewrite = \"{path}\"", NULL},
        {"rewrite = \"/x{path}/{host}/{client_ip}/{request_id}\"", NULL},
        {"rewrite = \"x\"", "route.rewrite is \"x\", expected a path"},
        {"rewrite = \"\"", "route.rewrite is \"\""},
        {"rewrite = \"{rest}\"", "route.rewrite is \"{rest}\", expected a path"},
        {"rewrite = \"/a b\"", "route.rewrite is \"/a b\""},
        {"rewrite = \"/a?b=c\"", "without query"},
        {"rewrite = \"/a%2\"", "route.rewrite is \"/a%2\""},
        {"rewrite = \"/a\\r\\nX: y\"", "route.rewrite is"},
        {"rewrite = /b strip_prefix = /a", "both strip_prefix and rewrite"},
    };
    CHECK_OPTIONS(FIRST "route \"r\" { upstream = u", "}", cases);
}

static void has_exactly_one_action(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"route \"r\" { }", "route \"r\" has none of upstream, split, respond and redirect"},
        {"route \"r\" { upstream = u respond { } }", "route \"r\" has two of"},
        {"route \"r\" { upstream = u split { u = 1 } }", "route \"r\" has two of"},
        {"route \"r\" { upstream = u split { u = 1 } respond { } redirect { to = / } }",
         "has all four of"},
        {"route \"r\" { upstream = u respond { } redirect { to = / } }", "has three of"},
        {"route \"r\" { respond { } retry = any }", "route.retry has no effect with respond"},
        {"route \"r\" { respond { } timeout = 1s }",
         "route.timeout has no effect with respond"},
        {"route \"r\" { redirect { to = / } rewrite = / }",
         "route.rewrite has no effect with redirect"},
        {"route \"r\" { respond { } request_headers { } }",
         "route.request_headers has no effect"},
        {"route \"r\" { respond { } response_headers { } body_bytes = 1 }", NULL},
        {"route \"\" { respond { } }", "a route has the name \"\""},
    };
    CHECK_OPTIONS(FIRST, "", cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_defaults_of_the_manual),
        cmocka_unit_test(takes_every_option),
        cmocka_unit_test(addresses_of_hosts_have_one_spelling),
        cmocka_unit_test(checks_hosts_methods_and_numbers),
        cmocka_unit_test(an_empty_list_would_match_nothing),
        cmocka_unit_test(checks_what_the_path_becomes),
        cmocka_unit_test(has_exactly_one_action),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
