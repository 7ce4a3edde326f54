#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rate_limit/gcra.h"

#define MS GCRA_MS
#define S  (1000 * GCRA_MS)

static struct gcra one(uint64_t number, uint64_t per_ms, uint64_t burst, uint64_t cost)
{
    struct gcra g = {.count = 1, .cost = cost};
    assert_true(gcra_window_set(&g.windows[0], number, per_ms, burst, cost));
    return g;
}

static bool take(const struct gcra *g, _Atomic uint64_t *tats, uint64_t now)
{
    struct gcra_verdict v;
    gcra_take(g, tats, now, &v);
    return v.allowed;
}

static unsigned take_many(const struct gcra *g, _Atomic uint64_t *tats, uint64_t now,
                          unsigned n)
{
    unsigned allowed = 0;
    for (unsigned i = 0; i < n; i++)
        allowed += take(g, tats, now);
    return allowed;
}

static void lets_a_burst_through_and_then_one_each_step(void **state)
{
    struct gcra g = one(100, 1000, 5, 1);
    _Atomic uint64_t tat = 0;
    uint64_t now = 1000 * S;
    (void)state;
    assert_int_equal(take_many(&g, &tat, now, 20), 5);
    assert_int_equal(take_many(&g, &tat, now + 10 * MS - 1, 20), 0);
    assert_int_equal(take_many(&g, &tat, now + 10 * MS, 20), 1);
    assert_int_equal(take_many(&g, &tat, now + 35 * MS, 20), 2);
    assert_int_equal(take_many(&g, &tat, now + 10 * S, 20), 5);
}

static void the_verdict_has_what_was_taken(void **state)
{
    struct gcra g = one(100, 1000, 5, 1);
    _Atomic uint64_t tat = 0;
    struct gcra_verdict v = {.wait = 7, .met = 7};
    (void)state;
    gcra_take(&g, &tat, S, &v);
    assert_true(v.allowed && v.wait == 0 && v.met == 0);
    assert_int_equal(v.ahead[0], 10 * MS);
    take_many(&g, &tat, S, 4);
    v.met = 7;
    gcra_take(&g, &tat, S + MS, &v);
    assert_true(!v.allowed && v.met == 0);
    assert_int_equal(v.ahead[0], 49 * MS);
    assert_int_equal(v.wait, 9 * MS);
}

static void a_burst_of_one_keeps_them_apart(void **state)
{
    struct gcra g = one(10, 1000, 1, 1);
    _Atomic uint64_t tat = 0;
    (void)state;
    assert_true(take(&g, &tat, 0));
    assert_false(take(&g, &tat, 99 * MS));
    assert_true(take(&g, &tat, 100 * MS));
    assert_true(take(&g, &tat, 250 * MS));
    assert_false(take(&g, &tat, 349 * MS));
}

static void a_cost_takes_several(void **state)
{
    struct gcra g = one(10, 1000, 10, 4);
    struct gcra_verdict v;
    _Atomic uint64_t tat = 0;
    (void)state;
    assert_int_equal(take_many(&g, &tat, S, 5), 2);
    gcra_take(&g, &tat, S, &v);
    assert_int_equal(gcra_left(&g.windows[0], v.ahead[0]), 2);
    assert_true(v.wait == 200 * MS);
    assert_true(gcra_more(&g.windows[0], v.ahead[0]) == 200 * MS);
    assert_false(take(&g, &tat, S + 200 * MS - 1));
    assert_true(take(&g, &tat, S + 200 * MS));
}

static void says_how_long_to_wait_to_the_unit(void **state)
{
    struct gcra g = one(3, 1000, 3, 1); /* a step that is no whole number */
    struct gcra_verdict v;
    _Atomic uint64_t tat = 0;
    uint64_t now = 7 * S + 123;
    (void)state;
    assert_int_equal(take_many(&g, &tat, now, 9), 3);
    gcra_take(&g, &tat, now, &v);
    assert_false(v.allowed);
    assert_false(take(&g, &tat, now + v.wait - 1));
    assert_true(take(&g, &tat, now + v.wait));
    assert_int_equal(gcra_seconds(v.wait), 1);
    assert_int_equal(gcra_seconds(S), 1);
    assert_int_equal(gcra_seconds(S + 1), 2);
    assert_int_equal(gcra_seconds(0), 0);
}

