#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "up/permits.h"

#define MS 1000000ull

static struct permits permits;

static struct permit_user user(uint32_t limit, unsigned index, unsigned count)
{
    return (struct permit_user){
        .permits = &permits, .limit = limit, .index = index, .count = count};
}

static int set_up(void **state)
{
    (void)state;
    permits = (struct permits){0};
    return 0;
}

static unsigned take_all(struct permit_user *who, uint64_t now)
{
    unsigned n = 0;
    while (n < 1000 && permits_take(who, now))
        n++;
    return n;
}

static void there_are_never_more_than_the_limit(void **state)
{
    (void)state;
    struct permit_user a = user(5, 0, 2), b = user(5, 1, 2);
    assert_int_equal(take_all(&a, 1), 5); /* nobody else wants any */
    assert_int_equal(take_all(&b, 1), 0);
    assert_false(permits_may_take(&b, 1));
    permits_give(&a);
    assert_true(permits_may_take(&b, 1));
    assert_int_equal(take_all(&b, 1), 1);
    assert_int_equal(permits.open, 5);
}

static void without_a_limit_all_are_given(void **state)
{
    (void)state;
    struct permit_user a = user(0, 0, 2);
    assert_int_equal(take_all(&a, 1), 1000);
    assert_int_equal(permits.open, 1000);
    permits_want(&a, 1, true);
    assert_int_equal(permits.wanted, 0);
}

static void who_has_less_than_its_share_comes_first(void **state)
{
    (void)state;
    struct permit_user a = user(4, 0, 2), b = user(4, 1, 2);
    take_all(&a, 1);
    assert_false(permits_owes(&a, 1));
    permits_want(&b, 1, true);
    permits_want(&b, 1, true); /* counts once */
    assert_int_equal(permits.wanted, 1);
    assert_true(permits_owes(&a, 1));
    permits_give(&a);
    assert_int_equal(take_all(&a, 1), 0); /* free, but not for a */
    assert_int_equal(take_all(&b, 1), 1);
    permits_give(&a);
    assert_false(permits_owes(&a, 1)); /* has its share */
    assert_int_equal(take_all(&b, 1), 1);
    permits_want(&b, 1, true); /* has its share too: no claim on more */
    assert_int_equal(permits.wanted, 0);
}

static void what_is_left_over_goes_around(void **state)
{
    (void)state;
    struct permit_user users[3] = {user(1, 0, 3), user(1, 1, 3), user(1, 2, 3)};
    unsigned turns[3] = {0};
    for (uint64_t now = 0; now < 900 * MS; now += 100 * MS)
        for (unsigned i = 0; i < 3; i++) {
            permits_want(&users[i], now, true);
            turns[i] += permits.wanted;
            permits_want(&users[i], now, false);
        }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(turns[i], 3);
}

static void moving_takes_everything_along(void **state)
{
    (void)state;
    struct permits other = {0};
    struct permit_user a = user(4, 0, 2), b = user(4, 1, 2);
    take_all(&a, 1);
    permits_want(&b, 1, true);
    permits_move(&b, &other, 2);
    assert_int_equal(permits.wanted, 0);
    assert_int_equal(other.wanted, 1);
    permits_move(&a, &other, 2);
    assert_int_equal(permits.open, 0);
    assert_int_equal(other.open, 4);
    assert_false(permits_may_take(&a, 1)); /* more than there may be now */
    permits_move(&a, &other, 9);
    assert_int_equal(other.open, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(there_are_never_more_than_the_limit, set_up),
        cmocka_unit_test_setup(without_a_limit_all_are_given, set_up),
        cmocka_unit_test_setup(who_has_less_than_its_share_comes_first, set_up),
        cmocka_unit_test_setup(what_is_left_over_goes_around, set_up),
        cmocka_unit_test_setup(moving_takes_everything_along, set_up),
    };
    return cmocka_run_group_tests_name("permits", tests, NULL, NULL);
}
