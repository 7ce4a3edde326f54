#include "up_test.h"

#include <pthread.h>

static struct ward *ward;
static struct vitals *vitals;

static int set_up(void **state)
{
    (void)state;
    ward = ward_new();
    vitals = ward ? vitals_new(ward) : NULL;
    return vitals ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    mem_fail_at(0);
    vitals_unref(vitals);
    ward_unref(ward);
    return 0;
}

static void a_new_server_is_up_with_all_its_weight(void **state)
{
    (void)state;
    assert_int_equal(vitals_word(vitals), 0);
    assert_int_equal(word_ease(vitals_word(vitals)), EASE_FULL);
}

static void bits_change_in_one_step(void **state)
{
    (void)state;
    assert_int_equal(vitals_change(vitals, 0, VITAL_DOWN | VITAL_DRAINING), 0);
    assert_int_equal(vitals_change(vitals, VITAL_DOWN, VITAL_WARMING),
                     VITAL_DOWN | VITAL_DRAINING);
    assert_int_equal(vitals_word(vitals), VITAL_WARMING | VITAL_DRAINING);
}

static void easing_leaves_the_bits_alone(void **state)
{
    (void)state;
    vitals_change(vitals, 0, VITAL_DRAINING);
    vitals_ease(vitals, 100);
    assert_int_equal(word_ease(vitals_word(vitals)), 100);
    assert_int_equal(vitals_word(vitals) & VITAL_OUT, VITAL_DRAINING);
    vitals_ease(vitals, EASE_FULL);
    assert_int_equal(vitals_word(vitals), VITAL_DRAINING);
}

static void the_last_worker_ends_the_warming(void **state)
{
    (void)state;
    vitals_warm(vitals, 3);
    vitals_warmed(vitals);
    vitals_warmed(vitals);
    assert_int_equal(vitals_word(vitals), VITAL_WARMING);
    vitals_warmed(vitals);
    assert_int_equal(vitals_word(vitals), 0);
    vitals_warmed(vitals); /* a late word */
    assert_int_equal(vitals->cold, 0);
    vitals_change(vitals, 0, VITAL_WARMING);
    vitals_warm(vitals, 0);
    assert_int_equal(vitals_word(vitals), 0);
}

static void *warmed(void *unused)
{
    vitals_warmed(vitals);
    return unused;
}

static void workers_may_be_warm_at_the_same_time(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        pthread_t threads[8];
        vitals_warm(vitals, 8);
        for (int i = 0; i < 8; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, warmed, NULL), 0);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(vitals_word(vitals), 0);
    }
}

static void is_shared_by_all_clusters_of_an_upstream(void **state)
{
    (void)state;
    struct cluster *one = CLUSTER(BALANCE_ROUND_ROBIN, 1, 1, -1);
    struct cluster_spec spec = {.name = "u", .before = one};
    struct cluster_server servers[3] = {
        {.addr = one->servers[2].addr, .weight = 5},
        {.addr = one->servers[0].addr, .weight = 1, .origin = 7},
        {.addr = one->servers[0].addr, .weight = 1, .origin = 0},
    };
    struct cluster *two = cluster_new(&spec, servers, 3);
    assert_ptr_equal(two->ward, one->ward);
    assert_ptr_equal(two->servers[0].vitals, one->servers[2].vitals);
    /* one address twice: each server's state is its own */
    assert_ptr_equal(two->servers[1].vitals, one->servers[0].vitals);
    assert_ptr_not_equal(two->servers[2].vitals, one->servers[0].vitals);
    cluster_unref(one);
    vitals_change(two->servers[0].vitals, 0, VITAL_DOWN);
    cluster_unref(two);
}

static void want_of_memory_is_told(void **state)
{
    (void)state;
    mem_fail_at(1);
    assert_null(ward_new());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_server_is_up_with_all_its_weight, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(bits_change_in_one_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(easing_leaves_the_bits_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_worker_ends_the_warming, set_up, tear_down),
        cmocka_unit_test_setup_teardown(workers_may_be_warm_at_the_same_time, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(is_shared_by_all_clusters_of_an_upstream, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(want_of_memory_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("vitals", tests, NULL, NULL);
}
