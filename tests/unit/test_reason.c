#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "http/reason.h"

static void each_reason_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = R_NONE + 1; i < REASON_COUNT; i++) {
        assert_true(reason_texts[i].name[0] != '\0');
        assert_true(reason_texts[i].title[0] != '\0');
        assert_in_range(reason_texts[i].status, 400, 599);
        for (int j = R_NONE; j < i; j++)
            assert_string_not_equal(reason_texts[i].name, reason_texts[j].name);
    }
}

/* They stand in metric labels, log lines and JSON as they are. */
static void names_need_no_escaping(void **state)
{
    (void)state;
    for (int i = 0; i < REASON_COUNT; i++) {
        const char *name = reason_texts[i].name;
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_."), strlen(name));
        assert_null(strpbrk(reason_texts[i].title, "\"\\\r\n"));
    }
}

static void those_of_plugins_stand_behind(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "No", "a b", "a-b", NULL};
    enum reason one = reason_add("test.one", "One");
    assert_in_range(one, REASON_COUNT, REASON_MAX - 1);
    assert_string_equal(reason_texts[one].name, "test.one");
    assert_int_equal(reason_add("test.one", "Another title"), one);
    assert_int_equal(reason_add("client.abort", "Ours"), R_CLIENT_ABORT);
    for (size_t i = 0; bad[i]; i++)
        assert_int_equal(reason_add(bad[i], "Title"), R_NONE);
    assert_int_equal(reason_add("test.two", "\"quoted\""), R_NONE);
    assert_int_equal(reason_add("test.two", ""), R_NONE);
    for (unsigned long n = 1; n <= 2; n++) {
        mem_fail_at(n);
        assert_int_equal(reason_add("test.two", "Two"), R_NONE);
    }
    mem_fail_at(0);
    for (int i = (int)one + 1; i < REASON_MAX; i++) {
        char name[32];
        snprintf(name, sizeof(name), "test.n%d", i);
        assert_int_equal(reason_add(name, "One of many"), i);
    }
    assert_int_equal(reason_add("test.two", "Two"), R_NONE); /* there is no room */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reason_has_a_name_of_its_own),
        cmocka_unit_test(names_need_no_escaping),
        cmocka_unit_test(those_of_plugins_stand_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
