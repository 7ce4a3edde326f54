#include "conf_test.h"

static struct conf *upstream_with(const char *options)
{
    char text[2048];
    snprintf(text, sizeof(text), LISTENER "upstream \"u\" { server \"a:1\" {} %s }", options);
    return conf_of(text);
}

static void nothing_is_watched_unless_it_is_asked_for(void **state)
{
    (void)state;
    struct conf *conf = upstream_with("");
    const struct watch *watch = &conf->upstreams[0].watch;
    assert_int_equal(watch->health.type, HEALTH_OFF);
    assert_false(watch->outlier.on);
    assert_int_equal(watch->panic, PANIC_FAIL);
    assert_int_equal(watch->slow_start, 0);
    conf_free(conf);
}

static void has_the_defaults_of_the_manual(void **state)
{
    (void)state;
    struct conf *conf = upstream_with("health { path = /h } outlier {}");
    const struct health_policy *health = &conf->upstreams[0].watch.health;
    const struct outlier_policy *outlier = &conf->upstreams[0].watch.outlier;
    assert_int_equal(health->type, HEALTH_HTTP);
    assert_string_equal(health->path, "/h");
    assert_null(health->host);
    assert_null(health->body);
    assert_int_equal(health->status_count, 1);
    assert_int_equal(health->status[0].low, 200);
    assert_int_equal(health->status[0].high, 399);
    assert_int_equal(health->interval, 5000);
    assert_int_equal(health->timeout, 1000);
    assert_int_equal(health->rise, 2);
    assert_int_equal(health->fall, 3);
    assert_true(outlier->on);
    assert_int_equal(outlier->failures, 5);
    assert_int_equal(outlier->share_permille, 0);
    assert_int_equal(outlier->requests, 20);
    assert_int_equal(outlier->window, 10000);
    assert_int_equal(outlier->eject, 30000);
    assert_int_equal(outlier->max_eject, 300000);
    assert_int_equal(outlier->max_ejected_permille, 500);
    assert_int_equal(outlier->counts, OUTLIER_CONNECT | OUTLIER_RESET | OUTLIER_TIMEOUT |
                                          OUTLIER_502 | OUTLIER_503 | OUTLIER_504);
    conf_free(conf);
}

static void takes_every_option(void **state)
{
    (void)state;
    struct conf *conf = upstream_with(
        "health { path = \"/h?x=1\" host = \"b:2\" body = \"all well\" status = {204, "
        "\"300-302\"}\n interval = 10ms timeout = 1ms rise = 1 fall = 1000 }\n"
        "outlier { failures = 0 share = 12.5% requests = 1 window = 100ms eject = 1ms\n"
        "max_eject = 24h max_ejected = 100% on = {protocol, 500, 5xx} }\n"
        "panic = use_all slow_start = 1m");
    const struct watch *watch = &conf->upstreams[0].watch;
    assert_string_equal(watch->health.path, "/h?x=1");
    assert_string_equal(watch->health.host, "b:2");
    assert_string_equal(watch->health.body, "all well");
    assert_int_equal(watch->health.status_count, 2);
    assert_int_equal(watch->health.status[0].low, 204);
    assert_int_equal(watch->health.status[0].high, 204);
    assert_int_equal(watch->health.status[1].high, 302);
    assert_int_equal(watch->health.fall, 1000);
    assert_int_equal(watch->outlier.share_permille, 125);
    assert_int_equal(watch->outlier.max_eject, DAY_MS);
    assert_int_equal(watch->outlier.max_ejected_permille, 1000);
    assert_int_equal(watch->outlier.counts, OUTLIER_PROTOCOL | OUTLIER_500 | OUTLIER_5XX);
    assert_int_equal(watch->panic, PANIC_USE_ALL);
    assert_int_equal(watch->slow_start, 60000);
    conf_free(conf);
}

static void a_fixed_host_is_what_probes_say_too(void **state)
{
    (void)state;
    struct conf *conf = upstream_with("host = inner health { path = /h }");
    assert_string_equal(conf->upstreams[0].watch.health.host, "inner");
    conf_free(conf);
    conf = upstream_with("host = upstream health { path = /h }");
    assert_null(conf->upstreams[0].watch.health.host);
    conf_free(conf);
    conf = upstream_with("host = inner health {}");
    assert_int_equal(conf->upstreams[0].watch.health.type, HEALTH_TCP);
    assert_null(conf->upstreams[0].watch.health.host);
    conf_free(conf);
}

static void max_eject_is_never_below_eject(void **state)
{
    (void)state;
    struct conf *conf = upstream_with("outlier { eject = 10m }");
    assert_int_equal(conf->upstreams[0].watch.outlier.max_eject, 600000);
    conf_free(conf);
}

