/* The generic cell rate algorithm: how often something may happen, in one word of state.
 *
 * The word is the theoretical arrival time (TAT): when all that was let through would have come
 * if it had come evenly. Something that comes at `now` is let through when
 *
 *      max(TAT, now) + cost * step - now <= burst * step
 *
 * and TAT becomes max(TAT, now) + cost * step; step is the time for one. So from rest `burst`
 * come through at once, then one each `step`; in any time t at most burst + t / step. A TAT
 * that has passed says nothing more: a word of 0 and one of yesterday are the same.
 *
 * Times are in sixteenths of a nanosecond, and steps are rounded up: a rate is never exceeded,
 * and at a million a second missed by less than one in ten thousand. The words are shared by
 * all threads; everything else is the caller's. */
#ifndef POSTERN_RATE_LIMIT_GCRA_H
#define POSTERN_RATE_LIMIT_GCRA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GCRA_MAX       4  /* windows of one limit */
#define GCRA_UNITS     16 /* of time in a nanosecond */
#define GCRA_MS        (UINT64_C(1000000) * GCRA_UNITS)
#define GCRA_DAY       (UINT64_C(86400) * 1000 * GCRA_MS)
#define GCRA_TOLERANCE (400 * GCRA_DAY) /* the most */

struct gcra_window {
    uint64_t number, per_ms; /* as written */
    uint64_t step, burst;
    uint64_t take, tolerance; /* cost * step, burst * step */
};

struct gcra {
    struct gcra_window windows[GCRA_MAX];
    unsigned count;
    uint64_t cost;
};

/* What one request met. */
struct gcra_verdict {
    bool allowed;
    unsigned met;             /* not allowed: the window that one must wait for longest */
    uint64_t wait;            /* not allowed: until it would be */
    uint64_t ahead[GCRA_MAX]; /* of each window: TAT - now behind this request, or 0 */
};

static inline uint64_t gcra_time(uint64_t ns)
{
    return ns * GCRA_UNITS;
}

/* `number` in each `per_ms`, `burst` at once. False: that is too fast or too slow for a word.
 * 1 <= cost <= burst. */
bool gcra_window_set(struct gcra_window *w, uint64_t number, uint64_t per_ms, uint64_t burst,
                     uint64_t cost);
/* What `burst` is where nobody says: 10 or a hundredth of `number`, whichever is more, but not
 * more than `number`. */
uint64_t gcra_burst(uint64_t number);

/* Takes `cost` from all windows, or nothing from any. With several windows and another thread
 * at the same words, one that is refused may have held something for an instant. */
void gcra_take(const struct gcra *g, _Atomic uint64_t *tats, uint64_t now,
               struct gcra_verdict *ret);
/* Takes back what an allowed gcra_take took. */
void gcra_give_back(const struct gcra *g, _Atomic uint64_t *tats);
/* What gcra_take would say, and nothing is taken; with `ahead` given (TAT - now). */
void gcra_judge(const struct gcra *g, const uint64_t ahead[GCRA_MAX], struct gcra_verdict *ret);

/* What the window would let through at once, in the units of `cost`. */
uint64_t gcra_left(const struct gcra_window *w, uint64_t ahead);
/* Until it would let more through than that: enough for one request when it is not now, else
 * one unit. 0: it is at rest. */
uint64_t gcra_more(const struct gcra_window *w, uint64_t ahead);
/* Whole seconds, rounded up. */
uint64_t gcra_seconds(uint64_t time);

#endif
