/* What must hold for every set of servers: tried on random ones. */
#include "up_test.h"

#define SETS     60
#define KEYS     20000
#define MOST     40 /* servers of a set */
#define HEAVIEST 8

static const struct tried none;

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static uint64_t key(uint64_t i)
{
    return balance_hash((struct str){(const char *)&i, sizeof(i)});
}

/* How many servers there are. */
static uint32_t random_weights(uint64_t *seed, int weights[MOST + 1])
{
    uint32_t n = 2 + (uint32_t)(next(seed) % (MOST - 1));
    for (uint32_t i = 0; i < n; i++)
        weights[i] = 1 + (int)(next(seed) % HEAVIEST);
    weights[n] = 0;
    return n;
}

static struct cluster *hashing(const int *weights, uint32_t bound)
{
    return cluster_made((struct cluster_spec){.balance = BALANCE_HASH,
                                              .hash_bound = bound,
                                              .heaviest = HEAVIEST},
                        weights);
}

/* Each server's part of the keys is its weight's, within five standard deviations of what its
 * points and the keys scatter by themselves. */
static void keys_are_spread_by_weight(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252ull;
    for (int set = 0; set < SETS; set++) {
        int weights[MOST + 1];
        unsigned seen[MOST] = {0};
        uint32_t n = random_weights(&seed, weights);
        struct cluster *cluster = hashing(weights, 0);
        for (uint64_t i = 0; i < KEYS; i++)
            seen[balance_pick(cluster, &none, key(i), 0)]++;
        for (uint32_t i = 0; i < n; i++) {
            double fair = KEYS * (double)weights[i] / (double)cluster->weight;
            double off = seen[i] / fair - 1, points = 256.0 * weights[i];
            if (off * off > 25 * (1 / points + 1 / fair))
                fail_msg("server %u of %u, weight %d: %u keys, %.0f would be fair", i, n,
                         weights[i], seen[i], fair);
        }
        cluster_unref(cluster);
    }
}

/* Whoever leaves, only its own keys move; and whoever comes takes keys, but nobody else's
 * change hands. */
static void only_keys_of_who_comes_or_leaves_move(void **state)
{
    (void)state;
    uint64_t seed = 362436069362436069ull;
    for (int set = 0; set < SETS; set++) {
        int weights[MOST + 1];
        uint32_t n = random_weights(&seed, weights);
        struct cluster *with = hashing(weights, 0);
        weights[n - 1] = 0; /* ports go up with the index: the last is the one to leave */
        struct cluster *without = hashing(weights, 0);
        struct tried down = {.regardless = 0};
        tried_add(&down, n - 1);
        for (uint64_t i = 0; i < KEYS; i++) {
            int before = balance_pick(with, &none, key(i), 0);
            int after = balance_pick(without, &none, key(i), 0);
            assert_true(before == after || before == (int)n - 1);
            assert_int_equal(balance_pick(with, &down, key(i), 0), after);
        }
        cluster_unref(with);
        cluster_unref(without);
    }
}

static void nobody_carries_more_than_the_bound(void **state)
{
    (void)state;
    uint64_t seed = 521288629521288629ull;
    for (int set = 0; set < SETS; set++) {
        int weights[MOST + 1];
        uint32_t n = random_weights(&seed, weights), total = 0;
        uint32_t bound = 1000 + (uint32_t)(next(&seed) % 1000);
        struct cluster *cluster = hashing(weights, bound);
        for (int i = 0; i < 3000; i++) { /* none ends; three keys are all there is */
            int server = balance_pick(cluster, &none, key(next(&seed) % 3), 0);
            balance_begin(cluster, (unsigned)server);
            total++;
            uint64_t share = (uint64_t)total * bound * (unsigned)weights[server];
            uint64_t most = share / 1000 / cluster->weight + 1;
            assert_true(cluster->servers[server].active <= most);
        }
        unsigned busy = 0;
        for (uint32_t i = 0; i < n; i++)
            busy += cluster->servers[i].active;
        assert_int_equal(busy, total);
        assert_int_equal(cluster->active, total);
        cluster_unref(cluster);
    }
}

/* A key leaves its server only while that one is full. */
static void with_room_the_bound_moves_no_key(void **state)
{
    (void)state;
    uint64_t seed = 77777777777777ull;
    for (int set = 0; set < SETS; set++) {
        int weights[MOST + 1];
        random_weights(&seed, weights);
        struct cluster *bounded = hashing(weights, 1250), *plain = hashing(weights, 0);
        for (uint64_t i = 0; i < 2000; i++) { /* one at a time */
            int server = balance_pick(bounded, &none, key(i), 0);
            balance_begin(bounded, (unsigned)server);
            assert_int_equal(server, balance_pick(plain, &none, key(i), 0));
            balance_end(bounded, (unsigned)server);
        }
        cluster_unref(bounded);
        cluster_unref(plain);
    }
}

/* Who is out neither counts nor carries: the others share all of it within the bound. */
static void the_bound_is_of_those_who_are_there(void **state)
{
    (void)state;
    static const int weights[] = {1, 1, 1, 1, 0};
    struct cluster *cluster = hashing(weights, 1000);
    struct tried out = {.regardless = 0};
    tried_add(&out, 0);
    tried_add(&out, 2);
    for (int i = 0; i < 100; i++)
        balance_begin(cluster, (unsigned)balance_pick(cluster, &out, 99, 0));
    assert_int_equal(cluster->servers[1].active, 50);
    assert_int_equal(cluster->servers[3].active, 50);
    cluster_unref(cluster);
}

/* By turns, whatever the weights: exact after each full round. */
static void turns_are_exact_for_every_set(void **state)
{
    (void)state;
    uint64_t seed = 424242424242ull;
    for (int set = 0; set < SETS; set++) {
        int weights[MOST + 1];
        unsigned seen[MOST] = {0};
        uint32_t n = random_weights(&seed, weights);
        struct cluster *cluster = cluster_of(BALANCE_ROUND_ROBIN, weights);
        for (uint64_t i = 0; i < 7 * cluster->weight; i++)
            seen[balance_pick(cluster, &none, 0, 0)]++;
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(seen[i], 7 * weights[i]);
        cluster_unref(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_spread_by_weight),
        cmocka_unit_test(only_keys_of_who_comes_or_leaves_move),
        cmocka_unit_test(nobody_carries_more_than_the_bound),
        cmocka_unit_test(with_room_the_bound_moves_no_key),
        cmocka_unit_test(the_bound_is_of_those_who_are_there),
        cmocka_unit_test(turns_are_exact_for_every_set),
    };
    return cmocka_run_group_tests_name("balance_property", tests, NULL, NULL);
}
