#include "pool_test.h"

/* ---- warm connections ---- */

static void the_floor_stands_before_it_is_told(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 5, .idle = 8});
    IN_LOOP(pool_warm(pool, on_warm, &warm_calls));
    assert_int_equal(warm_calls, 0);
    UNTIL(warm_calls);
    assert_int_equal(idle, 5);
    accept_all();
    settle();
    assert_int_equal(accepted, 5);
    assert_int_equal(warm_calls, 1);
    assert_true(take(&a, false)); /* the first request opens none */
    assert_true(pool_is_reused(a.client));
    finish(&a, "");
    assert_int_equal(opened, 5);
    assert_int_equal(reuses, 1);
}

static void no_floor_is_told_at_once(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8});
    IN_LOOP(pool_warm(pool, on_warm, &warm_calls));
    assert_int_equal(warm_calls, 1);
}

static void a_refusing_server_is_told_too(void **state)
{
    (void)state;
    close(listening);
    listening = -1;
    open_pool((struct cluster_limits){.warm = 3, .idle = 8});
    warm_up();
    assert_int_equal(idle, 0);
    assert_true(pool_is_down(pool));
    assert_int_equal(cluster->servers[0].down, 1);
    assert_int_equal(warm_calls, 1);
}

static void the_floor_is_refilled_when_connections_end(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 3, .idle = 8});
    warm_up();
    accept_all();
    close(conns[0]);
    close(conns[1]);
    conns[0] = conns[1] = -1;
    UNTIL((accept_all(), accepted == 5 && idle == 3));
    assert_int_equal(opened, 5);
}

static void workers_share_a_servers_limits_out(void **state)
{
    (void)state;
    struct pool_counters counters = {&opened, &reuses, &idle, &active};
    open_pool((struct cluster_limits){.warm = 5, .idle = 8});
    struct pool *parts[3];
    for (unsigned i = 0; i < 3; i++) {
        parts[i] = pool_new(&loop, cluster, 0, i, 3, &counters);
        IN_LOOP(pool_warm(parts[i], on_warm, &warm_calls));
    }
    UNTIL(warm_calls == 3);
    assert_int_equal(idle, 5); /* 2, 2 and 1 */
    for (unsigned i = 0; i < 3; i++)
        IN_LOOP(pool_close(parts[i]));
    settle();
}

/* ---- lending ---- */

static void the_most_recently_used_comes_first(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 2, .idle = 8});
    warm_up();
    assert_true(take(&a, false));
    assert_true(take(&b, false));
    struct h1_client *hot = a.client;
    finish(&b, "");
    finish(&a, "");
    assert_true(take(&c, false));
    assert_ptr_equal(c.client, hot);
}

static void one_is_opened_for_who_finds_none(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8});
    assert_false(take(&a, false));
    UNTIL(a.ready);
    assert_false(pool_is_reused(a.client));
    assert_int_equal(active, 1);
    finish(&a, "");
    assert_int_equal(idle, 1);
    assert_true(take(&a, false));
    assert_true(pool_is_reused(a.client));
    assert_false(take(&b, true)); /* fresh: the idle ones are not trusted */
    UNTIL(b.ready);
    assert_false(pool_is_reused(b.client));
    assert_int_equal(opened, 2);
}

static void no_more_than_so_many_stay_idle(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 1});
    take(&a, false);
    take(&b, false);
    UNTIL(a.ready && b.ready);
    finish(&a, "");
    finish(&b, "");
    assert_int_equal(idle, 2); /* the next request may be on its way */
    UNTIL(idle == 1);
    assert_int_equal(opened, 2);
}

/* Under load all of them are idle now and then. The limit is for those that nobody uses. */
static void what_is_used_is_not_too_many(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 1});
    for (int round = 0; round < 20; round++) {
        take(&a, false);
        take(&b, false);
        UNTIL(a.client && b.client);
        finish(&a, "");
        finish(&b, "");
    }
    assert_in_range(opened, 2, 8); /* one that closes the other each time would open 21 */
    UNTIL(idle == 1);
}

