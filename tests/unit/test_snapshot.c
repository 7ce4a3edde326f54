#include "conf_test.h"
#include "dns_test.h"

#include "conf/snapshot.h"

#define TWO                                                                                    \
    LISTENER "upstream \"u\" { server \"127.0.0.1:2\" {} }\n"                                  \
             "upstream \"v\" { server \"127.0.0.1:3\" {} server \"127.0.0.1:4\" { backup = "   \
             "true } }\n" ROUTE

static struct conf_faults faults, warnings;

static struct snapshot *snapshot_of(const char *text, const struct snapshot *old)
{
    struct conf *conf = conf_of(text);
    struct resolver *names = snapshot_names(conf, NULL);
    struct snapshot *snapshot = snapshot_new(conf, old, names, &faults, &warnings);
    resolver_free(names);
    if (!snapshot)
        fail_msg("%s\nhas faults:\n%s", text, faults_text(&faults));
    assert_int_equal(faults.count, 0);
    return snapshot;
}

static int tear_down(void **state)
{
    (void)state;
    mem_fail_at(0);
    conf_faults_done(&faults);
    conf_faults_done(&warnings);
    return 0;
}

static void clusters_are_made_as_the_file_says(void **state)
{
    (void)state;
    struct snapshot *one = snapshot_of(
        LISTENER "upstream \"u\" { server \"127.0.0.1:2\" { weight = 3 }\n"
                 "  balance = hash  hash_on = path\n"
                 "  pool { warm = 1 idle = 2 connections = 3 requests = 4 idle_timeout = 5s\n"
                 "         lifetime = 6s }\n"
                 "  timeouts { connect = 7s response = 8s idle = 9s total = 10s queue = 11s }\n"
                 "  retry { attempts = 2 budget = 11% on = {reset} } }\n" ROUTE,
        NULL);
    const struct cluster *cluster = one->clusters[0];
    static const struct cluster_limits limits = {1,    2,    3,    4,     5000, 6000,
                                                 7000, 8000, 9000, 10000, 11000};
    assert_int_equal(one->generation, 1);
    assert_string_equal(cluster->name, "u");
    assert_int_equal(cluster->servers[0].weight, 3);
    assert_int_equal(cluster->balance, BALANCE_HASH);
    assert_memory_equal(&cluster->limits, &limits, sizeof(limits));
    assert_int_equal(cluster->retry_attempts, 2);
    assert_int_equal(cluster->retry_budget_permille, 110);
    assert_int_equal(cluster->retry_on, RETRY_RESET);
    snapshot_unref(one);
}

static void unchanged_clusters_are_adopted(void **state)
{
    (void)state;
    struct snapshot *one = snapshot_of(TWO, NULL);
    struct cluster *u = one->clusters[0], *v = one->clusters[1];
    u->counter = 77;
    /* v changes, u does not, and they change places */
    struct snapshot *two =
        snapshot_of(LISTENER "upstream \"v\" { server \"127.0.0.1:3\" {} }\n"
                             "upstream \"u\" { server \"127.0.0.1:2\" {} }\n"
                             "route \"r\" { upstream = u  path = \"/other\" }\n",
                    one);
    assert_int_equal(two->generation, 2);
    assert_ptr_equal(two->clusters[1], u);
    assert_ptr_not_equal(two->clusters[0], v);
    assert_int_equal(u->refs, 2);
    snapshot_unref(one);
    assert_int_equal(u->refs, 1); /* v is gone with the only one who named it */
    assert_int_equal(u->counter, 77);
    snapshot_unref(two);
}

