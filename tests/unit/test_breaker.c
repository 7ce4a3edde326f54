#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "up/breaker.h"

#define S 1000000000ull

static void so_many_may_wait(void **state)
{
    (void)state;
    struct breaker breaker = {.limits = {.pending = 2}};
    uint32_t count;
    assert_true(breaker_waits(&breaker, &count));
    assert_true(breaker_waits(&breaker, &count));
    assert_false(breaker_waits(&breaker, &count));
    assert_int_equal(count, 3);
    breaker_waits_no_more(&breaker, 2);
    assert_true(breaker_waits(&breaker, &count));
    assert_int_equal(count, 2);
}

static void so_many_may_be_under_way(void **state)
{
    (void)state;
    struct breaker breaker = {.limits = {.requests = 1}};
    uint32_t count;
    assert_true(breaker_begin(&breaker, &count));
    assert_false(breaker_begin(&breaker, &count));
    assert_int_equal(count, 2);
    breaker_end(&breaker); /* the refused one did not count */
    assert_int_equal(breaker.requests, 0);
    assert_true(breaker_begin(&breaker, &count));
}

static void no_limit_refuses_nobody(void **state)
{
    (void)state;
    struct breaker breaker = {0};
    uint32_t count;
    for (int i = 0; i < 10000; i++)
        assert_true(breaker_waits(&breaker, &count) && breaker_begin(&breaker, &count));
}

static void its_beginning_and_its_end_are_told_once(void **state)
{
    (void)state;
    struct breaker breaker = {0};
    uint64_t refused, ns;
    assert_false(breaker_is_over(&breaker, 1, false, &refused, &ns));
    assert_true(breaker_refused(&breaker, 10 * S));
    assert_false(breaker_refused(&breaker, 11 * S));
    assert_false(breaker_refused(&breaker, 12 * S));
    assert_false(breaker_is_over(&breaker, 16 * S, false, &refused, &ns));
    assert_true(breaker_is_over(&breaker, 17 * S, false, &refused, &ns));
    assert_int_equal(refused, 3);
    assert_int_equal(ns, 2 * S);
    assert_false(breaker_is_over(&breaker, 30 * S, false, &refused, &ns));
    assert_true(breaker_refused(&breaker, 40 * S)); /* begins anew */
    assert_true(breaker_is_over(&breaker, 40 * S, true, &refused, &ns));
    assert_int_equal(refused, 1);
}

#define THREADS 8
#define ROUNDS  100000
#define LIMIT   3

static struct breaker shared = {.limits = {.pending = LIMIT, .requests = LIMIT}};
static _Atomic int inside, most, begun;

static void *crowd(void *arg)
{
    uint32_t count;
    for (int i = 0; i < ROUNDS; i++) {
        if (!breaker_begin(&shared, &count)) {
            begun += breaker_refused(&shared, 1);
            continue;
        }
        int now = ++inside, before = most;
        while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
            ;
        inside--;
        breaker_end(&shared);
    }
    return arg;
}

static void the_limit_holds_with_eight_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_in_range(most, 1, LIMIT);
    assert_int_equal(shared.requests, 0);
    assert_int_equal(begun, shared.refused > 0); /* told once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_may_wait),
        cmocka_unit_test(so_many_may_be_under_way),
        cmocka_unit_test(no_limit_refuses_nobody),
        cmocka_unit_test(its_beginning_and_its_end_are_told_once),
        cmocka_unit_test(the_limit_holds_with_eight_threads),
    };
    return cmocka_run_group_tests_name("breaker", tests, NULL, NULL);
}
