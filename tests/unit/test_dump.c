#include "conf_test.h"

#include <glob.h>

#include "conf/route.h"

static char *dump_of(const struct conf *conf)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    conf_dump(conf, out);
    fclose(out);
    return text;
}

/* What is written out loads, and is then written out as the same. The first text. */
static char *fixed_point(struct conf *conf)
{
    char *once = dump_of(conf);
    conf_free(conf);
    conf = conf_of(once);
    char *twice = dump_of(conf);
    conf_free(conf);
    assert_string_equal(once, twice);
    free(twice);
    return once;
}

static void is_a_fixed_point_of_loading(void **state)
{
    (void)state;
    static const char *const texts[] = {
        LISTENER UPSTREAM ROUTE,
        LISTENER "workers = 3 user = \"a\\\"b\\\\$c\" pid_file = /p drain_timeout = 90s\n"
                 "resolver = {\"127.0.0.1:53\", \"[::1]:53\"}\n"
                 "admin { listen = \"unix:/run/a b\" }\n"
                 "access_log { path = off format = combined sample = 1/7 slower_than = 1ms }\n"
                 "error_log { path = /e level = debug }\n",
        "listener 'a \"quoted\" \\\\ ${b}' { listen = {\"[::]:1\", \"unix:/s\"}\n"
        "trusted_proxies = {\"10.0.0.0/8\", \"fd00::/8\", \"unix:\", \"1.2.3.4\"}\n"
        "limits { header_bytes = 1025 body_bytes = 0 } timeouts { idle = 1500ms } }\n"
        "route \"a\" { listener = 'a \"quoted\" \\\\ ${b}' respond {} }",
        LISTENER
        "upstream \"u\" { server \"a:1\" { weight = 3 } server \"unix:/b\" { backup = true }\n"
        "sticky_cookie { name = a max_age = 2h secret = \"0123456789abcdef\" }\n"
        "balance = hash hash_on = \"cookie:a\" hash_bound = 150.5% retry { budget = 2.5% on = "
        "{} }\n"
        "pool { warm = 0 idle_timeout = 0 } timeouts { total = 1h } tell_deadline = true }\n"
        "route \"w\" { path = /w upstream = w }\n"
        "upstream \"w\" { server \"a:1\" {} health { path = \"/h\" host = \"b:1\" body = "
        "\"\\\"\"\n"
        "status = {200, \"300-302\"} } outlier { share = 2.5% on = {reset, 5xx} } panic = "
        "use_all\n"
        "slow_start = 90s }\n"
        "route \"g\" { path = /g upstream = g } upstream \"g\" { server \"a:1\" {} protocol = "
        "h2\nhealth { type = grpc host = c service = a.v1.B } }\n"
        "route \"t\" { path = /t upstream = t } upstream \"t\" { server \"a:1\" {} health {} "
        "}\n"
        "route \"a\" { host = {a, \"*.b\"} path = \"/{x}/{y...}\" methods = {GET, POST}\n"
        "upstream = u rewrite = \"/{y}/{x}{path}\" timeout = 1s retry = any body_bytes = 0\n"
        "request_headers { set = {\"A: {x} {header:B}\", \"C:\"} add = \"D: {{x}\" }\n"
        "response_headers { remove = {E, F} } access_log = false }\n"
        "route \"b\" { path = \"/s/{x}\" upstream = u strip_prefix = /s }\n",
        "listener \"l\" { listen = \"unix:/s\" forwarded = both proxy_protocol = true }\n"
        "upstream \"sticky\" { server \"_h._tcp.a\" {} host = upstream proxy_protocol = v2 }\n"
        "upstream \"a b\" { server \"a:1\" {} host = \"h:8\" pool { connections = 3 } }\n"
        "route \"r\" { match_header X { equals = \"a \\\"b\" } match_header Y { present = "
        "false }\n"
        "match_query \"q r\" { regex = '^\\d+$' } match_query z { present = true }\n"
        "split { \"sticky\" = 0 'a b' = 3 sticky = cookie:c } }\n"
        "route \"s\" { split { 'a b' = 1 } }\n",
        LISTENER
        "route \"a\" { respond { status = 201 type = \"a/b\"\n"
        "body = '{\"a\": \"$x\\n{{{rest}\"}\n\ttwo' } }\n"
        "route \"b\" { path = /b redirect { status = 301 to = \"https://{host}{path}\" } }\n"
        "route \"c\" { path = \"*\" respond { file = \"/dev/../etc/passwd\" } }\n"
        "route \"d\" { path = /d respond { body = '{x} {{y' template = false } }\n"
        "route \"e\" { path = /e respond { file = \"/etc/passwd\" template = false } }\n"
        "route \"f\" { path = /f host = \"[0:0::1]\" redirect { to = \"//a?b={path}#c\" } }\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        free(fixed_point(conf_of(texts[i])));
}

static void secrets_are_not_shown(void **state)
{
    (void)state;
    char *text = fixed_point(
        conf_of(LISTENER "upstream \"u\" { server \"a:1\" {}\n"
                         "sticky_cookie { name = a secret = \"0123456789abcdef\" } }"));
    assert_non_null(strstr(text, "secret = \"********************************\""));
    assert_null(strstr(text, "0123456789"));
    free(text);
}

static void fills_in_the_defaults(void **state)
{
    (void)state;
    char *text = fixed_point(conf_of(LISTENER UPSTREAM ROUTE));
    static const char *const lines[] = {
        "workers = auto",
        "drain_timeout = 30s",
        "format = json",
        "sample = \"1/1\"",
        "level = info",
        "header_bytes = 32k",
        "headers = 100",
        "target_bytes = 8k",
        "body_bytes = 10m",
        "forwarded = x_forwarded",
        "proxy_protocol = false",
        "balance = round_robin",
        "host = \"pass\"",
        "proxy_protocol = off",
        "warm = 1",
        "idle = 64",
        "connections = 1024",
        "idle_timeout = 1m",
        "lifetime = 10m",
        "connect = 1s",
        "attempts = 1",
        "budget = 20%",
        "on = {connect, reset}",
        "path = \"/{rest...}\"",
        "access_log = true",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        if (!strstr(text, lines[i]))
            fail_msg("no \"%s\" in\n%s", lines[i], text);
    free(text);
}

static void examples_load_and_come_back(void **state)
{
    (void)state;
    const char *source = getenv("POSTERN_SOURCE");
    glob_t found;
    char pattern[512];
    snprintf(pattern, sizeof(pattern), "%s/config/*.conf", source ? source : ".");
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 3);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct conf_faults faults = {0};
        struct conf *conf = conf_load(found.gl_pathv[i], &faults);
        struct router *router = conf ? router_new(conf, &faults) : NULL;
        if (!router)
            fail_msg("%s", faults_text(&faults));
        router_free(router);
        free(fixed_point(conf));
    }
    globfree(&found);
}

