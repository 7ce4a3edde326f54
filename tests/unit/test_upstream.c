#include "conf_test.h"

static void has_the_defaults_of_the_manual(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER UPSTREAM);
    const struct conf_upstream *upstream = &conf->upstreams[0];
    assert_string_equal(upstream->name, "u");
    assert_int_equal(upstream->server_count, 1);
    assert_string_equal(upstream->servers[0].text, "127.0.0.1:2");
    assert_int_equal(upstream->servers[0].weight, 1);
    assert_false(upstream->servers[0].backup);
    assert_int_equal(upstream->balance, BALANCE_ROUND_ROBIN);
    assert_int_equal(upstream->hash_on, HASH_CLIENT_IP);
    assert_null(upstream->hash_name);
    assert_int_equal(upstream->host, HOST_PASS);
    assert_int_equal(upstream->proxy_protocol, 0);
    assert_false(upstream->http2);
    assert_int_equal(upstream->pool.warm, 1);
    assert_int_equal(upstream->pool.idle, 64);
    assert_int_equal(upstream->pool.connections, 1024);
    assert_int_equal(upstream->pool.requests, 0);
    assert_int_equal(upstream->pool.idle_timeout, 60000);
    assert_int_equal(upstream->pool.lifetime, 600000);
    assert_int_equal(upstream->timeouts.connect, 1000);
    assert_int_equal(upstream->timeouts.response, 30000);
    assert_int_equal(upstream->timeouts.idle, 60000);
    assert_int_equal(upstream->timeouts.total, 0);
    assert_int_equal(upstream->timeouts.queue, 1000);
    assert_int_equal(upstream->breaker.pending, 1024);
    assert_int_equal(upstream->breaker.requests, 0);
    assert_int_equal(upstream->retry.attempts, 1);
    assert_int_equal(upstream->retry.budget_permille, 200);
    assert_int_equal(upstream->retry.on, RETRY_CONNECT | RETRY_RESET);
    assert_int_equal(upstream->retry.try_timeout, 0);
    assert_int_equal(upstream->retry.body_bytes, 65536);
    conf_free(conf);
}

static void takes_a_service(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER "upstream \"u\" { server \"_http._tcp.a.internal\" {}\n"
                         "server \"_web:80\" { weight = 2 } }");
    const struct conf_server *servers = conf->upstreams[0].servers;
    assert_true(servers[0].service);
    assert_string_equal(servers[0].host, "a.internal");
    assert_string_equal(conf_server_name(&servers[0]), "a.internal");
    assert_false(servers[1].service);
    assert_string_equal(servers[1].host, "_web");
    assert_string_equal(conf_server_name(&servers[1]), "_web:80");
    conf_free(conf);
}

static void takes_every_option(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER
                "upstream \"u\" {\n"
                "server \"10.0.0.5:80\" { weight = 1000 }\nserver \"a.internal:81\" {}\n"
                "server \"unix:/s\" { backup = true }\n"
                "balance = hash hash_on = \"cookie:sid\" hash_bound = 125.5%\n"
                "pool { warm = 8 idle = 9 connections = 10 requests = 11 idle_timeout = 12ms\n"
                "lifetime = 13ms }\n"
                "timeouts { connect = 1ms response = 2ms idle = 3ms total = 4ms queue = 5ms }\n"
                "breaker { pending = 6 requests = 7 }\n"
                "retry { attempts = 3 budget = 2.5% on = {timeout, 502, 503, 504}\n"
                "try_timeout = 8ms body_bytes = 9k } }");
    const struct conf_upstream *upstream = &conf->upstreams[0];
    assert_int_equal(upstream->server_count, 3);
    assert_int_equal(upstream->servers[0].weight, 1000);
    assert_int_equal(upstream->servers[1].where.line, 4);
    assert_true(upstream->servers[2].backup);
    assert_int_equal(upstream->balance, BALANCE_HASH);
    assert_int_equal(upstream->hash_on, HASH_COOKIE);
    assert_string_equal(upstream->hash_name, "sid");
    assert_int_equal(upstream->hash_bound, 1255);
    assert_int_equal(upstream->pool.warm, 8);
    assert_int_equal(upstream->pool.idle, 9);
    assert_int_equal(upstream->pool.connections, 10);
    assert_int_equal(upstream->pool.requests, 11);
    assert_int_equal(upstream->pool.idle_timeout, 12);
    assert_int_equal(upstream->pool.lifetime, 13);
    assert_int_equal(upstream->timeouts.connect, 1);
    assert_int_equal(upstream->timeouts.response, 2);
    assert_int_equal(upstream->timeouts.idle, 3);
    assert_int_equal(upstream->timeouts.total, 4);
    assert_int_equal(upstream->timeouts.queue, 5);
    assert_int_equal(upstream->breaker.pending, 6);
    assert_int_equal(upstream->breaker.requests, 7);
    assert_int_equal(upstream->retry.attempts, 3);
    assert_int_equal(upstream->retry.budget_permille, 25);
    assert_int_equal(upstream->retry.on, RETRY_TIMEOUT | RETRY_502 | RETRY_503 | RETRY_504);
    assert_int_equal(upstream->retry.try_timeout, 8);
    assert_int_equal(upstream->retry.body_bytes, 9 * 1024);
    conf_free(conf);
}

