/* How fast bytes come or go: the most time without one, and the least of them in a window.
 * Looked at when a deadline is due, so that on the way a byte costs a store at most. Pure. */
#ifndef POSTERN_HTTP_PACE_H
#define POSTERN_HTTP_PACE_H

#include <stdint.h>

#include "base/clock.h"

struct pace {
    uint64_t window_bytes;        /* the total when the window began */
    uint32_t window_at, moved_at; /* that moment, and the last byte's; ms, which may wrap */
};

struct pace_limits {
    uint32_t still;             /* ms without a byte; 0: no limit */
    uint32_t rate, rate_window; /* bytes a second over so many ms; rate 0: no limit */
};

static inline uint32_t pace_ms(uint64_t ns)
{
    return (uint32_t)(ns / NS_PER_MS);
}

/* How many ms may pass until the next look, 0: for ever. */
static inline uint64_t pace_wait(const struct pace_limits *limits, uint64_t quiet, uint64_t age)
{
    uint64_t wait = limits->still ? limits->still - quiet : 0;
    uint64_t left = limits->rate_window - age;
    return limits->rate && (!wait || left < wait) ? left : wait;
}

/* From now on; `total`: the bytes so far. Returns how many ms until the first look. */
static inline uint64_t pace_begin(struct pace *pace, uint64_t now, uint64_t total,
                                  const struct pace_limits *limits)
{
    *pace = (struct pace){total, pace_ms(now), pace_ms(now)};
    return pace_wait(limits, 0, 0);
}

/* How many ms until the next look, or -1: nothing moved for too long, or too little did. */
static inline int64_t pace_check(struct pace *pace, uint64_t now, uint64_t total,
                                 const struct pace_limits *limits)
{
    uint32_t ms = pace_ms(now), quiet = ms - pace->moved_at, age = ms - pace->window_at;
    if (limits->still && quiet >= limits->still)
        return -1;
    if (limits->rate && age >= limits->rate_window) {
        if ((total - pace->window_bytes) * 1000 < (uint64_t)limits->rate * age)
            return -1;
        pace->window_at = ms;
        pace->window_bytes = total;
        age = 0;
    }
    return (int64_t)pace_wait(limits, quiet, age);
}

#endif
