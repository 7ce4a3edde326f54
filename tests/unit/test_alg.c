#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alg.h"

static void finds_each_by_its_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ALG_COUNT; i++) {
        assert_int_equal(alg_find(span_of(alg_names[i])), i);
        assert_string_equal(alg_names[i], alg_info[i].name);
    }
    assert_null(alg_names[ALG_COUNT]);
}

static void has_no_none_and_no_other_case(void **state)
{
    static const char *const no[] = {"none",  "None",   "NONE", "",
                                     "rs256", "RS2567", "HS",   "EDDSA"};
    (void)state;
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        assert_int_equal(alg_find(span_of(no[i])), ALG_COUNT);
}

static void says_what_each_needs(void **state)
{
    (void)state;
    assert_int_equal(alg_info[ALG_ES512].kind, KEY_P521);
    assert_int_equal(alg_info[ALG_ES512].bytes, 66);
    assert_int_equal(alg_info[ALG_HS384].bytes, 48);
    assert_null(alg_info[ALG_EDDSA].digest);
    assert_true(alg_is_pss(ALG_PS256) && alg_is_pss(ALG_PS512));
    assert_false(alg_is_pss(ALG_RS512) || alg_is_pss(ALG_ES256));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_each_by_its_name),
        cmocka_unit_test(has_no_none_and_no_other_case),
        cmocka_unit_test(says_what_each_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