static void tells_what_is_left_and_when_there_is_more(void **state)
{
    struct gcra g = one(10, 1000, 10, 1);
    const struct gcra_window *w = &g.windows[0];
    (void)state;
    assert_int_equal(gcra_left(w, 0), 10);
    assert_int_equal(gcra_more(w, 0), 0);
    assert_int_equal(gcra_left(w, 100 * MS), 9);
    assert_true(gcra_more(w, 100 * MS) == 100 * MS);
    assert_int_equal(gcra_left(w, 150 * MS), 8);
    assert_true(gcra_more(w, 150 * MS) == 50 * MS);
    assert_int_equal(gcra_left(w, 1000 * MS), 0);
    assert_true(gcra_more(w, 1000 * MS) == 100 * MS);
    assert_int_equal(gcra_left(w, 5000 * MS), 0); /* the burst was larger before a reload */
    assert_true(gcra_more(w, 5000 * MS) == 4100 * MS);
}

static void a_refused_request_takes_nothing_from_any_window(void **state)
{
    struct gcra g = {.count = 2, .cost = 1};
    _Atomic uint64_t tats[2] = {0, 0};
    struct gcra_verdict v;
    (void)state;
    assert_true(gcra_window_set(&g.windows[0], 100, 1000, 100, 1));
    assert_true(gcra_window_set(&g.windows[1], 60, 60000, 3, 1));
    assert_int_equal(take_many(&g, tats, S, 50), 3);
    gcra_take(&g, tats, S, &v);
    assert_int_equal(v.met, 1);
    assert_true(v.wait == S);
    assert_int_equal(gcra_left(&g.windows[0], v.ahead[0]), 97);
    assert_int_equal(gcra_left(&g.windows[1], v.ahead[1]), 0);
    assert_true(atomic_load(&tats[0]) == S + 30 * MS);
}

static void what_is_given_back_can_be_taken_again(void **state)
{
    struct gcra g = one(10, 1000, 2, 1);
    _Atomic uint64_t tat = 0;
    (void)state;
    assert_int_equal(take_many(&g, &tat, S, 9), 2);
    gcra_give_back(&g, &tat);
    assert_int_equal(take_many(&g, &tat, S, 9), 1);
    gcra_give_back(&g, &tat);
    gcra_give_back(&g, &tat);
    assert_true(atomic_load(&tat) <= S);
    atomic_store(&tat, 5); /* never below nothing */
    gcra_give_back(&g, &tat);
    assert_int_equal(atomic_load(&tat), 0);
}

static void refuses_what_a_word_cannot_hold(void **state)
{
    struct gcra_window w;
    (void)state;
    assert_true(gcra_window_set(&w, 10000000, 1000, 1000000000, 1));
    assert_true(gcra_window_set(&w, 1, 86400000, 400, 1));
    assert_false(gcra_window_set(&w, 1, 86400000, 401, 1));
    assert_false(gcra_window_set(&w, 10000000, 1, 1, 1));
    assert_false(gcra_window_set(&w, 1, INT64_MAX, 1, 1));
    assert_true(gcra_window_set(&w, 10000000, 86400000, 1000000000, 1000000000));
}

static void the_default_burst_is_ten_or_a_hundredth(void **state)
{
    (void)state;
    assert_int_equal(gcra_burst(1), 1);
    assert_int_equal(gcra_burst(9), 9);
    assert_int_equal(gcra_burst(100), 10);
    assert_int_equal(gcra_burst(1000), 10);
    assert_int_equal(gcra_burst(1099), 10);
    assert_int_equal(gcra_burst(1100), 11);
    assert_int_equal(gcra_burst(5000), 50);
}

/* ---- against a slow and obvious one: a bucket of tokens, counted in exact fractions ---- */

struct bucket {
    unsigned __int128 level, full, per_token; /* a token is `per_token` parts */
    uint64_t number, last;
};

static struct bucket bucket_new(uint64_t number, uint64_t per_ms, uint64_t burst)
{
    struct bucket b = {.number = number, .per_token = (unsigned __int128)per_ms * MS};
    b.full = b.level = b.per_token * burst;
    return b;
}

static void bucket_fill(struct bucket *b, uint64_t now)
{
    b->level += (unsigned __int128)(now - b->last) * b->number;
    b->level = b->level < b->full ? b->level : b->full;
    b->last = now;
}