static void a_small_pool_bounds_the_defaults(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER "upstream \"u\" { server \"a:1\" {} pool { connections = 3 } }\n"
                         "upstream \"v\" { server \"a:1\" {} pool { idle = 0 } }");
    assert_int_equal(conf->upstreams[0].pool.idle, 3);
    assert_int_equal(conf->upstreams[0].pool.warm, 1);
    assert_int_equal(conf->upstreams[1].pool.warm, 0);
    conf_free(conf);
}

static void an_empty_list_retries_nothing(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER "upstream \"u\" { server \"a:1\" {} retry { on = {} } }");
    assert_int_equal(conf->upstreams[0].retry.on, 0);
    conf_free(conf);
}

static void checks_the_ends_of_every_range(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"balance = two_choices", NULL},
        {"balance = least_requests", NULL},
        {"balance = random", "upstream.balance is random, expected round_robin, "
                             "least_requests, two_choices or hash"},
        {"hash_on = path", NULL},
        {"hash_bound = 0%", NULL},
        {"hash_bound = 100%", NULL},
        {"hash_bound = 1000%", NULL},
        {"hash_bound = 99.9%",
         "upstream.hash_bound is 99.9%, expected 0% or a share from 100%"},
        {"hash_bound = 1000.1%", "upstream.hash_bound is 1000.1%, expected"},
        {"hash_bound = 2", "upstream.hash_bound is 2, expected"},
        {"hash_on = client_ip", NULL},
        {"hash_on = header:X-Id", NULL},
        {"hash_on = \"header:\"", "upstream.hash_on is header:, expected"},
        {"hash_on = \"cookie:a b\"", "upstream.hash_on is cookie:a b, expected"},
        {"hash_on = user", "upstream.hash_on is user, expected"},
        {"sticky_cookie { name = a_b max_age = 720h secure = always same_site = none }", NULL},
        {"sticky_cookie {}", "sticky_cookie has no name, expected one"},
        {"sticky_cookie { name = \"a b\" }", "sticky_cookie.name is a b, expected a name"},
        {"sticky_cookie { name = a path = b }", "sticky_cookie.path is b, expected a path"},
        {"sticky_cookie { name = a path = \"/a;b\" }", "sticky_cookie.path is /a;b, expected"},
        {"sticky_cookie { name = a max_age = 721h }", "sticky_cookie.max_age is 721h"},
        {"sticky_cookie { name = a same_site = any }",
         "sticky_cookie.same_site is any, expected lax, strict or none"},
        {"sticky_cookie { name = a secure = true }",
         "sticky_cookie.secure is true, expected auto, always or never"},
        {"sticky_cookie { name = a same_site = none secure = never }",
         "sticky_cookie.secure is never with same_site = none"},
        {"sticky_cookie { name = a secret = short }",
         "sticky_cookie.secret has 5 bytes, expected at least 16"},
        {"pool { warm = 64 }", NULL},
        {"pool { warm = 65 }", "pool.warm is 65, expected at most pool.idle, which is 64"},
        {"pool { warm = -1 }", "pool.warm is -1, expected 0 to 65535"},
        {"pool { idle = 0 }", NULL},
        {"pool { idle = 1024 }", NULL},
        {"pool { idle = 5 connections = 4 }",
         "pool.idle is 5, expected at most pool.connections"},
        {"pool { idle = 65536 }", "pool.idle is 65536, expected 0 to 65535"},
        {"pool { connections = 1 }", NULL},
        {"pool { connections = 65535 }", NULL},
        {"pool { connections = 0 }", "pool.connections is 0, expected 1 to 65535"},
        {"pool { requests = 1000000001 }", "pool.requests is 1000000001"},
        {"pool { idle_timeout = 0s }", NULL},
        {"pool { idle_timeout = 25h }", "pool.idle_timeout is 25h"},
        {"pool { lifetime = x }", "pool.lifetime is x"},
    };
    CHECK_OPTIONS(
        "listener \"l\" { listen = \"127.0.0.1:1\" } upstream \"u\" { server \"a:1\" {}", "}",
        cases);
}

