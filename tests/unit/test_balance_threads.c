#include "up_test.h"

#include <pthread.h>

#define THREADS 8
#define PICKS   1250000 /* ten million in all */
#define SERVERS 5

struct picker {
    pthread_t thread;
    struct cluster *cluster;
    unsigned seen[SERVERS];
};

static void *pick_many(void *arg)
{
    static const struct tried none;
    struct picker *picker = arg;
    for (int i = 0; i < PICKS; i++)
        picker->seen[balance_pick(picker->cluster, &none, 0, 0)]++;
    return NULL;
}

/* However the threads interleave, each turn of the counter is taken once. */
static void eight_threads_spread_exactly(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_ROUND_ROBIN, 4, 3, 1, 1, 1);
    static const unsigned weights[SERVERS] = {4, 3, 1, 1, 1};
    static struct picker pickers[THREADS];
    unsigned seen[SERVERS] = {0};
    for (int i = 0; i < THREADS; i++) {
        pickers[i].cluster = cluster;
        assert_int_equal(pthread_create(&pickers[i].thread, NULL, pick_many, &pickers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(pickers[i].thread, NULL);
        for (int k = 0; k < SERVERS; k++)
            seen[k] += pickers[i].seen[k];
    }
    for (int k = 0; k < SERVERS; k++)
        assert_int_equal(seen[k], THREADS * PICKS / 10 * weights[k]);
    cluster_unref(cluster);
}

static void *hold_and_load(void *arg)
{
    static const struct tried none;
    struct picker *picker = arg;
    for (int i = 0; i < PICKS / 50; i++) {
        struct cluster *mine = cluster_ref(picker->cluster);
        int server = balance_pick(mine, &none, 0, (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));
        balance_begin(mine, (unsigned)server);
        balance_end(mine, (unsigned)server);
        cluster_unref(mine);
    }
    return NULL;
}

static void load_and_references_balance_out(void **state)
{
    (void)state;
    struct cluster *cluster = CLUSTER(BALANCE_LEAST_REQUESTS, 1, 1, 1);
    struct picker pickers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pickers[i].cluster = cluster;
        assert_int_equal(pthread_create(&pickers[i].thread, NULL, hold_and_load, &pickers[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(pickers[i].thread, NULL);
    assert_int_equal(cluster->refs, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cluster->servers[i].active, 0);
    cluster_unref(cluster);
}

#define BOUND   1250 /* permille */
#define HOLDERS 64   /* requests that a thread has under way */

static void *ask_for_one_key(void *arg)
{
    static const struct tried none;
    struct picker *picker = arg;
    int held[HOLDERS], n = 0;
    for (int i = 0; i < PICKS / 50; i++) {
        if (n == HOLDERS)
            balance_end(picker->cluster, (unsigned)held[i % HOLDERS]);
        else
            n++;
        int server = held[n < HOLDERS ? n - 1 : i % HOLDERS] =
            balance_pick(picker->cluster, &none, 12345, 0);
        balance_begin(picker->cluster, (unsigned)server);
        unsigned load = atomic_load_explicit(&picker->cluster->servers[server].active,
                                             memory_order_relaxed);
        if (load > picker->seen[server])
            picker->seen[server] = load;
    }
    while (n)
        balance_end(picker->cluster, (unsigned)held[--n]);
    return NULL;
}

/* Looking and taking are two steps, so each thread may be one too many; no more. */
static void the_bound_holds_with_eight_threads(void **state)
{
    (void)state;
    struct cluster *cluster =
        cluster_made((struct cluster_spec){.balance = BALANCE_HASH, .hash_bound = BOUND},
                     (const int[]){1, 1, 1, 1, 0});
    struct picker pickers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pickers[i] = (struct picker){.cluster = cluster};
        assert_int_equal(pthread_create(&pickers[i].thread, NULL, ask_for_one_key, &pickers[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(pickers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < 4; k++)
            assert_true(pickers[i].seen[k] <= THREADS * HOLDERS / 4 * BOUND / 1000 + THREADS);
    assert_int_equal(cluster->active, 0);
    for (int k = 0; k < 4; k++)
        assert_int_equal(cluster->servers[k].active, 0);
    cluster_unref(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_threads_spread_exactly),
        cmocka_unit_test(load_and_references_balance_out),
        cmocka_unit_test(the_bound_holds_with_eight_threads),
    };
    return cmocka_run_group_tests_name("balance_threads", tests, NULL, NULL);
}
