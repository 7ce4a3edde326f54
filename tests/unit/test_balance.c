#include "up_test.h"

static const struct tried none;

static int pick(struct cluster *cluster)
{
    return balance_pick(cluster, &none, 0, 0);
}

static void the_spread_is_exact(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 17; servers++) {
        int weights[20] = {0};
        unsigned seen[20] = {0};
        for (int i = 0; i < servers; i++)
            weights[i] = 1;
        struct cluster *cluster = cluster_of(BALANCE_ROUND_ROBIN, weights);
        for (int i = 0; i < 13 * servers; i++)
            seen[pick(cluster)]++;
        for (int i = 0; i < servers; i++)
            assert_int_equal(seen[i], 13);
        cluster_unref(cluster);
    }
}

static void weights_are_spread_smoothly(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 5, 1, 1);
    char order[15] = "";
    for (int i = 0; i < 14; i++)
        order[i] = (char)('a' + pick(cluster));
    assert_string_equal(order, "aabacaaaabacaa");
    cluster_unref(cluster);
}

static void tried_ones_are_stepped_over_and_backups_come_last(void **state)
{
    (void)state;
    static const enum balance all[] = {BALANCE_ROUND_ROBIN, BALANCE_LEAST_REQUESTS,
                                       BALANCE_TWO_CHOICES, BALANCE_HASH};
    for (size_t k = 0; k < 4; k++) {
        struct cluster *cluster = CLUSTER(all[k], 1, 2, -1, 3, -2);
        for (uint64_t round = 1; round < 50; round++) {
            struct tried tried = {.regardless = 0};
            for (int i = 0; i < 5; i++) {
                int server = balance_pick(cluster, &tried, round * 0x9e3779b97f4a7c15ull,
                                          round * 0x7f4a7c15ull);
                assert_true(server >= 0 && !tried_has(&tried, (unsigned)server));
                assert_int_equal(cluster->servers[server].backup, i >= 3);
                tried_add(&tried, (unsigned)server);
            }
            assert_int_equal(balance_pick(cluster, &tried, round, round), -1);
        }
        cluster_unref(cluster);
    }
}

static void who_eases_in_alone_gets_every_request(void **state)
{
    (void)state;
    static const enum balance all[] = {BALANCE_ROUND_ROBIN, BALANCE_LEAST_REQUESTS,
                                       BALANCE_TWO_CHOICES, BALANCE_HASH};
    for (size_t k = 0; k < 4; k++) {
        struct cluster *cluster = CLUSTER(all[k], 1, 1, -1);
        struct tried tried = {.regardless = 0};
        for (int i = 0; i < 3; i++)
            vitals_ease(cluster->servers[i].vitals, 1);
        for (uint64_t i = 1; i < 50; i++)
            assert_in_range(balance_pick(cluster, &none, i << 40, i), 0, 1);
        tried_add(&tried, 0);
        tried_add(&tried, 1);
        for (uint64_t i = 1; i < 50; i++)
            assert_int_equal(balance_pick(cluster, &tried, i << 40, i), 2);
        cluster_unref(cluster);
    }
}

static void only_backups_serve_too(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, -1, -1);
    unsigned seen[2] = {0};
    for (int i = 0; i < 10; i++)
        seen[pick(cluster)]++;
    assert_int_equal(seen[0], 5);
    cluster_unref(cluster);
}

static void the_least_busy_by_weight_is_chosen(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_LEAST_REQUESTS, 1, 3);
    unsigned active[2] = {0};
    for (int i = 0; i < 400; i++) { /* none ends: they fill up by weight */
        int server = pick(cluster);
        balance_begin(cluster, (unsigned)server);
        active[server]++;
    }
    assert_int_equal(active[0], 100);
    for (int i = 0; i < 300; i++)
        balance_end(cluster, 1);
    for (int i = 0; i < 100; i++) {
        int server = pick(cluster);
        assert_int_equal(server, 1);
        balance_begin(cluster, 1);
    }
    cluster_unref(cluster);
}

static void an_idle_cluster_is_used_evenly(void **state)
{
    (void)state;
    static const enum balance looking[] = {BALANCE_LEAST_REQUESTS, BALANCE_TWO_CHOICES};
    for (size_t k = 0; k < 2; k++) {
        struct cluster *cluster = CLUSTER(looking[k], 1, 1, 1, 1);
        unsigned seen[4] = {0};
        for (uint64_t i = 0; i < 400; i++) {
            int server = balance_pick(cluster, &none, 0, i * 0x9e3779b97f4a7c15ull);
            balance_begin(cluster, (unsigned)server);
            balance_end(cluster, (unsigned)server);
            seen[server]++;
        }
        for (int i = 0; i < 4; i++)
            assert_int_equal(seen[i], 100);
        cluster_unref(cluster);
    }
}

