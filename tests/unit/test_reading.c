#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reading/reading.h"

#define OPTIONS(X)                                                                             \
    X(NAME, TEXT, "name", false, false, NULL, 0, 0, NULL, "A name.")                           \
    X(COUNT, NUMBER, "count", true, true, "3", 1, 9, NULL, "A number.")

enum { OPTIONS(READING_NUMBER) OPT_ALL };
static const struct postern_option table[] = {OPTIONS(READING_OPTION)};

static unsigned faults;
static int fault_option;

__attribute__((format(printf, 4, 5))) static void on_fault(struct postern_setup *s, int option,
                                                           size_t i, const char *fmt, ...)
{
    (void)s, (void)i, (void)fmt;
    faults++;
    fault_option = option;
}

static const struct postern_api api = {.fault = on_fault};
static struct note *notes;
static struct postern_value name = {.given = true, .text = {"ann", 3}};
static struct postern_values values[OPT_ALL];

static struct reading begin(void)
{
    faults = 0;
    notes = NULL;
    values[OPT_NAME] = (struct postern_values){sizeof(values[0]), &name, 1};
    values[OPT_COUNT] = (struct postern_values){sizeof(values[0]), NULL, 0};
    return (struct reading){&api, NULL, values, NULL, &notes, false};
}

static void one_list_makes_numbers_and_table(void **state)
{
    (void)state;
    assert_int_equal(OPT_ALL, 2);
    assert_string_equal(table[OPT_NAME].name, "name");
    assert_int_equal(table[OPT_NAME].type, POSTERN_TEXT);
    assert_false(table[OPT_NAME].list || table[OPT_NAME].required);
    assert_string_equal(table[OPT_COUNT].default_text, "3");
    assert_true(table[OPT_COUNT].list && table[OPT_COUNT].required);
    assert_int_equal(table[OPT_COUNT].min, 1);
    assert_int_equal(table[OPT_COUNT].max, 9);
    assert_string_equal(table[OPT_COUNT].help, "A number.");
}

static void what_is_left_out_is_nothing(void **state)
{
    struct reading reading = begin();
    (void)state;
    assert_true(reading_has(&reading, OPT_NAME));
    assert_ptr_equal(reading_one(&reading, OPT_NAME), &name);
    assert_false(reading_has(&reading, OPT_COUNT));
    assert_int_equal(reading_one(&reading, OPT_COUNT)->number, 0);
    assert_null(reading_keep_option(&reading, OPT_COUNT).p);
    assert_null(notes);
    assert_false(reading.failed);
}

static void texts_are_copies_with_an_end(void **state)
{
    struct reading reading = begin();
    struct postern_str first = reading_keep_option(&reading, OPT_NAME);
    struct postern_str part = reading_keep(&reading, (struct postern_str){"abc", 2});
    struct postern_str empty = reading_keep(&reading, (struct postern_str){NULL, 0});
    int *array = reading_array(&reading, 0, sizeof(*array)); /* there is always one */
    (void)state;
    assert_string_equal(first.p, "ann");
    assert_ptr_not_equal(first.p, name.text.p);
    assert_string_equal(part.p, "ab");
    assert_int_equal(part.n, 2);
    assert_string_equal(empty.p, "");
    assert_int_equal(array[0], 0);
    assert_false(reading.failed);
    free(array);
    notes_free(notes);
    notes_free(NULL);
}

static void a_fault_is_told_and_kept(void **state)
{
    struct reading reading = begin();
    (void)state;
    READING_FAULT(&reading, OPT_COUNT, 0, "no %s", "such");
    assert_true(reading.failed);
    assert_int_equal(faults, 1);
    assert_int_equal(fault_option, OPT_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_list_makes_numbers_and_table),
        cmocka_unit_test(what_is_left_out_is_nothing),
        cmocka_unit_test(texts_are_copies_with_an_end),
        cmocka_unit_test(a_fault_is_told_and_kept),
    };
    return cmocka_run_group_tests_name("reading", tests, NULL, NULL);
}
