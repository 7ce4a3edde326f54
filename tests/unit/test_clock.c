#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"

static void writes_the_date_of_the_rfc(void **state)
{
    char out[CLOCK_HTTP_LEN];
    (void)state;
    clock_put_http(out, 784111777000);
    assert_memory_equal(out, "Sun, 06 Nov 1994 08:49:37 GMT", CLOCK_HTTP_LEN);
}

static void writes_milliseconds_in_the_iso_form(void **state)
{
    char out[CLOCK_ISO_LEN];
    (void)state;
    clock_put_iso(out, 784111777123);
    assert_memory_equal(out, "1994-11-06T08:49:37.123Z", CLOCK_ISO_LEN);
    clock_put_iso(out, 0);
    assert_memory_equal(out, "1970-01-01T00:00:00.000Z", CLOCK_ISO_LEN);
}

/* The library's calendar, in the C locale, at one odd second of every month until 2800. */
static void agrees_with_gmtime(void **state)
{
    (void)state;
    for (time_t t = 0; t < 26179200000; t += 2629741) {
        char http[64], iso[64], want[64];
        struct tm tm;
        gmtime_r(&t, &tm);
        clock_put_http(http, (uint64_t)t * 1000 + 999);
        strftime(want, sizeof(want), "%a, %d %b %Y %H:%M:%S GMT", &tm);
        assert_memory_equal(http, want, CLOCK_HTTP_LEN);
        clock_put_iso(iso, (uint64_t)t * 1000 + 7);
        strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S.007Z", &tm);
        assert_memory_equal(iso, want, CLOCK_ISO_LEN);
    }
}

static void knows_the_leap_days_of_centuries(void **state)
{
    static const struct {
        uint64_t seconds;
        const char *day;
    } cases[] = {
        {951782399, "2000-02-28"},  {951782400, "2000-02-29"},  {951868800, "2000-03-01"},
        {4107456000, "2100-02-28"}, {4107542400, "2100-03-01"},
    };
    char out[CLOCK_ISO_LEN];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        clock_put_iso(out, cases[i].seconds * 1000);
        assert_memory_equal(out, cases[i].day, 10);
    }
}

static void stays_within_its_bytes_for_any_time(void **state)
{
    char out[CLOCK_HTTP_LEN + 1] = {0};
    (void)state;
    out[CLOCK_HTTP_LEN] = '#';
    clock_put_http(out, UINT64_MAX);
    assert_int_equal(out[CLOCK_HTTP_LEN], '#');
    assert_memory_equal(out + 26, "GMT", 3);
}

static void monotonic_time_does_not_go_back(void **state)
{
    uint64_t before = clock_ns();
    (void)state;
    assert_true(clock_ns() >= before);
    assert_true(clock_wall_ms() > 1600000000000); /* after 2020 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_date_of_the_rfc),
        cmocka_unit_test(writes_milliseconds_in_the_iso_form),
        cmocka_unit_test(agrees_with_gmtime),
        cmocka_unit_test(knows_the_leap_days_of_centuries),
        cmocka_unit_test(stays_within_its_bytes_for_any_time),
        cmocka_unit_test(monotonic_time_does_not_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
