#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rate_limit/rate_table.h"
#include "threads_test.h"

#define S (1000 * GCRA_MS)

static struct gcra limit(uint64_t number, uint64_t burst)
{
    struct gcra g = {.count = 1, .cost = 1};
    assert_true(gcra_window_set(&g.windows[0], number, 1000, burst, 1));
    return g;
}

static bool take(struct slots *table, const struct gcra *g, uint64_t hash, uint64_t now,
                 enum slots_result *ret_result)
{
    struct gcra_verdict v;
    *ret_result = rate_table_take(table, g, hash, now, &v);
    return v.allowed;
}

static void each_key_has_its_own_limit(void **state)
{
    struct slots *table = slots_new(100, 1);
    struct gcra g = limit(10, 3);
    enum slots_result result;
    (void)state;
    for (uint64_t key = 0; key < 5; key++) {
        unsigned allowed = 0;
        for (unsigned i = 0; i < 9; i++)
            allowed += take(table, &g, key << 40, S, &result);
        assert_int_equal(allowed, 3);
    }
    slots_free(table);
}

static void what_has_passed_makes_room(void **state)
{
    struct slots *table = slots_new(4, 1); /* one set */
    struct gcra g = limit(10, 3);
    enum slots_result result;
    (void)state;
    for (uint64_t turn = 1; turn < 100; turn++)
        for (uint64_t key = 0; key < SLOTS_WAYS; key++) {
            assert_true(take(table, &g, turn << 8 | key, turn * S, &result));
            assert_int_equal(result, SLOTS_MADE);
        }
    slots_free(table);
}

/* Whoever sends a key of his own with each request fills the table, and no more than that. */
static void a_million_keys_take_what_was_agreed(void **state)
{
    struct slots *table = slots_new(10000, 1);
    struct gcra g = limit(1, 1);
    enum slots_result result;
    uint64_t key = 88172645463325252, made = 0, displaced = 0;
    size_t bytes = slots_bytes(table), before = mallinfo2().uordblks + mallinfo2().hblkhd;
    (void)state;
    assert_in_range(bytes, 10000 * 16, 4 << 20);
    for (unsigned i = 0; i < 1000000; i++) {
        key ^= key << 13;
        key ^= key >> 7;
        key ^= key << 17;
        assert_true(take(table, &g, key, S, &result));
        assert_false(take(table, &g, key, S, &result)); /* the one who has just come is known */
        made += result == SLOTS_MADE;
        displaced += result == SLOTS_DISPLACED;
    }
    assert_int_equal(made + displaced, 0);
    assert_int_equal(slots_bytes(table), bytes);
    assert_int_equal(mallinfo2().uordblks + mallinfo2().hblkhd, before);
    slots_free(table);
}

static void a_ninth_live_key_displaces_the_least(void **state)
{
    struct slots *table = slots_new(4, 1);
    struct gcra g = limit(10, 3);
    enum slots_result result;
    (void)state;
    for (uint64_t key = 0; key < SLOTS_WAYS; key++)
        for (unsigned i = 0; i < (key == 6 ? 1 : 2); i++)
            assert_true(take(table, &g, key, S, &result));
    assert_true(take(table, &g, 100, S, &result));
    assert_int_equal(result, SLOTS_DISPLACED);
    assert_true(take(table, &g, 100, S, &result));
    assert_true(take(table, &g, 100, S, &result));
    assert_false(take(table, &g, 100, S, &result)); /* begins with a whole burst */
    assert_true(take(table, &g, 0, S, &result));
    assert_int_equal(result, SLOTS_FOUND); /* the others are what they were */
    assert_false(take(table, &g, 0, S, &result));
    slots_free(table);
}

/* ---- eight threads ---- */

enum { KEYS = 6, TURNS = 3000, BURST = 7 };

struct race {
    struct slots *table;
    struct gcra g;
    _Atomic unsigned allowed[KEYS], displaced;
    unsigned expected;
};

