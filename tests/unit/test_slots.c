#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "limit/slots.h"

/* A slot owes what its values say. */
static uint64_t owed(const _Atomic uint64_t *values, unsigned words, uint64_t now)
{
    uint64_t most = 0;
    (void)now;
    for (unsigned i = 0; i < words; i++)
        if (values[i] > most)
            most = values[i];
    return most;
}

static void forgive(_Atomic uint64_t *values, unsigned words, uint64_t now)
{
    (void)now;
    for (unsigned i = 0; i < words; i++)
        atomic_store(&values[i], 0);
}

static const struct slots_rule gives = {owed, forgive}, keeps = {owed, NULL};

/* One set: keys whose hashes differ in the lower 48 bits lie together. */
static struct slots *one_set(unsigned words)
{
    struct slots *t = slots_new(4, words);
    assert_non_null(t);
    return t;
}

static struct slots_place take(struct slots *t, uint64_t hash, enum slots_result expected)
{
    struct slots_place place;
    assert_int_equal(slots_take(t, hash, 0, &gives, &place), expected);
    assert_true(slots_holds(&place));
    return place;
}

static void finds_again_what_it_made(void **state)
{
    struct slots *t = one_set(2);
    (void)state;
    for (uint64_t key = 0; key < SLOTS_WAYS; key++) {
        struct slots_place place = take(t, key, SLOTS_MADE);
        place.values[0] = 100 + key;
        place.values[1] = 200 + key;
    }
    for (uint64_t key = 0; key < SLOTS_WAYS; key++) {
        struct slots_place place = take(t, key, SLOTS_FOUND);
        assert_int_equal(place.values[0], 100 + key);
        assert_int_equal(place.values[1], 200 + key);
    }
    slots_free(t);
}

static void gives_away_what_owes_nothing(void **state)
{
    struct slots *t = one_set(1);
    struct slots_place places[SLOTS_WAYS];
    (void)state;
    for (uint64_t key = 0; key < SLOTS_WAYS; key++) {
        places[key] = take(t, key, SLOTS_MADE);
        places[key].values[0] = 7;
    }
    places[5].values[0] = 0;
    struct slots_place place = take(t, 99, SLOTS_MADE);
    assert_ptr_equal(place.values, places[5].values);
    assert_false(slots_holds(&places[5])); /* who still uses it sees that */
    assert_true(slots_holds(&places[4]));
    slots_free(t);
}

static void a_full_set_gives_away_the_one_that_owes_least(void **state)
{
    struct slots *t = one_set(1);
    struct slots_place places[SLOTS_WAYS];
    (void)state;
    for (uint64_t key = 0; key < SLOTS_WAYS; key++) {
        places[key] = take(t, key, SLOTS_MADE);
        places[key].values[0] = key == 3 ? 6 : 7 + key;
    }
    struct slots_place place = take(t, 99, SLOTS_DISPLACED);
    assert_ptr_equal(place.values, places[3].values);
    assert_int_equal(place.values[0], 0);
    assert_false(slots_holds(&places[3]));
    slots_free(t);
}

static void or_shares_it_when_nothing_may_be_lost(void **state)
{
    struct slots *t = one_set(1);
    struct slots_place places[SLOTS_WAYS], place;
    (void)state;
    for (uint64_t key = 0; key < SLOTS_WAYS; key++) {
        places[key] = take(t, key, SLOTS_MADE);
        places[key].values[0] = key == 2 ? 1 : 3;
    }
    assert_int_equal(slots_take(t, 99, 0, &keeps, &place), SLOTS_SHARED);
    assert_ptr_equal(place.values, places[2].values);
    assert_int_equal(place.values[0], 1);
    assert_true(slots_holds(&place));
    assert_true(slots_holds(&places[2]));
    places[2].values[0] = 0;
    assert_int_equal(slots_take(t, 99, 0, &keeps, &place), SLOTS_MADE);
    slots_free(t);
}

/* 14 bits of a name word count its steps: they come round and nothing else changes. */
static void a_slot_changes_hands_for_ever(void **state)
{
    struct slots *t = one_set(1);
    (void)state;
    for (uint64_t key = 0; key < SLOTS_WAYS - 1; key++)
        take(t, key, SLOTS_MADE).values[0] = 1;
    for (uint64_t key = 100; key < 100000; key++)
        take(t, key, SLOTS_MADE);
    for (uint64_t key = 0; key < SLOTS_WAYS - 1; key++)
        take(t, key, SLOTS_FOUND);
    slots_free(t);
}

static void there_is_room_for_as_many_keys_as_it_says(void **state)
{
    enum { KEYS = 20000 };
    struct slots *t = slots_new(KEYS, 1);
    unsigned displaced = 0;
    (void)state;
    assert_true(slots_bytes(t) <= KEYS * 32 + 256);
    for (uint64_t key = 1; key <= KEYS; key++) {
        struct slots_place place;
        uint64_t hash = key * 0x9e3779b97f4a7c15;
        hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
        displaced += slots_take(t, hash ^ hash >> 32, 0, &gives, &place) == SLOTS_DISPLACED;
        place.values[0] = key;
    }
    assert_true(displaced < KEYS / 100);
    slots_free(t);
}

static void the_smallest_and_the_impossible(void **state)
{
    struct slots *t = slots_new(0, 1);
    (void)state;
    take(t, UINT64_MAX, SLOTS_MADE);
    take(t, 0, SLOTS_MADE);
    slots_free(t);
    slots_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_again_what_it_made),
        cmocka_unit_test(gives_away_what_owes_nothing),
        cmocka_unit_test(a_full_set_gives_away_the_one_that_owes_least),
        cmocka_unit_test(or_shares_it_when_nothing_may_be_lost),
        cmocka_unit_test(a_slot_changes_hands_for_ever),
        cmocka_unit_test(there_is_room_for_as_many_keys_as_it_says),
        cmocka_unit_test(the_smallest_and_the_impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