static void any_difference_makes_a_new_cluster(void **state)
{
    (void)state;
    static const char *const others[] = {
        "server \"127.0.0.1:3\" {}",
        "server \"127.0.0.1:2\" { weight = 2 }",
        "server \"127.0.0.1:2\" {} server \"127.0.0.1:3\" {}",
        "server \"127.0.0.1:2\" {} balance = least_requests",
        "server \"127.0.0.1:2\" {} pool { idle = 1 }",
        "server \"127.0.0.1:2\" {} timeouts { idle = 1s }",
        "server \"127.0.0.1:2\" {} retry { attempts = 7 }",
    };
    struct snapshot *one = snapshot_of(LISTENER UPSTREAM ROUTE, NULL);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        char text[1024];
        snprintf(text, sizeof(text), LISTENER "upstream \"u\" { %s }\n" ROUTE, others[i]);
        struct snapshot *two = snapshot_of(text, one);
        assert_ptr_not_equal(two->clusters[0], one->clusters[0]);
        snapshot_unref(two);
    }
    snapshot_unref(one);
}

static void a_name_that_does_not_resolve_is_left_out(void **state)
{
    (void)state;
    struct snapshot *one =
        snapshot_of(LISTENER "upstream \"u\" { server \"no-such-host.invalid:1\" {}\n"
                             "server \"127.0.0.1:2\" {} }\n" ROUTE,
                    NULL);
    assert_int_equal(one->clusters[0]->count, 1);
    assert_int_equal(warnings.count, 1);
    assert_int_equal(warnings.list[0].where.line, 2);
    assert_non_null(strstr(warnings.list[0].message, "no-such-host.invalid:1"));
    snapshot_unref(one);
}

/* A snapshot of an upstream with the one name a.test, and one of what it becomes when its
 * addresses are `now`. */
static void renewed(const char *before, const char *now, struct snapshot **ret_one,
                    struct snapshot **ret_two)
{
    char text[512];
    snprintf(text, sizeof(text),
             "resolver = {\"127.0.0.1:%d\"}" LISTENER
             "upstream \"u\" { server \"a.test.:80\" {} server \"127.0.0.1:9\" {} }\n"
             "upstream \"v\" { server \"127.0.0.1:8\" {} }\n" ROUTE,
             ntohs(ns.addr.in4.sin_port));
    struct conf *conf = conf_of(text);
    ns_say(before, SAYS_ADDRS, SAYS_ADDRS);
    struct resolver *names = snapshot_names(conf, NULL);
    *ret_one = snapshot_new(conf, NULL, names, &faults, &warnings);
    assert_non_null(*ret_one);
    ns_say(now, SAYS_ADDRS, SAYS_ADDRS);
    resolver_wait(names, 5000);
    *ret_two = snapshot_renew(*ret_one, names, &faults);
    assert_non_null(*ret_two);
    resolver_free(names);
}

static void renewing_makes_only_clusters_whose_names_changed(void **state)
{
    (void)state;
    struct snapshot *one, *two;
    renewed("10.0.0.1 10.0.0.2", "10.0.0.2 10.0.0.3 10.0.0.4", &one, &two);
    assert_int_equal(two->generation, one->generation);
    assert_ptr_equal(two->conf, one->conf);
    assert_ptr_equal(two->router, one->router);
    assert_ptr_equal(two->clusters[1], one->clusters[1]);
    assert_ptr_not_equal(two->clusters[0], one->clusters[0]);
    assert_int_equal(one->clusters[0]->count, 3);
    assert_int_equal(two->clusters[0]->count, 4);
    assert_string_equal(two->clusters[0]->servers[2].text, "10.0.0.4:80");
    assert_int_equal(two->clusters[0]->kin, one->clusters[0]->kin);
    assert_int_not_equal(two->clusters[0]->kin, two->clusters[1]->kin);
    snapshot_unref(one); /* what both have lives on */
    assert_string_equal(two->conf->upstreams[0].name, "u");
    snapshot_unref(two);
}

static void renewing_without_a_change_adopts_everything(void **state)
{
    (void)state;
    struct snapshot *one, *two;
    renewed("10.0.0.1 10.0.0.2", "10.0.0.2 10.0.0.1", &one, &two);
    assert_ptr_equal(two->clusters[0], one->clusters[0]);
    snapshot_unref(two);
    snapshot_unref(one);
}

