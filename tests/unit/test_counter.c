#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plugin/counter.h"

static char seen[4096];

static void on_each(void *arg, const struct counter_view *view)
{
    size_t n = strlen(seen);
    (void)arg;
    snprintf(seen + n, sizeof(seen) - n, "%s %s %s %llu\n", view->name, view->plugin,
             view->place, (unsigned long long)view->value);
}

static void workers_numbers_are_summed_by_name(void **state)
{
    (void)state;
    struct counters a = {{0}}, b = {{0}};
    struct counters *sets[] = {&a, &b};
    int one = counter_id("p", "", "ones", "Ones.");
    int other = counter_id("q", "route r", "others", "Others.");
    int again = counter_id("p", "route r", "ones", "Ones.");
    assert_true(one >= 0 && other >= 0 && again >= 0 && one != other && one != again);
    assert_int_equal(counter_id("p", "", "ones", "Ones."), one);
    counters_add(&a, one, 2);
    counters_add(&b, one, 3);
    counters_add(&b, again, 1);
    counters_add(&a, -1, 1);
    counters_add(&a, COUNTER_CHUNK * COUNTER_CHUNKS, 1);
    seen[0] = '\0';
    counter_each(sets, 2, on_each, NULL);
    assert_string_equal(seen, "ones p  5\nones p route r 1\nothers q route r 0\n");
    counters_done(&a);
    counters_done(&b);
}

static void what_is_no_name_is_no_counter(void **state)
{
    (void)state;
    assert_int_equal(counter_id("p", "", "", "x"), -1);
    assert_int_equal(counter_id("p", "", "Ones", "x"), -1);
    assert_int_equal(counter_id("p", "", "a b", "x"), -1);
    assert_int_equal(counter_id("p", "", "ones", "two\nlines"), -1);
    assert_int_equal(counter_id("p", "", "ones", NULL), -1);
}

static void thousands_are_found_again(void **state)
{
    (void)state;
    struct counters set = {{0}};
    char place[32];
    int first = counter_id("p", "route 0", "many", "Many.");
    for (int i = 1; i < 5000; i++) {
        snprintf(place, sizeof(place), "route %d", i);
        assert_int_equal(counter_id("p", place, "many", "Many."), first + i);
    }
    assert_int_equal(counter_id("p", "route 4321", "many", "Many."), first + 4321);
    counters_add(&set, first + 4999, 7);
    counters_done(&set);
}

static void without_memory_nothing_is_counted(void **state)
{
    (void)state;
    struct counters set = {{0}};
    int id = counter_id("p", "", "ones", "Ones.");
    for (unsigned long n = 1; n <= 4; n++) {
        mem_fail_at(n);
        assert_int_equal(counter_id("p", "", "new", "New."), -1);
    }
    mem_fail_at(1);
    counters_add(&set, id, 1);
    mem_fail_at(0);
    counters_add(&set, id, 1);
    counters_done(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_numbers_are_summed_by_name),
        cmocka_unit_test(what_is_no_name_is_no_counter),
        cmocka_unit_test(thousands_are_found_again),
        cmocka_unit_test(without_memory_nothing_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
