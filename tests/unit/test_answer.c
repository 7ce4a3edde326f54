#include "conf_test.h"

#include <unistd.h>

static void has_the_defaults_of_the_manual(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER "route \"a\" { path = /a respond { } }\n"
                                         "route \"b\" { path = /b redirect { to = /c } }");
    assert_int_equal(conf->routes[0].action, ACTION_RESPOND);
    assert_int_equal(conf->routes[0].respond.status, 200);
    assert_string_equal(conf->routes[0].respond.type, "text/plain");
    assert_int_equal(conf->routes[0].respond.body.count, 0);
    assert_null(conf->routes[0].respond.file);
    assert_int_equal(conf->routes[1].action, ACTION_REDIRECT);
    assert_int_equal(conf->routes[1].redirect.status, 308);
    conf_free(conf);
}

static void sends_a_file_byte_for_byte(void **state)
{
    (void)state;
    char path[] = "/tmp/postern-answer-XXXXXX", text[512];
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "{id}\0{{\n", 8), 8);
    close(fd);
    snprintf(text, sizeof(text),
             LISTENER "route \"a\" { path = \"/{id}\" respond { file = \"%s\" } }", path);
    struct conf *conf = conf_of(text);
    assert_int_equal(conf->routes[0].respond.body.count, 1);
    assert_true(str_eq(conf->routes[0].respond.body.parts[0].text, STR("{id}\0{{\n")));
    assert_string_equal(conf->routes[0].respond.file, path);
    conf_free(conf);
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    char *said = faults_of(text);
    assert_non_null(strstr(said, "t:2: respond.file: cannot read "));
    free(said);
    unlink(path);
}

static void checks_answers(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"respond { status = 599 }", NULL},
        {"respond { status = 199 }", "respond.status is 199, expected 200 to 599"},
        {"respond { status = 600 }", "respond.status is 600, expected 200 to 599"},
        {"respond { status = ok }", "respond.status is ok"},
        {"respond { status = 204 }", NULL},
        {"respond { status = 204 body = \"x\" }", "an answer with status 204 has none"},
        {"respond { status = 304 body = \"x\" }", "an answer with status 304 has none"},
        {"respond { type = \"\" }", "respond.type is empty"},
        {"respond { type = \"a\\r\\nb: c\" }", "respond.type is a??b: c"},
        {"respond { body = \"a\" file = \"/dev/null\" }", "respond has both body and file"},
        {"respond { file = \"/nonexistent/x\" }", "cannot read /nonexistent/x: No such file"},
        {"respond { file = \"/\" }", "cannot read /: it is a directory, expected a file"},
        {"redirect { to = \"/x\" status = 301 }", NULL},
        {"redirect { to = \"https://example.com{path}\" status = 302 }", NULL},
        {"redirect { to = \"{path}\" status = 303 }", NULL},
        {"redirect { to = \"http://{host}/\" status = 307 }", NULL},
        {"redirect { to = \"/x\" status = 304 }",
         "redirect.status is 304, expected 301, 302, 303, 307 or 308"},
        {"redirect { to = \"/x\" status = 300 }", "redirect.status is 300"},
        {"redirect { }", "redirect has no to"},
        {"redirect { to = \"\" }", "redirect.to is \"\", expected a URI"},
        {"redirect { to = \"x\" }", "redirect.to is \"x\", expected a URI"},
        {"redirect { to = \"javascript:x\" }", "redirect.to is"},
        {"redirect { to = \"/a b\" }", "redirect.to is"},
        {"redirect { to = \"/a\\r\\nSet-Cookie: x\" }", "redirect.to is"},
        {"redirect { to = \"/{x y}\" }", "redirect.to is"},
    };
    CHECK_OPTIONS(FIRST "route \"r\" {", "}", cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_defaults_of_the_manual),
        cmocka_unit_test(sends_a_file_byte_for_byte),
        cmocka_unit_test(checks_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
