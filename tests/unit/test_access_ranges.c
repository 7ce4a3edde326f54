#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access_ranges.h"

#define MAX 64

static struct access_range list[MAX];
static size_t count;

static void add(enum access_verdict verdict, const char *text)
{
    list[count].verdict = verdict;
    assert_int_equal(access_range_parse(text, &list[count++]), 0);
}

static enum access_verdict of(const struct access_ranges *ranges, const char *text)
{
    uint8_t address[16];
    unsigned width = strchr(text, ':') ? 16 : 4;
    assert_int_equal(inet_pton(width == 4 ? AF_INET : AF_INET6, text, address), 1);
    return access_ranges_find(ranges, address, width);
}

static void without_ranges_nothing_is_known(void **state)
{
    (void)state;
    struct access_ranges *ranges = access_ranges_new(NULL, 0);
    assert_int_equal(of(ranges, "10.0.0.1"), ACCESS_UNKNOWN);
    assert_int_equal(of(ranges, "::1"), ACCESS_UNKNOWN);
    access_ranges_free(ranges);
    access_ranges_free(NULL);
}

static void the_narrowest_decides(void **state)
{
    (void)state;
    count = 0;
    add(ACCESS_ALLOW, "10.0.0.0/8");
    add(ACCESS_DENY, "10.1.0.0/16");
    add(ACCESS_ALLOW, "10.1.2.3");
    add(ACCESS_DENY, "10.1.255.255");
    add(ACCESS_ALLOW, "fd00::/8");
    add(ACCESS_DENY, "fd00:1::/32");
    struct access_ranges *ranges = access_ranges_new(list, count);
    assert_int_equal(of(ranges, "9.255.255.255"), ACCESS_UNKNOWN);
    assert_int_equal(of(ranges, "10.0.0.0"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "10.0.255.255"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "10.1.0.0"), ACCESS_DENY);
    assert_int_equal(of(ranges, "10.1.2.2"), ACCESS_DENY);
    assert_int_equal(of(ranges, "10.1.2.3"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "10.1.2.4"), ACCESS_DENY);
    assert_int_equal(of(ranges, "10.1.255.255"), ACCESS_DENY);
    assert_int_equal(of(ranges, "10.2.0.0"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "10.255.255.255"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "11.0.0.0"), ACCESS_UNKNOWN);
    assert_int_equal(of(ranges, "fd00::1"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "fd00:1::1"), ACCESS_DENY);
    assert_int_equal(of(ranges, "fe00::"), ACCESS_UNKNOWN);
    /* IPv4 in IPv6 clothes */
    assert_int_equal(of(ranges, "::ffff:10.1.2.3"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "::ffff:10.1.2.4"), ACCESS_DENY);
    access_ranges_free(ranges);
}

static void of_equal_ones_the_denying_decides(void **state)
{
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        count = 0;
        add(turn ? ACCESS_ALLOW : ACCESS_DENY, "192.0.2.0/24");
        add(turn ? ACCESS_DENY : ACCESS_ALLOW, "192.0.2.0/24");
        add(ACCESS_ALLOW, "192.0.2.7");
        struct access_ranges *ranges = access_ranges_new(list, count);
        assert_int_equal(of(ranges, "192.0.2.1"), ACCESS_DENY);
        assert_int_equal(of(ranges, "192.0.2.7"), ACCESS_ALLOW);
        assert_int_equal(of(ranges, "192.0.2.8"), ACCESS_DENY);
        access_ranges_free(ranges);
    }
}

static void reaches_both_ends(void **state)
{
    (void)state;
    count = 0;
    add(ACCESS_DENY, "0.0.0.0/0");
    add(ACCESS_ALLOW, "255.255.255.255");
    add(ACCESS_ALLOW, "0.0.0.0");
    add(ACCESS_DENY, "::/0");
    add(ACCESS_ALLOW, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    struct access_ranges *ranges = access_ranges_new(list, count);
    assert_int_equal(of(ranges, "0.0.0.0"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "0.0.0.1"), ACCESS_DENY);
    assert_int_equal(of(ranges, "255.255.255.254"), ACCESS_DENY);
    assert_int_equal(of(ranges, "255.255.255.255"), ACCESS_ALLOW);
    assert_int_equal(of(ranges, "::"), ACCESS_DENY);
    assert_int_equal(of(ranges, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ACCESS_ALLOW);
    access_ranges_free(ranges);
}

static void reads_ranges_as_people_write_them(void **state)
{
    struct access_range range = {.verdict = ACCESS_DENY};
    (void)state;
    assert_int_equal(access_range_parse("10.1.2.3/8", &range), 1);
    assert_int_equal(range.first[0], 10);
    assert_int_equal(range.first[1], 0);
    assert_int_equal(range.last[3], 255);
    assert_int_equal(range.verdict, ACCESS_DENY);
    assert_int_equal(access_range_parse("::ffff:192.0.2.0/120", &range), 0);
    assert_int_equal(range.width, 4);
    assert_int_equal(range.bits, 24);
    assert_int_equal(access_range_parse("192.0.2.128/25", &range), 0);
    assert_int_equal(range.last[3], 255);
    static const char *const wrong[] = {
        "",
        "10",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/x",
        "10.0.0.0/-1",
        "10.0.0.0/8/8",
        "::/129",
        "10.0.0/8",
        "[::1]",
        "10.0.0.0 /8",
        "example.com",
        "10.0.0.0/0008",
        "0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (access_range_parse(wrong[i], &range) != -EINVAL)
            fail_msg("took \"%s\"", wrong[i]);
}

/* Slow and plainly right: the longest range that holds the address, a denying one last. */
static enum access_verdict model(const struct access_range *ranges, size_t n,
                                 const uint8_t *address)
{
    const struct access_range *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct access_range *one = &ranges[i];
        if (memcmp(address, one->first, 4) < 0 || memcmp(address, one->last, 4) > 0)
            continue;
        if (!best || one->bits > best->bits ||
            (one->bits == best->bits && one->verdict == ACCESS_DENY))
            best = one;
    }
    return best ? best->verdict : ACCESS_UNKNOWN;
}

/* In 192.0.0.0/26 many ranges fall on and into each other. */
static void agrees_with_a_slow_search(void **state)
{
    struct access_range copy[MAX];
    (void)state;
    srand(7);
    for (int turn = 0; turn < 400; turn++) {
        size_t n = (size_t)(rand() % 20);
        for (size_t i = 0; i < n; i++) {
            char text[32];
            snprintf(text, sizeof(text), "192.0.0.%d/%d", rand() % 64, 24 + rand() % 9);
            copy[i].verdict = rand() % 2 ? ACCESS_ALLOW : ACCESS_DENY;
            assert_true(access_range_parse(text, &copy[i]) >= 0);
            list[i] = copy[i];
        }
        struct access_ranges *ranges = access_ranges_new(list, n);
        for (int last = 0; last < 256; last++) {
            uint8_t address[4] = {192, 0, 0, (uint8_t)last};
            assert_int_equal(access_ranges_find(ranges, address, 4), model(copy, n, address));
        }
        access_ranges_free(ranges);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_ranges_nothing_is_known),
        cmocka_unit_test(the_narrowest_decides),
        cmocka_unit_test(of_equal_ones_the_denying_decides),
        cmocka_unit_test(reaches_both_ends),
        cmocka_unit_test(reads_ranges_as_people_write_them),
        cmocka_unit_test(agrees_with_a_slow_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
