#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "http/h2_guard.h"

static struct h2_guard guard;

/* How often that may be done at `now`. */
static unsigned spend_all(enum h2_flood kind, uint64_t now)
{
    unsigned n = 0;
    while (n < 100000 && h2_guard_spend(&guard, kind, now))
        n++;
    return n;
}

static void resets_are_bounded_by_the_streams(void **state)
{
    (void)state;
    h2_guard_init(&guard, 10, NS_PER_S);
    assert_int_equal(spend_all(H2_FLOOD_RESET, NS_PER_S), 42);
    h2_guard_init(&guard, 128, NS_PER_S);
    assert_int_equal(spend_all(H2_FLOOD_RESET, NS_PER_S), 160);
    h2_guard_init(&guard, 0, NS_PER_S);
    assert_int_equal(spend_all(H2_FLOOD_RESET, NS_PER_S), 192);
    h2_guard_init(&guard, UINT32_MAX, NS_PER_S);
    assert_int_equal(spend_all(H2_FLOOD_RESET, NS_PER_S), 192);
}

static void time_gives_back_what_it_took(void **state)
{
    (void)state;
    uint64_t now = NS_PER_S;
    h2_guard_init(&guard, 10, now);
    spend_all(H2_FLOOD_RESET, now);
    now += 999 * NS_PER_MS;
    assert_int_equal(spend_all(H2_FLOOD_RESET, now), 0);
    now += NS_PER_MS;
    assert_int_equal(spend_all(H2_FLOOD_RESET, now), 33);
    now += 10000 * NS_PER_S; /* and never more than there was */
    assert_int_equal(spend_all(H2_FLOOD_RESET, now), 42);
}

static void the_clock_may_wrap(void **state)
{
    (void)state;
    uint64_t now = ((uint64_t)UINT32_MAX - 500) * NS_PER_MS;
    h2_guard_init(&guard, 10, now);
    spend_all(H2_FLOOD_FAULT, now);
    assert_int_equal(spend_all(H2_FLOOD_FAULT, now + NS_PER_S), 2);
}

static void kinds_with_one_bucket_share_it(void **state)
{
    (void)state;
    h2_guard_init(&guard, 10, NS_PER_S);
    unsigned pings = spend_all(H2_FLOOD_PING, NS_PER_S);
    assert_true(pings < 1000);
    assert_int_equal(spend_all(H2_FLOOD_WINDOW_UPDATE, NS_PER_S), 0);
    assert_int_equal(spend_all(H2_FLOOD_RESET, NS_PER_S), 42);
}

static void bodies_pay_for_frames_that_steer_them(void **state)
{
    (void)state;
    h2_guard_init(&guard, 10, NS_PER_S);
    for (unsigned i = 0; i < 100000; i++) {
        h2_guard_earn(&guard);
        assert_true(h2_guard_spend(&guard, H2_FLOOD_WINDOW_UPDATE, NS_PER_S));
        assert_true(h2_guard_spend(&guard, H2_FLOOD_WINDOW_UPDATE, NS_PER_S));
    }
}

static void what_is_a_flood_by_itself_is_never_let_pass(void **state)
{
    (void)state;
    h2_guard_init(&guard, 10, NS_PER_S);
    assert_false(h2_guard_spend(&guard, H2_FLOOD_HPACK, NS_PER_S));
    assert_false(h2_guard_spend(&guard, H2_FLOOD_CONTINUATION, NS_PER_S));
}

static void names_fit_a_label(void **state)
{
    (void)state;
    for (int i = 0; i < H2_FLOOD_COUNT; i++)
        assert_int_equal(strspn(h2_flood_names[i], "abcdefghijklmnopqrstuvwxyz_"),
                         strlen(h2_flood_names[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resets_are_bounded_by_the_streams),
        cmocka_unit_test(time_gives_back_what_it_took),
        cmocka_unit_test(the_clock_may_wrap),
        cmocka_unit_test(kinds_with_one_bucket_share_it),
        cmocka_unit_test(bodies_pay_for_frames_that_steer_them),
        cmocka_unit_test(what_is_a_flood_by_itself_is_never_let_pass),
        cmocka_unit_test(names_fit_a_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