static void a_name_that_fails_keeps_its_addresses_and_warns(void **state)
{
    (void)state;
    struct snapshot *one, *two;
    renewed("10.0.0.1", "10.0.0.1", &one, &two);
    ns_say("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    struct resolver *before = snapshot_names(one->conf, NULL);
    ns_say("", SAYS_NXDOMAIN, SAYS_NXDOMAIN);
    struct resolver *names = snapshot_names(one->conf, before);
    struct conf *conf = conf_of(LISTENER "upstream \"w\" { server \"a.test.:80\" {} }\n"
                                         "route \"r\" { upstream = w }");
    struct snapshot *three = snapshot_new(conf, one, names, &faults, &warnings);
    assert_int_equal(three->clusters[0]->count, 1);
    assert_int_equal(warnings.count, 1);
    assert_string_equal(
        warnings.list[0].message,
        "server \"a.test.:80\" of upstream \"w\" keeps the addresses it had (1): "
        "its name cannot be resolved: there is no such name");
    snapshot_unref(one);
    snapshot_unref(two);
    snapshot_unref(three);
    resolver_free(before);
    resolver_free(names);
}

/* The file may not name so many, but a name may have several. */
static void too_many_addresses_are_a_fault(void **state)
{
    (void)state;
    struct conf *conf = conf_of(LISTENER UPSTREAM ROUTE);
    struct conf_server *many = calloc(CLUSTER_SERVERS + 1, sizeof(*many));
    for (size_t i = 0; i <= CLUSTER_SERVERS; i++)
        many[i] = conf->upstreams[0].servers[0];
    conf->upstreams[0].servers = many;
    conf->upstreams[0].server_count = CLUSTER_SERVERS + 1;
    assert_null(snapshot_new(conf, NULL, NULL, &faults, &warnings));
    assert_int_equal(faults.count, 1);
    assert_int_equal(faults.list[0].where.line, 2);
    assert_non_null(strstr(faults.list[0].message, "256"));
    free(many);
}

static void listeners_are_found_by_name(void **state)
{
    (void)state;
    struct snapshot *one = snapshot_of(
        "listener \"k\" { listen = \"127.0.0.1:9\" }\n" LISTENER UPSTREAM ROUTE, NULL);
    assert_int_equal(snapshot_listener(one, "k"), 0);
    assert_int_equal(snapshot_listener(one, "l"), 1);
    assert_int_equal(snapshot_listener(one, "m"), -1);
    snapshot_unref(snapshot_ref(one));
    snapshot_unref(one);
    snapshot_unref(NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct snapshot *one = snapshot_of(TWO, NULL), *two = NULL;
    unsigned long nth = 1;
    for (; !two; nth++) {
        struct conf *conf =
            conf_of(LISTENER "upstream \"u\" { server \"127.0.0.1:2\" {} }\n"
                             "upstream \"w\" { server \"127.0.0.1:5\" {} }\n"
                             "route \"a\" { path = \"/a/{b}\" upstream = w }\n" ROUTE);
        assert_true(nth < 500);
        mem_fail_at(nth);
        two = snapshot_new(conf, one, NULL, &faults, &warnings);
        mem_fail_at(0);
        assert_true(two || faults.count); /* a failure without a fault would be silent */
        assert_int_equal(one->clusters[0]->refs, two ? 2 : 1);
        if (!two)
            conf_faults_done(&faults);
    }
    assert_true(nth > 10);
    snapshot_unref(one);
    snapshot_unref(two);
}

int main(void)
{
#define T(test) cmocka_unit_test_teardown(test, tear_down)
    const struct CMUnitTest tests[] = {
        T(clusters_are_made_as_the_file_says),
        T(unchanged_clusters_are_adopted),
        T(any_difference_makes_a_new_cluster),
        T(a_name_that_does_not_resolve_is_left_out),
        T(too_many_addresses_are_a_fault),
        T(listeners_are_found_by_name),
        T(renewing_makes_only_clusters_whose_names_changed),
        T(renewing_without_a_change_adopts_everything),
        T(a_name_that_fails_keeps_its_addresses_and_warns),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("snapshot", tests, ns_start, ns_stop);
}
