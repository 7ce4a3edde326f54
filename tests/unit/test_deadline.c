#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "net/deadline.h"

#define TICK  (1ull << WHEEL_TICK_SHIFT)
#define HOUR  (3600ull * 1000 * 1000 * 1000)
#define COUNT 150

static uint64_t seed, now;
static struct wheel wheel;

/* The obvious way: every deadline's time, looked at one by one. */
static struct deadline timers[COUNT];
static uint64_t expected[COUNT];
static unsigned fired;
static void (*in_callback)(size_t i);

static uint64_t any(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static void set(size_t i, uint64_t at)
{
    uint64_t next = wheel_next(&wheel);
    bool earlier = wheel_set(&wheel, &timers[i], at);
    expected[i] = at;
    if (!earlier)
        assert_true(wheel_next(&wheel) >= next);
}

static void on_due(struct deadline *deadline)
{
    size_t i = (size_t)(deadline - timers);
    assert_true(expected[i] != 0);   /* it is on ... */
    assert_true(expected[i] <= now); /* ... never early ... */
    assert_false(deadline_is_on(deadline));
    expected[i] = 0; /* ... and told once */
    fired++;
    if (in_callback)
        in_callback(i);
}

static int set_up(void **state)
{
    (void)state;
    seed = 88172645463325252ull;
    now = 5 * HOUR + 12345;
    fired = 0;
    in_callback = NULL;
    wheel_init(&wheel, now);
    for (size_t i = 0; i < COUNT; i++) {
        deadline_init(&timers[i], on_due);
        expected[i] = 0;
    }
    return 0;
}

/* At most one tick late, and the wheel wakes up in time for the next. */
static void check(void)
{
    uint64_t next = wheel_next(&wheel);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(deadline_is_on(&timers[i]), expected[i] != 0);
        if (expected[i]) {
            assert_true(now < expected[i] + TICK);
            assert_true(next <= expected[i] + TICK);
        }
    }
}

static void advance_to(uint64_t to)
{
    now = to;
    wheel_advance(&wheel, now);
    check();
}

/* Near and far alike: as many of a few ticks as of many hours. */
static uint64_t any_delay(void)
{
    return any(1ull << (10 + any(39))); /* up to 78 hours */
}

static void meddle(size_t i)
{
    size_t other = any(COUNT);
    switch (any(6)) {
    case 0:
        set(i, now + any_delay());
        break;
    case 1:
        set(other, now + any_delay());
        break;
    case 2:
        deadline_end(&wheel, &timers[other]);
        expected[other] = 0;
        break;
    case 3:
        deadline_off(&timers[other]);
        expected[other] = 0;
        break;
    default:
        break;
    }
}

static void agrees_with_a_list_of_times(void **state)
{
    (void)state;
    in_callback = meddle;
    for (int step = 0; step < 30000; step++) {
        size_t i = any(COUNT);
        switch (any(8)) {
        case 0:
            deadline_off(&timers[i]);
            expected[i] = 0;
            break;
        case 1:
            deadline_end(&wheel, &timers[i]);
            expected[i] = 0;
            break;
        case 2:
        case 3:
            advance_to(now + any(1ull << (18 + any(28))));
            break;
        default:
            set(i, now + any_delay());
            break;
        }
    }
    assert_true(fired > 2000);
}

static void fires_at_the_very_tick_when_woken_as_it_asks(void **state)
{
    (void)state;
    unsigned wakes = 0;
    for (size_t i = 0; i < COUNT; i++)
        set(i, now + any_delay());
    while (wheel_next(&wheel) != UINT64_MAX) {
        uint64_t next = wheel_next(&wheel);
        assert_true(next > now);
        advance_to(next);
        wakes++;
    }
    assert_int_equal(fired, COUNT);
    /* Each moves down one level at a time: never many wake-ups for one deadline. */
    assert_true(wakes <= COUNT * (WHEEL_LEVELS + 2));
}

static void every_level_and_its_edges(void **state)
{
    (void)state;
    for (unsigned level = 0; level <= WHEEL_LEVELS; level++) {
        for (int edge = -2; edge <= 2; edge++) {
            uint64_t ticks = ((uint64_t)1 << (WHEEL_BITS * level)) + (uint64_t)(edge + 2);
            set(0, now + ticks * TICK);
            advance_to(now + ticks * TICK - 1);
            assert_int_equal(fired, 0);
            advance_to(now + 1 + TICK);
            assert_int_equal(fired, 1);
            fired = 0;
        }
    }
}

