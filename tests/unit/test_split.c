#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "up/balance.h"
#include "up/split.h"

static void turns_are_exact_by_weight(void **state)
{
    (void)state;
    struct split *split = split_new((const uint32_t[]){95, 0, 5}, 3, 0);
    unsigned counts[3] = {0};
    for (int i = 0; i < 1000; i++)
        counts[split_pick(split, 0)]++;
    assert_int_equal(counts[0], 950);
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[2], 50);
    split_free(split);
}

static void goes_on_where_it_is_told_to(void **state)
{
    (void)state;
    static const uint32_t weights[] = {2, 1};
    struct split *a = split_new(weights, 2, 0);
    for (int i = 0; i < 4; i++)
        split_pick(a, 0);
    struct split *b = split_new(weights, 2, atomic_load(&a->counter));
    for (int i = 0; i < 6; i++)
        assert_int_equal(split_pick(b, 0), split_pick(a, 0));
    split_free(a);
    split_free(b);
}

static uint64_t key(uint32_t i)
{
    return balance_hash((struct str){(const char *)&i, sizeof(i)});
}

static void a_key_chooses_the_same_each_time(void **state)
{
    (void)state;
    struct split *split = split_new((const uint32_t[]){80, 20}, 2, 0);
    unsigned second = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t pick = split_pick(split, key(i));
        assert_int_equal(split_pick(split, key(i)), pick);
        second += pick;
    }
    assert_in_range(second, 1800, 2200);
    assert_int_equal(atomic_load(&split->counter), 0);
    split_free(split);
}

static void a_weight_of_zero_gets_no_key(void **state)
{
    (void)state;
    struct split *split = split_new((const uint32_t[]){0, 1, 0, 1}, 4, 0);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(split_pick(split, key(i)) % 2, 1);
    split_free(split);
}

static void other_weights_move_no_more_keys_than_they_must(void **state)
{
    (void)state;
    struct split *before = split_new((const uint32_t[]){95, 5}, 2, 0),
                 *after = split_new((const uint32_t[]){90, 10}, 2, 0);
    unsigned moved = 0;
    for (uint32_t i = 0; i < 10000; i++)
        moved += split_pick(before, key(i)) != split_pick(after, key(i));
    assert_in_range(moved, 400, 600);
    split_free(before);
    split_free(after);
}

static void says_when_there_is_no_memory(void **state)
{
    (void)state;
    for (unsigned long n = 1; n <= 3; n++) {
        mem_fail_at(n);
        assert_null(split_new((const uint32_t[]){1, 2}, 2, 0));
        mem_fail_at(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_are_exact_by_weight),
        cmocka_unit_test(goes_on_where_it_is_told_to),
        cmocka_unit_test(a_key_chooses_the_same_each_time),
        cmocka_unit_test(a_weight_of_zero_gets_no_key),
        cmocka_unit_test(other_weights_move_no_more_keys_than_they_must),
        cmocka_unit_test(says_when_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
