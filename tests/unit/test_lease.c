#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rate_limit/lease.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

static struct gcra g;

static struct leases *leases_for(uint64_t number, uint64_t burst, size_t keys)
{
    g = (struct gcra){.count = 1, .cost = 1};
    assert_true(gcra_window_set(&g.windows[0], number, 1000, burst, 1));
    struct leases *leases = leases_new(&g, keys);
    assert_non_null(leases);
    return leases;
}

static enum lease_says say(struct leases *leases, struct lease *lease, uint64_t now)
{
    struct gcra_verdict v;
    return lease_say(leases, lease, now, &v);
}

static struct lease_reply reply(uint32_t wanted, uint32_t granted, uint64_t wait_us)
{
    return (struct lease_reply){
        .wanted = wanted, .granted = granted, .wait_us = wait_us, .ahead_us = {granted * 1000}};
}

static void the_first_asks_and_others_join(void **state)
{
    struct leases *leases = leases_for(1000, 40, 64);
    struct lease *lease = leases_find(leases, 5, S);
    uint32_t back = 9;
    (void)state;
    assert_int_equal(say(leases, lease, S), LEASE_ASK);
    assert_int_equal(lease_want(leases, lease, 1, S, &back), 1); /* nobody came lately */
    assert_int_equal(back, 0);
    lease->trip = (struct trip *)lease;
    assert_int_equal(say(leases, lease, S), LEASE_JOIN);
    assert_ptr_equal(leases_find(leases, 5, S + 1), lease);
    leases_free(leases);
}

static void what_is_paid_for_is_used_and_then_given_back(void **state)
{
    struct leases *leases = leases_for(1000, 40, 64);
    struct lease *lease = leases_find(leases, 5, S);
    struct lease_reply r = reply(6, 6, 0);
    uint32_t back;
    (void)state;
    lease_got(leases, lease, S, &r, 2);
    assert_int_equal(say(leases, lease, S), LEASE_ALLOWS);
    assert_int_equal(say(leases, lease, S + LEASE_NS - 1), LEASE_ALLOWS);
    assert_int_equal(say(leases, lease, S + LEASE_NS), LEASE_ASK);
    lease_want(leases, lease, 1, S + LEASE_NS, &back);
    assert_int_equal(back, 2);
    lease_want(leases, lease, 1, S + LEASE_NS, &back);
    assert_int_equal(back, 0); /* once */
    leases_free(leases);
}

static void more_is_asked_for_when_many_come(void **state)
{
    struct leases *leases = leases_for(1000, 1000, 64);
    struct lease *lease = leases_find(leases, 5, S);
    uint32_t back;
    (void)state;
    lease_want(leases, lease, 1, S, &back);
    for (unsigned i = 0; i < 3; i++)
        say(leases, lease, S + MS);
    assert_int_equal(lease_want(leases, lease, 2, S + MS, &back), 2 + 6);
    for (unsigned i = 0; i < 100; i++)
        say(leases, lease, S + MS);
    assert_int_equal(lease_want(leases, lease, 2, S + 2 * MS, &back),
                     2 + 10); /* ten milliseconds */
    for (unsigned i = 0; i < 100; i++)
        say(leases, lease, S + MS);
    assert_int_equal(lease_want(leases, lease, 1, 2 * S, &back), 1 + 1);
    leases_free(leases);
}

static void a_slow_rate_pays_for_nothing_in_advance(void **state)
{
    struct leases *leases = leases_for(50, 1000, 64);
    struct lease *lease = leases_find(leases, 5, S);
    uint32_t back;
    (void)state;
    lease_want(leases, lease, 1, S, &back);
    for (unsigned i = 0; i < 100; i++)
        say(leases, lease, S + MS);
    assert_int_equal(lease_want(leases, lease, 1, S + MS, &back), 1);
    leases_free(leases);
}

