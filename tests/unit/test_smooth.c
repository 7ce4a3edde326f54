#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "up/smooth.h"

static void check_order(const uint32_t *weights, uint32_t count, const char *expected)
{
    uint16_t *order = NULL;
    uint32_t len = 99;
    char text[64] = "";
    assert_true(smooth_order(weights, count, &order, &len));
    assert_true(len < sizeof(text));
    for (uint32_t i = 0; i < len; i++)
        text[i] = (char)('a' + order[i]);
    assert_string_equal(text, expected);
    mem_free(order);
}

static void spreads_each_by_its_weight(void **state)
{
    (void)state;
    check_order((const uint32_t[]){1}, 1, "a");
    check_order((const uint32_t[]){1, 1, 1}, 3, "abc");
    check_order((const uint32_t[]){5, 1, 1}, 3, "aabacaa");
    check_order((const uint32_t[]){50, 10, 10}, 3, "aabacaa");
    check_order((const uint32_t[]){3, 2}, 2, "ababa");
}

static void a_weight_of_zero_stands_nowhere(void **state)
{
    (void)state;
    check_order((const uint32_t[]){0, 7, 0}, 3, "b");
    check_order((const uint32_t[]){0, 0}, 2, "");
    check_order(NULL, 0, "");
}

static void is_never_further_from_its_share_than_one_turn(void **state)
{
    (void)state;
    static const uint32_t weights[] = {95, 4, 1};
    uint16_t *order;
    uint32_t len;
    int64_t counts[3] = {0};
    assert_true(smooth_order(weights, 3, &order, &len));
    assert_int_equal(len, 100);
    for (uint32_t n = 0; n < len; n++) {
        counts[order[n]]++;
        for (int i = 0; i < 3; i++) {
            int64_t off = counts[i] * 100 - (int64_t)(n + 1) * weights[i];
            assert_true(off < 100 && off > -100);
        }
    }
    mem_free(order);
}

static void says_when_there_is_no_memory(void **state)
{
    (void)state;
    uint16_t *order;
    uint32_t len;
    for (unsigned long n = 1; n <= 2; n++) {
        mem_fail_at(n);
        assert_false(smooth_order((const uint32_t[]){1, 2}, 2, &order, &len));
        mem_fail_at(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spreads_each_by_its_weight),
        cmocka_unit_test(a_weight_of_zero_stands_nowhere),
        cmocka_unit_test(is_never_further_from_its_share_than_one_turn),
        cmocka_unit_test(says_when_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
