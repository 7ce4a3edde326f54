#include "conf_test.h"

#define SPLIT_ROUTE                                                                            \
    "upstream \"v\" { server \"a:2\" {} } upstream \"sticky\" { server \"a:3\" {} } "

static void takes_upstreams_and_weights_in_their_order(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(FIRST SPLIT_ROUTE "route \"r\" { path = /r split { u = 95 v = 5 } }\n"
                                  "route \"s\" { split { 'sticky' = 0  \"u\" = 1000\n"
                                  "sticky = \"header:X-Id\" } }");
    const struct conf_route *r = &conf->routes[0], *s = &conf->routes[1];
    assert_int_equal(conf->split_count, 2);
    assert_int_equal(r->action, ACTION_SPLIT);
    assert_int_equal(r->split.count, 2);
    assert_string_equal(r->split.shares[0].upstream, "u");
    assert_int_equal(r->split.shares[0].weight, 95);
    assert_string_equal(r->split.shares[1].upstream, "v");
    assert_int_equal(r->split.total, 100);
    assert_int_equal(r->split.sticky, HASH_NONE);
    assert_null(r->split.sticky_name);
    assert_int_equal(r->split.index, 0);
    assert_string_equal(s->split.shares[0].upstream, "sticky");
    assert_int_equal(s->split.total, 1000);
    assert_int_equal(s->split.sticky, HASH_HEADER);
    assert_string_equal(s->split.sticky_name, "X-Id");
    assert_int_equal(s->split.index, 1);
    conf_free(conf);
    conf = conf_of(FIRST SPLIT_ROUTE "route \"r\" { split { u = 1 v = 1 } sticky = cookie:a }");
    assert_int_equal(conf->routes[0].split.sticky, HASH_COOKIE);
    assert_string_equal(conf->routes[0].split.sticky_name, "a");
    conf_free(conf);
}

static void names_what_is_wrong(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"split { u = 1 }", NULL},
        {"split { u = 1 sticky = client_ip }", NULL},
        {"split { u = 1 sticky = cookie:id }", NULL},
        {"split { }", "split is empty, expected upstreams with weights"},
        {"split { sticky = client_ip }", "split is empty, expected upstreams with weights"},
        {"split { u = 0 v = 0 }", "the weights of split sum to 0"},
        {"split { u = 1001 }", "split.u is 1001, expected a weight from 0 to 1000"},
        {"split { u = -1 }", "split.u is -1, expected a weight from 0 to 1000"},
        {"split { u = 5% }", "split.u is 5%, expected a weight from 0 to 1000"},
        {"split { u = 1 u = 2 }", "split has upstream \"u\" twice, expected once"},
        {"split { u = 1 'u' = 2 }", "split has upstream \"u\" twice, expected once"},
        {"split { u = 1 sticky = path }",
         "split.sticky is path, expected client_ip, header:NAME or cookie:NAME"},
        {"split { u = 1 sticky = 'header:' }", "split.sticky is header:, expected"},
        {"split { u = 1 } sticky = client_ip", NULL},
        {"sticky = 'cookie:id' split { u = 1 v = 1 }", NULL},
        {"split { u = 1 } sticky = path",
         "route.sticky is path, expected client_ip, header:NAME"},
        {"split { u = 1 sticky = client_ip } sticky = client_ip",
         "route has sticky beside split and in it, expected one"},
        {"upstream = u sticky = client_ip", "route.sticky has no effect without split"},
        {"split { u = 1 } strip_prefix = /x path = '/x/{r...}'", NULL},
    };
    CHECK_OPTIONS(FIRST SPLIT_ROUTE "route \"r\" {", "}", cases);
}

static void syntax_faults_stand_alone(void **state)
{
    (void)state;
    expect_faults(FIRST "route \"r\" { split {\nu 5\nv = {1}\n} }",
                  "t:2: unexpected \"5\", expected \"=\" and a value after each name in split\n"
                  "t:3: unexpected \"{\", expected a value for split\n");
}

static void has_an_end(void **state)
{
    (void)state;
    char text[8192] = LISTENER;
    size_t n = strlen(text);
    for (int i = 0; i < 65; i++)
        n += (size_t)sprintf(text + n, "upstream \"u%d\" { server \"a:1\" {} } ", i);
    n += (size_t)sprintf(text + n, "\nroute \"r\" { split {");
    for (int i = 0; i < 65; i++)
        n += (size_t)sprintf(text + n, " u%d = 1", i);
    sprintf(text + n, " } }");
    expect_faults(text, "t:3: split has 65 upstreams, expected at most 64\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_upstreams_and_weights_in_their_order),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(syntax_faults_stand_alone),
        cmocka_unit_test(has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