static bool bucket_take(struct bucket *b, unsigned count, uint64_t cost, uint64_t now)
{
    for (unsigned i = 0; i < count; i++) {
        bucket_fill(&b[i], now);
        if (b[i].level < b[i].per_token * cost)
            return false;
    }
    for (unsigned i = 0; i < count; i++)
        b[i].level -= b[i].per_token * cost;
    return true;
}

static uint64_t seed = 88172645463325252;

static uint64_t dice(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % n;
}

/* Where a step is a whole number of units, every single answer is the same. */
static void agrees_with_a_bucket_of_tokens(void **state)
{
    static const uint64_t numbers[] = {1, 2, 4, 5, 8, 10, 25, 50, 100, 1000, 1000000};
    static const uint64_t pers[] = {100, 1000, 60000, 3600000};
    (void)state;
    for (unsigned run = 0; run < 400; run++) {
        struct gcra g = {.count = 1 + (unsigned)dice(GCRA_MAX), .cost = 1 + dice(3)};
        struct bucket buckets[GCRA_MAX];
        _Atomic uint64_t tats[GCRA_MAX] = {0};
        for (unsigned i = 0; i < g.count; i++) {
            uint64_t number = numbers[dice(sizeof(numbers) / sizeof(numbers[0]))];
            uint64_t per = pers[dice(4)], burst = g.cost + dice(30);
            assert_true(gcra_window_set(&g.windows[i], number, per, burst, g.cost));
            buckets[i] = bucket_new(number, per, burst);
        }
        uint64_t now = 0, scale = g.windows[dice(g.count)].step;
        for (unsigned i = 0; i < 2000; i++) {
            now += dice(4) ? dice(scale + 1) : dice(20) ? 0 : dice(40 * scale);
            assert_int_equal(take(&g, tats, now), bucket_take(buckets, g.count, g.cost, now));
        }
    }
}

/* Elsewhere steps are rounded up: never more than the bucket gives, and hardly less. */
static void is_never_ahead_of_a_bucket_and_hardly_behind(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 200; run++) {
        uint64_t number = 1 + dice(3000000), burst = 1 + dice(500);
        struct gcra g = one(number, 1000, burst, 1);
        struct bucket fast = bucket_new(number, 1000, burst);
        _Atomic uint64_t tat = 0;
        uint64_t now = 0, ours = 0, theirs = 0;
        for (unsigned i = 0; i < 5000; i++) {
            now += dice(g.windows[0].step);
            ours += take(&g, &tat, now);
            theirs += bucket_take(&fast, 1, 1, now);
            assert_true(ours <= theirs);
        }
        assert_true(theirs - ours <= 1 + theirs / 1000);
    }
}

/* In any span of time no more than burst + span / step, whatever comes. */
static void no_span_has_more_than_it_may(void **state)
{
    enum { N = 3000 };
    static uint64_t times[N];
    (void)state;
    for (unsigned run = 0; run < 20; run++) {
        struct gcra g = one(1 + dice(1000), 1000, 1 + dice(20), 1);
        const struct gcra_window *w = &g.windows[0];
        _Atomic uint64_t tat = 0;
        uint64_t now = 0;
        unsigned n = 0;
        for (unsigned i = 0; i < 20000 && n < N; i++) {
            now += dice(50) ? dice(w->step / 2) : dice(30 * w->step);
            if (take(&g, &tat, now))
                times[n++] = now;
        }
        for (unsigned i = 0; i < n; i++)
            for (unsigned k = i + 1; k < n && k < i + 200; k++)
                assert_true(k - i + 1 <= w->burst + (times[k] - times[i]) / w->step);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lets_a_burst_through_and_then_one_each_step),
        cmocka_unit_test(the_verdict_has_what_was_taken),
        cmocka_unit_test(a_burst_of_one_keeps_them_apart),
        cmocka_unit_test(a_cost_takes_several),
        cmocka_unit_test(says_how_long_to_wait_to_the_unit),
        cmocka_unit_test(tells_what_is_left_and_when_there_is_more),
        cmocka_unit_test(a_refused_request_takes_nothing_from_any_window),
        cmocka_unit_test(what_is_given_back_can_be_taken_again),
        cmocka_unit_test(refuses_what_a_word_cannot_hold),
        cmocka_unit_test(the_default_burst_is_ten_or_a_hundredth),
        cmocka_unit_test(agrees_with_a_bucket_of_tokens),
        cmocka_unit_test(is_never_ahead_of_a_bucket_and_hardly_behind),
        cmocka_unit_test(no_span_has_more_than_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
