/* Choosing among servers of which some are out or ease in: properties of every balance. */
#include "up_test.h"

#include <pthread.h>

static const enum balance balances[] = {BALANCE_ROUND_ROBIN, BALANCE_LEAST_REQUESTS,
                                        BALANCE_TWO_CHOICES, BALANCE_HASH};
#define BALANCES 4

static const struct tried none;

static uint64_t number(uint64_t i)
{
    char text[24];
    int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)i);
    return balance_hash((struct str){text, (size_t)n});
}

static int pick(struct cluster *cluster, uint64_t i)
{
    return balance_pick(cluster, &none, number(i), number(~i));
}

static void put_out(struct cluster *cluster, int server, uint32_t bits)
{
    vitals_change(cluster->servers[server].vitals, VITAL_OUT, bits);
}

static void nobody_who_is_out_is_chosen(void **state)
{
    (void)state;
    static const uint32_t bits[] = {VITAL_DOWN, VITAL_EJECTED, VITAL_DRAINING, VITAL_WARMING};
    for (size_t b = 0; b < BALANCES; b++) {
        struct cluster *cluster = CLUSTER(balances[b], 1, 2, 1, 3, -1, -1);
        for (unsigned out = 0; out < 64; out++) { /* every set of servers */
            for (int i = 0; i < 6; i++)
                put_out(cluster, i, out >> i & 1 ? bits[(out + (unsigned)i) % 4] : 0);
            for (uint64_t i = 0; i < 40; i++) {
                int server = pick(cluster, i);
                if (out == 63) {
                    assert_int_equal(server, -1);
                    continue;
                }
                assert_true(server >= 0 && !(out >> server & 1));
                assert_int_equal(server >= 4, (out & 15) == 15); /* backups only then */
            }
        }
        cluster_unref(cluster);
    }
}

static void a_choice_may_overlook_some_reasons(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 1, 1, 1);
    struct tried tried = {.regardless = VITAL_WARMING};
    put_out(cluster, 0, VITAL_WARMING);
    put_out(cluster, 1, VITAL_WARMING | VITAL_DOWN);
    put_out(cluster, 2, VITAL_DRAINING);
    assert_int_equal(balance_pick(cluster, &none, 0, 0), -1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(balance_pick(cluster, &tried, 0, 0), 0);
    tried_add(&tried, 0);
    assert_int_equal(balance_pick(cluster, &tried, 0, 0), -1);
    tried.regardless = VITAL_OUT & ~VITAL_DRAINING;
    assert_int_equal(balance_pick(cluster, &tried, 0, 0), 1);
    cluster_unref(cluster);
}

static void the_turns_of_one_that_is_out_are_shared_out(void **state)
{
    (void)state;
    for (int out = 0; out < 5; out++) {
        struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 1, 1, 1, 1, 1);
        unsigned seen[5] = {0};
        put_out(cluster, out, VITAL_DOWN);
        for (uint64_t i = 0; i < 5 * 4 * 100; i++)
            seen[pick(cluster, i)]++;
        for (int i = 0; i < 5; i++)
            assert_int_equal(seen[i], i == out ? 0 : 500);
        cluster_unref(cluster);
    }
}

static void with_several_out_nobody_gets_much_more(void **state)
{
    (void)state;
    for (unsigned out = 0; out < 255; out++) {
        struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 1, 1, 1, 1, 1, 1, 1, 1);
        unsigned seen[8] = {0}, left = 8 - (unsigned)__builtin_popcount(out);
        for (int i = 0; i < 8; i++)
            put_out(cluster, i, out >> i & 1 ? VITAL_EJECTED : 0);
        for (uint64_t i = 0; i < 5600; i++)
            seen[pick(cluster, i)]++;
        for (int i = 0; i < 8; i++)
            if (!(out >> i & 1))
                assert_in_range(seen[i], 5600 / left * 5 / 10, 5600 / left * 17 / 10);
        cluster_unref(cluster);
    }
}

#define KEYS 4000

static void only_the_keys_of_one_that_goes_out_move_and_they_come_back(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_HASH, 1, 1, 1, 1, 1);
    int before[KEYS];
    for (uint64_t i = 0; i < KEYS; i++)
        before[i] = pick(cluster, i);
    put_out(cluster, 2, VITAL_DOWN);
    for (uint64_t i = 0; i < KEYS; i++)
        assert_true(before[i] == 2 || pick(cluster, i) == before[i]);
    put_out(cluster, 2, 0);
    for (uint64_t i = 0; i < KEYS; i++)
        assert_int_equal(pick(cluster, i), before[i]);
    cluster_unref(cluster);
}

