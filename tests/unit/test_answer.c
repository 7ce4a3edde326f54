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

/* A route whose answer is a file of that text; `options` of respond. */
static struct conf *file_of(struct str content, const char *options, char **ret_path,
                            char **ret_faults)
{
    static char path[64], text[512];
    struct conf_faults faults = {0};
    strcpy(path, "/tmp/postern-answer-XXXXXX");
    int fd = mkstemp(path);
    assert_int_equal(write(fd, content.p, content.n), content.n);
    close(fd);
    snprintf(text, sizeof(text),
             LISTENER "route \"a\" { path = \"/{id}\" respond { file = \"%s\" %s } }", path,
             options);
    struct conf *conf = conf_load_text("t", str_of(text), &faults);
    *ret_path = path;
    *ret_faults = faults_text(&faults);
    conf_faults_done(&faults);
    unlink(path);
    return conf;
}

static void a_file_is_a_text_if_its_type_is_one(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        unsigned parts;
    } cases[] = {
        {"", 2},
        {"type = \"text/html; charset=utf-8\"", 2},
        {"type = \"application/problem+json\"", 2},
        {"type = \"image/svg+xml\"", 2},
        {"type = \"image/png\"", 1},
        {"type = \"application/vnd.openxmlformats-officedocument.wordprocessingml.document\"",
         1},
        {"type = \"application/octet-stream\"", 1},
        {"type = \"image/png\" template = true", 2},
        {"template = false", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *path, *said;
        struct conf *conf = file_of(STR("{id}\0{ x:{\n"), cases[i].options, &path, &said);
        assert_string_equal(said, "");
        const struct template *body = &conf->routes[0].respond.body;
        assert_int_equal(body->count, cases[i].parts);
        assert_true(str_eq(body->parts[body->count - 1].text,
                           cases[i].parts == 1 ? STR("{id}\0{ x:{\n") : STR("\0{ x:{\n")));
        assert_string_equal(conf->routes[0].respond.file, path);
        conf_free(conf);
        free(said);
    }
}

static void faults_of_files_name_them(void **state)
{
    (void)state;
    char *path, *said, expected[256];
    assert_null(file_of(STR("a {user} b"), "", &path, &said));
    snprintf(
        expected, sizeof(expected),
        "t:2: respond.file %s (sent as it is with template = false) uses {user}, which the "
        "path does not bind, expected one of id, ",
        path);
    assert_int_equal(strncmp(said, expected, strlen(expected)), 0);
    free(said);
    size_t n = (1 << 20) + 1;
    char *large = calloc(1, n);
    assert_null(file_of((struct str){large, n}, "", &path, &said));
    assert_non_null(strstr(said, "t:2: respond.file: cannot read "));
    free(said);
    free(large);
}

/* Braces that begin no name, as many as a file holds, take no memory. */
static void a_file_of_braces_is_one_part(void **state)
{
    (void)state;
    char *path, *said, *braces = malloc(1 << 20);
    for (size_t i = 0; i < 1 << 20; i += 2)
        memcpy(braces + i, "{ ", 2);
    struct conf *conf = file_of((struct str){braces, 1 << 20}, "", &path, &said);
    assert_string_equal(said, "");
    assert_int_equal(conf->routes[0].respond.body.count, 1);
    assert_int_equal(conf->routes[0].respond.body.parts[0].text.n, 1 << 20);
    assert_true(conf->arena.total < 8 << 20);
    conf_free(conf);
    free(said);
    free(braces);
}

static enum escape escape_of(const char *respond)
{
    char text[256];
    snprintf(text, sizeof(text), LISTENER "route \"r\" { respond { body = \"{path}\" %s } }",
             respond);
    struct conf *conf = conf_of(text);
    enum escape escape = conf->routes[0].respond.body.parts[0].escape;
    conf_free(conf);
    return escape;
}

