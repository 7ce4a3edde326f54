#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "refusal.h"

/* What a program, a log and a challenge can rely on. */
static void each_has_a_status_a_declared_reason_and_a_sentence(void **state)
{
    (void)state;
    for (unsigned i = REFUSAL_NONE + 1; i < REFUSAL_COUNT; i++) {
        const struct refusal_info *info = &refusal_info[i];
        bool declared = false;
        for (unsigned k = 0; k < REASON_COUNT; k++)
            declared |= strcmp(jwt_reasons[k].name, info->reason) == 0;
        assert_true(declared);
        assert_true(info->status == 401 || info->status == 403 || info->status == 503);
        /* It stands between quotes in WWW-Authenticate. */
        assert_null(strpbrk(info->sentence, "\"\\"));
        if (info->status == 403)
            assert_string_equal(info->error, "insufficient_scope");
    }
    assert_null(refusal_info[REFUSAL_MISSING].error); /* RFC 6750 3.1 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_a_status_a_declared_reason_and_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