/* While its server eases in a key moves once, and never back. */
static void keys_come_back_one_by_one(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_HASH, 1, 1, 1, 1, 1);
    int full[KEYS];
    bool is_back[KEYS] = {false};
    unsigned all = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        full[i] = pick(cluster, i);
        all += full[i] == 2;
    }
    for (uint32_t ease = 1; ease <= EASE_FULL; ease += ease < 1023 ? 73 : 1) {
        unsigned back = 0;
        vitals_ease(cluster->servers[2].vitals, ease);
        for (uint64_t i = 0; i < KEYS; i++) {
            int server = pick(cluster, i);
            assert_true(full[i] == 2 || server == full[i]);
            assert_false(is_back[i] && server != 2);
            is_back[i] = server == 2;
            back += server == 2;
        }
        assert_in_range(back + 100, all * ease / EASE_FULL + 20, all * ease / EASE_FULL + 180);
        if (ease == 1024)
            assert_int_equal(back, all);
    }
    cluster_unref(cluster);
}

static void a_server_eases_in_by_its_part(void **state)
{
    (void)state;
    for (size_t b = 0; b < 3; b++) /* those that go by turns */
        for (uint32_t ease = 64; ease <= EASE_FULL; ease += 64) {
            struct cluster *cluster = CLUSTER(balances[b], 1, 1, 1, 1);
            unsigned seen[4] = {0};
            vitals_ease(cluster->servers[1].vitals, ease);
            for (uint64_t i = 0; i < 4096; i++)
                seen[pick(cluster, i)]++;
            assert_in_range(seen[1], ease - 2, ease + 2);
            for (int i = 0; i < 4; i++)
                assert_true(i == 1 || (seen[i] >= 1023 && seen[i] <= 1370));
            cluster_unref(cluster);
        }
}

static void load_is_weighed_by_how_far_it_has_eased_in(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_LEAST_REQUESTS, 1, 1);
    vitals_ease(cluster->servers[0].vitals, EASE_FULL / 4);
    for (uint64_t i = 0; i < 500; i++) { /* none ends */
        int server = pick(cluster, i);
        balance_begin(cluster, (unsigned)server);
    }
    assert_in_range(cluster->servers[0].active, 98, 102);
    cluster_unref(cluster);
}

static void who_eases_in_alone_does_it_all(void **state)
{
    (void)state;
    for (size_t b = 0; b < BALANCES; b++) {
        struct cluster *cluster = CLUSTER(balances[b], 1, 1, -1);
        vitals_ease(cluster->servers[0].vitals, 1);
        put_out(cluster, 1, VITAL_DOWN);
        for (uint64_t i = 0; i < 100; i++)
            assert_int_equal(pick(cluster, i), 0); /* and not the backup */
        cluster_unref(cluster);
    }
}

/* ---- threads ---- */

#define THREADS 4
#define PICKS   200000

struct picker {
    pthread_t thread;
    struct cluster *cluster;
    unsigned seen[4];
    unsigned bad;
};

static atomic_bool flipping;

static void *pick_many(void *arg)
{
    struct picker *picker = arg;
    for (uint64_t i = 0; i < PICKS; i++) {
        int server = pick(picker->cluster, i);
        picker->bad += server < 0 || server == 3; /* 0 is never out, 3 always is */
        if (server >= 0)
            picker->seen[server]++;
    }
    return NULL;
}

static void *flip(void *arg)
{
    struct cluster *cluster = arg;
    for (uint32_t i = 1; atomic_load(&flipping); i++) {
        struct vitals *vitals = cluster->servers[1 + i % 2].vitals;
        vitals_change(vitals, i % 3 ? VITAL_DOWN : VITAL_EJECTED, i % 5 ? VITAL_EJECTED : 0);
        vitals_ease(vitals, i % 1200);
        vitals_warm(vitals, i % 3);
        vitals_warmed(vitals);
    }
    return NULL;
}

static void states_flip_while_threads_choose(void **state)
{
    (void)state;
    for (size_t b = 0; b < BALANCES; b++) {
        struct cluster *cluster = CLUSTER(balances[b], 1, 1, 1, 1);
        struct picker pickers[THREADS] = {{0}};
        pthread_t flippers[2];
        put_out(cluster, 3, VITAL_DRAINING);
        atomic_store(&flipping, true);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&flippers[i], NULL, flip, cluster), 0);
        for (int i = 0; i < THREADS; i++) {
            pickers[i].cluster = cluster;
            pthread_create(&pickers[i].thread, NULL, pick_many, &pickers[i]);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(pickers[i].thread, NULL);
            assert_int_equal(pickers[i].bad, 0);
        }
        atomic_store(&flipping, false);
        for (int i = 0; i < 2; i++)
            pthread_join(flippers[i], NULL);
        cluster_unref(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_who_is_out_is_chosen),
        cmocka_unit_test(a_choice_may_overlook_some_reasons),
        cmocka_unit_test(the_turns_of_one_that_is_out_are_shared_out),
        cmocka_unit_test(with_several_out_nobody_gets_much_more),
        cmocka_unit_test(only_the_keys_of_one_that_goes_out_move_and_they_come_back),
        cmocka_unit_test(keys_come_back_one_by_one),
        cmocka_unit_test(a_server_eases_in_by_its_part),
        cmocka_unit_test(load_is_weighed_by_how_far_it_has_eased_in),
        cmocka_unit_test(who_eases_in_alone_does_it_all),
        cmocka_unit_test(states_flip_while_threads_choose),
    };
    return cmocka_run_group_tests_name("balance_out", tests, NULL, NULL);
}
