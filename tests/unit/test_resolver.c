#include "dns_test.h"

#include "base/mem.h"
#include "up/resolver.h"

static struct resolver *resolver;
static struct loop loop;
static unsigned changes, failures, founds;
static char failed_host[64], failed_why[128];
static size_t kept;

static void on_change(void *arg)
{
    assert_ptr_equal(arg, &loop);
    changes++;
    loop_stop(&loop);
}

static void on_failed(void *arg, const char *host, const char *why, size_t count)
{
    (void)arg;
    strcpy(failed_host, host);
    strcpy(failed_why, why);
    kept = count;
    failures++;
    loop_stop(&loop);
}

static void on_found(void *arg, const char *host, size_t count)
{
    (void)arg, (void)host, (void)count;
    founds++;
}

static const struct resolver_ops ops = {on_change, on_failed, on_found};

/* "10.0.0.1:80 [::1]:80", with "*WEIGHT" and "b" for a backup behind those of a service, and,
 * when there is one, " (why)". */
static void expect(const char *server, const char *expected)
{
    struct resolved addrs[RESOLVE_MAX];
    const char *why;
    char text[4096] = "", one[ADDR_TEXT];
    size_t n = resolver_get(resolver, str_of(server), addrs, &why);
    for (size_t i = 0; i < n; i++) {
        addr_put(one, &addrs[i].addr);
        sprintf(text + strlen(text), "%s%s", i ? " " : "", one);
        if (addrs[i].weight)
            sprintf(text + strlen(text), "*%u%s", addrs[i].weight, addrs[i].backup ? "b" : "");
    }
    if (why)
        sprintf(text + strlen(text), "(%s)", why);
    assert_string_equal(text, expected);
}