/* "#name = ...", "#name {", "#name "..." {", "#}", and titled sections behind "# ". */
static bool is_commented_option(const char *line)
{
    static const char *const sections[] = {" listener \"", " upstream \"", " route \""};
    line += strspn(line, " ");
    if (*line++ != '#')
        return false;
    for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++)
        if (strncmp(line, sections[i], strlen(sections[i])) == 0)
            return true;
    if (*line == '}' || strcmp(line, " }\n") == 0)
        return true;
    size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
    return n && (strncmp(line + n, " = ", 3) == 0 || strncmp(line + n, " {", 2) == 0 ||
                 strncmp(line + n, " \"", 2) == 0);
}

/* Certificates that are not there, and plugins, which this room does not know. */
static bool is_named_only(const char *message)
{
    static const char *const plugins[] = {"key_auth", "jwt",        "forward_auth", "access",
                                          "cors",     "rate_limit", "concurrency"};
    char unknown[64];
    for (size_t i = 0; i < sizeof(plugins) / sizeof(*plugins); i++) {
        snprintf(unknown, sizeof(unknown), "unknown option \"%s\"", plugins[i]);
        if (strncmp(message, unknown, strlen(unknown)) == 0)
            return true;
    }
    return strstr(message, "cannot read") || strstr(message, "cannot load");
}

/* Uncommented, all options of the reference are known and have values in range; what it says
 * must not stand together is all that is wrong with it. */
static void the_reference_shows_options_that_there_are(void **state)
{
    (void)state;
    char path[512], line[512], *text = NULL;
    size_t n = 0;
    const char *source = getenv("POSTERN_SOURCE");
    snprintf(path, sizeof(path), "%s/config/gateway.conf", source ? source : ".");
    FILE *in = fopen(path, "r"), *out = open_memstream(&text, &n);
    assert_non_null(in);
    while (fgets(line, sizeof(line), in)) {
        if (is_commented_option(line))
            *strchr(line, '#') = ' ';
        fputs(line, out);
    }
    fclose(in);
    fclose(out);
    struct conf_faults faults = {0};
    assert_null(conf_load_text("t", (struct str){text, n}, &faults));
    char *said = faults_text(&faults);
    static const char *const expected[] = {"health.service has no effect",
                                           "has all four of",
                                           "route has sticky beside",
                                           "respond has both",
                                           "route.rewrite uses {id}",
                                           "both strip_prefix and",
                                           "admin stands twice"};
    size_t at = 0;
    for (size_t i = 0; i < faults.count; i++) {
        if (is_named_only(faults.list[i].message))
            continue;
        if (at == sizeof(expected) / sizeof(*expected) ||
            !strstr(faults.list[i].message, expected[at++]))
            fail_msg("%s in\n%s", faults.list[i].message, said);
    }
    assert_int_equal(at, sizeof(expected) / sizeof(*expected));
    free(said);
    free(text);
    conf_faults_done(&faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_fixed_point_of_loading),
        cmocka_unit_test(secrets_are_not_shown),
        cmocka_unit_test(fills_in_the_defaults),
        cmocka_unit_test(examples_load_and_come_back),
        cmocka_unit_test(the_reference_shows_options_that_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