static void the_type_says_what_is_escaped(void **state)
{
    (void)state;
    assert_int_equal(escape_of(""), ESCAPE_NONE);
    assert_int_equal(escape_of("type = \"text/plain; a=json\""), ESCAPE_NONE);
    assert_int_equal(escape_of("type = \"Application/JSON\""), ESCAPE_JSON);
    assert_int_equal(escape_of("type = \"application/vnd.api+json; v=1\""), ESCAPE_JSON);
    assert_int_equal(escape_of("type = \"TEXT/HTML; profile=json\""), ESCAPE_HTML);
    assert_int_equal(escape_of("type = \"application/xhtml+xml\""), ESCAPE_HTML);
    assert_int_equal(escape_of("type = \"image/svg+xml\""), ESCAPE_HTML);
    assert_int_equal(escape_of("type = \"text/xml\""), ESCAPE_HTML);
    assert_int_equal(escape_of("type = \"text/javascript\""), ESCAPE_SCRIPT);
    assert_int_equal(escape_of("type = \"application/x-www-form-urlencoded\""), ESCAPE_QUERY);
}

static void places_of(const char *to, const char *expected)
{
    static const char *const names[] = {
        [ESCAPE_PATH] = "p", [ESCAPE_QUERY] = "q", [ESCAPE_AUTHORITY] = "a"};
    char text[256], got[16] = "";
    snprintf(text, sizeof(text),
             LISTENER "route \"r\" { path = \"/{id}/{rest...}\" redirect { to = \"%s\" } }",
             to);
    struct conf *conf = conf_of(text);
    const struct template *template = &conf->routes[0].redirect.to;
    for (size_t i = 0; i < template->count; i++)
        if (template->parts[i].var != VAR_LITERAL)
            strcat(got, names[template->parts[i].escape]);
    if (strcmp(got, expected) != 0)
        fail_msg("%s: expected %s, got %s", to, expected, got);
    conf_free(conf);
}

static void variables_know_their_part_of_a_uri(void **state)
{
    (void)state;
    places_of("/{id}", "p");
    places_of("{path}", "p");
    places_of("/{id}?{id}={id}", "pqq");
    places_of("/a#{id}", "q");
    places_of("https://{id}.example.com/{id}", "ap");
    places_of("https://{host}{path}?next={path}", "apq");
    places_of("//{host}/{rest}", "ap");
    places_of("http://a.example?{id}", "q");
    places_of("https://{host}:8443/", "a");
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
        {"redirect { to = \"/a%zz\" }", "redirect.to is"},
        {"redirect { to = \"https://\" }", "redirect.to is \"https://\", expected a URI"},
        {"redirect { to = \"https:///x\" }", "redirect.to is"},
        {"redirect { to = \"//\" }", "redirect.to is"},
        {"redirect { to = \"http://a b/\" }", "redirect.to is"},
        {"redirect { to = \"http://user@h/\" }", "redirect.to is"},
        {"redirect { to = \"http://h:99999/\" }", "redirect.to is"},
        {"redirect { to = \"http://h:{host}/\" }", "redirect.to is"},
        {"redirect { to = \"http://[::1/\" }", "redirect.to is"},
        {"redirect { to = \"http://[::1]:8080\" }", NULL},
        {"redirect { to = \"https://www.{host}:8443?a#b\" }", NULL},
        {"redirect { to = \"//cdn.example/{path}\" }", NULL},
        {"respond { template = false }", "respond.template has no effect without a body"},
        {"respond { body = \"{x}\" template = false }", NULL},
    };
    CHECK_OPTIONS(FIRST "route \"r\" {", "}", cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_defaults_of_the_manual),
        cmocka_unit_test(a_file_is_a_text_if_its_type_is_one),
        cmocka_unit_test(faults_of_files_name_them),
        cmocka_unit_test(a_file_of_braces_is_one_part),
        cmocka_unit_test(the_type_says_what_is_escaped),
        cmocka_unit_test(variables_know_their_part_of_a_uri),
        cmocka_unit_test(checks_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
