#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reason_has_a_name_of_its_own),
        cmocka_unit_test(names_need_no_escaping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
