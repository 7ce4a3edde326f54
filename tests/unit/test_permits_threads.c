#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "up/permits.h"

#define THREADS 8
#define ROUNDS  200000
#define LIMIT   5 /* fewer than threads */

static struct permits permits;
static _Atomic int held, most;

/* A worker that always has somebody who waits. The clock is its own count: shares go around. */
static void *worker(void *arg)
{
    struct permit_user *user = arg;
    uintptr_t served = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t now = round * 1000000;
        if (!permits_take(user, now)) {
            permits_want(user, now, true);
            continue;
        }
        permits_want(user, now, false);
        int now_held = atomic_fetch_add(&held, 1) + 1, before = atomic_load(&most);
        while (now_held > before && !atomic_compare_exchange_weak(&most, &before, now_held))
            ;
        served++;
        atomic_fetch_sub(&held, 1);
        permits_give(user);
    }
    permits_want(user, 0, false);
    return (void *)served; // NOLINT(performance-no-int-to-ptr): a count through pthread_join
}

static void eight_workers_share_five_and_nobody_starves(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct permit_user users[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        users[i] = (struct permit_user){
            .permits = &permits, .limit = LIMIT, .index = i, .count = THREADS};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &users[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *served;
        pthread_join(threads[i], &served);
        assert_non_null(served);
    }
    assert_in_range(most, 1, LIMIT);
    assert_int_equal(permits.open, 0);
    assert_int_equal(permits.wanted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_workers_share_five_and_nobody_starves),
    };
    return cmocka_run_group_tests_name("permits_threads", tests, NULL, NULL);
}