static void none_stays_idle_where_none_may(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 0});
    take(&a, false);
    UNTIL(a.ready);
    finish(&a, "");
    assert_int_equal(idle, 0);
}

static void an_aborted_request_never_comes_back(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8});
    take(&a, false);
    UNTIL(a.ready);
    IN_LOOP(recorder_abort(&a.rec));
    settle();
    assert_int_equal(idle, 0);
    assert_int_equal(active, 0);
}

/* ---- retirement ---- */

static void connections_retire_after_so_many_requests(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8, .requests = 2});
    take(&a, false);
    UNTIL(a.ready);
    finish(&a, "");
    assert_int_equal(idle, 1);
    assert_true(take(&a, false));
    finish(&a, "");
    assert_int_equal(idle, 0);
}

static void connections_retire_with_time(void **state)
{
    (void)state;
    static const struct cluster_limits limits[] = {{.idle = 8, .idle_timeout = 20},
                                                   {.idle = 8, .lifetime = 20}};
    for (size_t i = 0; i < 2; i++) {
        open_pool(limits[i]);
        take(&a, false);
        UNTIL(a.ready);
        finish(&a, "");
        UNTIL(!idle);
        if (i == 0) {
            close_pool();
            cluster_unref(cluster);
        }
    }
}

static void the_servers_word_on_idle_time_is_kept(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8, .idle_timeout = 60000});
    take(&a, false);
    UNTIL(a.ready);
    struct h1_client *client = a.client;
    finish(&a, "Keep-Alive: timeout=5, max=100\r\n");
    assert_int_equal(idle, 1);
    assert_in_range(client->due.at, loop.now + 3000 * NS_PER_MS, loop.now + 4000 * NS_PER_MS);
}

/* The clock is the loop's, so time can pass in a test: the server closes a connection that
 * has been idle for `ms`, `at` ms from now. */
static void hang_up_on(struct h1_client *client, unsigned ms, unsigned at)
{
    loop.now = clock_ns() + at * NS_PER_MS;
    client->idle_at = loop.now - ms * NS_PER_MS;
    client->stream.eof = true;
    client->stream.ops->on_eof(&client->stream);
    loop_leave(&loop);
    settle();
    assert_int_equal(idle, 0);
}

static uint64_t idle_limit(void)
{
    take(&a, false);
    UNTIL(a.client);
    struct h1_client *client = a.client;
    finish(&a, "");
    assert_int_equal(idle, 1);
    return (client->due.at - loop.now) / NS_PER_MS;
}

static void a_server_that_always_hangs_up_is_left_before(void **state)
{
    (void)state;
    static const struct {
        unsigned ms, at;
        uint64_t limit; /* from then on */
    } events[] = {
        {5000, 10000, 60000}, /* once is nothing */
        {9000, 20000, 60000}, /* another time is nothing either */
        {9100, 20100, 60000}, /* both at once are one event */
        {9300, 30000, 8100},  /* about the same again: a habit; nine tenths of the shorter */
        {500, 40000, 8100},   /* a restart */
    };
    open_pool((struct cluster_limits){.idle = 8, .idle_timeout = 60000});
    assert_in_range(idle_limit(), 59000, 60000);
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
        assert_ptr_not_equal(a.client, NULL);
        hang_up_on(a.client, events[i].ms, events[i].at);
        assert_in_range(idle_limit(), events[i].limit - 1000, events[i].limit);
    }
    /* It went down: what was learned of it may have been a symptom. */
    hang_up_on(a.client, 500, 50000);
    close(listening);
    take(&b, false);
    UNTIL(b.failed);
    while (sock_listen(&addr, false, &listening) < 0)
        turn();
    assert_in_range(idle_limit(), 59000, 60000);
}

