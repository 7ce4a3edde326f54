/* Timers for thousands of connections on one libevent timer: a hierarchical wheel.
 *
 * Setting a deadline further out only stores a number; the wheel looks at it when the old
 * time comes and moves it on. So a timer that is touched for every request costs one store.
 * Exact to one tick (8.4 ms), never early. One loop's thread. */
#ifndef POSTERN_NET_DEADLINE_H
#define POSTERN_NET_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#define WHEEL_TICK_SHIFT 23 /* one tick is 2^23 ns */
#define WHEEL_BITS       6
#define WHEEL_SLOTS      (1u << WHEEL_BITS)
#define WHEEL_LEVELS     4 /* 64^4 ticks are 39 hours; what is later is moved on when due */

struct deadline {
    struct deadline *next, **prev; /* in a slot; prev NULL: in none */
    uint64_t at;                   /* ns, monotonic; 0: off */
    uint64_t tick;                 /* where it stands in the wheel: never after `at` */
    uint8_t level, slot;
    void (*on_due)(struct deadline *deadline);
};

struct wheel {
    uint64_t tick; /* everything up to and with this tick is done */
    uint64_t bits[WHEEL_LEVELS];
    struct deadline *slots[WHEEL_LEVELS][WHEEL_SLOTS];
};

void wheel_init(struct wheel *wheel, uint64_t now);
/* Puts `deadline` at `at` ns; returns true when the wheel's next wake-up may be earlier now. */
bool wheel_set(struct wheel *wheel, struct deadline *deadline, uint64_t at);
/* Calls on_due of all that are due at `now`. They may set and end any deadline. */
void wheel_advance(struct wheel *wheel, uint64_t now);
/* When to call wheel_advance next, ns; UINT64_MAX: never. */
uint64_t wheel_next(const struct wheel *wheel);

/* `on_due` runs on the loop's thread. Zeroed memory is an initialised, off deadline. */
static inline void deadline_init(struct deadline *deadline, void (*on_due)(struct deadline *))
{
    *deadline = (struct deadline){.on_due = on_due};
}
/* Off, but it may stay in the wheel: call deadline_end before its memory goes. */
static inline void deadline_off(struct deadline *deadline)
{
    deadline->at = 0;
}
static inline bool deadline_is_on(const struct deadline *deadline)
{
    return deadline->at != 0;
}
void deadline_end(struct wheel *wheel, struct deadline *deadline);

#endif