static void of_two_the_less_busy_is_chosen(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_TWO_CHOICES, 1, 1);
    balance_begin(cluster, 0);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(balance_pick(cluster, &none, 0, i | 1), 1); /* 1 is one of the two */
    cluster_unref(cluster);
}

static void load_is_counted_only_where_it_is_looked_at(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 1, 1);
    balance_begin(cluster, 0);
    assert_int_equal(cluster->servers[0].active, 0);
    balance_end(cluster, 0);
    assert_int_equal(cluster->servers[0].active, 0);
    cluster_unref(cluster);
}

/* ---- the ring ---- */

#define KEYS 20000

static uint64_t key(unsigned i)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "10.0.%u.%u", i / 256, i % 256);
    return balance_hash((struct str){text, (size_t)n});
}

static void a_key_sticks_to_its_server(void **state)
{
    (void)state;
    struct cluster *one = CLUSTER(BALANCE_HASH, 1, 1, 1, 1, 1);
    struct cluster *other = CLUSTER(BALANCE_HASH, 1, 1, 1, 1, 1); /* another process */
    unsigned seen[5] = {0};
    for (unsigned i = 0; i < KEYS; i++) {
        int server = balance_pick(one, &none, key(i), i);
        assert_int_equal(balance_pick(other, &none, key(i), 0), server);
        seen[server]++;
    }
    for (int i = 0; i < 5; i++) /* a fifth each, give or take */
        assert_true(seen[i] > KEYS / 5 * 3 / 4 && seen[i] < KEYS / 5 * 5 / 4);
    cluster_unref(one);
    cluster_unref(other);
}

static void only_the_keys_of_a_server_that_leaves_move(void **state)
{
    (void)state;
    struct cluster *five = CLUSTER(BALANCE_HASH, 1, 1, 1, 1, 1);
    struct cluster *four = CLUSTER(BALANCE_HASH, 1, 1, 1, 1); /* without the last */
    struct tried down = {.regardless = 0};
    unsigned heirs[5] = {0};
    tried_add(&down, 4);
    for (unsigned i = 0; i < KEYS; i++) {
        int before = balance_pick(five, &none, key(i), 0);
        int after = balance_pick(four, &none, key(i), 0);
        if (before != 4)
            assert_int_equal(after, before);
        else
            heirs[after]++;
        assert_int_equal(balance_pick(five, &down, key(i), 0), after); /* or is only down */
    }
    for (int i = 0; i < 4; i++) /* all of the others take some over */
        assert_true(heirs[i] > KEYS / 5 / 4 / 3);
    cluster_unref(five);
    cluster_unref(four);
}

static void without_a_key_it_is_round_robin(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_HASH, 1, 1, 1);
    for (int i = 0; i < 9; i++)
        assert_int_equal(pick(cluster), i % 3);
    cluster_unref(cluster);
}

static void the_hash_is_the_same_everywhere(void **state)
{
    (void)state;
    assert_true(balance_hash(STR("")) != 0);
    assert_true(balance_hash(STR("a")) != balance_hash(STR("b")));
    assert_true(balance_hash(STR("127.0.0.1")) == 0x360fa4ade68d5adaull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_spread_is_exact),
        cmocka_unit_test(weights_are_spread_smoothly),
        cmocka_unit_test(tried_ones_are_stepped_over_and_backups_come_last),
        cmocka_unit_test(who_eases_in_alone_gets_every_request),
        cmocka_unit_test(only_backups_serve_too),
        cmocka_unit_test(the_least_busy_by_weight_is_chosen),
        cmocka_unit_test(an_idle_cluster_is_used_evenly),
        cmocka_unit_test(of_two_the_less_busy_is_chosen),
        cmocka_unit_test(load_is_counted_only_where_it_is_looked_at),
        cmocka_unit_test(a_key_sticks_to_its_server),
        cmocka_unit_test(only_the_keys_of_a_server_that_leaves_move),
        cmocka_unit_test(without_a_key_it_is_round_robin),
        cmocka_unit_test(the_hash_is_the_same_everywhere),
    };
    return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
