#include "conf_test.h"

static void expect_path(const char *path, const char *expected)
{
    char option[PATTERN_MAX + 200];
    snprintf(option, sizeof(option), "path = \"%s\"", path);
    check_option(FIRST "route \"r\" { upstream = u", option, "}", expected);
}

static void takes_literals_names_and_a_rest(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "/",
        "/a",
        "/a/",
        "/a/b",
        "/{x}",
        "/a/{x}/b/{y}",
        "/{x...}",
        "/a/{x}/{rest...}",
        "/a.b-c_d~e!$&'()+,=:@",
        "/%20",
        "/%C3%A9",
        "/{_a1}",
        "*",
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        expect_path(paths[i], NULL);
}

/* "//" and ";" are gone from the paths of a listener that says nothing else. */
static void takes_what_a_listener_keeps(void **state)
{
    (void)state;
    static const char routes[] = "route \"a\" { path = \"/a//b\" respond {} }\n"
                                 "route \"b\" { path = \"/a;b\" respond {} }\n";
    char text[512];
    snprintf(text, sizeof(text),
             "listener \"l\" { listen = \"127.0.0.1:1\"  paths { double_slash = keep  "
             "parameter = keep } }\n%s",
             routes);
    conf_free(conf_of(text));
    snprintf(text, sizeof(text), LISTENER "%s", routes);
    expect_faults(text, "t:2: route \"a\" would never match: its path has \"//\", which no "
                        "listener of it keeps (paths.double_slash)\n"
                        "t:3: route \"b\" would never match: its path has \";\", which no "
                        "listener of it keeps (paths.parameter)\n");
}

static void refuses_bad_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *path, *expected;
    } cases[] = {
        {"", "begins with /"},
        {"a", "begins with /"},
        {"**", "begins with /"},
        {"/a{b}", "whole segment"},
        {"/{b}a", "whole segment"},
        {"/{a", "whole segment"},
        {"/a}", "whole segment"},
        {"/{a}{b}", "letters, digits and _"},
        {"/{}", "letters, digits and _"},
        {"/{1a}", "letters, digits and _"},
        {"/{a-b}", "letters, digits and _"},
        {"/{...}", "letters, digits and _"},
        {"/{a..}", "letters, digits and _"},
        {"/{a}/{a}", "stands once"},
        {"/{host}", "are taken"},
        {"/{path...}", "are taken"},
        {"/{request_id}", "are taken"},
        {"/{client_ip}", "are taken"},
        {"/{a...}/b", "stands last"},
        {"/{a...}/", "stands last"},
        {"/a b", "RFC 3986"},
        {"/a?b", "RFC 3986"},
        {"/a#b", "RFC 3986"},
        {"/\xc3\xa9", "RFC 3986"},
        {"/a\\\\b", "RFC 3986"},
        {"/%7e", "normal form"},
        {"/%7E", "normal form"},
        {"/%c3%a9", "normal form"},
        {"/a/./b", "normal form"},
        {"/a/../b", "normal form"},
        {"/..", "bad or ambiguous"},
        {"/%2F", "bad or ambiguous"},
        {"/%", "bad or ambiguous"},
        {"/%zz", "bad or ambiguous"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_path(cases[i].path, cases[i].expected);
}

static void binds_at_most_sixteen_names(void **state)
{
    (void)state;
    char path[256] = "";
    for (int i = 0; i < 16; i++)
        snprintf(path + strlen(path), 16, "/{n%d}", i);
    expect_path(path, NULL);
    strcat(path, "/{n16}");
    expect_path(path, "at most 16 names");
}

static void refuses_a_path_of_more_than_2048_bytes(void **state)
{
    (void)state;
    char path[PATTERN_MAX + 2];
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[PATTERN_MAX] = '\0';
    expect_path(path, NULL);
    path[PATTERN_MAX] = 'a';
    path[PATTERN_MAX + 1] = '\0';
    expect_path(path, "at most 2048 bytes");
}

static void gives_the_names_in_order(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER "route \"r\" { path = \"/{a}/x/{b}/{c...}\" respond {} }");
    assert_int_equal(conf->routes[0].capture_count, 3);
    assert_string_equal(conf->routes[0].captures[0], "a");
    assert_string_equal(conf->routes[0].captures[1], "b");
    assert_string_equal(conf->routes[0].captures[2], "c");
    conf_free(conf);
}

static void warns_of_stars_that_stand_for_themselves(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER "route \"a\" { path = \"/a/*\" respond {} }\n"
                                         "route \"b\" { path = \"/*/b\" respond {} }\n"
                                         "route \"c\" { path = \"/a*/*b\" respond {} }\n"
                                         "route \"d\" { path = \"*\" respond {} }\n");
    assert_int_equal(conf->warnings.count, 2);
    assert_non_null(strstr(conf->warnings.list[0].message, "\"/a/*\": * stands for itself"));
    assert_int_equal(conf->warnings.list[1].where.line, 3);
    conf_free(conf);
}

static void makes_one_key_of_patterns_that_match_alike(void **state)
{
    (void)state;
    char a[64], b[64];
    size_t n = pattern_key(STR("/x/{a}/y/{rest...}"), a);
    assert_int_equal(n, pattern_key(STR("/x/{other}/y/{b...}"), b));
    assert_memory_equal(a, b, n);
    assert_memory_equal(a, "/x/\x01/y/\x02", n);
    assert_int_equal(pattern_key(STR("*"), a), 1);
    assert_int_equal(pattern_key(STR("/"), a), 1);
    assert_int_equal(pattern_key(STR("/a/"), a), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_literals_names_and_a_rest),
        cmocka_unit_test(takes_what_a_listener_keeps),
        cmocka_unit_test(refuses_bad_patterns),
        cmocka_unit_test(binds_at_most_sixteen_names),
        cmocka_unit_test(refuses_a_path_of_more_than_2048_bytes),
        cmocka_unit_test(gives_the_names_in_order),
        cmocka_unit_test(warns_of_stars_that_stand_for_themselves),
        cmocka_unit_test(makes_one_key_of_patterns_that_match_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
