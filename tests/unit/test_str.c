#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"

static void compares_only_ascii_letters_without_case(void **state)
{
    (void)state;
    assert_true(str_eq_nocase(STR("Content-LENGTH"), STR("cONTENT-length")));
    assert_true(str_eq_nocase(STR(""), (struct str){NULL, 0}));
    assert_false(str_eq_nocase(STR("abc"), STR("abcd")));
    assert_false(str_eq_nocase(STR("abc"), STR("abd")));
    assert_false(str_eq_nocase(STR("["), STR("{")));       /* 0x5b and 0x7b */
    assert_false(str_eq_nocase(STR("-"), STR("\r")));      /* 0x2d and 0x0d */
    assert_false(str_eq_nocase(STR("\xc4"), STR("\xe4"))); /* Latin-1 letters are bytes */
}

static void reads_plain_decimals_up_to_nineteen_digits(void **state)
{
    uint64_t value = 7;
    (void)state;
    assert_int_equal(str_to_u64(STR("0"), 0, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(str_to_u64(STR("0042"), 42, &value), 0);
    assert_int_equal(value, 42);
    assert_int_equal(str_to_u64(STR("9999999999999999999"), UINT64_MAX, &value), 0);
    assert_true(value == 9999999999999999999ull);
}

static void leaves_the_result_alone_when_a_number_is_refused(void **state)
{
    static const struct {
        const char *text;
        int err;
    } cases[] = {
        {"", -EINVAL},
        {"+1", -EINVAL},
        {"-1", -EINVAL},
        {" 1", -EINVAL},
        {"1 ", -EINVAL},
        {"0x1", -EINVAL},
        {"1_0", -EINVAL},
        {"1,1", -EINVAL},
        {"1.0", -EINVAL},
        {"\xb2", -EINVAL},
        {"101", -ERANGE},
        {"00000000000000000001", -EINVAL},
        {"18446744073709551616", -EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 7;
        assert_int_equal(str_to_u64(str_of(cases[i].text), 100, &value), cases[i].err);
        assert_int_equal(value, 7);
    }
}

static void reads_hexadecimal_up_to_sixteen_digits(void **state)
{
    uint64_t value = 7;
    (void)state;
    assert_int_equal(str_hex_to_u64(STR("1aF"), 0x1af, &value), 0);
    assert_int_equal(value, 0x1af);
    assert_int_equal(str_hex_to_u64(STR("ffffffffffffffff"), UINT64_MAX, &value), 0);
    assert_true(value == UINT64_MAX);
    value = 7;
    assert_int_equal(str_hex_to_u64(STR("1b0"), 0x1af, &value), -ERANGE);
    assert_int_equal(str_hex_to_u64(STR("00000000000000000"), 1, &value), -EINVAL);
    assert_int_equal(str_hex_to_u64(STR(""), 1, &value), -EINVAL);
    assert_int_equal(str_hex_to_u64(STR("0x1"), 1, &value), -EINVAL);
    assert_int_equal(str_hex_to_u64(STR("g"), 99, &value), -EINVAL);
    assert_int_equal(str_hex_to_u64(STR("@"), 99, &value), -EINVAL);    /* next to A */
    assert_int_equal(str_hex_to_u64(STR("\x11"), 99, &value), -EINVAL); /* 1 without 0x20 */
    assert_int_equal(value, 7);
}

static void writes_numbers_that_it_reads_back(void **state)
{
    static const uint64_t values[] = {0, 1, 9, 10, 15, 16, 255, 256, 9999999999999999999ull};
    char out[20];
    uint64_t back;
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        size_t n = str_put_u64(out, values[i]);
        assert_int_equal(str_to_u64((struct str){out, n}, UINT64_MAX, &back), 0);
        assert_true(back == values[i]);
        n = str_put_hex(out, values[i]);
        assert_int_equal(str_hex_to_u64((struct str){out, n}, UINT64_MAX, &back), 0);
        assert_true(back == values[i]);
    }
    assert_int_equal(str_put_u64(out, UINT64_MAX), 20);
    assert_memory_equal(out, "18446744073709551615", 20);
    assert_int_equal(str_put_hex(out, UINT64_MAX), 16);
    assert_memory_equal(out, "ffffffffffffffff", 16);
    assert_int_equal(str_put_hex(out, 0x10), 2); /* no leading zeros */
}

static void trims_blanks_and_nothing_else(void **state)
{
    (void)state;
    assert_true(str_eq(str_trim(STR(" \t a b\t ")), STR("a b")));
    assert_true(str_eq(str_trim(STR(" \t ")), STR("")));
    assert_true(str_eq(str_trim(STR("\r\n")), STR("\r\n")));
    assert_true(str_eq(str_trim(STR("\va")), STR("\va")));
}

static void steps_over_empty_elements_of_a_list(void **state)
{
    struct str list = STR(", a ,,\tb c,,d, ,"), token;
    (void)state;
    assert_true(str_next_token(&list, &token));
    assert_true(str_eq(token, STR("a")));
    assert_true(str_next_token(&list, &token));
    assert_true(str_eq(token, STR("b c")));
    assert_true(str_next_token(&list, &token));
    assert_true(str_eq(token, STR("d")));
    assert_false(str_next_token(&list, &token));
    assert_int_equal(list.n, 0);
    list = (struct str){NULL, 0};
    assert_false(str_next_token(&list, &token));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares_only_ascii_letters_without_case),
        cmocka_unit_test(reads_plain_decimals_up_to_nineteen_digits),
        cmocka_unit_test(leaves_the_result_alone_when_a_number_is_refused),
        cmocka_unit_test(reads_hexadecimal_up_to_sixteen_digits),
        cmocka_unit_test(writes_numbers_that_it_reads_back),
        cmocka_unit_test(trims_blanks_and_nothing_else),
        cmocka_unit_test(steps_over_empty_elements_of_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
