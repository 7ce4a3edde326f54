#include "conf_plugins_test.h"

static struct conf *conf;

static int tear_down(void **state)
{
    (void)state;
    conf_free(conf);
    conf = NULL;
    return 0;
}

/* The places of the instances that count for that route (NULL: none) of that listener. */
static const char *count_there(size_t listener, const char *route)
{
    static char out[256];
    const struct conf_route *found = NULL;
    for (size_t i = 0; i < conf->route_count; i++)
        if (route && strcmp(conf->routes[i].name, route) == 0)
            found = &conf->routes[i];
    assert_true(found || !route);
    const struct phases *phases = conf_phases(conf, &conf->listeners[listener], found);
    out[0] = '\0';
    for (unsigned i = 0; phases && i < phases->count; i++)
        snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s%s:%s", i ? ", " : "",
                 phases->instances[i]->plugin->def.name,
                 phases->instances[i]->place[0] ? phases->instances[i]->place : "top");
    return out;
}

static void the_innermost_section_counts_as_a_whole(void **state)
{
    (void)state;
    conf = plugged(OF_TESTS,
                   "probe { number = 1 }\n"
                   "listener \"a\" { listen = \"127.0.0.1:1\" probe { number = 2 } }\n"
                   "listener \"b\" { listen = \"127.0.0.1:2\" }\n"
                   "route \"own\" { path = /own respond { } probe { } }\n"
                   "route \"none\" { path = /none respond { } probe { enabled = false } }\n"
                   "route \"rest\" { path = \"/{x...}\" respond { } }\n");
    assert_string_equal(count_there(0, "own"), "probe:route own");
    assert_string_equal(count_there(1, "own"), "probe:route own");
    assert_string_equal(count_there(0, "rest"), "probe:listener a");
    assert_string_equal(count_there(1, "rest"), "probe:top");
    assert_string_equal(count_there(0, NULL), "probe:listener a");
    assert_string_equal(count_there(1, NULL), "probe:top");
    assert_string_equal(count_there(0, "none"), "");
    /* as a whole: what the outer one has does not shine through */
    const struct postern_values *number = values_of(&conf->routes[0].plugins.list[0], "number");
    assert_int_equal(number->list[0].number, 7);
}

static void without_plugins_there_is_nothing(void **state)
{
    (void)state;
    conf = plugged(OF_TESTS, LISTENER);
    assert_null(conf->phases);
    assert_null(conf_phases(conf, &conf->listeners[0], NULL));
}

static void what_the_plugin_says_has_its_place(void **state)
{
    (void)state;
    expect_plugged_faults(OF_TESTS,
                          LISTENER "route \"r\" { respond { } probe {\n\nrefuse = true } }\n",
                          "t:5: probe: refuse is true, expected false at route r\n");
    conf = plugged(OF_TESTS, LISTENER "probe {\nwarn = true }\n");
    assert_int_equal(conf->warnings.count, 1);
    assert_int_equal(conf->warnings.list[0].where.line, 4);
    assert_string_equal(conf->warnings.list[0].message, "probe: warned");
}

static void a_section_is_configured_with_the_others_faults_too(void **state)
{
    (void)state;
    expect_plugged_faults(OF_TESTS,
                          LISTENER "probe { refuse = true }\n"
                                   "route \"r\" { respond { } probe { number = 99 } }\n",
                          "t:3: probe: refuse is true, expected false at \n"
                          "t:4: probe.number is 99, expected a number from 1 to 10\n");
}

static void sections_that_are_none(void **state)
{
    (void)state;
    expect_plugged_faults(OF_TESTS, LISTENER "probe { }\nprobe { }\n",
                          "t:4: probe stands twice in this file, first at t:3\n");
    char *all = with_plugins(OF_TESTS, LISTENER "prob { }\n"), *said = faults_of(all);
    assert_non_null(strstr(said, "t:3: unknown option \"prob\" in the top level"));
    assert_non_null(strstr(said, "did you mean \"probe\"?"));
    free(all);
    free(said);
}

static void where_they_are_is_said_before_them(void **state)
{
    (void)state;
    expect_faults(LISTENER "probe { }\nplugins { }\n",
                  "t:3: plugins stands behind sections of plugins, expected it before them\n");
}

/* Another upstream of the file, or one that is made for the call. */
static void calls_go_to_upstreams(void **state)
{
    (void)state;
    conf = plugged(OF_OURS, LISTENER UPSTREAM
                   "route \"a\" { path = /a upstream = u forward_auth { upstream = u } }\n"
                   "route \"b\" { path = /b upstream = u "
                   "forward_auth { upstream = \"http://auth.test:81\" } }\n"
                   "route \"c\" { path = /c upstream = u "
                   "forward_auth { upstream = \"https://[::1]\" } }\n"
                   "route \"d\" { path = /d upstream = u "
                   "forward_auth { upstream = \"http://auth.test:81\" } }\n");
    assert_int_equal(conf->upstream_count, 3); /* b and d share theirs */
    assert_false(conf->upstreams[0].implicit);
    assert_true(conf->upstreams[1].implicit && conf->upstreams[2].implicit);
    assert_string_equal(conf->upstreams[1].servers[0].text, "auth.test:81");
    assert_null(conf->upstreams[1].tls);
    assert_int_equal(conf->upstreams[1].pool.warm, 0);
    assert_string_equal(conf->upstreams[2].servers[0].text, "[::1]:443");
    assert_non_null(conf->upstreams[2].tls);
}

static void what_cannot_be_called_is_a_fault(void **state)
{
    static const char *const wrong[] = {"nowhere",       "ftp://a",    "http://",
                                        "http://a/b",    "http://a b", "http://a'b",
                                        "http://a:99999"};
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        char text[256], said[512];
        snprintf(text, sizeof(text), "%sforward_auth { upstream = \"%s\" }\n", LISTENER,
                 wrong[i]);
        snprintf(said, sizeof(said),
                 "t:3: forward_auth: \"%s\" is nothing that can be called, expected "
                 "http://HOST[:PORT], https://HOST[:PORT] or the name of an upstream\n",
                 wrong[i]);
        expect_plugged_faults(OF_OURS, text, said);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, tear_down)
    const struct CMUnitTest tests[] = {
        T(the_innermost_section_counts_as_a_whole),
        T(without_plugins_there_is_nothing),
        T(what_the_plugin_says_has_its_place),
        T(a_section_is_configured_with_the_others_faults_too),
        T(sections_that_are_none),
        T(where_they_are_is_said_before_them),
        T(calls_go_to_upstreams),
        T(what_cannot_be_called_is_a_fault),
    };
    return cmocka_run_group_tests(tests, set_up_plugins, NULL);
}
