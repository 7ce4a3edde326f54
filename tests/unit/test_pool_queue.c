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

/* ---- among servers ---- */

static struct pool *pair[2], *mine; /* each with one connection */
static struct pool_line line = {.pools = pair, .count = 2};
static bool unwilling;
static unsigned moves;

static bool may_move(const struct pool_waiter *waiter, const struct pool *to)
{
    assert_ptr_not_equal(waiter->pool, to);
    assert_in_range(pool_server(to, cluster), 0, 1);
    return !unwilling;
}

static void on_moved(struct pool_waiter *waiter, const struct pool *to)
{
    assert_ptr_equal(waiter->pool, to);
    moves++;
}

static void open_pair(struct cluster_limits limits)
{
    struct cluster_server servers[2] = {{.addr = addr, .weight = 1},
                                        {.addr = addr, .weight = 1}};
    struct cluster_spec spec = {.name = "u", .limits = limits};
    struct pool_counters counters = {&opened, &reuses, &idle, &active};
    opened = reuses = idle = active = 0;
    moves = line.stuck = 0;
    unwilling = false;
    a.waiter.may_move = b.waiter.may_move = c.waiter.may_move = may_move;
    a.waiter.on_moved = b.waiter.on_moved = c.waiter.on_moved = on_moved;
    cluster = cluster_new(&spec, servers, 2);
    for (unsigned i = 0; i < 2; i++) {
        pair[i] = pool_new(&loop, cluster, i, 0, 1, &counters);
        pool_join(pair[i], &line);
    }
    mine = pool = pair[0];
}

static bool take_of(unsigned server, struct asker *asker)
{
    pool = pair[server];
    bool at_once = take(asker, false);
    pool = mine;
    return at_once;
}

static void close_pair(void)
{
    settle();
    assert_int_equal(line.stuck, 0);
    assert_int_equal(cluster->breaker.pending, 0);
    pool_leave(pair[0], &line);
    IN_LOOP(pool_close(pair[1]));
}

static void who_waits_gets_what_comes_free_first(void **state)
{
    (void)state;
    open_pair((struct cluster_limits){.idle = 8, .connections = 1});
    take_of(0, &a);
    take_of(1, &b);
    UNTIL(a.ready && b.ready);
    take_of(0, &c);
    settle();
    assert_int_equal(line.stuck, 1);
    finish(&b, ""); /* at the other server */
    assert_true(c.ready && !c.failed);
    assert_ptr_equal(c.client, b.client);
    assert_int_equal(moves, 1);
    finish(&c, "");
    finish(&a, "");
    assert_int_equal(opened, 2);
    close_pair();
}

static void who_waits_gets_one_that_is_opened_elsewhere(void **state)
{
    (void)state;
    open_pair((struct cluster_limits){.idle = 8, .connections = 1});
    take_of(0, &a);
    take_of(1, &b);
    UNTIL(a.ready && b.ready);
    take_of(0, &c);
    settle();
    finish(&b, "Connection: close\r\n");
    UNTIL(c.ready);
    assert_int_equal(moves, 1);
    assert_int_equal(opened, 3);
    finish(&c, "");
    finish(&a, "");
    close_pair();
}

/* Who comes to a server that is full finds out at once that another is not. */
static void who_comes_looks_around(void **state)
{
    (void)state;
    open_pair((struct cluster_limits){.idle = 8, .connections = 1});
    take_of(0, &a);
    UNTIL(a.ready);
    take_of(0, &c);
    UNTIL(c.ready);
    assert_int_equal(moves, 1);
    finish(&c, "");
    finish(&a, "");
    close_pair();
}

static void who_wants_this_server_stays(void **state)
{
    (void)state;
    open_pair((struct cluster_limits){.idle = 8, .connections = 1});
    take_of(0, &a);
    UNTIL(a.ready);
    b.waiter.may_move = NULL;
    unwilling = true;
    take_of(0, &b);
    take_of(0, &c);
    settle();
    assert_false(b.ready || c.ready);
    finish(&a, "");
    finish(&b, "");
    assert_string_equal(order, "abc");
    assert_int_equal(moves, 0);
    finish(&c, "");
    close_pair();
}

/* A connection for each of them is on its way: nobody leaves it to others. */
static void who_is_being_connected_stays(void **state)
{
    (void)state;
    open_pair((struct cluster_limits){.idle = 8, .connections = 4});
    take_of(1, &b);
    UNTIL(b.ready);
    take_of(0, &a);
    take_of(0, &c);
    finish(&b, "");
    UNTIL(a.ready && c.ready);
    assert_int_equal(moves, 0);
    assert_int_equal(opened, 3);
    finish(&a, "");
    finish(&c, "");
    close_pair();
}

static void its_time_runs_on_where_it_moves(void **state)
{
    (void)state;
    open_pair((struct cluster_limits){.idle = 8, .connections = 1, .queue = 20});
    take_of(0, &a);
    take_of(1, &b);
    UNTIL(a.ready && b.ready);
    take_of(0, &c);
    settle();
    uint64_t due = c.waiter.due.at;
    accept_all();
    close(listening); /* what is opened there fails */
    listening = -1;
    finish(&b, "Connection: close\r\n");
    UNTIL(moves || c.failed);
    assert_true(c.failed || c.waiter.due.at == due);
    UNTIL(c.failed);
    finish(&a, "");
    close_pair();
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
        T(who_waits_gets_what_comes_free_first),
        T(who_waits_gets_one_that_is_opened_elsewhere),
        T(who_comes_looks_around),
        T(who_wants_this_server_stays),
        T(who_is_being_connected_stays),
        T(its_time_runs_on_where_it_moves),
    };
    return cmocka_run_group_tests_name("pool_queue", tests, NULL, NULL);
}
