#include "up_test.h"

static void primaries_come_first_and_keep_their_order(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 1, -2, 3, -4);
    static const char *const texts[] = {"127.0.0.1:1000", "127.0.0.1:1002", "127.0.0.1:1001",
                                        "127.0.0.1:1003"};
    static const uint32_t weights[] = {1, 3, 2, 4};
    assert_int_equal(cluster->count, 4);
    assert_int_equal(cluster->primaries, 2);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(cluster->servers[i].text, texts[i]);
        assert_int_equal(cluster->servers[i].weight, weights[i]);
        assert_int_equal(cluster->servers[i].backup, i >= 2);
        assert_int_equal(cluster->servers[i].down, 0);
    }
    cluster_unref(cluster);
}

static void the_order_has_each_as_often_as_its_weight_says(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 50, 10, -3, 10, -6);
    unsigned seen[5] = {0};
    assert_int_equal(cluster->order_len, 7); /* what all have in common is divided out */
    for (uint32_t i = 0; i < cluster->order_len; i++)
        seen[cluster->order[i]]++;
    assert_int_equal(cluster->backup_order_len, 3);
    for (uint32_t i = 0; i < cluster->backup_order_len; i++)
        seen[cluster->backup_order[i]]++;
    static const unsigned expected[] = {5, 1, 1, 1, 2};
    assert_memory_equal(seen, expected, sizeof(seen));
    cluster_unref(cluster);
}

static void siblings_are_as_much_of_a_backup(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 1, 1, -1);
    static const bool expected[] = {true, true, false};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(cluster->servers[i].from, 0);
        assert_int_equal(cluster->servers[i].siblings, expected[i]);
    }
    cluster_unref(cluster);
}

static void the_counter_has_a_cache_line_of_its_own(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 1, 1);
    assert_int_equal((uintptr_t)&cluster->counter % CACHE_LINE, 0);
    assert_true(offsetof(struct cluster, end) - offsetof(struct cluster, counter) >=
                CACHE_LINE);
    assert_int_equal((uintptr_t)&cluster->servers[1].active % CACHE_LINE, 0);
    cluster_unref(cluster);
}

static void slots_are_used_again(void **state)
{
    (void)state;
    struct cluster *all[200];
    for (unsigned i = 0; i < 200; i++) {
        all[i] = CLUSTER(BALANCE_ROUND_ROBIN, 1);
        for (unsigned k = 0; k < i; k++)
            assert_int_not_equal(all[k]->slot, all[i]->slot);
        assert_true(all[i]->slot < 200);
    }
    unsigned slot = all[77]->slot;
    struct cluster *kept = cluster_ref(all[77]);
    cluster_unref(all[77]);
    struct cluster *other = CLUSTER(BALANCE_ROUND_ROBIN, 1);
    assert_int_not_equal(other->slot, slot); /* somebody still has it */
    cluster_unref(kept);
    all[77] = CLUSTER(BALANCE_ROUND_ROBIN, 1);
    assert_int_equal(all[77]->slot, slot);
    cluster_unref(other);
    for (unsigned i = 0; i < 200; i++)
        cluster_unref(all[i]);
    cluster_unref(NULL);
}

static void too_many_servers_are_refused(void **state)
{
    (void)state;
    struct cluster_server servers[CLUSTER_SERVERS + 1];
    struct cluster_spec spec = {.name = "u"};
    for (size_t i = 0; i <= CLUSTER_SERVERS; i++) {
        servers[i] = (struct cluster_server){.weight = 1};
        assert_int_equal(addr_parse(STR("127.0.0.1:80"), &servers[i].addr), 0);
    }
    assert_null(cluster_new(&spec, servers, CLUSTER_SERVERS + 1));
    struct cluster *cluster = cluster_new(&spec, servers, CLUSTER_SERVERS);
    assert_int_equal(cluster->count, CLUSTER_SERVERS);
    cluster_unref(cluster);
}

static void the_ring_is_sorted_and_bounded(void **state)
{
    static const int small[] = {1, 2, 0}, wide[] = {1, 1000, 1000, 1000, 0};
    static const int *const weights[] = {small, wide};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct cluster *cluster = cluster_of(BALANCE_HASH, weights[k]);
        unsigned points[4] = {0};
        assert_true(cluster->ring_len > 0 && cluster->ring_len <= 1u << 17);
        for (uint32_t i = 0; i < cluster->ring_len; i++) {
            points[cluster->ring_servers[i]]++;
            if (i)
                assert_true(cluster->ring_hashes[i - 1] <= cluster->ring_hashes[i]);
        }
        assert_true(points[1] >= points[0] * (unsigned)weights[k][1]); /* less is rounded */
        assert_true(points[1] < (points[0] + 1) * (unsigned)weights[k][1]);
        cluster_unref(cluster);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct cluster_server servers[2] = {{.weight = 1}, {.weight = 2, .backup = true}};
    struct cluster_spec spec = {.name = "u", .balance = BALANCE_HASH};
    assert_int_equal(addr_parse(STR("127.0.0.1:80"), &servers[0].addr), 0);
    servers[1].addr = servers[0].addr;
    unsigned long nth = 1;
    for (struct cluster *cluster = NULL; !cluster; nth++) {
        assert_true(nth < 50);
        mem_fail_at(nth);
        cluster = cluster_new(&spec, servers, 2);
        mem_fail_at(0);
        cluster_unref(cluster);
    }
    assert_true(nth > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(primaries_come_first_and_keep_their_order),
        cmocka_unit_test(the_order_has_each_as_often_as_its_weight_says),
        cmocka_unit_test(siblings_are_as_much_of_a_backup),
        cmocka_unit_test(the_counter_has_a_cache_line_of_its_own),
        cmocka_unit_test(slots_are_used_again),
        cmocka_unit_test(too_many_servers_are_refused),
        cmocka_unit_test(the_ring_is_sorted_and_bounded),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
