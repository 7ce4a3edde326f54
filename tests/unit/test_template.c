#include "conf_test.h"

static struct conf *body_of(const char *body)
{
    char text[1024];
    snprintf(text, sizeof(text),
             LISTENER "route \"r\" { path = \"/{id}/{rest...}\" respond { body = '%s' } }",
             body);
    return conf_of(text);
}

/* The parts, with a bar between them; names in angle brackets. */
static void expect_parts(const char *body, const char *expected)
{
    static const char *const names[] = {"",     "",     "client_ip", "request_id",
                                        "host", "path", "header:"};
    char *got = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&got, &n);
    struct conf *conf = body_of(body);
    const struct template *template = &conf->routes[0].respond.body;
    for (size_t i = 0; i < template->count; i++) {
        const struct template_part *part = &template->parts[i];
        const char *text = part->text.n ? part->text.p : "";
        fputs(i ? "|" : "", out);
        if (part->var == VAR_CAPTURE)
            fprintf(out, "<%u>", part->capture);
        else if (part->var == VAR_LITERAL)
            fprintf(out, "%.*s", (int)part->text.n, text);
        else
            fprintf(out, "<%s%.*s>", names[part->var], (int)part->text.n, text);
    }
    fclose(out);
    assert_string_equal(got, expected);
    free(got);
    conf_free(conf);
}

static void fills_in_names_and_leaves_other_braces(void **state)
{
    (void)state;
    expect_parts("", "");
    expect_parts("plain", "plain");
    expect_parts("{id}", "<0>");
    expect_parts("a{id}b{rest}c", "a|<0>|b|<1>|c");
    expect_parts("{client_ip}{request_id}{host}{path}{header:X-A}",
                 "<client_ip>|<request_id>|<host>|<path>|<header:X-A>");
    expect_parts("{\"ok\":true,\"a\":{}}", "{\"ok\":true,\"a\":{}}");
    expect_parts("{\"id\":\"{id}\"}", "{\"id\":\"|<0>|\"}");
    expect_parts("{ id } {id {header:} {header:a b}", "{ id } {id {header:} {header:a b}");
    expect_parts("{{id}", "{|id}");
    expect_parts("a{{{id}}", "a{|<0>|}");
    expect_parts("{{{{", "{|{");
    expect_parts("{", "{");
    char name[300] = "{";
    memset(name + 1, 'a', 297);
    strcpy(name + 298, "}"); /* longer than any name */
    expect_parts(name, name);
}

static void puts_back_what_reads_the_same(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "plain", "{id}",  "{\"a\":{\"b\":1}}", "{{id}",     "{{{id}", "{{{{", "{",
        "a{",    "{{\"x", "{header:X}{",       "x{{{{{{y}}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        struct conf *conf = body_of(bodies[i]);
        char *text[2] = {NULL, NULL};
        size_t n;
        for (int turn = 0; turn < 2; turn++) {
            FILE *out = open_memstream(&text[turn], &n);
            template_put(&conf->routes[0].respond.body, &conf->routes[0], out);
            fclose(out);
            size_t parts = conf->routes[0].respond.body.count;
            conf_free(conf);
            conf = body_of(text[turn]);
            assert_int_equal(conf->routes[0].respond.body.count, parts);
        }
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
        conf_free(conf);
    }
}

static void a_name_that_nothing_binds_is_a_fault(void **state)
{
    (void)state;
    expect_faults(
        LISTENER "route \"r\" { path = \"/{id}\" respond { body = \"{user}\" } }",
        "t:2: respond.body uses {user}, which the path does not bind, expected one of id, "
        "client_ip, request_id, host, path or header:NAME (write {{ for a plain brace)\n");
    expect_faults(LISTENER UPSTREAM "route \"r\" { upstream = u rewrite = \"/{header:X}\" }",
                  "t:3: route.rewrite uses {header:X}, which cannot stand there\n");
    expect_faults(LISTENER "route \"r\" { respond { body = \"{header:Content-Length}\" } }",
                  "t:2: respond.body uses {header:Content-Length}, which cannot stand there\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_names_and_leaves_other_braces),
        cmocka_unit_test(puts_back_what_reads_the_same),
        cmocka_unit_test(a_name_that_nothing_binds_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
