#include "conf_test.h"

#define BASE                                                                                   \
    "server \"a:1\" {} server \"b:2\" { weight = 2 } balance = hash hash_on = header:X\n"      \
    "pool { warm = 2 idle = 3 connections = 4 requests = 5 idle_timeout = 6s lifetime = 7s "   \
    "}\n"                                                                                      \
    "timeouts { connect = 1s response = 2s idle = 3s total = 4s }\n"                           \
    "retry { attempts = 2 budget = 10% on = reset }"

static struct conf *upstream_of(const char *name, const char *body)
{
    char text[2048];
    snprintf(text, sizeof(text), LISTENER "upstream \"%s\" { %s }", name, body);
    return conf_of(text);
}

static bool eq(const char *name, const char *body)
{
    struct conf *a = upstream_of("u", BASE), *b = upstream_of(name, body);
    bool equal = conf_upstream_eq(&a->upstreams[0], &b->upstreams[0]);
    assert_int_equal(equal, conf_upstream_eq(&b->upstreams[0], &a->upstreams[0]));
    conf_free(a);
    conf_free(b);
    return equal;
}

static void is_equal_to_itself_whatever_its_lines(void **state)
{
    (void)state;
    assert_true(eq("u", BASE));
    assert_true(eq("u", "\n\n" BASE));
}

/* Replaces `from` in BASE by `to`. */
static bool eq_with(const char *from, const char *to)
{
    char body[1024];
    const char *at = strstr(BASE, from);
    assert_non_null(at);
    snprintf(body, sizeof(body), "%.*s%s%s", (int)(at - BASE), BASE, to, at + strlen(from));
    return eq("u", body);
}

static void differs_in_every_single_thing(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"a:1", "a:2"},
        {"weight = 2", "weight = 3"},
        {"server \"a:1\" {}", "server \"a:1\" { backup = true }"},
        {"server \"a:1\" {}", ""},
        {"server \"a:1\" {}", "server \"a:1\" {} server \"c:3\" {}"},
        {"balance = hash", "balance = two_choices"},
        {"pool { warm = 2 idle = 3 connections = 4 requests = 5 idle_timeout = 6s lifetime = "
         "7s }",
         "pool { connections = 4 } proxy_protocol = v1"},
        {"header:X", "cookie:X"},
        {"header:X", "header:Y"},
        {"header:X", "path"},
        {"header:X", "header:X hash_bound = 150%"},
        {"header:X", "header:X sticky_cookie { name = a }"},
        {"warm = 2", "warm = 1"},
        {"idle = 3 c", "idle = 2 c"},
        {"connections = 4", "connections = 5"},
        {"requests = 5", "requests = 6"},
        {"idle_timeout = 6s", "idle_timeout = 7s"},
        {"lifetime = 7s", "lifetime = 8s"},
        {"connect = 1s", "connect = 2s"},
        {"response = 2s", "response = 3s"},
        {"idle = 3s", "idle = 4s"},
        {"total = 4s", "total = 5s"},
        {"total = 4s }", "total = 4s queue = 5s }"},
        {"total = 4s }", "total = 4s } breaker { pending = 5 }"},
        {"total = 4s }", "total = 4s } breaker { requests = 5 }"},
        {"attempts = 2", "attempts = 1"},
        {"budget = 10%", "budget = 11%"},
        {"on = reset", "on = connect"},
    };
    assert_false(eq("v", BASE));
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++)
        if (eq_with(changes[i][0], changes[i][1]))
            fail_msg("%s instead of %s makes no difference", changes[i][1], changes[i][0]);
}

static void connections_are_the_same_whatever_else_differs(void **state)
{
    (void)state;
    struct conf *a = upstream_of("u", BASE), *b = upstream_of("u", "server \"x:1\" {}");
    struct conf *c = upstream_of("u", "server \"x:1\" {} proxy_protocol = v1");
    struct conf *d = upstream_of("v", BASE);
    assert_true(conf_upstream_kin(&a->upstreams[0], &b->upstreams[0]));
    assert_false(conf_upstream_kin(&b->upstreams[0], &c->upstreams[0]));
    assert_false(conf_upstream_kin(&a->upstreams[0], &d->upstreams[0]));
    conf_free(a);
    conf_free(b);
    conf_free(c);
    conf_free(d);
}

static void the_order_of_servers_matters(void **state)
{
    (void)state;
    assert_false(eq_with("server \"a:1\" {} server \"b:2\" { weight = 2 }",
                         "server \"b:2\" { weight = 2 } server \"a:1\" {}"));
}

static bool split_eq(const char *a, const char *b)
{
    char text[512];
    snprintf(text, sizeof(text),
             LISTENER UPSTREAM "upstream \"v\" { server \"a:1\" {} } "
                               "route %s } route %s path = /x }",
             a, b);
    struct conf *conf = conf_of(text);
    assert_false(conf_split_eq(&conf->routes[0], &conf->routes[1]));
    conf->routes[1].name = conf->routes[0].name; /* as in two files */
    bool equal = conf_split_eq(&conf->routes[0], &conf->routes[1]);
    assert_int_equal(equal, conf_split_eq(&conf->routes[1], &conf->routes[0]));
    conf_free(conf);
    return equal;
}

static void splits_are_equal_by_name_upstreams_and_weights(void **state)
{
    (void)state;
    assert_true(split_eq("r { split { u = 1 v = 2 }", "r2 { split { u = 1 v = 2 }"));
    assert_true(split_eq("r { split { u = 1 }", "r2 { split { u = 1 sticky = client_ip }"));
    assert_false(split_eq("r { split { u = 1 v = 2 }", "r2 { split { v = 2 u = 1 }"));
    assert_false(split_eq("r { split { u = 1 v = 2 }", "r2 { split { u = 1 v = 3 }"));
    assert_false(split_eq("r { split { u = 1 v = 2 }", "r2 { split { u = 1 }"));
    assert_false(split_eq("r { split { u = 1 }", "r2 { upstream = u"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_are_equal_by_name_upstreams_and_weights),
        cmocka_unit_test(is_equal_to_itself_whatever_its_lines),
        cmocka_unit_test(differs_in_every_single_thing),
        cmocka_unit_test(connections_are_the_same_whatever_else_differs),
        cmocka_unit_test(the_order_of_servers_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
