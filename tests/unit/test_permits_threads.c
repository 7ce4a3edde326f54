#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "up/permits.h"

#define THREADS 8
#define TURNS   1000
#define LIMIT   5 /* fewer than threads */

static struct permits permits;
static _Atomic int held, most, hungry;

/* A worker that always has somebody who waits, until every worker has had its turns: one that
 * starves would wait for ever. */
static void *worker(void *arg)
{
    struct permit_user *user = arg;
    unsigned served = 0;
    while (hungry) {
        uint64_t now = clock_ns();
        if (!permits_take(user, now)) {
            permits_want(user, now, true);
            continue;
        }
        permits_want(user, now, false);
        int now_held = atomic_fetch_add(&held, 1) + 1, before = atomic_load(&most);
        while (now_held > before && !atomic_compare_exchange_weak(&most, &before, now_held))
            ;
        if (++served == TURNS)
            hungry--;
        atomic_fetch_sub(&held, 1);
        permits_give(user);
    }
    permits_want(user, 0, false);
    return NULL;
}

static void eight_workers_share_five_and_nobody_starves(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct permit_user users[THREADS];
    hungry = THREADS;
    for (unsigned i = 0; i < THREADS; i++) {
        users[i] = (struct permit_user){
            .permits = &permits, .limit = LIMIT, .index = i, .count = THREADS};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &users[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
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
