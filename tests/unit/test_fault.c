#include "conf_test.h"

static void puts_faults_in_file_and_line_order(void **state)
{
    (void)state;
    char *names[] = {"main", "included"};
    struct conf_strs files = {names, 2};
    struct conf_faults faults = {0};
    conf_fault(&faults, (struct conf_where){"included", 1}, "d");
    conf_fault(&faults, (struct conf_where){"main", 9}, "b %d", 1);
    conf_fault(&faults, (struct conf_where){"main", 9}, "b %d", 2);
    conf_fault(&faults, (struct conf_where){"elsewhere", 1}, "e");
    conf_fault(&faults, (struct conf_where){"main", 2}, "a");
    conf_faults_sort(&faults, &files);
    char *text = faults_text(&faults);
    assert_string_equal(text,
                        "main:2: a\nmain:9: b 1\nmain:9: b 2\nincluded:1: d\nelsewhere:1: e\n");
    free(text);
    conf_faults_done(&faults);
    assert_int_equal(faults.count, 0);
    assert_null(faults.list);
}

static void keeps_its_own_copy_of_the_file_name(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    char name[] = "gone";
    conf_fault(&faults, (struct conf_where){name, 1}, "x");
    name[0] = '?';
    assert_string_equal(faults.list[0].where.file, "gone");
    conf_faults_done(&faults);
}

static void stays_on_one_line(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    conf_fault(&faults, (struct conf_where){"f", 1}, "a\nb\x1b[1m\x7f");
    assert_string_equal(faults.list[0].message, "a?b?[1m?");
    conf_faults_done(&faults);
}

static void cuts_long_messages(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    char longer[3000];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    conf_fault(&faults, (struct conf_where){"f", 1}, "%s", longer);
    assert_int_equal(strlen(faults.list[0].message), 1023);
    conf_faults_done(&faults);
}

static void is_never_lost_for_want_of_memory(void **state)
{
    (void)state;
    for (unsigned long n = 1; n <= 4; n++) {
        struct conf_faults faults = {0};
        mem_fail_at(n);
        conf_fault(&faults, (struct conf_where){"f", 1}, "x");
        conf_fault(&faults, (struct conf_where){"f", 2}, "y");
        mem_fail_at(0);
        assert_true(faults.count > 0);
        for (size_t i = 0; i < faults.count; i++)
            assert_non_null(faults.list[i].message);
        conf_faults_done(&faults);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_faults_in_file_and_line_order),
        cmocka_unit_test(keeps_its_own_copy_of_the_file_name),
        cmocka_unit_test(stays_on_one_line),
        cmocka_unit_test(cuts_long_messages),
        cmocka_unit_test(is_never_lost_for_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