/* ---- a server that is down ---- */

static void who_waits_for_a_refusing_server_is_told(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.idle = 8});
    close(listening);
    listening = -1;
    take(&a, false);
    take(&b, false);
    UNTIL(a.failed && b.failed);
    assert_string_equal(order, "ab");
    assert_int_equal(a.fault.reason, R_UPSTREAM_CONNECT);
    assert_int_equal(a.fault.err, ECONNREFUSED);
    assert_true(a.fault.untouched && a.fault.silent);
    assert_true(pool_is_down(pool));
}

/* Where connect says EAGAIN: which must not be taken for a limit of ours. */
static void a_unix_socket_whose_queue_is_full_refuses(void **state)
{
    (void)state;
    char path[] = "/tmp/postern-test-pool-XXXXXX", text[64];
    int fd, n = 0, fds[16];
    assert_non_null(mkdtemp(path));
    snprintf(text, sizeof(text), "unix:%s/s", path);
    addr = addr_of(text);
    close(listening);
    assert_int_equal(sock_listen(&addr, false, &listening), 0);
    assert_int_equal(listen(listening, 0), 0);
    while (n < 16 && sock_connect(&addr, &fd) == 0)
        fds[n++] = fd;
    assert_true(n < 16);
    open_pool((struct cluster_limits){.idle = 8});
    take(&a, false);
    UNTIL(a.failed);
    assert_int_equal(a.fault.reason, R_UPSTREAM_CONNECT);
    assert_int_equal(a.fault.err, EAGAIN);
    while (n)
        close(fds[--n]);
    unlink(addr.un.sun_path);
    rmdir(path);
}

static void a_server_that_comes_back_is_warmed_again(void **state)
{
    (void)state;
    int rc;
    close(listening);
    open_pool((struct cluster_limits){.warm = 3, .idle = 8});
    warm_up();
    assert_int_equal(cluster->servers[0].down, 1);
    do
        rc = sock_listen(&addr, false, &listening);
    while (rc == -EADDRINUSE);
    assert_int_equal(rc, 0);
    UNTIL(idle == 3); /* within the back-off */
    assert_int_equal(cluster->servers[0].down, 0);
    assert_false(pool_is_down(pool));
    assert_int_equal(warm_calls, 1);
}

static bool is_down(void)
{
    bool down;
    IN_LOOP(down = pool_is_down(pool));
    return down;
}

/* Whoever would come finds it down, and makes it try; what fails then counts as theirs. */
static void whether_it_is_back_is_found_out_without_a_request(void **state)
{
    (void)state;
    int rc;
    close(listening);
    listening = -1;
    open_pool((struct cluster_limits){.idle = 8});
    cluster->watch.outlier = (struct outlier_policy){.on = true,
                                                     .failures = 2,
                                                     .eject = 1000,
                                                     .max_ejected_permille = 1000,
                                                     .counts = OUTLIER_CONNECT};
    take(&a, false);
    UNTIL(a.failed);
    assert_true(is_down());
    assert_int_equal(opened, 1);
    UNTIL(opened == 2 || !is_down()); /* when its back-off is over */
    assert_int_equal(opened, 2);
    assert_int_equal(vitals_word(cluster->servers[0].vitals), 0);
    UNTIL(vitals_word(cluster->servers[0].vitals) || !is_down());
    assert_int_equal(vitals_word(cluster->servers[0].vitals), VITAL_EJECTED);
    assert_int_equal(opened, 3);
    do
        rc = sock_listen(&addr, false, &listening);
    while (rc == -EADDRINUSE);
    assert_int_equal(rc, 0);
    UNTIL(!is_down());
    assert_int_equal(idle, 1);
    assert_true(take(&a, false));
    finish(&a, "");
}

/* ---- the end of a pool ---- */

