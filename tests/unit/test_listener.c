#include "conf_test.h"

#include "http/path.h"

static void has_the_defaults_of_the_manual(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER);
    const struct conf_listener *listener = &conf->listeners[0];
    assert_string_equal(listener->name, "l");
    assert_int_equal(listener->where.line, 1);
    assert_int_equal(listener->addr_count, 1);
    assert_int_equal(listener->trusted_count, 0);
    assert_int_equal(listener->forwarded, FORWARDED_X);
    assert_false(listener->proxy_protocol);
    assert_true(listener->http2);
    assert_int_equal(listener->limits.streams, 128);
    assert_int_equal(listener->limits.header_bytes, 32768);
    assert_int_equal(listener->limits.headers, 100);
    assert_int_equal(listener->limits.target_bytes, 8192);
    assert_int_equal(listener->limits.body_bytes, 10 << 20);
    assert_int_equal(listener->limits.connections, 0);
    assert_int_equal(listener->limits.requests_per_connection, 0);
    assert_int_equal(listener->timeouts.header, 10000);
    assert_int_equal(listener->timeouts.body, 30000);
    assert_int_equal(listener->timeouts.idle, 60000);
    assert_int_equal(listener->timeouts.write, 30000);
    assert_int_equal(listener->timeouts.rate, 240);
    assert_int_equal(listener->timeouts.rate_window, 30000);
    assert_int_equal(listener->path_allow, PATH_ALLOW_DEFAULT);
    conf_free(conf);
}

static void takes_every_option(void **state)
{
    (void)state;
    struct conf *conf = conf_of(
        "listener \"l\" {\n listen = {\"0.0.0.0:80\", \"[::]:80\"}\n listen += \"unix:/s\"\n"
        "trusted_proxies = {\"10.0.0.0/8\", \"unix:\", \"::1\"}\n"
        "limits { header_bytes = 4k headers = 7 target_bytes = 1k body_bytes = 0\n"
        "connections = 9 requests_per_connection = 10 streams = 11 } http2 = false\n"
        "timeouts { header = 1ms body = 2ms idle = 3ms write = 4ms rate = 1k\n"
        "rate_window = 1s } paths { encoded_slash = pass } }");
    const struct conf_listener *listener = &conf->listeners[0];
    assert_int_equal(listener->addr_count, 3);
    assert_false(listener->http2);
    assert_int_equal(listener->limits.streams, 11);
    assert_int_equal(listener->addrs[0].sa.sa_family, AF_INET);
    assert_int_equal(listener->addrs[1].sa.sa_family, AF_INET6);
    assert_int_equal(listener->addrs[2].sa.sa_family, AF_UNIX);
    assert_int_equal(listener->trusted_count, 3);
    assert_int_equal(listener->trusted[0].bits, 8);
    assert_int_equal(listener->limits.header_bytes, 4096);
    assert_int_equal(listener->limits.headers, 7);
    assert_int_equal(listener->limits.target_bytes, 1024);
    assert_int_equal(listener->limits.body_bytes, 0);
    assert_int_equal(listener->limits.connections, 9);
    assert_int_equal(listener->limits.requests_per_connection, 10);
    assert_int_equal(listener->timeouts.header, 1);
    assert_int_equal(listener->timeouts.body, 2);
    assert_int_equal(listener->timeouts.idle, 3);
    assert_int_equal(listener->timeouts.write, 4);
    assert_int_equal(listener->timeouts.rate, 1024);
    assert_int_equal(listener->timeouts.rate_window, 1000);
    assert_int_equal(listener->path_allow, PATH_ALLOW_DEFAULT | PATH_ENCODED_SLASH);
    conf_free(conf);
}

static void a_small_head_bounds_the_target(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of("listener \"l\" { listen = \"127.0.0.1:1\" limits { header_bytes = 2k } }");
    assert_int_equal(conf->listeners[0].limits.target_bytes, 2048);
    conf_free(conf);
}

