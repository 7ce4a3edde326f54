#include "conf_test.h"

static void two_things_have_two_names(void **state)
{
    (void)state;
    expect_faults(LISTENER "listener \"l\" { listen = \"127.0.0.1:9\" }\n" UPSTREAM UPSTREAM
                      UPSTREAM ROUTE "route \"r\" { path = /x upstream = u }\n",
                  "t:2: listener \"l\" stands twice, first at t:1\n"
                  "t:4: upstream \"u\" stands twice, first at t:3\n"
                  "t:5: upstream \"u\" stands twice, first at t:3\n"
                  "t:7: route \"r\" stands twice, first at t:6\n");
    conf_free(conf_of(
        "listener \"x\" { listen = \"127.0.0.1:1\" } upstream \"x\" { server \"a:1\" {} } "
        "route \"x\" { upstream = x }"));
}

static void names_refer_to_something(void **state)
{
    (void)state;
    expect_faults(LISTENER
                  "upstream \"users\" { server \"a:1\" {} }\n"
                  "route \"a\" { path = /a upstream = user }\n"
                  "route \"b\" { path = /b upstream = nowhere listener = {l, m2345} }\n"
                  "route \"c\" { path = /c split { users = 1 user = 0 } }\n",
                  "t:3: route \"a\" names upstream \"user\", which there is not, did you mean "
                  "\"users\"?\n"
                  "t:4: route \"b\" names upstream \"nowhere\", which there is not\n"
                  "t:4: route \"b\" names listener \"m2345\", which there is not\n"
                  "t:5: route \"c\" names upstream \"user\", which there is not, did you mean "
                  "\"users\"?\n");
}

static void each_fault_has_its_own_line(void **state)
{
    (void)state;
    expect_faults(LISTENER
                  "route \"a\" {\npath = /a\nupstream = no\nlistener =\n{nor}\n}\n"
                  "route \"b\" { split {\nno = 1\n} methods = {\nGET,\nGET,\n\nget} }\n",
                  "t:4: route \"a\" names upstream \"no\", which there is not\n"
                  "t:6: route \"a\" names listener \"nor\", which there is not\n"
                  "t:9: route \"b\" names upstream \"no\", which there is not\n"
                  "t:12: route.methods has \"GET\" twice, expected once\n"
                  "t:14: route.methods has \"get\", did you mean GET?\n");
}

/* Also when there are other faults; routes that have some are not judged. */
static void conflicts_are_reported_with_the_rest(void **state)
{
    (void)state;
    expect_faults(
        LISTENER UPSTREAM
        "route \"a\" { path = \"/{x}\" upstream = u }\n"
        "route \"b\" { path = \"/{y}\" upstream = no }\n"
        "route \"c\" { path = \"/{z}\" upstream = u match_header X { regex = \"(\" } }\n"
        "route \"d\" { path = \"/{z}\" upstream = u match_header X { regex = \"(\" } }\n",
        "t:4: route \"b\" names upstream \"no\", which there is not\n"
        "t:4: route \"b\" can never be told apart from route \"a\" (t:3), which takes "
        "all requests of its host, path, listeners, methods and conditions\n"
        "t:5: match_header.regex is \"(\", which does not compile: missing closing "
        "parenthesis at byte 1\n"
        "t:6: match_header.regex is \"(\", which does not compile: missing closing "
        "parenthesis at byte 1\n");
}

static void a_path_that_no_listener_keeps_is_a_fault(void **state)
{
    (void)state;
    expect_faults(
        LISTENER "route \"a\" { path = \"/a//b\" respond {} }\n"
                 "route \"b\" { path = \"/a;b\" respond {} }\n",
        "t:2: route \"a\" would never match: its path has \"//\", which no listener of it "
        "keeps (paths.double_slash)\n"
        "t:3: route \"b\" would never match: its path has \";\", which no listener of it "
        "keeps (paths.parameter)\n");
    conf_free(conf_of(LISTENER
                      "listener \"k\" { listen = \"127.0.0.1:2\" paths { double_slash = "
                      "keep parameter = keep } }\n"
                      "route \"a\" { path = \"/a//b;c\" respond {} }\n"));
    expect_faults(
        LISTENER "listener \"k\" { listen = \"127.0.0.1:2\" paths { double_slash = keep } "
                 "}\nroute \"a\" { listener = l path = \"/a//b\" respond {} }\n",
        "t:3: route \"a\" would never match: its path has \"//\", which no listener of it "
        "keeps (paths.double_slash)\n");
}

static void finds_the_upstream_of_each_route(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER "upstream \"z\" { server \"a:1\" {} }\n"
                                         "upstream \"a\" { server \"a:1\" {} }\n"
                                         "route \"1\" { path = /1 upstream = a }\n"
                                         "route \"2\" { path = /2 upstream = z }\n"
                                         "route \"3\" { path = /3 split { a = 1 z = 2 } }\n");
    assert_int_equal(conf->routes[2].split.shares[0].upstream_index, 1);
    assert_int_equal(conf->routes[2].split.shares[1].upstream_index, 0);
    assert_int_equal(conf->routes[0].upstream_index, 1);
    assert_int_equal(conf->routes[1].upstream_index, 0);
    conf_free(conf);
}

static void an_address_is_listened_on_once(void **state)
{
    (void)state;
    expect_faults(LISTENER "admin { listen = \"127.0.0.1:1\" }\n"
                           "listener \"m\" { listen = {\"[::1]:2\", \"[0::1]:2\"} }\n",
                  "t:2: listen address \"127.0.0.1:1\" of admin stands twice, first at t:1\n"
                  "t:3: listen address \"[::1]:2\" of m stands twice, first at t:3\n");
    conf_free(
        conf_of("listener \"a\" { listen = {\"0.0.0.0:1\", \"127.0.0.1:1\", \"[::]:1\"} }"));
}

static void there_is_a_listener(void **state)
{
    (void)state;
    expect_faults("workers = 1\n", "t:1: there is no listener, expected at least one: "
                                   "listener \"http\" { listen = {\"127.0.0.1:8080\"} }\n");
}

static void a_broken_file_gets_no_follow_up_faults(void **state)
{
    (void)state;
    expect_faults("listener \"l\" { listen = \"127.0.0.1:1\"\nroute \"r\" { upstream = u }\n",
                  "t:1: this listener is never closed, expected \"}\"\n"
                  "t:2: unknown option \"route\" in listener\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_things_have_two_names),
        cmocka_unit_test(names_refer_to_something),
        cmocka_unit_test(each_fault_has_its_own_line),
        cmocka_unit_test(conflicts_are_reported_with_the_rest),
        cmocka_unit_test(a_path_that_no_listener_keeps_is_a_fault),
        cmocka_unit_test(finds_the_upstream_of_each_route),
        cmocka_unit_test(an_address_is_listened_on_once),
        cmocka_unit_test(there_is_a_listener),
        cmocka_unit_test(a_broken_file_gets_no_follow_up_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