static int set_up(void **state)
{
    (void)state;
    changes = failures = founds = 0;
    ns.ttl = 1;
    resolver = resolver_new(&ns.addr, 1);
    return loop_init(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    mem_fail_at(0);
    resolver_free(resolver);
    loop_done(&loop);
    return 0;
}

/* a.test, looked up while the server says so. */
static void look_up(const char *addrs, enum dns_says four, enum dns_says six)
{
    ns_say(addrs, four, six);
    assert_int_equal(resolver_add(resolver, STR("a.test.:80")), 0);
    resolver_wait(resolver, 400);
}

static void addresses_need_no_book(void **state)
{
    (void)state;
    resolver_free(resolver);
    resolver = NULL;
    expect("127.0.0.1:80", "127.0.0.1:80");
    expect("[::1]:80", "[::1]:80");
    expect("unix:/run/x.sock", "unix:/run/x.sock");
    expect("a.test:80", "(it is not a name that was looked up)");
}

static void a_name_is_noted_once_and_serves_every_port(void **state)
{
    (void)state;
    unsigned before = ns_asked();
    resolver_add(resolver, STR("127.0.0.1:1"));
    resolver_add(resolver, STR("A.Test.:81"));
    look_up("10.0.0.2 10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    assert_int_equal(ns_asked(), before + 2); /* A and AAAA */
    expect("a.test.:80", "10.0.0.1:80 10.0.0.2:80");
    expect("A.TEST.:81", "10.0.0.1:81 10.0.0.2:81");
    expect("b.test.:80", "(it is not a name that was looked up)");
}

static void skip_without_ipv6(void)
{
    struct addr addr;
    addr_parse(STR("[::1]:9"), &addr);
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, &addr.sa, addr.len) == 0;
    if (fd >= 0)
        close(fd);
    if (!ok)
        skip();
}

static void both_families_are_used(void **state)
{
    (void)state;
    skip_without_ipv6();
    look_up("::1 127.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    expect("a.test.:80", "127.0.0.1:80 [::1]:80");
}

static void what_has_no_route_is_left_out_unless_nothing_has_one(void **state)
{
    (void)state;
    look_up("fe80::1 127.0.0.1", SAYS_ADDRS, SAYS_ADDRS); /* link-local, of no link */
    expect("a.test.:80", "127.0.0.1:80");
    look_up("fe80::1", SAYS_ADDRS, SAYS_ADDRS);
    expect("a.test.:80", "[fe80::1]:80");
}

static void a_failure_keeps_what_was_there(void **state)
{
    (void)state;
    look_up("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    look_up("", SAYS_NXDOMAIN, SAYS_NXDOMAIN);
    expect("a.test.:80", "10.0.0.1:80(there is no such name)");
    look_up("", SAYS_NOTHING, SAYS_NXDOMAIN);
    expect("a.test.:80", "10.0.0.1:80(no DNS server answered in time)");
    look_up("10.0.0.2", SAYS_ADDRS, SAYS_ADDRS);
    expect("a.test.:80", "10.0.0.2:80");
}

static void a_family_that_failed_keeps_its_part(void **state)
{
    (void)state;
    skip_without_ipv6();
    look_up("127.0.0.1 ::1", SAYS_ADDRS, SAYS_ADDRS);
    look_up("127.0.0.2", SAYS_ADDRS, SAYS_NOTHING);
    expect("a.test.:80", "127.0.0.2:80 [::1]:80");
    look_up("127.0.0.2", SAYS_ADDRS, SAYS_ADDRS);
    expect("a.test.:80", "127.0.0.2:80");
}

#define SERVICE "_http._tcp.users.test."

/* The same for a service, whose targets have `addrs`. */
static void look_up_service(const char *services, const char *addrs)
{
    ns_say(addrs, SAYS_ADDRS, SAYS_ADDRS);
    ns_say_services(services, SAYS_ADDRS);
    assert_int_equal(resolver_add(resolver, STR(SERVICE)), 0);
    resolver_wait(resolver, 3000);
}

static void a_service_is_its_targets_with_their_ports(void **state)
{
    (void)state;
    unsigned before = ns_asked();
    look_up_service("0 3 81 a.test;0 0 82 b.test", "a=10.0.0.1 b=10.0.0.2 b=10.0.0.3");
    expect(SERVICE, "10.0.0.1:81*3 10.0.0.2:82*1 10.0.0.3:82*1");
    assert_int_equal(ns_asked(), before + 5); /* SRV, and A and AAAA of two */
}

static void behind_the_best_priority_are_backups(void **state)
{
    (void)state;
    look_up_service("20 1 80 c.test;5 1 80 a.test;10 1 80 b.test",
                    "a=10.0.0.1 b=10.0.0.2 c=10.0.0.3");
    expect(SERVICE, "10.0.0.1:80*1 10.0.0.2:80*1b 10.0.0.3:80*1b");
    /* The best of those with addresses; one in two records is there once, as the better. */
    look_up_service("1 1 80 none.test;10 1 80 b.test;20 1 80 c.test", "b=10.0.0.2 c=10.0.0.2");
    expect(SERVICE, "10.0.0.2:80*1(a target of its SRV records has no address)");
}

static void weights_of_a_service_are_brought_to_scale(void **state)
{
    (void)state;
    look_up_service("0 65535 80 a.test;0 6554 80 b.test;0 7 80 c.test",
                    "a=10.0.0.1 b=10.0.0.2 c=10.0.0.3");
    expect(SERVICE, "10.0.0.1:80*1000 10.0.0.2:80*100 10.0.0.3:80*1");
}

static void a_service_that_fails_keeps_what_was_there(void **state)
{
    (void)state;
    look_up_service("0 2 80 a.test;0 1 80 b.test", "a=10.0.0.1 b=10.0.0.2");
    ns_say_services("", SAYS_NXDOMAIN);
    resolver_wait(resolver, 3000);
    expect(SERVICE, "10.0.0.1:80*2 10.0.0.2:80*1(there is no such name)");
    look_up_service("0 2 80 a.test;0 1 80 b.test", ""); /* it is there, no target is */
    expect(SERVICE, "10.0.0.1:80*2 10.0.0.2:80*1(the name has no address)");
    look_up_service("0 2 80 a.test;0 5 80 b.test", "b=10.0.0.3"); /* one keeps its own */
    expect(SERVICE, "10.0.0.1:80*2 10.0.0.3:80*5(a target of its SRV records has no address)");
    struct resolver *old = resolver;
    resolver = resolver_new(&ns.addr, 1);
    resolver_add(resolver, STR(SERVICE));
    resolver_inherit(resolver, old);
    resolver_free(old);
    ns_say_services("", SAYS_SERVFAIL);
    resolver_wait(resolver, 3000);
    expect(SERVICE, "10.0.0.1:80*2 10.0.0.3:80*5(Could not contact DNS servers)");
    look_up_service("0 2 80 a.test", "a=10.0.0.1");
    expect(SERVICE, "10.0.0.1:80*2");
}

static void a_service_that_says_that_it_is_none_has_no_address(void **state)
{
    (void)state;
    look_up_service("0 2 80 a.test", "a=10.0.0.1");
    look_up_service("0 0 0 .", "a=10.0.0.1");
    expect(SERVICE, "(its SRV record says that there is no such service)");
    look_up_service("0 2 80 a.test", "a=10.0.0.1");
    expect(SERVICE, "10.0.0.1:80*2");
}

static void weights_and_priorities_alone_are_a_change(void **state)
{
    (void)state;
    static const struct {
        const char *says, *expected;
    } steps[] = {
        {"0 9 80 a.test;0 1 80 b.test", "10.0.0.1:80*9 10.0.0.2:80*1"},
        {"0 9 80 a.test;1 1 80 b.test", "10.0.0.1:80*9 10.0.0.2:80*1b"},
        {"0 0 0 .", "(its SRV record says that there is no such service)"},
    };
    look_up_service("0 1 80 a.test;0 1 80 b.test", "a=10.0.0.1 b=10.0.0.2");
    resolver_watch(resolver, &loop, &ops, &loop);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        ns_say_services(steps[i].says, SAYS_ADDRS);
        while (changes == i) {
            loop.stop = false;
            loop_run(&loop);
        }
        assert_int_equal(changes, i + 1);
        expect(SERVICE, steps[i].expected);
    }
}

static void hosts_come_before_dns(void **state)
{
    (void)state;
    unsigned before = ns_asked();
    struct resolved addrs[RESOLVE_MAX];
    const char *why;
    resolver_add(resolver, STR("localhost:80"));
    resolver_wait(resolver, 400);
    assert_true(resolver_get(resolver, STR("localhost:80"), addrs, &why) >= 1);
    assert_null(why);
    assert_int_equal(ns_asked(), before);
}

static void an_heir_begins_with_what_was_known(void **state)
{
    (void)state;
    look_up("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    struct resolver *old = resolver;
    resolver = resolver_new(&ns.addr, 1);
    resolver_add(resolver, STR("a.test.:80"));
    resolver_add(resolver, STR("b.test.:80"));
    resolver_inherit(resolver, old);
    resolver_inherit(resolver, NULL);
    resolver_free(old);
    ns_say("", SAYS_SERVFAIL, SAYS_NXDOMAIN);
    resolver_wait(resolver, 3000);
    expect("a.test.:90", "10.0.0.1:90(Could not contact DNS servers)");
    expect("b.test.:90", "(Could not contact DNS servers)");
}

static unsigned settled;

static void on_settled(void *arg)
{
    assert_ptr_equal(arg, &settled);
    settled++;
    loop_stop(&loop);
}

/* As a reload does: from the loop, which tells when all of it is there. */
static void start(const char *addrs, enum dns_says says, uint64_t ms)
{
    settled = 0;
    ns_say(addrs, says, says);
    resolver_add(resolver, STR("a.test.:80"));
    resolver_add(resolver, STR("localhost:80"));
    loop_enter(&loop);
    resolver_start(resolver, &loop, ms, on_settled, &settled);
    assert_int_equal(settled, 0); /* never from inside the call */
    loop_leave(&loop);
    if (!settled)
        loop_run(&loop);
    assert_int_equal(settled, 1);
}

static void on_the_loop_it_is_told_when_all_are_looked_up(void **state)
{
    (void)state;
    start("10.0.0.1", SAYS_ADDRS, 60000);
    expect("a.test.:80", "10.0.0.1:80");
    assert_int_equal(changes + failures + founds, 0); /* nobody watches yet */
    loop_enter(&loop);
    resolver_watch(resolver, &loop, &ops, &loop);
    loop_leave(&loop);
    ns_say("10.0.0.9", SAYS_ADDRS, SAYS_ADDRS);
    loop_run(&loop);
    assert_int_equal(changes, 1);
    expect("a.test.:80", "10.0.0.9:80");
}

static void on_the_loop_a_silent_server_is_not_waited_for(void **state)
{
    (void)state;
    start("", SAYS_NOTHING, 50);
    expect("a.test.:80", "(no DNS server answered in time)");
    ns_say("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    loop_enter(&loop);
    resolver_watch(resolver, &loop, &ops, &loop);
    loop_leave(&loop);
    loop_run(&loop); /* the same look-up, asked again by c-ares, or the next one */
    assert_int_equal(changes, 1);
    expect("a.test.:80", "10.0.0.1:80");
    assert_int_equal(settled, 1);
}

static void on_the_loop_without_names_it_is_told_too(void **state)
{
    (void)state;
    settled = 0;
    loop_enter(&loop);
    resolver_start(resolver, &loop, 1000, on_settled, &settled);
    loop_leave(&loop);
    assert_int_equal(settled, 1);
    loop.stop = false;
}

/* TTL 1: a second until it is noticed. */
static void a_change_is_told_and_another_order_is_none(void **state)
{
    (void)state;
    look_up("10.0.0.1 10.0.0.2", SAYS_ADDRS, SAYS_ADDRS);
    resolver_watch(resolver, &loop, &ops, &loop);
    ns_say("10.0.0.2 10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    unsigned before = ns_asked();
    while (ns_asked() < before + 2)
        event_base_loop(loop.base, EVLOOP_ONCE);
    assert_int_equal(changes, 0);
    ns_say("10.0.0.3", SAYS_ADDRS, SAYS_ADDRS);
    loop_run(&loop);
    assert_int_equal(changes, 1);
    assert_int_equal(failures + founds, 0);
    expect("a.test.:80", "10.0.0.3:80");
}

/* The time until the only deadline there is, s. */
static double next_look(void)
{
    uint64_t at = 0;
    unsigned count = 0;
    for (unsigned level = 0; level < WHEEL_LEVELS; level++)
        for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++)
            for (struct deadline *d = loop.wheel.slots[level][slot]; d; d = d->next)
                if (deadline_is_on(d))
                    at = d->at, count++;
    assert_int_equal(count, 1);
    return (double)(int64_t)(at - clock_ns()) / 1e9;
}

/* Between a second and an hour, whatever the record says. */
static void no_record_is_believed_for_ever_nor_asked_for_all_the_time(void **state)
{
    static const struct {
        uint32_t ttl, seconds;
    } cases[] = {{0, 1},       {60, 60},     {3599, 3599},
                 {3600, 3600}, {3700, 3600}, {0x7fffffff, 3600}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (i) {
            tear_down(NULL);
            set_up(NULL);
        }
        ns.ttl = cases[i].ttl;
        look_up("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
        resolver_watch(resolver, &loop, &ops, &loop);
        double seconds = next_look();
        if (seconds > cases[i].seconds + 0.1 || seconds < cases[i].seconds - 30.0)
            fail_msg("a record for %u s is looked up again in %f s", cases[i].ttl, seconds);
    }
}

static void a_failure_is_told_once_and_so_is_its_end(void **state)
{
    (void)state;
    look_up("10.0.0.1", SAYS_ADDRS, SAYS_ADDRS);
    resolver_watch(resolver, &loop, &ops, &loop);
    ns_say("", SAYS_NXDOMAIN, SAYS_NXDOMAIN);
    loop_run(&loop);
    assert_int_equal(failures, 1);
    assert_string_equal(failed_host, "a.test.");
    assert_string_equal(failed_why, "there is no such name");
    assert_int_equal(kept, 1);
    unsigned before = ns_asked();
    while (ns_asked() < before + 2)
        event_base_loop(loop.base, EVLOOP_ONCE);
    ns_say("10.0.0.2", SAYS_ADDRS, SAYS_ADDRS);
    loop_run(&loop);
    assert_int_equal(changes, 1);
    assert_int_equal(founds, 1);
    assert_int_equal(failures, 1);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    ns_say("10.0.0.1 ::1", SAYS_ADDRS, SAYS_ADDRS);
    ns_say_services("0 1 80 b.test;0 1 81 b.test", SAYS_ADDRS);
    for (unsigned long nth = 1;; nth++) {
        assert_true(nth < 100);
        mem_fail_at(nth);
        struct resolver *one = resolver_new(&ns.addr, 1);
        int rc = one ? resolver_add(one, STR("a.test.:80")) : -1;
        rc = rc == 0 ? resolver_add(one, STR(SERVICE)) : rc;
        if (rc == 0)
            resolver_wait(one, 50);
        struct resolved addrs[RESOLVE_MAX];
        const char *why = NULL;
        size_t n = rc == 0 ? resolver_get(one, STR("a.test.:80"), addrs, &why) : 0;
        if (n && !why)
            n = resolver_get(one, STR(SERVICE), addrs, &why);
        mem_fail_at(0);
        resolver_free(one);
        if (n && !why)
            break;
        assert_true(n == 0 || why);
    }
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(addresses_need_no_book),
        T(a_name_is_noted_once_and_serves_every_port),
        T(both_families_are_used),
        T(what_has_no_route_is_left_out_unless_nothing_has_one),
        T(a_failure_keeps_what_was_there),
        T(a_family_that_failed_keeps_its_part),
        T(a_service_is_its_targets_with_their_ports),
        T(behind_the_best_priority_are_backups),
        T(weights_of_a_service_are_brought_to_scale),
        T(a_service_that_fails_keeps_what_was_there),
        T(a_service_that_says_that_it_is_none_has_no_address),
        T(weights_and_priorities_alone_are_a_change),
        T(hosts_come_before_dns),
        T(an_heir_begins_with_what_was_known),
        T(on_the_loop_it_is_told_when_all_are_looked_up),
        T(on_the_loop_a_silent_server_is_not_waited_for),
        T(on_the_loop_without_names_it_is_told_too),
        T(a_change_is_told_and_another_order_is_none),
        T(no_record_is_believed_for_ever_nor_asked_for_all_the_time),
        T(a_failure_is_told_once_and_so_is_its_end),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("resolver", tests, ns_start, ns_stop);
}
