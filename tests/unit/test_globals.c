#include "conf_test.h"

static void has_the_defaults_of_the_manual(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER);
    assert_true(conf->workers_auto);
    assert_in_range(conf->workers, 1, 256);
    assert_null(conf->user);
    assert_null(conf->pid_file);
    assert_int_equal(conf->drain_timeout, 30000);
    assert_false(conf->has_admin);
    assert_string_equal(conf->access_log.path, "-");
    assert_false(conf->access_log.combined);
    assert_int_equal(conf->access_log.sample, 1);
    assert_int_equal(conf->access_log.slower_than, 0);
    assert_string_equal(conf->error_log.path, "-");
    assert_int_equal(conf->error_log.level, LOG_INFO);
    assert_int_equal(conf->resolver_count, 0);
    conf_free(conf);
}

static void takes_every_option(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER "workers = 3 user = \"www\" pid_file = /run/p.pid\n"
                         "resolver = {\"10.0.0.2:53\", \"[::1]:5353\"}\n"
                         "drain_timeout = 2m admin { listen = \"[::1]:9901\" }\n"
                         "access_log { path = off format = combined sample = \"1/100\"\n"
                         "slower_than = 250ms } error_log { path = /e level = error }");
    char text[ADDR_TEXT];
    assert_false(conf->workers_auto);
    assert_int_equal(conf->workers, 3);
    assert_string_equal(conf->user, "www");
    assert_string_equal(conf->pid_file, "/run/p.pid");
    assert_int_equal(conf->drain_timeout, 120000);
    assert_int_equal(conf->resolver_count, 2);
    addr_put(text, &conf->resolvers[0]);
    assert_string_equal(text, "10.0.0.2:53");
    addr_put(text, &conf->resolvers[1]);
    assert_string_equal(text, "[::1]:5353");
    assert_true(conf->has_admin);
    addr_put(text, &conf->admin);
    assert_string_equal(text, "[::1]:9901");
    assert_string_equal(conf->access_log.path, "off");
    assert_true(conf->access_log.combined);
    assert_int_equal(conf->access_log.sample, 100);
    assert_int_equal(conf->access_log.slower_than, 250);
    assert_string_equal(conf->error_log.path, "/e");
    assert_int_equal(conf->error_log.level, LOG_ERROR);
    conf_free(conf);
}

static void checks_the_ends_of_every_range(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"workers = 1", NULL},
        {"workers = 256", NULL},
        {"workers = auto", NULL},
        {"workers = 0", "workers is 0, expected auto or 1 to 256"},
        {"workers = 257", "workers is 257, expected auto or 1 to 256"},
        {"workers = two", "workers is two, expected"},
        {"workers = \"\"", "workers is empty, expected"},
        {"drain_timeout = 0s", NULL},
        {"drain_timeout = 24h", NULL},
        {"drain_timeout = 86400001ms", "drain_timeout is 86400001ms, expected a time"},
        {"drain_timeout = 30",
         "drain_timeout is 30, expected a time (250ms, 5s, 2m) from 0s to 24h"},
        {"resolver = {\"127.0.0.1:53\"}", NULL},
        {"resolver = {}", NULL},
        {"resolver = {\"1.1.1.1:1\", \"1.1.1.1:2\", \"1.1.1.1:3\", \"1.1.1.1:4\", "
         "\"1.1.1.1:5\", \"1.1.1.1:6\", \"1.1.1.1:7\", \"1.1.1.1:8\"}",
         NULL},
        {"resolver = {\"1.1.1.1:1\", \"1.1.1.1:2\", \"1.1.1.1:3\", \"1.1.1.1:4\", "
         "\"1.1.1.1:5\", \"1.1.1.1:6\", \"1.1.1.1:7\", \"1.1.1.1:8\", \"1.1.1.1:9\"}",
         "resolver has 9 servers, expected at most 8"},
        {"resolver = 127.0.0.1",
         "resolver has \"127.0.0.1\", expected the IP address and port"},
        {"resolver = \"127.0.0.1:0\"", "resolver has \"127.0.0.1:0\""},
        {"resolver = \"[::1]:0\"", "resolver has \"[::1]:0\""},
        {"resolver = \"dns.test:53\"", "resolver has \"dns.test:53\""},
        {"resolver = \"unix:/run/dns\"", "resolver has \"unix:/run/dns\""},
        {"resolver = {\"1.1.1.1:53\", \"1.1.1.1:53\"}", "each only once"},
        {"user = \"\"", "user is empty, expected 1 to 4096 bytes"},
        {"pid_file = \"a\\nb\"", "pid_file is a?b, expected 1 to 4096 bytes"},
        {"admin { }", "admin has no listen"},
        {"admin { listen = 9901 }", "admin.listen is 9901, expected an IP address"},
        {"admin { listen = \"127.0.0.1:0\" }", "from 1 to 65535"},
        {"admin { listen = \"unix:/run/a.sock\" }", NULL},
        {"access_log { path = \"\" }", "access_log.path is empty"},
        {"access_log { format = xml }", "access_log.format is xml, expected json or combined"},
        {"access_log { sample = \"1/1\" }", NULL},
        {"access_log { sample = 1/1000000 }", NULL},
        {"access_log { sample = 1/0 }", "access_log.sample is 1/0, expected \"1/N\""},
        {"access_log { sample = 1/1000001 }", "access_log.sample is 1/1000001"},
        {"access_log { sample = 2/3 }", "access_log.sample is 2/3"},
        {"access_log { sample = 10 }", "access_log.sample is 10"},
        {"access_log { slower_than = 24h }", NULL},
        {"access_log { slower_than = 25h }", "access_log.slower_than is 25h"},
        {"error_log { level = debug }", NULL},
        {"error_log { level = loud }",
         "error_log.level is loud, expected debug, info, warn or error"},
        {"error_log { path = off }", "error_log.path is off, expected"},
    };
    CHECK_OPTIONS("", LISTENER, cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_defaults_of_the_manual),
        cmocka_unit_test(takes_every_option),
        cmocka_unit_test(checks_the_ends_of_every_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
