#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "concurrency/in_flight.h"
#include "threads_test.h"

static void counts_up_to_the_limit_and_down_again(void **state)
{
    struct slots *table = slots_new(8, 1);
    struct in_flight_verdict v[4];
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        v[i] = in_flight_enter(table, 7, 3);
    assert_int_equal(v[0].count, 1);
    assert_int_equal(v[2].count, 3);
    assert_non_null(v[2].held);
    assert_null(v[3].held);
    assert_int_equal(v[3].count, 4);
    assert_non_null(in_flight_enter(table, 8, 3).held); /* another key's are its own */
    in_flight_leave(v[1].held);
    assert_non_null(in_flight_enter(table, 7, 3).held);
    assert_null(in_flight_enter(table, 7, 3).held);
    assert_non_null(in_flight_enter(table, 7, 4).held); /* a reload raised it */
    slots_free(table);
}

static void without_room_a_key_counts_with_another(void **state)
{
    struct slots *table = slots_new(4, 1); /* one set */
    struct in_flight_verdict v;
    _Atomic uint64_t *first = NULL;
    (void)state;
    for (uint64_t key = 0; key < SLOTS_WAYS; key++) {
        v = in_flight_enter(table, key, 2);
        assert_false(v.shared);
        if (key == 0)
            first = v.held;
    }
    v = in_flight_enter(table, 100, 2);
    assert_true(v.shared);
    assert_int_equal(v.count, 2);
    assert_non_null(v.held);
    in_flight_leave(v.held);
    in_flight_leave(first);
    v = in_flight_enter(table, 100, 2); /* there is room now */
    assert_false(v.shared);
    assert_int_equal(v.count, 1);
    slots_free(table);
}

/* ---- eight threads ---- */

enum { KEYS = 6, LIMIT = 5, TURNS = 3000 };

struct race {
    struct slots *table;
    _Atomic unsigned entered[KEYS], shared;
    _Atomic uint64_t *held[THREADS][KEYS];
};

/* In each turn other keys, in a set where nothing is on its way: eight threads enter, five may.
 */
static void enter_all(void *arg, unsigned thread, unsigned turn)
{
    struct race *race = arg;
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned key = (i + thread) % KEYS;
        struct in_flight_verdict v = in_flight_enter(race->table, (turn * 4 + key) % 24, LIMIT);
        race->held[thread][key] = v.held;
        if (v.held)
            atomic_fetch_add(&race->entered[key], 1);
        if (v.shared)
            atomic_fetch_add(&race->shared, 1);
    }
}

static void check_and_leave(void *arg, unsigned turn)
{
    struct race *race = arg;
    (void)turn;
    assert_int_equal(race->shared, 0);
    for (unsigned key = 0; key < KEYS; key++) {
        assert_int_equal(race->entered[key], LIMIT);
        race->entered[key] = 0;
        for (unsigned thread = 0; thread < THREADS; thread++)
            if (race->held[thread][key])
                in_flight_leave(race->held[thread][key]);
    }
}

static void threads_never_hold_one_more(void **state)
{
    static struct race race;
    struct crew crew = {
        .turns = TURNS, .work = enter_all, .after = check_and_leave, .arg = &race};
    (void)state;
    race = (struct race){.table = slots_new(4, 1)};
    crew_work(&crew);
    slots_free(race.table);
}

/* Entering and leaving as fast as they can, in a set with more keys than slots. */
struct churn {
    struct slots *table;
    _Atomic unsigned inside[12];
};

static void come_and_go(void *arg, unsigned thread, unsigned turn)
{
    struct churn *churn = arg;
    for (unsigned i = 0; i < 30000; i++) {
        unsigned key = (i * 7 + thread * 3 + turn) % 12;
        struct in_flight_verdict v = in_flight_enter(churn->table, key, 2);
        if (v.held) {
            assert_true(atomic_fetch_add(&churn->inside[key], 1) < 2);
            atomic_fetch_sub(&churn->inside[key], 1);
            in_flight_leave(v.held);
        }
    }
}

static void check_empty(void *arg, unsigned turn)
{
    struct churn *churn = arg;
    (void)turn;
    for (uint64_t key = 0; key < 12; key++)
        for (unsigned i = 0; i < 2; i++) { /* nothing is left behind, and nothing below zero */
            struct in_flight_verdict v = in_flight_enter(churn->table, key, 1);
            assert_int_equal(v.count, 1);
            in_flight_leave(v.held);
        }
}

static void nothing_is_left_when_all_have_gone(void **state)
{
    static struct churn churn;
    struct crew crew = {.turns = 5, .work = come_and_go, .after = check_empty, .arg = &churn};
    (void)state;
    churn = (struct churn){.table = slots_new(4, 1)};
    crew_work(&crew);
    slots_free(churn.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_up_to_the_limit_and_down_again),
        cmocka_unit_test(without_room_a_key_counts_with_another),
        cmocka_unit_test(threads_never_hold_one_more),
        cmocka_unit_test(nothing_is_left_when_all_have_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