static void a_retired_pool_serves_and_keeps_nothing(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 2, .idle = 8});
    warm_up();
    IN_LOOP(pool_retire(pool));
    settle();
    assert_int_equal(idle, 0);
    take(&a, false);
    UNTIL(a.ready);
    finish(&a, "");
    assert_int_equal(idle, 0);
    assert_int_equal(opened, 3);
}

/* What the cluster becomes when its name gets another address, in front of the one it had. */
static struct cluster *cluster_with(struct cluster_limits limits)
{
    struct cluster_spec spec = {.name = "c", .kin = cluster, .limits = limits};
    struct cluster_server servers[2] = {{.addr = addr_of("127.0.0.1:1"), .weight = 1},
                                        {.addr = addr, .weight = 1}};
    struct cluster *after = cluster_new(&spec, servers, 2);
    assert_non_null(after);
    assert_int_equal(after->kin, cluster->kin);
    return after;
}

static struct cluster *cluster_after(void)
{
    return cluster_with(cluster->limits);
}

static void a_pool_takes_the_limits_of_where_it_moves(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 1, .idle = 8, .idle_timeout = 60000});
    warm_up();
    take(&a, false);
    take(&b, false);
    UNTIL(b.ready);
    finish(&a, "");
    struct cluster *after = cluster_with((struct cluster_limits){
        .warm = 2, .idle = 2, .idle_timeout = 500, .connections = 3, .response = 77});
    IN_LOOP(pool_move(pool, after, 1));
    settle();
    assert_int_equal(after->servers[1].vitals->permits.open, 2);
    assert_in_range(a.client->due.at, loop.now, loop.now + 500 * NS_PER_MS);
    assert_true(take(&c, false)); /* the same connection, with the new timeouts */
    assert_int_equal(c.client->timeouts.response, 77);
    finish(&b, "");
    finish(&c, "");
    assert_int_equal(opened, 2);
    close_pool();
    cluster_unref(after);
}

static void a_pool_warms_up_for_where_it_will_move(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 1, .idle = 8});
    warm_up();
    struct cluster *after = cluster_with((struct cluster_limits){.warm = 3, .idle = 8});
    pool_expect(pool, after);
    warm_calls = 0;
    warm_up();
    assert_int_equal(idle, 3);
    pool_expect(pool, NULL); /* it stays, and what ends is not opened anew */
    accept_all();
    for (size_t i = 0; i < accepted; i++)
        close(conns[i]);
    accepted = 0;
    UNTIL(opened == 4 && idle == 1);
    settle();
    assert_int_equal(idle, 1);
    cluster_unref(after);
}

static void connections_opened_together_do_not_end_together(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 20, .idle = 20, .lifetime = 600000});
    warm_up();
    assert_int_equal(idle, 20);
    uint64_t first = UINT64_MAX, last = 0;
    struct h1_client *clients[20];
    for (int i = 0; i < 20; i++) { /* each was idle: its deadline tells when it would end */
        loop_enter(&loop);
        clients[i] = pool_take(pool, false, &a.waiter);
        loop_leave(&loop);
        uint64_t end = clients[i]->opened_at + 600000 * NS_PER_MS -
                       60000 * NS_PER_MS * clients[i]->spread / 1024;
        first = end < first ? end : first;
        last = end > last ? end : last;
    }
    assert_true(last - first > 10000 * NS_PER_MS);
    for (int i = 0; i < 20; i++)
        IN_LOOP(h1_client_close(clients[i]));
    settle();
}

static void a_shared_pool_moves_with_its_connections(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 2, .idle = 8});
    warm_up();
    struct cluster *after = cluster_after();
    struct pool *shared = pool_share(pool);
    assert_true(pool_is_of(shared, cluster));
    pool_move(shared, after, 1);
    assert_true(pool_is_of(shared, after));
    close_pool(); /* its first user goes */
    assert_int_equal(cluster->refs, 1);
    assert_int_equal(idle, 2);
    pool = shared;
    assert_true(take(&a, false));
    finish(&a, "");
    assert_int_equal(opened, 2);
    close_pool();
    assert_int_equal(after->refs, 1);
    cluster_unref(after);
}