/* In each turn six keys that are new, in a set that the keys of earlier turns fill; these owe
 * nothing any more. */
static void take_all(void *arg, unsigned thread, unsigned turn)
{
    struct race *race = arg;
    uint64_t now = (turn + 1) * 1000 * S;
    for (unsigned i = 0; i < KEYS * 2; i++) {
        unsigned key = (i * 5 + thread) % KEYS;
        enum slots_result result;
        if (take(race->table, &race->g, (turn * 4 + key) % 24, now, &result))
            atomic_fetch_add(&race->allowed[key], 1);
        if (result == SLOTS_DISPLACED)
            atomic_fetch_add(&race->displaced, 1);
    }
}

static void check_all(void *arg, unsigned turn)
{
    struct race *race = arg;
    (void)turn;
    assert_int_equal(race->displaced, 0);
    for (unsigned key = 0; key < KEYS; key++) {
        assert_int_equal(race->allowed[key], race->expected);
        race->allowed[key] = 0;
    }
}

static void threads_never_let_one_more_through(void **state)
{
    static struct race race;
    struct crew crew = {.turns = TURNS, .work = take_all, .after = check_all, .arg = &race};
    (void)state;
    race = (struct race){.table = slots_new(4, 1), .g = limit(1, BURST), .expected = BURST};
    crew_work(&crew);
    slots_free(race.table);
}

static void nor_with_several_windows(void **state)
{
    static struct race race;
    struct crew crew = {.turns = TURNS, .work = take_all, .after = check_all, .arg = &race};
    (void)state;
    race = (struct race){.table = slots_new(4, 3), .expected = 3};
    race.g = (struct gcra){.count = 3, .cost = 2};
    assert_true(gcra_window_set(&race.g.windows[0], 100, 1000, 50, 2));
    assert_true(gcra_window_set(&race.g.windows[1], 10, 1000, 7, 2));
    assert_true(gcra_window_set(&race.g.windows[2], 3, 1000, 8, 2));
    crew_work(&crew);
    slots_free(race.table);
}

/* A clock that goes on while they take: burst + time / step, however the threads interleave. */
struct flow {
    struct slots *table;
    struct gcra g;
    _Atomic uint64_t clock;
    _Atomic unsigned allowed;
};

static void take_for_a_while(void *arg, unsigned thread, unsigned turn)
{
    struct flow *flow = arg;
    enum slots_result result;
    (void)thread;
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t now = atomic_fetch_add(&flow->clock, 100 * GCRA_UNITS) + 100 * GCRA_UNITS;
        if (take(flow->table, &flow->g, 42 + turn, now, &result))
            atomic_fetch_add(&flow->allowed, 1);
    }
}

static void check_flow(void *arg, unsigned turn)
{
    struct flow *flow = arg;
    uint64_t span = THREADS * 20000 * 100 * GCRA_UNITS;
    (void)turn;
    /* A thread that slept between looking at the clock and taking asks in vain, and the next
     * one gets what it did not: only the last few can be missing. */
    uint64_t most = BURST + span / flow->g.windows[0].step;
    assert_true(flow->allowed <= most);
    assert_true(flow->allowed + THREADS >= most);
    flow->allowed = 0;
}

static void a_rate_is_exact_while_time_passes(void **state)
{
    static struct flow flow;
    struct crew crew = {
        .turns = 5, .work = take_for_a_while, .after = check_flow, .arg = &flow};
    (void)state;
    flow = (struct flow){.table = slots_new(64, 1), .g = limit(1000000, BURST)};
    flow.clock = 5 * S;
    crew_work(&crew);
    slots_free(flow.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_has_its_own_limit),
        cmocka_unit_test(what_has_passed_makes_room),
        cmocka_unit_test(a_million_keys_take_what_was_agreed),
        cmocka_unit_test(a_ninth_live_key_displaces_the_least),
        cmocka_unit_test(threads_never_let_one_more_through),
        cmocka_unit_test(nor_with_several_windows),
        cmocka_unit_test(a_rate_is_exact_while_time_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
