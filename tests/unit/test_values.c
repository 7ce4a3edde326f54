#include "conf_test.h"

#include <errno.h>

static void reads_sizes_in_bytes_and_powers_of_1024(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int err;
        uint64_t bytes;
    } cases[] = {
        {"0", 0, 0},
        {"512", 0, 512},
        {"16k", 0, 16384},
        {"10m", 0, 10u << 20},
        {"1g", 0, 1u << 30},
        {"8589934591g", 0, 8589934591ull << 30},
        {"8589934592g", -ERANGE, 0},
        {"9223372036854775807", 0, INT64_MAX},
        {"9223372036854775808", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"k", -EINVAL, 0},
        {"1K", -EINVAL, 0},
        {"1kb", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {"1.5k", -EINVAL, 0},
        {"1 k", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1t", -EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t bytes = 7;
        assert_int_equal(value_parse_size(str_of(cases[i].text), &bytes), cases[i].err);
        assert_true(bytes == (cases[i].err ? 7 : cases[i].bytes));
    }
}

static void reads_times_in_milliseconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int err;
        uint32_t ms;
    } cases[] = {
        {"0", 0, 0},
        {"0ms", 0, 0},
        {"0s", 0, 0},
        {"250ms", 0, 250},
        {"5s", 0, 5000},
        {"2m", 0, 120000},
        {"3h", 0, 10800000},
        {"4294967295ms", 0, UINT32_MAX},
        {"4294967296ms", -ERANGE, 0},
        {"1194h", -ERANGE, 0},
        {"5", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"5 s", -EINVAL, 0},
        {"5S", -EINVAL, 0},
        {"5sec", -EINVAL, 0},
        {"1m30s", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"00", -EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint32_t ms = 7;
        assert_int_equal(value_parse_time(str_of(cases[i].text), &ms), cases[i].err);
        assert_int_equal(ms, cases[i].err ? 7 : cases[i].ms);
    }
}

static void reads_shares_in_permille(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int err;
        uint32_t permille;
    } cases[] = {
        {"0%", 0, 0},          {"20%", 0, 200},     {"2.5%", 0, 25},
        {"100%", 0, 1000},     {"100.0%", 0, 1000}, {"100.1%", -ERANGE, 0},
        {"101%", -ERANGE, 0},  {"20", -EINVAL, 0},  {"%", -EINVAL, 0},
        {"", -EINVAL, 0},      {".5%", -EINVAL, 0}, {"2.%", -EINVAL, 0},
        {"2.55%", -EINVAL, 0}, {"-1%", -EINVAL, 0}, {"20 %", -EINVAL, 0},
        {"2,5%", -EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint32_t permille = 7;
        assert_int_equal(value_parse_share(str_of(cases[i].text), 100, &permille),
                         cases[i].err);
        assert_int_equal(permille, cases[i].err ? 7 : cases[i].permille);
    }
    uint32_t permille = 7;
    assert_int_equal(value_parse_share(STR("125.5%"), 1000, &permille), 0);
    assert_int_equal(permille, 1255);
    assert_int_equal(value_parse_share(STR("1000.1%"), 1000, &permille), -ERANGE);
}

static void writes_the_largest_unit_that_is_exact(void **state)
{
    (void)state;
    char text[VALUE_TEXT];
    assert_string_equal(value_put_size(text, 0), "0");
    assert_string_equal(value_put_size(text, 1023), "1023");
    assert_string_equal(value_put_size(text, 1024), "1k");
    assert_string_equal(value_put_size(text, 1025), "1025");
    assert_string_equal(value_put_size(text, 10u << 20), "10m");
    assert_string_equal(value_put_size(text, 1ull << 50), "1048576g");
    assert_string_equal(value_put_time(text, 0), "0s");
    assert_string_equal(value_put_time(text, 999), "999ms");
    assert_string_equal(value_put_time(text, 1000), "1s");
    assert_string_equal(value_put_time(text, 90000), "90s");
    assert_string_equal(value_put_time(text, DAY_MS), "24h");
}

static void reads_what_it_writes(void **state)
{
    (void)state;
    srand(1);
    for (int i = 0; i < 10000; i++) {
        char text[VALUE_TEXT];
        uint64_t size = (uint64_t)rand() << rand() % 30, bytes;
        uint32_t time = (uint32_t)rand() / 1000 * 1000, ms;
        assert_int_equal(value_parse_size(str_of(value_put_size(text, size)), &bytes), 0);
        assert_true(bytes == size);
        assert_int_equal(value_parse_time(str_of(value_put_time(text, time)), &ms), 0);
        assert_int_equal(ms, time);
    }
}

static void proposes_only_what_is_near(void **state)
{
    (void)state;
    static const char *const words[] = {"header_bytes", "headers", "idle", "path"};
    assert_string_equal(value_nearest("header_byts", words, 4), "header_bytes");
    assert_string_equal(value_nearest("headres", words, 4), "headers");
    assert_null(value_nearest("idel", words, 4)); /* half of it is wrong */
    assert_string_equal(value_nearest("pth", words, 4), "path");
    assert_null(value_nearest("tls", words, 4));
    assert_null(value_nearest("http2", words, 4));
    assert_null(value_nearest("", words, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_sizes_in_bytes_and_powers_of_1024),
        cmocka_unit_test(reads_times_in_milliseconds),
        cmocka_unit_test(reads_shares_in_permille),
        cmocka_unit_test(writes_the_largest_unit_that_is_exact),
        cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(proposes_only_what_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