static void a_pool_that_is_down_says_so_where_it_moves(void **state)
{
    (void)state;
    close(listening);
    listening = -1;
    open_pool((struct cluster_limits){.warm = 1, .idle = 8});
    warm_up();
    struct cluster *after = cluster_after();
    pool_move(pool, after, 1);
    pool_move(pool, after, 1); /* harmless */
    assert_int_equal(cluster->servers[0].down, 0);
    assert_int_equal(after->servers[1].down, 1);
    close_pool();
    assert_int_equal(after->servers[1].down, 0);
    cluster_unref(after);
}

static void what_is_lent_outlives_the_pool(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 2, .idle = 8, .connections = 2});
    warm_up();
    take(&a, false);
    take(&b, false);
    take(&c, false); /* waits */
    close_pool();
    assert_true(c.failed);
    assert_int_equal(c.fault.reason, R_UPSTREAM_NONE);
    assert_int_equal(active, 2);
    assert_int_equal(cluster->refs, 2);
    finish(&a, ""); /* ends well, and closes */
    assert_int_equal(active, 1);
    assert_int_equal(idle, 0);
    finish(&b, "");
    assert_int_equal(cluster->refs, 1);
}

static void a_pool_may_close_while_it_connects(void **state)
{
    (void)state;
    open_pool((struct cluster_limits){.warm = 4, .idle = 8});
    loop_enter(&loop);
    pool_warm(pool, on_warm, &warm_calls);
    struct pool *closing = pool;
    pool = NULL;
    a.waiter = (struct pool_waiter){.on_ready = on_ready, .on_failed = on_failed};
    assert_null(pool_take(closing, true, &a.waiter));
    pool_close(closing);
    loop_leave(&loop);
    settle();
    assert_true(a.failed);
    assert_int_equal(warm_calls, 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    unsigned long nth = 1;
    open_pool((struct cluster_limits){.idle = 8});
    for (bool whole = false; !whole; nth++) {
        assert_true(nth < 50);
        mem_fail_at(nth);
        take(&a, true);
        UNTIL(a.ready || a.failed);
        mem_fail_at(0);
        whole = a.ready;
        if (a.failed)
            assert_int_equal(a.fault.reason, R_NO_MEMORY);
    }
    assert_true(nth > 2);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(the_floor_stands_before_it_is_told),
        T(no_floor_is_told_at_once),
        T(a_refusing_server_is_told_too),
        T(the_floor_is_refilled_when_connections_end),
        T(workers_share_a_servers_limits_out),
        T(the_most_recently_used_comes_first),
        T(one_is_opened_for_who_finds_none),
        T(no_more_than_so_many_stay_idle),
        T(what_is_used_is_not_too_many),
        T(none_stays_idle_where_none_may),
        T(an_aborted_request_never_comes_back),
        T(connections_retire_after_so_many_requests),
        T(connections_retire_with_time),
        T(the_servers_word_on_idle_time_is_kept),
        T(a_server_that_always_hangs_up_is_left_before),
        T(who_waits_for_a_refusing_server_is_told),
        T(a_unix_socket_whose_queue_is_full_refuses),
        T(a_server_that_comes_back_is_warmed_again),
        T(whether_it_is_back_is_found_out_without_a_request),
        T(a_retired_pool_serves_and_keeps_nothing),
        T(a_pool_takes_the_limits_of_where_it_moves),
        T(a_pool_warms_up_for_where_it_will_move),
        T(connections_opened_together_do_not_end_together),
        T(a_shared_pool_moves_with_its_connections),
        T(a_pool_that_is_down_says_so_where_it_moves),
        T(what_is_lent_outlives_the_pool),
        T(a_pool_may_close_while_it_connects),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
