/* The races that two cores hardly ever run into, made to happen: the code is compiled in here
 * with atomics before which another thread may get its turn. The threads are coroutines, and
 * dice with a seed choose among them, so a failure can be run again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#include <cmocka.h>

static void may_switch(void);

static uint64_t load_here(const _Atomic uint64_t *p)
{
    may_switch();
    return atomic_load(p);
}

static void store_here(_Atomic uint64_t *p, uint64_t n)
{
    may_switch();
    atomic_store(p, n);
}

static bool exchange_here(_Atomic uint64_t *p, uint64_t *old, uint64_t next)
{
    may_switch();
    return atomic_compare_exchange_strong(p, old, next);
}

static uint64_t sub_here(_Atomic uint64_t *p, uint64_t n)
{
    may_switch();
    return atomic_fetch_sub(p, n);
}

#undef atomic_load
#undef atomic_store
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak
#undef atomic_fetch_sub
#define atomic_load                    load_here
#define atomic_store                   store_here
#define atomic_compare_exchange_strong exchange_here
#define atomic_compare_exchange_weak   exchange_here
#define atomic_fetch_sub               sub_here
#include "concurrency/in_flight.c"
#include "limit/slots.c"
#include "rate_limit/gcra.c"
#include "rate_limit/rate_table.c"

/* ---- coroutines ---- */

enum { THREADS = 5, STACK = 64 * 1024 };

static struct {
    ucontext_t here, threads[THREADS];
    bool done[THREADS];
    unsigned running; /* THREADS: none */
    void (*work)(unsigned thread);
    char stacks[THREADS][STACK] __attribute__((aligned(16)));
} play = {.running = THREADS};

static uint64_t seed;

static unsigned dice(unsigned n)
{
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return (unsigned)(seed >> 33) % n;
}

static void may_switch(void)
{
    if (play.running < THREADS && dice(3) == 0)
        swapcontext(&play.threads[play.running], &play.here);
}

static void begin(void)
{
    unsigned thread = play.running;
    play.work(thread);
    play.done[thread] = true;
    swapcontext(&play.threads[thread], &play.here);
}

static void play_out(void (*work)(unsigned thread))
{
    static unsigned left, i;
    left = THREADS;
    play.work = work;
    for (i = 0; i < THREADS; i++) {
        getcontext(&play.threads[i]);
        play.threads[i].uc_stack.ss_sp = play.stacks[i];
        play.threads[i].uc_stack.ss_size = STACK;
        makecontext(&play.threads[i], begin, 0);
        play.done[i] = false;
    }
    while (left > 0) {
        unsigned next = dice(THREADS);
        if (play.done[next])
            continue;
        play.running = next;
        swapcontext(&play.here, &play.threads[next]);
        left -= play.done[next];
    }
    play.running = THREADS;
}

/* ---- what they play ---- */

enum { KEYS = 4, BURST = 3, RUNS = 3000 };

static struct slots *table;
static struct gcra g;
static uint64_t now;
static unsigned allowed[KEYS], displaced, shared, inside[KEYS], entered[KEYS];
static uint64_t first_key;

/* Four keys; of the eight slots of the set some hold keys of the past, some are free. */
static void take_some(unsigned thread)
{
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned key = (i + thread) % KEYS;
        struct gcra_verdict v;
        displaced += rate_table_take(table, &g, first_key + key, now, &v) == SLOTS_DISPLACED;
        allowed[key] += v.allowed;
    }
}

/* The slots of the past, of which some are this turn's keys again. */
static void fill_with_the_past(void)
{
    now += 1000000 * GCRA_MS;
    first_key = dice(6);
    for (unsigned i = 0; i < 12; i++) {
        struct gcra_verdict v;
        rate_table_take(table, &g, dice(12), now, &v);
    }
    now += 1000000 * GCRA_MS;
}

static void nobody_gets_one_more_in_any_order(void **state)
{
    (void)state;
    for (unsigned run = 0; run < RUNS; run++) {
        seed = run;
        if (run % 100 == 0) {
            slots_free(table);
            table = slots_new(4, g.count);
        }
        fill_with_the_past();
        for (unsigned i = 0; i < KEYS; i++)
            allowed[i] = 0;
        displaced = 0;
        play_out(take_some);
        assert_int_equal(displaced, 0);
        for (unsigned i = 0; i < KEYS; i++)
            assert_int_equal(allowed[i], BURST);
    }
    slots_free(table);
    table = NULL;
}

