#include "pool_test.h"

static void who_waits_at_the_limit_is_served_in_turn(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8, .connections = 1});
    take(&a, false);
    UNTIL(a.ready);
    assert_false(take(&b, false));
    assert_false(take(&c, false));
    settle();
    assert_string_equal(order, "a");
    finish(&a, "");
    assert_string_equal(order, "ab");
    assert_ptr_equal(b.client, a.client); /* the same connection, handed on */
    finish(&b, "Connection: close\r\n");
    UNTIL(c.ready); /* a new one in place of the closed one */
    assert_int_equal(opened, 2);
    finish(&c, "");
    assert_string_equal(order, "abc");
}

static void who_gave_up_waiting_hears_nothing(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8, .connections = 1});
    take(&a, false);
    UNTIL(a.ready);
    take(&b, false);
    take(&c, false);
    pool_cancel(&b.waiter);
    pool_cancel(&b.waiter); /* harmless */
    finish(&a, "");
    assert_string_equal(order, "ac");
    take(&b, false); /* behind the last, whose place it had cut */
    finish(&c, "");
    assert_string_equal(order, "acb");
}

static void waiting_has_an_end(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8, .connections = 1, .queue = 20});
    take(&a, false);
    UNTIL(a.ready);
    take(&b, false);
    UNTIL(b.failed);
    assert_int_equal(b.fault.reason, R_UPSTREAM_OVERFLOW);
    assert_int_equal(b.fault.which, LIMIT_CONNECTIONS);
    assert_int_equal(b.fault.limit, 1);
    assert_int_equal(b.fault.actual, 2);
    assert_true(b.fault.untouched && b.fault.silent);
}

static void who_is_one_too_many_in_the_queue_goes_and_not_who_waits_longest(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8, .connections = 1});
    cluster->breaker.limits.pending = 1;
    take(&a, false);
    UNTIL(a.ready);
    assert_int_equal(cluster->breaker.pending, 0);
    take(&b, false);
    take(&c, false);
    UNTIL(c.failed);
    assert_string_equal(order, "ac");
    assert_int_equal(c.fault.reason, R_UPSTREAM_OVERFLOW);
    assert_int_equal(c.fault.which, LIMIT_PENDING);
    assert_int_equal(c.fault.limit, 1);
    assert_int_equal(c.fault.actual, 2);
    assert_int_equal(cluster->breaker.pending, 1);
    finish(&a, "");
    assert_string_equal(order, "acb");
    assert_int_equal(cluster->breaker.pending, 0);
}

/* ---- among workers: another pool stands for another worker's ---- */

static struct pool *open_other(unsigned index, unsigned of)
{
    struct pool_counters counters = {&opened, &reuses, &idle, &active};
    struct pool *other = pool_new(&loop, cluster, 0, index, of, &counters);
    assert_non_null(other);
    return other;
}

static void a_worker_uses_what_the_others_leave(void **state)
{
    (void)state;
    open_pool_of((struct cluster_limits){.idle = 8, .connections = 2}, 2);
    struct pool *mine = pool, *other = open_other(1, 2);
    take(&a, false);
    take(&b, false);
    UNTIL(a.ready && b.ready);
    assert_true(pool_is_busy(mine) && pool_is_busy(other));
    assert_int_equal(cluster->servers[0].vitals->permits.open, 2);
    finish(&a, "");
    finish(&b, "");
    pool_close(other);
}

static void who_has_more_than_its_share_gives_back(void **state)
{
    (void)state;
    open_pool_of((struct cluster_limits){.idle = 8, .connections = 2}, 2);
    struct pool *mine = pool, *other = open_other(1, 2);
    take(&a, false);
    take(&b, false);
    UNTIL(a.ready && b.ready);
    pool = other;
    take(&c, false);
    settle();
    assert_false(c.ready);
    assert_int_equal(cluster->servers[0].vitals->permits.wanted, 1);
    pool = mine;
    finish(&a, ""); /* would be idle now, but c's worker has none at all */
    UNTIL(c.ready);
    assert_int_equal(cluster->servers[0].vitals->permits.wanted, 0);
    assert_int_equal(cluster->servers[0].vitals->permits.open, 2);
    finish(&b, "");
    finish(&c, "");
    assert_int_equal(idle, 2); /* a share each: nobody owes anything */
    pool_close(other);
}

static void with_fewer_connections_than_workers_each_has_its_turn(void **state)
{
    (void)state;
    open_pool_of((struct cluster_limits){.idle = 8, .connections = 1}, 2);
    struct pool *mine = pool, *other = open_other(1, 2);
    for (int i = 0; i < 3; i++) {
        pool = i % 2 ? other : mine;
        take(&a, false);
        UNTIL(a.ready || a.client); /* the other one's is idle, and it gives it up */
        finish(&a, "");
        assert_int_equal(cluster->servers[0].vitals->permits.open, 1);
    }
    pool = mine;
    pool_close(other);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(who_waits_at_the_limit_is_served_in_turn),
        T(who_gave_up_waiting_hears_nothing),
        T(waiting_has_an_end),
        T(who_is_one_too_many_in_the_queue_goes_and_not_who_waits_longest),
        T(a_worker_uses_what_the_others_leave),
        T(who_has_more_than_its_share_gives_back),
        T(with_fewer_connections_than_workers_each_has_its_turn),
    };
    return cmocka_run_group_tests_name("pool_queue", tests, NULL, NULL);
}