static void checks_the_ends_of_every_range(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"limits { header_bytes = 1k }", NULL},
        {"limits { header_bytes = 60k }", NULL},
        {"limits { header_bytes = 1023 }", "limits.header_bytes is 1023, expected a size"},
        {"limits { header_bytes = 61441 }", "from 1k to 60k"},
        {"limits { headers = 1 }", NULL},
        {"limits { headers = 1000 }", NULL},
        {"limits { headers = 0 }", "limits.headers is 0, expected 1 to 1000"},
        {"limits { headers = 1001 }", "limits.headers is 1001, expected 1 to 1000"},
        {"limits { headers = 1k }", "limits.headers is 1k, expected 1 to 1000"},
        {"limits { target_bytes = 64 }", NULL},
        {"limits { target_bytes = 32k }", NULL},
        {"limits { target_bytes = 63 }", "limits.target_bytes is 63"},
        {"limits { target_bytes = 33k }", "limits.target_bytes is 33k"},
        {"limits { target_bytes = 2k header_bytes = 1k }", "limits.target_bytes is 2k"},
        {"limits { body_bytes = 0 }", NULL},
        {"limits { body_bytes = 1048576g }", NULL},
        {"limits { body_bytes = 1048577g }", "limits.body_bytes is 1048577g"},
        {"limits { body_bytes = -1 }", "limits.body_bytes is -1"},
        {"limits { connections = 10000000 }", NULL},
        {"limits { connections = 10000001 }", "limits.connections is 10000001"},
        {"limits { requests_per_connection = 1000000000 }", NULL},
        {"limits { requests_per_connection = 1000000001 }", "limits.requests_per_connection"},
        {"timeouts { header = 24h }", NULL},
        {"timeouts { header = 0s }", "timeouts.header is 0s"},
        {"timeouts { body = 0s }", "timeouts.body is 0s"},
        {"timeouts { idle = 25h }", "timeouts.idle is 25h"},
        {"timeouts { write = soon }", "timeouts.write is soon"},
        {"timeouts { rate = 0 rate_window = 100ms }", NULL},
        {"timeouts { rate = 1g }", NULL},
        {"timeouts { rate = 2g }", "timeouts.rate is 2g"},
        {"timeouts { rate = -1 }", "timeouts.rate is -1"},
        {"timeouts { rate_window = 99ms }", "timeouts.rate_window is 99ms"},
        {"trusted_proxies = {}", NULL},
        {"forwarded = rfc7239", NULL},
        {"forwarded = none",
         "listener.forwarded is none, expected x_forwarded, rfc7239 or both"},
        {"proxy_protocol = true", NULL},
        {"proxy_protocol = v2", "listener.proxy_protocol is v2, expected false or true"},
        {"trusted_proxies = {\"10.0.0.0/33\"}", "listener.trusted_proxies has \"10.0.0.0/33\""},
        {"trusted_proxies = {proxy}", "listener.trusted_proxies has \"proxy\""},
    };
    CHECK_OPTIONS("listener \"l\" { listen = \"127.0.0.1:1\"", "}", cases);
}

static void needs_addresses_to_listen_on(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"listener \"l\" { }", "listener \"l\" has no listen"},
        {"listener \"l\" { listen = {} }", "listener \"l\" has no listen"},
        {"listener \"l\" { listen = \"localhost:80\" }", "listener.listen is localhost:80"},
        {"listener \"l\" { listen = \"127.0.0.1\" }", "listener.listen is 127.0.0.1"},
        {"listener \"l\" { listen = \"127.0.0.1:65536\" }",
         "listener.listen is 127.0.0.1:65536"},
        {"listener \"l\" { listen = \"[::1]:0\" }", "listener.listen is [::1]:0"},
        {"listener \"l\" { listen = \"\" }", "listener.listen is empty"},
        {"listener \"\" { listen = \"127.0.0.1:1\" }", "a listener has the name \"\""},
    };
    CHECK_OPTIONS("", "", cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_defaults_of_the_manual),
        cmocka_unit_test(takes_every_option),
        cmocka_unit_test(a_small_head_bounds_the_target),
        cmocka_unit_test(checks_the_ends_of_every_range),
        cmocka_unit_test(needs_addresses_to_listen_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