static void checks_times_limits_and_servers(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"timeouts { connect = 0s }", "timeouts.connect is 0s"},
        {"timeouts { response = 0s }", "timeouts.response is 0s"},
        {"timeouts { idle = 0s }", "timeouts.idle is 0s"},
        {"timeouts { total = 25h }", "timeouts.total is 25h"},
        {"timeouts { queue = 0s }", "timeouts.queue is 0s"},
        {"tell_deadline = true", NULL},
        {"tell_deadline = 1", "upstream.tell_deadline is 1, expected false or true"},
        {"breaker { pending = 0 requests = 10000000 }", NULL},
        {"breaker { pending = 10000001 }",
         "breaker.pending is 10000001, expected 0 to 10000000"},
        {"breaker { requests = x }", "breaker.requests is x, expected 0 to 10000000"},
        {"retry { attempts = 0 }", NULL},
        {"retry { attempts = 10 }", NULL},
        {"retry { attempts = 11 }", "retry.attempts is 11, expected 0 to 10"},
        {"retry { budget = 0% }", NULL},
        {"retry { budget = 100% }", NULL},
        {"retry { budget = 101% }", "retry.budget is 101%, expected a share from 0% to 100%"},
        {"retry { budget = 20 }", "retry.budget is 20, expected a share"},
        {"retry { on = timeout try_timeout = 24h body_bytes = 1m }", NULL},
        {"retry { try_timeout = 1s }", "retry.try_timeout ends tries that retry.on does not"},
        {"retry { body_bytes = 1025k }", "retry.body_bytes is 1025k, expected a size"},
        {"retry { on = 500 }", "retry.on has \"500\", expected connect, reset, timeout"},
        {"server \"b:1\" { weight = 0 }", "server.weight is 0, expected 1 to 1000"},
        {"server \"b:1\" { weight = 1001 }", "server.weight is 1001, expected 1 to 1000"},
        {"server \"b:1\" { backup = yes }", "server.backup is yes, expected false or true"},
        {"server \"b\" {}", "server \"b\" is no address"},
        {"server \"_http.b\" {}", "server \"_http.b\" is no address"},
        {"server \"_http._tcp.b:80\" {}", "server \"_http._tcp.b:80\" has a port, expected "
                                          "_SERVICE._PROTOCOL.NAME without one"},
        {"server \"_http._tcp.b\" { weight = 2 }",
         "server.weight is 2, expected none with \"_http._tcp.b\""},
        {"server \"b:0\" {}", "server \"b:0\" is no address"},
        {"server \"1.2.3.4:0\" {}", "server \"1.2.3.4:0\" is no address"},
        {"server \"1.2.3.4:65536\" {}", "server \"1.2.3.4:65536\" is no address"},
        {"server \"http://b:1\" {}", "server \"http://b:1\" is no address"},
        {"server \"\" {}", "server \"\" is no address"},
        {"server \"a:1\" {}", "server \"a:1\" stands twice in upstream \"u\", first at t:1"},
        {"server \"A:1\" {}",
         "server \"A:1\" stands twice in upstream \"u\", first as \"a:1\" at t:1"},
        {"server \"[::1]:80\" {} server \"[0:0::1]:80\" {}",
         "server \"[0:0::1]:80\" stands twice in upstream \"u\", first as \"[::1]:80\" at t:2"},
        {"server \"_a._tcp.b.test\" {} server \"_A._TCP.b.test\" {}",
         "server \"_A._TCP.b.test\" stands twice in upstream \"u\", first as "
         "\"_a._tcp.b.test\" at t:2"},
        {"server \"a:2\" {} server \"b:1\" {}", NULL},
    };
    CHECK_OPTIONS(
        "listener \"l\" { listen = \"127.0.0.1:1\" } upstream \"u\" { server \"a:1\" {}", "}",
        cases);
}