static void a_refusal_is_remembered(void **state)
{
    struct leases *leases = leases_for(1000, 40, 64);
    struct lease *lease = leases_find(leases, 5, S);
    struct lease_reply r = reply(5, 2, 300);
    struct gcra_verdict v;
    (void)state;
    r.ahead_us[0] = 40000;
    lease_got(leases, lease, S, &r, 2);
    assert_int_equal(lease_say(leases, lease, S, &v), LEASE_REFUSES);
    assert_false(v.allowed);
    assert_true(v.wait == gcra_time(5 * MS)); /* some may gather first */
    assert_int_equal(gcra_left(&g.windows[0], v.ahead[0]), 0);
    assert_true(gcra_more(&g.windows[0], v.ahead[0]) == v.wait);
    assert_int_equal(lease_say(leases, lease, S + 4 * MS, &v), LEASE_REFUSES);
    assert_int_equal(gcra_left(&g.windows[0], v.ahead[0]), 0); /* though four have gathered */
    assert_int_equal(say(leases, lease, S + 5 * MS - 1), LEASE_REFUSES);
    assert_int_equal(say(leases, lease, S + 5 * MS), LEASE_ASK);
    r = reply(1, 0, 3600000000);
    lease_got(leases, lease, S, &r, 0);
    assert_int_equal(say(leases, lease, 2 * S - 1), LEASE_REFUSES);
    assert_int_equal(say(leases, lease, 2 * S), LEASE_ASK); /* somebody may have changed it */
    r = reply(1, 1, 0);
    lease_got(leases, lease, S, &r, 1);
    assert_int_equal(say(leases, lease, S), LEASE_ASK);
    leases_free(leases);
}

static void verdicts_tell_what_all_gateways_left(void **state)
{
    struct leases *leases = leases_for(1000, 40, 64);
    struct lease *lease = leases_find(leases, 5, S);
    struct lease_reply r = {.wanted = 6, .granted = 6, .ahead_us = {16000}};
    struct gcra_verdict v;
    (void)state;
    lease_verdict(&g, &r, true, 5, &v);
    assert_true(v.allowed);
    assert_int_equal(gcra_left(&g.windows[0], v.ahead[0]), 40 - 11);
    lease_got(leases, lease, S, &r, 1);
    assert_int_equal(lease_say(leases, lease, S + 2 * MS, &v), LEASE_ALLOWS);
    assert_true(v.allowed && v.wait == 0);
    assert_int_equal(gcra_left(&g.windows[0], v.ahead[0]), 40 - (14 - 4));
    r = (struct lease_reply){.wanted = 1, .wait_us = 700, .ahead_us = {39700}};
    lease_verdict(&g, &r, false, 0, &v);
    assert_false(v.allowed);
    assert_true(v.wait == gcra_time(700000));
    r.wait_us = r.ahead_us[0] = 0; /* Redis counts otherwise: still a refusal with a wait */
    lease_verdict(&g, &r, false, 0, &v);
    assert_true(!v.allowed && v.wait > 0);
    leases_free(leases);
}

static void forgets_the_useless_first_and_never_a_trip(void **state)
{
    struct leases *leases = leases_for(1000, 40, 4); /* one set */
    struct lease_reply r = reply(2, 2, 0);
    (void)state;
    for (uint64_t key = 0; key < 4; key++) {
        struct lease *lease = leases_find(leases, key, S + key);
        if (key != 2)
            lease_got(leases, lease, S, &r, 0);
    }
    struct lease *third = leases_find(leases, 9, S + 10);
    assert_int_equal(third->hash, 9);
    assert_int_equal(leases_find(leases, 0, S + 11)->left, 2);
    assert_int_equal(leases_find(leases, 3, S + 11)->left, 2);
    for (uint64_t key = 0; key < 4; key++) {
        struct lease *lease = leases_find(leases, key == 2 ? 9 : key, S + 12);
        lease->trip = (struct trip *)lease;
    }
    assert_null(leases_find(leases, 100, S + 13));
    assert_non_null(leases_find(leases, 9, S + 14));
    leases_free(leases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_asks_and_others_join),
        cmocka_unit_test(what_is_paid_for_is_used_and_then_given_back),
        cmocka_unit_test(more_is_asked_for_when_many_come),
        cmocka_unit_test(a_slow_rate_pays_for_nothing_in_advance),
        cmocka_unit_test(a_refusal_is_remembered),
        cmocka_unit_test(verdicts_tell_what_all_gateways_left),
        cmocka_unit_test(forgets_the_useless_first_and_never_a_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