static void with_one_window(void **state)
{
    g = (struct gcra){.count = 1, .cost = 1};
    assert_true(gcra_window_set(&g.windows[0], 1, 1000, BURST, 1));
    nobody_gets_one_more_in_any_order(state);
}

static void with_two_windows(void **state)
{
    g = (struct gcra){.count = 2, .cost = 1};
    assert_true(gcra_window_set(&g.windows[0], 1, 1000, BURST + 9, 1));
    assert_true(gcra_window_set(&g.windows[1], 1, 60000, BURST, 1));
    nobody_gets_one_more_in_any_order(state);
}

/* Keys that go idle while others ask for their slots. A key that was at rest when it was looked
 * at and is charged before it is given away must not get a new burst. */
static void charge_and_evict(unsigned thread)
{
    struct gcra_verdict v;
    for (unsigned i = 0; i < 3; i++) {
        if (thread < 3) {
            rate_table_take(table, &g, thread % 2, now, &v);
            allowed[thread % 2] += v.allowed;
        } else {
            displaced += rate_table_take(table, &g, 100 + dice(20), now, &v) == SLOTS_DISPLACED;
        }
    }
}

static void a_key_at_rest_is_not_lost_when_it_wakes(void **state)
{
    unsigned counted = 0;
    (void)state;
    g = (struct gcra){.count = 1, .cost = 1};
    assert_true(gcra_window_set(&g.windows[0], 1, 1000, BURST, 1));
    table = slots_new(4, 1);
    for (unsigned run = 0; run < RUNS; run++) {
        struct gcra_verdict v;
        seed = run;
        now += 1000000 * GCRA_MS;
        for (unsigned key = 0; key < SLOTS_WAYS; key++)
            rate_table_take(table, &g, key, now, &v);
        now += 1000000 * GCRA_MS;
        allowed[0] = allowed[1] = displaced = 0;
        play_out(charge_and_evict);
        if (displaced)
            continue;
        counted++;
        for (unsigned key = 0; key < 2; key++) {
            rate_table_take(table, &g, key, now, &v);
            assert_int_equal(allowed[key] + v.allowed, BURST);
        }
    }
    assert_true(counted > RUNS / 2);
    slots_free(table);
    table = NULL;
}

/* ---- requests in flight ---- */

static void come_and_go(unsigned thread)
{
    for (unsigned i = 0; i < KEYS * 2; i++) {
        unsigned key = (i + thread) % KEYS;
        struct in_flight_verdict v = in_flight_enter(table, first_key + key, 2);
        shared += v.shared;
        if (!v.held)
            continue;
        assert_true(++inside[key] <= 2);
        may_switch();
        inside[key]--;
        in_flight_leave(v.held);
    }
}

static void enter_only(unsigned thread)
{
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned key = (i + thread) % KEYS;
        struct in_flight_verdict v = in_flight_enter(table, first_key + key, 2);
        shared += v.shared;
        entered[key] += v.held != NULL;
    }
}

static void nobody_holds_one_more_in_any_order(void **state)
{
    (void)state;
    for (unsigned run = 0; run < RUNS; run++) {
        seed = run;
        slots_free(table);
        table = slots_new(4, 1);
        shared = 0;
        for (unsigned turn = 0; turn < 3; turn++) {
            first_key = dice(16);
            play_out(come_and_go);
        }
        for (unsigned i = 0; i < KEYS; i++)
            entered[i] = 0;
        play_out(enter_only);
        assert_int_equal(shared, 0);
        for (unsigned i = 0; i < KEYS; i++)
            assert_int_equal(entered[i], 2);
    }
    slots_free(table);
    table = NULL;
}

int main(void)
{
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return 77; /* it cannot follow coroutines, and there are no threads here */
#endif
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_one_window),
        cmocka_unit_test(with_two_windows),
        cmocka_unit_test(a_key_at_rest_is_not_lost_when_it_wakes),
        cmocka_unit_test(nobody_holds_one_more_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
