#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "proxy/names.h"

static void a_name_has_one_number(void **state)
{
    (void)state;
    unsigned a = names_take(STR("a")), b = names_take(STR("b"));
    assert_int_not_equal(a, 0);
    assert_int_not_equal(a, b);
    assert_int_equal(names_take(STR("a")), a);
    assert_true(str_eq(names_text(a), STR("a")));
    assert_int_equal(names_take(STR("")), 0);
    assert_true(str_eq(names_text(0), STR("")));
    assert_null(names_text(100000).p);
    names_give(a);
    assert_true(str_eq(names_text(a), STR("a"))); /* one user is left */
    names_give(a);
    assert_null(names_text(a).p);
    names_give(b);
    names_give(0);
}

static void numbers_are_used_again(void **state)
{
    (void)state;
    unsigned most = 0, kept = names_take(STR("kept"));
    for (int i = 0; i < 10000; i++) {
        char text[32];
        struct str name = {text, (size_t)snprintf(text, sizeof(text), "10.0.%d.1:80", i)};
        unsigned number = names_take(name);
        most = number > most ? number : most;
        assert_true(str_eq(names_text(number), name));
        names_give(number);
    }
    assert_true(most < 10);
    assert_int_equal(names_take(STR("kept")), kept);
    names_give(kept);
    names_give(kept);
}

static void many_are_found_whatever_came_and_went(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    unsigned numbers[MANY];
    char text[32];
    for (int i = 0; i < MANY; i++)
        numbers[i] = names_take((struct str){text, (size_t)snprintf(text, 32, "n%d", i)});
    for (int i = 0; i < MANY; i += 2)
        names_give(numbers[i]);
    for (int i = 1; i < MANY; i += 2) {
        struct str name = {text, (size_t)snprintf(text, 32, "n%d", i)};
        assert_int_equal(names_take(name), numbers[i]);
        names_give(numbers[i]);
        names_give(numbers[i]);
    }
}

static void without_memory_there_is_no_number(void **state)
{
    (void)state;
    mem_fail_at(1);
    assert_int_equal(names_take(STR("unheard of")), 0);
    mem_fail_at(0);
    unsigned number = names_take(STR("unheard of"));
    assert_int_not_equal(number, 0);
    names_give(number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_has_one_number),
        cmocka_unit_test(numbers_are_used_again),
        cmocka_unit_test(many_are_found_whatever_came_and_went),
        cmocka_unit_test(without_memory_there_is_no_number),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
