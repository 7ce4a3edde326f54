#include "up_test.h"

#include <pthread.h>

#include "up/outlier.h"

#define MS NS_PER_MS

static struct cluster *cluster;

static struct outlier_policy policy(void)
{
    return (struct outlier_policy){.on = true,
                                   .failures = 3,
                                   .requests = 10,
                                   .window = 1000,
                                   .eject = 100,
                                   .max_eject = 1000,
                                   .max_ejected_permille = 500,
                                   .counts = OUTLIER_RESET | OUTLIER_503};
}

static void make(int servers, struct outlier_policy outlier)
{
    int weights[20] = {0};
    for (int i = 0; i < servers; i++)
        weights[i] = 1;
    cluster = cluster_of(BALANCE_ROUND_ROBIN, weights);
    cluster->watch.outlier = outlier;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_unref(cluster);
    cluster = NULL;
    return 0;
}

static bool is_ejected(unsigned server)
{
    return vitals_word(cluster->servers[server].vitals) & VITAL_EJECTED;
}

/* 'x' fails, anything else goes well; how many notes it took until it was ejected, or 0. */
static size_t run(unsigned server, const char *what, uint64_t now, uint64_t step)
{
    for (size_t i = 0; what[i]; i++, now += step)
        if (outlier_note(cluster, server, what[i] == 'x' ? OUTLIER_RESET : 0, now))
            return i + 1;
    return 0;
}

static void only_failures_in_a_row_count(void **state)
{
    (void)state;
    make(4, policy());
    assert_int_equal(run(0, "xx.xx.xx.", 0, MS), 0);
    assert_int_equal(run(1, "x.xxx", 0, MS), 5);
    assert_false(is_ejected(0));
    assert_true(is_ejected(1));
    assert_int_equal(cluster->servers[1].vitals->verdict.failures, 3);
    assert_int_equal(cluster->servers[1].vitals->verdict.what, OUTLIER_RESET);
    assert_int_equal(run(1, "xxxxxx", 0, MS), 0); /* once is enough */
    assert_int_equal(cluster->ward->ejected, 1);
}

static void what_does_not_count_is_as_good_as_well(void **state)
{
    (void)state;
    make(4, policy());
    for (int i = 0; i < 20; i++)
        assert_false(outlier_note(cluster, 0, OUTLIER_CONNECT, 0));
    assert_int_equal(run(0, "xx", 0, 0), 0);
    assert_false(outlier_note(cluster, 0, outlier_status(500), 0));
    assert_int_equal(run(0, "xx", 0, 0), 0);
    assert_true(outlier_note(cluster, 0, outlier_status(503), 0));
    cluster->watch.outlier.on = false;
    assert_int_equal(run(1, "xxxxxxxx", 0, 0), 0);
}

static void statuses_have_their_bits(void **state)
{
    (void)state;
    assert_int_equal(outlier_status(200), 0);
    assert_int_equal(outlier_status(404), 0);
    assert_int_equal(outlier_status(500), OUTLIER_500 | OUTLIER_5XX);
    assert_int_equal(outlier_status(502), OUTLIER_502 | OUTLIER_5XX);
    assert_int_equal(outlier_status(503), OUTLIER_503 | OUTLIER_5XX);
    assert_int_equal(outlier_status(504), OUTLIER_504 | OUTLIER_5XX);
    assert_int_equal(outlier_status(599), OUTLIER_5XX);
}

static void a_share_counts_from_enough_requests_on(void **state)
{
    (void)state;
    struct outlier_policy outlier = policy();
    outlier.failures = 0;
    outlier.share_permille = 500;
    make(4, outlier);
    assert_int_equal(run(0, "xxxx.....x", 5000 * MS, 0), 10); /* half of ten */
    assert_int_equal(run(1, "xxxx.....", 5000 * MS, 0), 0);
    assert_int_equal(run(2, ".x..x..x..x..x..x..x..x", 5000 * MS, 0), 0); /* a third */
    assert_int_equal(cluster->servers[0].vitals->verdict.requests, 10);
    assert_int_equal(cluster->servers[0].vitals->verdict.failures, 5);
}

static void what_is_older_than_the_window_is_forgotten(void **state)
{
    (void)state;
    struct outlier_policy outlier = policy();
    outlier.failures = 0;
    outlier.share_permille = 500;
    make(4, outlier);
    assert_int_equal(run(0, "xxxxxxxxx", 10000 * MS, 0), 0);
    assert_int_equal(run(0, "x", 11000 * MS, 0), 0); /* two halves later: it is alone */
    assert_int_equal(run(1, "xxxxxxxxx", 10000 * MS, 0), 0);
    assert_int_equal(run(1, "x", 10500 * MS, 0), 1); /* the half before counts */
    assert_int_equal(run(2, "xxxxxxxxx", 10500 * MS, 0), 0);
    assert_int_equal(run(2, "x", 10499 * MS, 0), 1); /* a clock that is a little behind */
}

static void the_share_survives_a_million_requests(void **state)
{
    (void)state;
    struct outlier_policy outlier = policy();
    outlier.failures = 0;
    outlier.share_permille = 350;
    make(4, outlier);
    for (int i = 0; i < 3000000; i++) /* a quarter fails */
        assert_false(outlier_note(cluster, 0, i % 4 ? 0 : OUTLIER_RESET, 77 * MS));
    for (int i = 0; i < 3000000; i++) /* from now on all */
        if (outlier_note(cluster, 0, OUTLIER_RESET, 77 * MS))
            break;
    assert_true(is_ejected(0));
}

