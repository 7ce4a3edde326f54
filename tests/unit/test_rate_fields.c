#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rate_limit/rate_fields.h"

static struct gcra limits(void)
{
    struct gcra g = {.count = 3, .cost = 1};
    assert_true(gcra_window_set(&g.windows[0], 100, 1000, 10, 1));
    assert_true(gcra_window_set(&g.windows[1], 5000, 3600000, 50, 1));
    assert_true(gcra_window_set(&g.windows[2], 20, 250, 20, 1));
    return g;
}

static void names_a_window_as_one_writes_it(void **state)
{
    static const struct {
        uint64_t number, per_ms;
        const char *name;
    } cases[] = {
        {100, 1000, "100/s"},   {6000, 60000, "6000/m"},
        {1, 3600000, "1/h"},    {7, 86400000, "7/d"},
        {5, 250, "5/250ms"},    {9, 120000, "9/2m"},
        {3, 90000, "3/90s"},    {8, 1, "8/ms"},
        {1, 604800000, "1/7d"}, {10000000, 60000, "10000000/m"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gcra_window w = {.number = cases[i].number, .per_ms = cases[i].per_ms};
        char name[RATE_NAME_MAX];
        size_t n = rate_name(&w, name);
        assert_int_equal(n, strlen(cases[i].name));
        assert_memory_equal(name, cases[i].name, n);
    }
}

static void writes_the_fields_of_the_draft(void **state)
{
    struct gcra g = limits();
    struct rate_fields f;
    struct gcra_verdict v = {.allowed = true,
                             .ahead = {15 * GCRA_MS, 3600000 * GCRA_MS / 100, 0}};
    char out[RATE_STATE_MAX];
    static const char policy[] =
        "\"100/s\";q=100;w=1, \"5000/h\";q=5000;w=3600, \"20/250ms\";q=20";
    static const char expected[] =
        "\"100/s\";r=8;t=1, \"5000/h\";r=0;t=1, \"20/250ms\";r=20;t=0";
    (void)state;
    rate_fields_set(&f, &g);
    assert_int_equal(f.policy_n, sizeof(policy) - 1);
    assert_memory_equal(f.policy, policy, sizeof(policy) - 1);
    assert_int_equal(rate_state(&f, &g, &v, out), sizeof(expected) - 1);
    assert_memory_equal(out, expected, sizeof(expected) - 1);
}

static void the_longest_texts_fit(void **state)
{
    struct gcra g = {.count = GCRA_MAX, .cost = 1};
    struct rate_fields f;
    struct gcra_verdict v = {.allowed = false};
    char out[RATE_STATE_MAX];
    (void)state;
    for (unsigned i = 0; i < GCRA_MAX; i++) {
        assert_true(gcra_window_set(&g.windows[i], 10000000, 34560000000 - 1 - i, 1, 1));
        v.ahead[i] = UINT64_MAX / 2;
    }
    rate_fields_set(&f, &g);
    assert_true(f.policy_n < sizeof(f.policy));
    assert_true(rate_state(&f, &g, &v, out) < sizeof(out));
}

static void the_older_three_tell_of_the_tightest(void **state)
{
    struct gcra g = limits();
    struct gcra_verdict v = {.allowed = true, .ahead = {0, 0, 0}};
    (void)state;
    assert_int_equal(rate_tightest(&g, &v), 0);
    v.ahead[1] = 45 * g.windows[1].step;
    assert_int_equal(rate_tightest(&g, &v), 1);
    v.allowed = false;
    v.met = 2;
    assert_int_equal(rate_tightest(&g, &v), 2);
}

static void writes_numbers_of_every_length(void **state)
{
    char out[20];
    (void)state;
    assert_int_equal(rate_number(0, out), 1);
    assert_memory_equal(out, "0", 1);
    assert_int_equal(rate_number(UINT64_MAX, out), 20);
    assert_memory_equal(out, "18446744073709551615", 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_a_window_as_one_writes_it),
        cmocka_unit_test(writes_the_fields_of_the_draft),
        cmocka_unit_test(the_longest_texts_fit),
        cmocka_unit_test(the_older_three_tell_of_the_tightest),
        cmocka_unit_test(writes_numbers_of_every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
