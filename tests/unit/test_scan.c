#include "conf_test.h"

static void an_unknown_option_hides_no_other_fault(void **state)
{
    (void)state;
    setenv("POSTERN_PLUGINS", "/nowhere", 1);
    expect_faults(
        "wrokers = 2\n"
        "listener \"l\" { listen = \"127.0.0.1:1\" quic = true\n"
        "  limits { gophers = 128 headers = 0 } plain = false\n"
        "  cipher_box { certificate \"x\" { chain = \"a\" key = {b, c} } } }\n"
        "plugins { load = {\"/x.so\"} }\n"
        "quux(a, \"b\")\n"
        "quux += {1}\n"
        "drain_timeout = 25h\n",
        "t:1: unknown option \"wrokers\" in the top level, did you mean \"workers\"?\n"
        "t:2: unknown option \"quic\" in listener\n"
        "t:3: unknown option \"gophers\" in limits\n"
        "t:3: unknown option \"plain\" in listener\n"
        "t:3: limits.headers is 0, expected 1 to 1000\n"
        "t:4: unknown option \"cipher_box\" in listener, and there is no plugin cipher_box.so "
        "in /nowhere\n"
        "t:5: plugins.load: cannot load /x.so: cannot open shared object file: No such file "
        "or directory\n"
        "t:6: unknown option \"quux\" in the top level\n"
        "t:7: unknown option \"quux\" in the top level\n"
        "t:8: drain_timeout is 25h, expected a time (250ms, 5s, 2m) from 0s to 24h\n");
    unsetenv("POSTERN_PLUGINS");
}

static void what_is_not_there_yet_is_unknown(void **state)
{
    (void)state;
    static const struct option_case in_upstream[] = {
        {"http3 = true", "unknown option \"http3\" in upstream"},
        {"circuit { failures = 5 }", "unknown option \"circuit\" in upstream"},
    };
    static const struct option_case in_route[] = {
        {"mirror = shadow", "unknown option \"mirror\" in route"},
        {"key_auth { file = \"k\" }", "unknown option \"key_auth\" in route"},
        {"rate_limit { rate = \"1/s\" }", "unknown option \"rate_limit\" in route"},
        {"@title = x", "unknown option \"@title\" in route"},
        {"@pairs = x", "unknown option \"@pairs\" in route"},
    };
    CHECK_OPTIONS(
        "listener \"l\" { listen = \"127.0.0.1:1\" } upstream \"u\" { server \"a:1\" {}", "}",
        in_upstream);
    CHECK_OPTIONS(FIRST "route \"r\" { respond {}", "}", in_route);
}

static void an_option_stands_once(void **state)
{
    (void)state;
    expect_faults(LISTENER
                  "workers = 1\nworkers = 2\n"
                  "admin { listen = \"127.0.0.1:2\" }\nadmin { listen = \"127.0.0.1:3\" }\n"
                  "route \"r\" { respond { status = 200\nstatus = 201 }\n respond { } }\n",
                  "t:3: workers stands twice in this file, first at t:2\n"
                  "t:5: admin stands twice in this file, first at t:4\n"
                  "t:7: status stands twice in this respond, first at t:6\n"
                  "t:8: respond stands twice in this route, first at t:6\n");
}

static void goes_on_behind_syntax_errors(void **state)
{
    (void)state;
    expect_faults("listener \"l\" { listen = \"127.0.0.1:1\" }\n"
                  "workers 3\n"
                  "drain_timeout = = 4\n"
                  "route { path = /a }\n"
                  "admin \"x\" { }\n"
                  "user += b\n"
                  "pid_file = {a}\n"
                  "{ }\n"
                  "}\n"
                  "include x\n"
                  "bananas = 1\n",
                  "t:2: unexpected \"3\", expected \"=\" after workers\n"
                  "t:3: unexpected \"=\", expected a value for drain_timeout\n"
                  "t:4: unexpected \"{\", expected a name in quotation marks after route\n"
                  "t:5: unexpected \"x\", expected \"{\" after admin\n"
                  "t:6: unexpected \"+=\", expected \"=\" after user\n"
                  "t:7: unexpected \"{\", expected a value for pid_file\n"
                  "t:8: unexpected \"{\", expected an option in the top level\n"
                  "t:9: unexpected \"}\", no section is open here\n"
                  "t:10: unexpected \"x\", expected \"(\" after include\n"
                  "t:11: unknown option \"bananas\" in the top level\n");
}

