#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "key_file.h"

static int64_t ms_of(const char *text)
{
    int64_t ms = -1;
    assert_true(key_time_parse(text, &ms));
    return ms;
}

static void reads_dates_and_times(void **state)
{
    (void)state;
    assert_int_equal(ms_of("1970-01-01"), 0);
    assert_int_equal(ms_of("2027-01-31"), 1801353600000);
    assert_int_equal(ms_of("2027-01-31T00:00:00Z"), 1801353600000);
    assert_int_equal(ms_of("2027-01-31 12:34:56.789Z"), 1801398896789);
    assert_int_equal(ms_of("2027-01-31t00:00:00.5z"), 1801353600500);
    assert_int_equal(ms_of("2027-01-31T00:00:00.1239Z"), 1801353600123);
    assert_int_equal(ms_of("2028-02-29"), 1835395200000);
    assert_int_equal(ms_of("9999-12-31T23:59:59Z"), 253402300799000);
}

static void goes_by_the_offset(void **state)
{
    (void)state;
    assert_int_equal(ms_of("2027-01-31T01:30:00+01:30"), 1801353600000);
    assert_int_equal(ms_of("2027-01-30T20:00:00-04:00"), 1801353600000);
}

static void refuses_all_else(void **state)
{
    static const char *const wrong[] = {
        "",
        "2027",
        "2027-01",
        "2027-1-31",
        "27-01-31",
        "2027-13-01",
        "2027-00-01",
        "2027-02-30",
        "2027-02-29",
        "2027-01-32",
        "2027-01-31T",
        "2027-01-31T12:00Z",
        "2027-01-31T12:00:00",
        "2027-01-31T24:00:00Z",
        "2027-01-31T12:60:00Z",
        "2027-01-31T12:00:60Z",
        "2027-01-31T12:00:00.Z",
        "2027-01-31T12:00:00+0100",
        "2027-01-31T12:00:00+24:00",
        "2027-01-31T12:00:00ZZ",
        "2027-01-31x12:00:00Z",
        " 2027-01-31",
        "2027-01-31 ",
        "1969-12-31",
        "2027/01/31",
        "never",
    };
    int64_t ms = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (key_time_parse(wrong[i], &ms))
            fail_msg("took \"%s\"", wrong[i]);
        assert_int_equal(ms, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_dates_and_times),
        cmocka_unit_test(goes_by_the_offset),
        cmocka_unit_test(refuses_all_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