/* When a slot of level 1 or more is spread, what is due at the last tick of the next revolution
 * must not be put back into the slot that it came from. */
static void the_last_tick_of_a_slot_is_not_put_back(void **state)
{
    (void)state;
    for (unsigned level = 1; level < WHEEL_LEVELS; level++) {
        uint64_t slot = TICK << (WHEEL_BITS * level);
        uint64_t begin = (now / slot + 3) * slot;
        set(0, begin + slot - 2 * TICK);
        set(1, begin + slot - TICK - 1);
        while (fired < 2)
            advance_to(wheel_next(&wheel)); /* which checks that none is late */
        fired = 0;
    }
}

static void beyond_the_last_level_it_is_moved_on(void **state)
{
    (void)state;
    uint64_t at = now + 400 * HOUR, start = now;
    unsigned wakes = 0;
    set(0, at);
    for (; !fired; wakes++) {
        assert_true(wheel_next(&wheel) != UINT64_MAX);
        advance_to(wheel_next(&wheel));
    }
    assert_true(now >= at && now < at + TICK);
    assert_true(wakes < 400 * HOUR / ((now - start) / 400) && wakes < 64);
}

static void touching_is_one_store(void **state)
{
    (void)state;
    set(0, now + 10 * TICK);
    uint64_t next = wheel_next(&wheel);
    for (unsigned i = 1; i < 5000; i++) {
        assert_false(wheel_set(&wheel, &timers[0], now + (10 + i) * TICK));
        expected[0] = now + (10 + i) * TICK;
    }
    assert_int_equal(wheel_next(&wheel), next);
    advance_to(next + TICK);
    assert_int_equal(fired, 0);
    advance_to(expected[0] + TICK);
    assert_int_equal(fired, 1);
}

static void an_earlier_time_is_kept_too(void **state)
{
    (void)state;
    set(0, now + 10 * HOUR);
    assert_true(wheel_set(&wheel, &timers[0], now + 3 * TICK));
    expected[0] = now + 3 * TICK;
    assert_true(wheel_next(&wheel) <= now + 4 * TICK);
    advance_to(now + 4 * TICK);
    assert_int_equal(fired, 1);
}

static void what_is_past_is_due_at_the_next_tick(void **state)
{
    (void)state;
    set(0, now - HOUR);
    assert_true(wheel_next(&wheel) <= now + TICK);
    now += TICK;
    wheel_advance(&wheel, now);
    assert_int_equal(fired, 1);
}

static void an_ended_one_is_not_looked_at_again(void **state)
{
    (void)state;
    struct deadline *one = malloc(sizeof(*one)), *two = malloc(sizeof(*two));
    deadline_init(one, on_due);
    deadline_init(two, on_due);
    wheel_set(&wheel, one, now + 5 * TICK);
    wheel_set(&wheel, two, now + 5 * TICK);
    deadline_off(one); /* off, but still in its slot */
    deadline_end(&wheel, one);
    deadline_end(&wheel, two);
    deadline_end(&wheel, two); /* harmless */
    free(one);
    free(two);
    assert_int_equal(wheel_next(&wheel), UINT64_MAX);
    advance_to(now + HOUR);
    assert_int_equal(fired, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(agrees_with_a_list_of_times, set_up),
        cmocka_unit_test_setup(fires_at_the_very_tick_when_woken_as_it_asks, set_up),
        cmocka_unit_test_setup(every_level_and_its_edges, set_up),
        cmocka_unit_test_setup(the_last_tick_of_a_slot_is_not_put_back, set_up),
        cmocka_unit_test_setup(beyond_the_last_level_it_is_moved_on, set_up),
        cmocka_unit_test_setup(touching_is_one_store, set_up),
        cmocka_unit_test_setup(an_earlier_time_is_kept_too, set_up),
        cmocka_unit_test_setup(what_is_past_is_due_at_the_next_tick, set_up),
        cmocka_unit_test_setup(an_ended_one_is_not_looked_at_again, set_up),
    };
    return cmocka_run_group_tests_name("deadline", tests, NULL, NULL);
}