static void asks_for_quotation_marks_around_braces(void **state)
{
    (void)state;
    expect_faults("listener \"l\" { listen = \"127.0.0.1:1\" }\n"
                  "route \"a\" { path = /a/{id} respond {} }\n"
                  "route \"b\" { host = {a, b{c}} respond {} }\n"
                  "bananas = 1\n",
                  "t:2: unexpected \"{\" in the value of path, expected quotation marks around "
                  "it\n"
                  "t:3: unexpected \"{\" in the value of host, expected quotation marks around "
                  "it\n"
                  "t:4: unknown option \"bananas\" in the top level\n");
}

static void tells_what_is_open_at_the_end(void **state)
{
    (void)state;
    expect_faults(LISTENER "upstream \"u\" {\n server \"a:1\" {\n",
                  "t:2: this upstream is never closed, expected \"}\"\n"
                  "t:3: this server is never closed, expected \"}\"\n");
    expect_faults(LISTENER "route \"r\" { path = \"/a\n",
                  "t:2: this text is never closed, expected a quotation mark\n");
    expect_faults(LISTENER "route \"r\" { host = {a",
                  "t:2: unexpected the end of the file, expected \",\" or \"}\" in host\n"
                  "t:2: this route is never closed, expected \"}\"\n");
}

static void variables_come_from_the_environment(void **state)
{
    (void)state;
    setenv("POSTERN_TEST", "/run/x", 1);
    unsetenv("POSTERN_NONE");
    struct conf *conf =
        conf_of(LISTENER "pid_file = \"${POSTERN_TEST}/p\" user = ${POSTERN_TEST}\n"
                         "access_log { path = \"${POSTERN_NONE:-off}\" }\n"
                         "error_log { path = '${POSTERN_TEST}' }");
    assert_string_equal(conf->pid_file, "/run/x/p");
    assert_string_equal(conf->user, "/run/x");
    assert_string_equal(conf->access_log.path, "off");
    assert_string_equal(conf->error_log.path, "${POSTERN_TEST}");
    conf_free(conf);
    expect_faults(LISTENER "user = \"x${POSTERN_NONE}\"",
                  "t:2: the environment has no POSTERN_NONE, set it or write "
                  "${POSTERN_NONE:-default}\n");
    conf = conf_of(LISTENER "user = \"$ $x ${ ${1} ${a b}\"");
    assert_string_equal(conf->user, "$ $x ${ ${1} ${a b}");
    conf_free(conf);
}

static void texts_keep_their_bytes_and_what_follows_its_line(void **state)
{
    (void)state;
    expect_faults(LISTENER "user = \"a\\\"b\" /* \n */ pid_file = 'x\n\n'\nworkers = 0",
                  "t:5: pid_file is x??, expected 1 to 4096 bytes without control characters\n"
                  "t:6: workers is 0, expected auto or 1 to 256\n");
    struct conf *conf =
        conf_of(LISTENER "user = \"a\\\"b\\\\c\\x41\\101\\q\" pid_file = 'a\\'\"\\n' "
                         "error_log { path = a\\b }");
    assert_string_equal(conf->user, "a\"b\\cAAq");
    assert_string_equal(conf->pid_file, "a'\"\\n");
    assert_string_equal(conf->error_log.path, "a\\b");
    conf_free(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_option_hides_no_other_fault),
        cmocka_unit_test(what_is_not_there_yet_is_unknown),
        cmocka_unit_test(an_option_stands_once),
        cmocka_unit_test(goes_on_behind_syntax_errors),
        cmocka_unit_test(asks_for_quotation_marks_around_braces),
        cmocka_unit_test(tells_what_is_open_at_the_end),
        cmocka_unit_test(variables_come_from_the_environment),
        cmocka_unit_test(texts_keep_their_bytes_and_what_follows_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