static void never_more_than_the_limit(void **state)
{
    (void)state;
    for (uint32_t share = 0; share <= 1000; share += 125) {
        struct outlier_policy outlier = policy();
        outlier.max_ejected_permille = share;
        make(7, outlier);
        unsigned ejected = 0;
        for (unsigned i = 0; i < 7; i++)
            ejected += run(i, "xxx", 0, 0) != 0;
        assert_int_equal(ejected, 7 * share / 1000);
        assert_int_equal(cluster->ward->ejected, ejected);
        tear_down(NULL);
    }
}

static void a_place_that_is_given_back_is_taken_by_another(void **state)
{
    (void)state;
    make(2, policy());
    assert_int_equal(run(0, "xxx", 0, 0), 3);
    assert_int_equal(run(1, "xxxx", 0, 0), 0);
    outlier_return(cluster->servers[0].vitals);
    assert_int_equal(cluster->ward->ejected, 0);
    assert_false(is_ejected(0));
    assert_int_equal(run(1, "x", 0, 0), 1);
    outlier_return(cluster->servers[0].vitals); /* nothing to give back */
    assert_int_equal(cluster->ward->ejected, 1);
    assert_int_equal(run(0, "xx", 0, 0), 0); /* it begins anew */
}

static void who_is_out_for_another_reason_takes_no_place(void **state)
{
    (void)state;
    static const uint32_t bits[] = {VITAL_DOWN, VITAL_DRAINING, VITAL_GONE};
    make(6, policy());
    for (unsigned i = 0; i < 3; i++) {
        vitals_change(cluster->servers[i].vitals, 0, bits[i]);
        assert_int_equal(run(i, "xxxxx", 0, 0), 0);
    }
    assert_int_equal(cluster->ward->ejected, 0);
}

static void the_time_doubles_up_to_its_most(void **state)
{
    (void)state;
    struct outlier_policy outlier = policy();
    static const uint32_t expected[] = {100, 200, 400, 800, 1000, 1000};
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(outlier_sentence(&outlier, i), expected[i]);
    assert_int_equal(outlier_sentence(&outlier, UINT32_MAX), 1000);
    outlier.eject = outlier.max_eject = UINT32_MAX;
    assert_int_equal(outlier_sentence(&outlier, 5), UINT32_MAX);
}

static void doing_well_takes_ejections_back(void **state)
{
    (void)state;
    assert_int_equal(outlier_decay(3, 100, 99), 3);
    assert_int_equal(outlier_decay(3, 100, 100), 2);
    assert_int_equal(outlier_decay(3, 100, 250), 1);
    assert_int_equal(outlier_decay(3, 100, 1000000), 0);
    assert_int_equal(outlier_decay(0, 0, 5), 0);
}

/* ---- threads ---- */

#define THREADS 8

static atomic_uint ejections;
static _Atomic bool over, exceeded;
static _Atomic bool told[10]; /* what stands for the letter to the main thread */

static void *fail_all(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    for (int i = 0; atomic_load(&ejections) < 300; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        unsigned server = (unsigned)(seed >> 33) % 10;
        if (outlier_note(cluster, server, i % 7 ? OUTLIER_RESET : 0,
                         (unsigned long long)i * MS)) {
            atomic_fetch_add(&ejections, 1);
            atomic_store(&told[server], true);
        }
        if (atomic_load(&cluster->ward->ejected) > 3)
            atomic_store(&exceeded, true);
    }
    return NULL;
}

static void *bring_back(void *unused)
{
    while (!atomic_load(&over))
        for (unsigned i = 0; i < 10; i++)
            if (atomic_exchange(&told[i], false))
                outlier_return(cluster->servers[i].vitals);
    return unused;
}

static void the_limit_holds_for_any_number_of_threads(void **state)
{
    (void)state;
    struct outlier_policy outlier = policy();
    outlier.max_ejected_permille = 300;
    outlier.share_permille = 900;
    make(10, outlier);
    pthread_t threads[THREADS], main_thread;
    atomic_store(&over, false);
    pthread_create(&main_thread, NULL, bring_back, NULL);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fail_all, (void *)(i + 1));
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&over, true);
    pthread_join(main_thread, NULL);
    assert_false(exceeded);
    unsigned left = 0;
    for (unsigned i = 0; i < 10; i++)
        left += is_ejected(i);
    assert_int_equal(cluster->ward->ejected, left);
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_failures_in_a_row_count),
        TEST(what_does_not_count_is_as_good_as_well),
        cmocka_unit_test(statuses_have_their_bits),
        TEST(a_share_counts_from_enough_requests_on),
        TEST(what_is_older_than_the_window_is_forgotten),
        TEST(the_share_survives_a_million_requests),
        cmocka_unit_test(never_more_than_the_limit),
        TEST(a_place_that_is_given_back_is_taken_by_another),
        TEST(who_is_out_for_another_reason_takes_no_place),
        cmocka_unit_test(the_time_doubles_up_to_its_most),
        cmocka_unit_test(doing_well_takes_ejections_back),
        TEST(the_limit_holds_for_any_number_of_threads),
    };
    return cmocka_run_group_tests_name("outlier", tests, NULL, NULL);
}
