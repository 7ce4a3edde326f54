#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "up/habit.h"

static void what_it_says_is_kept_with_a_second_to_spare(void **state)
{
    (void)state;
    struct habit habit = {0};
    assert_int_equal(habit_idle_ms(&habit, 0), 0);
    assert_int_equal(habit_idle_ms(&habit, 60000), 60000);
    habit.said_s = 5;
    assert_int_equal(habit_idle_ms(&habit, 0), 4000);
    assert_int_equal(habit_idle_ms(&habit, 60000), 4000);
    assert_int_equal(habit_idle_ms(&habit, 3000), 3000);
    habit.said_s = 1;
    assert_int_equal(habit_idle_ms(&habit, 0), 500);
}

static void twice_after_the_same_time_is_a_habit(void **state)
{
    (void)state;
    struct habit habit = {0};
    habit_hung_up(&habit, 100000, 15000);
    assert_int_equal(habit_idle_ms(&habit, 60000), 60000);
    habit_hung_up(&habit, 100100, 15000); /* the same event */
    assert_int_equal(habit_idle_ms(&habit, 60000), 60000);
    habit_hung_up(&habit, 200000, 15400);
    assert_int_equal(habit_idle_ms(&habit, 60000), 13500);
    habit_unlearn(&habit);
    assert_int_equal(habit_idle_ms(&habit, 60000), 60000);
}

static void different_times_and_short_ones_teach_nothing(void **state)
{
    (void)state;
    struct habit habit = {0};
    habit_hung_up(&habit, 100000, 15000);
    habit_hung_up(&habit, 200000, 30000);
    habit_hung_up(&habit, 300000, 150);
    habit_hung_up(&habit, 400000, 150);
    habit_hung_up(&habit, 500000, UINT32_MAX + 1ull);
    assert_int_equal(habit.learned_ms, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_says_is_kept_with_a_second_to_spare),
        cmocka_unit_test(twice_after_the_same_time_is_a_habit),
        cmocka_unit_test(different_times_and_short_ones_teach_nothing),
    };
    return cmocka_run_group_tests_name("habit", tests, NULL, NULL);
}