static void needs_a_server_that_is_no_backup(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"upstream \"u\" { }", "upstream \"u\" has no server"},
        {"upstream \"u\" { server \"a:1\" { backup = true } }", "has only backup servers"},
        {"upstream \"u\" { server \"a:1\" { backup = true } server \"b:1\" {} }", NULL},
    };
    CHECK_OPTIONS("listener \"l\" { listen = \"127.0.0.1:1\" }", "", cases);
}

static void has_at_most_256_servers(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    fputs("listener \"l\" { listen = \"127.0.0.1:1\" }\nupstream \"u\" {", out);
    for (int i = 1; i <= 257; i++)
        fprintf(out, " server \"a:%d\" {}", i);
    fputs("}", out);
    fclose(out);
    expect_faults(text, "t:2: upstream \"u\" has 257 servers, expected at most 256\n");
    free(text);
}

static void checks_what_servers_are_told_of_the_client(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"host = pass", NULL},
        {"host = upstream", NULL},
        {"host = \"inner.example:8080\"", NULL},
        {"host = \"\"", "upstream.host is empty, expected pass, upstream, or a HOST"},
        {"host = \"a b\"", "upstream.host is a b, expected pass, upstream, or a HOST"},
        {"protocol = h2", NULL},
        {"protocol = h2 health { interval = 5s }", NULL},
        {"protocol = h3", "upstream.protocol is h3, expected http1 or h2"},
        {"protocol = h2 proxy_protocol = v1", "upstream.protocol is h2, whose connections"},
        {"protocol = h2 health { path = \"/h\" }", NULL},
        {"protocol = h2 health { type = grpc }", NULL},
        {"protocol = h2 health { type = grpc path = /x }",
         "health.path has no effect with type = grpc"},
        {"protocol = h2 health { type = grpc status = 200 }",
         "health.status has no effect with type = grpc"},
        {"protocol = h2 health { type = grpc body = a }",
         "health.body has no effect with type = grpc"},
        {"protocol = h2 health { type = grpc host = \"a b\" }",
         "health.host is a b, expected a HOST or HOST:PORT"},
        {"protocol = h2 health { type = grpc service = \"a b\" }",
         "health.service is \"a b\", expected the name of"},
        {"health { type = grpc }", "health.type is grpc, which is spoken over HTTP/2"},
        {"proxy_protocol = off", NULL},
        {"proxy_protocol = v1 pool { connections = 9 warm = 0 lifetime = 0 }", NULL},
        {"proxy_protocol = v3", "upstream.proxy_protocol is v3, expected off, v1 or v2"},
        {"proxy_protocol = v2 pool { idle = 5 }",
         "pool.idle has no effect with proxy_protocol"},
        {"proxy_protocol = v2 pool { lifetime = 5s }",
         "pool.lifetime has no effect with proxy_protocol"},
    };
    CHECK_OPTIONS(
        "listener \"l\" { listen = \"127.0.0.1:1\" } upstream \"u\" { server \"a:1\" {}", "}",
        cases);
}

static void a_connection_with_a_proxy_header_is_for_one_request(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER "upstream \"u\" { server \"a:1\" {} host = x proxy_protocol = v1 }");
    const struct conf_upstream *upstream = &conf->upstreams[0];
    assert_int_equal(upstream->proxy_protocol, 1);
    assert_int_equal(upstream->pool.warm, 0);
    assert_int_equal(upstream->pool.idle, 0);
    assert_int_equal(upstream->pool.requests, 1);
    assert_int_equal(upstream->host, HOST_NAME);
    assert_string_equal(upstream->host_name, "x");
    conf_free(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_defaults_of_the_manual),
        cmocka_unit_test(takes_every_option),
        cmocka_unit_test(takes_a_service),
        cmocka_unit_test(checks_what_servers_are_told_of_the_client),
        cmocka_unit_test(a_connection_with_a_proxy_header_is_for_one_request),
        cmocka_unit_test(a_small_pool_bounds_the_defaults),
        cmocka_unit_test(an_empty_list_retries_nothing),
        cmocka_unit_test(checks_the_ends_of_every_range),
        cmocka_unit_test(checks_times_limits_and_servers),
        cmocka_unit_test(needs_a_server_that_is_no_backup),
        cmocka_unit_test(has_at_most_256_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
