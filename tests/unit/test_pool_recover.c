/* A pool whose server was out: it comes back, or is drained. */
#include "net_test.h"

#include "up/pool.h"

static int listening;
static struct addr addr;
static struct cluster *cluster;
static struct pool *pool;
static _Atomic uint64_t opened, reuses, idle, active;

static struct vitals *vitals_of(void)
{
    return cluster->servers[0].vitals;
}

static void nothing(void *unused)
{
    (void)unused;
}

static int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    listening = listen_any(&addr);
    struct cluster_server server = {.addr = addr, .weight = 1};
    struct cluster_spec spec = {.name = "u", .limits = {.warm = 3, .idle = 8, .connect = 5000}};
    struct pool_counters counters = {
        .opened = &opened, .reuses = &reuses, .idle = &idle, .active = &active};
    opened = reuses = idle = active = 0;
    cluster = cluster_new(&spec, &server, 1);
    pool = pool_new(&loop, cluster, 0, 0, 1, &counters);
    return pool ? 0 : -1;
}

static int tear_down(void **state)
{
    IN_LOOP(pool_close(pool));
    settle();
    cluster_unref(cluster);
    if (listening >= 0)
        close(listening);
    return tear_down_loop(state);
}

static void warm_up(void)
{
    IN_LOOP(pool_warm(pool, nothing, NULL));
    UNTIL(idle == 3);
    assert_int_equal(opened, 3);
}

static void opens_its_floor_anew_and_says_so(void **state)
{
    (void)state;
    warm_up();
    vitals_warm(vitals_of(), 1);
    IN_LOOP(pool_recover(pool));
    assert_int_equal(vitals_word(vitals_of()), VITAL_WARMING); /* not before they stand */
    UNTIL(!vitals_word(vitals_of()));
    assert_int_equal(idle, 3);
    assert_int_equal(opened, 6); /* what was idle is not trusted */
}

static void says_so_too_when_it_cannot(void **state)
{
    (void)state;
    warm_up();
    close(listening);
    listening = -1;
    vitals_warm(vitals_of(), 1);
    IN_LOOP(pool_recover(pool));
    UNTIL(!vitals_word(vitals_of()));
    assert_int_equal(idle, 0);
    assert_true(pool_is_down(pool));
}

static void its_back_off_ends(void **state)
{
    (void)state;
    close(listening);
    IN_LOOP(pool_warm(pool, nothing, NULL));
    UNTIL(pool_is_down(pool));
    assert_int_equal(sock_listen(&addr, false, &listening), 0);
    vitals_warm(vitals_of(), 1);
    IN_LOOP(pool_recover(pool));
    assert_false(pool_is_down(pool));
    UNTIL(!vitals_word(vitals_of()));
    assert_int_equal(idle, 3);
    assert_int_equal(cluster->servers[0].down, 0);
}

static void its_end_is_not_waited_for(void **state)
{
    (void)state;
    vitals_warm(vitals_of(), 2);
    IN_LOOP(pool_share(pool); pool_recover(pool));
    IN_LOOP(pool_recover(pool)); /* once more before it is through: each counts */
    IN_LOOP(pool_close(pool); pool_close(pool));
    assert_int_equal(vitals_word(vitals_of()), 0);
    pool =
        pool_new(&loop, cluster, 0, 0, 1,
                 &(struct pool_counters){
                     .opened = &opened, .reuses = &reuses, .idle = &idle, .active = &active});
}

static void a_drained_one_keeps_nothing(void **state)
{
    (void)state;
    warm_up();
    vitals_change(vitals_of(), 0, VITAL_DRAINING);
    IN_LOOP(pool_drain(pool));
    settle();
    assert_int_equal(idle, 0);
    assert_int_equal(opened, 3); /* and there is no floor */
    vitals_change(vitals_of(), VITAL_DRAINING, 0);
    vitals_warm(vitals_of(), 1);
    IN_LOOP(pool_recover(pool));
    UNTIL(idle == 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_its_floor_anew_and_says_so),
        TEST(says_so_too_when_it_cannot),
        TEST(its_back_off_ends),
        TEST(its_end_is_not_waited_for),
        TEST(a_drained_one_keeps_nothing),
    };
    return cmocka_run_group_tests_name("pool_recover", tests, NULL, NULL);
}