static void asks_for_a_grpc_service(void **state)
{
    (void)state;
    struct conf *conf =
        upstream_with("protocol = h2 host = c health { type = grpc service = a.v1.B }");
    const struct health_policy *health = &conf->upstreams[0].watch.health;
    assert_int_equal(health->type, HEALTH_GRPC);
    assert_string_equal(health->service, "a.v1.B");
    assert_string_equal(health->host, "c");
    conf_free(conf);
    conf = upstream_with("protocol = h2 health { type = grpc }");
    assert_null(conf->upstreams[0].watch.health.service);
    conf_free(conf);
}

static void checks_health(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"type = tcp", NULL},
        {"type = udp", "health.type is udp, expected tcp, http or grpc"},
        {"type = http", "health has no path, expected one with type = http"},
        {"type = tcp path = /x", "health.path has no effect with type = tcp"},
        {"host = a", "health.host has no effect without health.path"},
        {"body = a", "health.body has no effect without health.path"},
        {"type = tcp service = a", "health.service has no effect with type = tcp"},
        {"path = /x service = a", "health.service has no effect with type = http"},
        {"path = \"\"", "health.path is empty, expected a path"},
        {"path = x", "health.path is x, expected a path"},
        {"path = \"/a b\"", "health.path is /a b, expected a path"},
        {"path = \"/a#b\"", "health.path is /a#b, expected a path"},
        {"path = \"/\xc3\xa4\"", "health.path is /\xc3\xa4, expected a path"},
        {"path = http://a/", "health.path is http://a/, expected a path"},
        {"path = /a host = \"a b\"", "health.host is a b, expected a HOST or HOST:PORT"},
        {"path = /a body = \"\"", "health.body is empty, expected 1 to 4096 bytes"},
        {"path = /a status = 199", "health.status has \"199\", expected a status"},
        {"path = /a status = 600", "health.status has \"600\", expected a status"},
        {"path = /a status = 300-200", "health.status has \"300-200\", expected a status"},
        {"path = /a status = 200-", "health.status has \"200-\", expected a status"},
        {"path = /a status = 2xx", "health.status has \"2xx\", expected a status"},
        {"interval = 9ms", "health.interval is 9ms, expected a time"},
        {"interval = 25h", "health.interval is 25h, expected a time"},
        {"timeout = 0s", "health.timeout is 0s, expected a time"},
        {"rise = 0", "health.rise is 0, expected 1 to 1000"},
        {"fall = 1001", "health.fall is 1001, expected 1 to 1000"},
    };
    CHECK_OPTIONS("listener \"l\" { listen = \"127.0.0.1:1\" } upstream \"u\" { server \"a:1\" "
                  "{} health {",
                  "} }", cases);
}

static void checks_the_rest(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"outlier { failures = 1000001 }",
         "outlier.failures is 1000001, expected 0 to 1000000"},
        {"outlier { share = 101% }", "outlier.share is 101%, expected a share from 0% to 100%"},
        {"outlier { share = 20 }", "outlier.share is 20, expected a share"},
        {"outlier { failures = 0 share = 1% }", NULL},
        {"outlier { failures = 0 }", "outlier has neither failures nor share"},
        {"outlier { requests = 0 }", "outlier.requests is 0, expected 1 to 1000000"},
        {"outlier { window = 99ms }", "outlier.window is 99ms, expected a time"},
        {"outlier { eject = 0s }", "outlier.eject is 0s, expected a time"},
        {"outlier { max_eject = 29s }", "outlier.max_eject is 29s, expected a time"},
        {"outlier { max_ejected = 100.5% }", "outlier.max_ejected is 100.5%, expected a share"},
        {"outlier { on = refused }", "outlier.on has \"refused\", expected connect, reset"},
        {"outlier { on = {} }", "outlier.on is empty, expected at least one kind of failure"},
        {"panic = use", "upstream.panic is use, expected fail or use_all"},
        {"slow_start = 25h", "upstream.slow_start is 25h, expected a time"},
    };
    CHECK_OPTIONS(
        "listener \"l\" { listen = \"127.0.0.1:1\" } upstream \"u\" { server \"a:1\" {}", "}",
        cases);
}

static void at_most_sixteen_statuses(void **state)
{
    (void)state;
    char text[1024], list[256] = "";
    for (int i = 0; i < 17; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%d", i ? ", " : "",
                 200 + i);
    snprintf(text, sizeof(text),
             LISTENER "upstream \"u\" { server \"a:1\" {} health { path = /x status = {%s} } }",
             list);
    char *said = faults_of(text);
    assert_non_null(strstr(said, "health.status has 17 entries, expected 1 to 16"));
    free(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_watched_unless_it_is_asked_for),
        cmocka_unit_test(has_the_defaults_of_the_manual),
        cmocka_unit_test(takes_every_option),
        cmocka_unit_test(a_fixed_host_is_what_probes_say_too),
        cmocka_unit_test(max_eject_is_never_below_eject),
        cmocka_unit_test(asks_for_a_grpc_service),
        cmocka_unit_test(checks_health),
        cmocka_unit_test(checks_the_rest),
        cmocka_unit_test(at_most_sixteen_statuses),
    };
    return cmocka_run_group_tests_name("watch_conf", tests, NULL, NULL);
}
