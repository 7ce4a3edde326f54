#include "net/deadline.h"

#include <stddef.h>

static void unlink_one(struct wheel *wheel, struct deadline *d)
{
    *d->prev = d->next;
    if (d->next)
        d->next->prev = d->prev;
    d->prev = NULL;
    if (!wheel->slots[d->level][d->slot])
        wheel->bits[d->level] &= ~(1ull << d->slot);
}

/* Distances count from `from`: the last tick that is done; while a slot is spread, the tick
 * being done, or what lies a whole slot ahead would go back to where it came from. */
static void insert(struct wheel *wheel, struct deadline *d, uint64_t tick, uint64_t from)
{
    if (tick <= wheel->tick)
        tick = wheel->tick + 1;
    uint64_t ahead = tick - from;
    unsigned level = 0;
    while (level < WHEEL_LEVELS - 1 && ahead >= 1ull << (WHEEL_BITS * (level + 1)))
        level++;
    /* Too far for the last level: as far as it reaches; it is moved on when that comes. */
    uint64_t reach = (1ull << (WHEEL_BITS * WHEEL_LEVELS)) - 1;
    if (ahead > reach)
        tick = from + reach;

    d->tick = tick;
    d->level = (uint8_t)level;
    d->slot = (uint8_t)((tick >> (WHEEL_BITS * level)) & (WHEEL_SLOTS - 1));
    struct deadline **head = &wheel->slots[level][d->slot];
    d->next = *head;
    if (d->next)
        d->next->prev = &d->next;
    d->prev = head;
    *head = d;
    wheel->bits[level] |= 1ull << d->slot;
}

/* Rounded up: a deadline is never early. */
static uint64_t tick_of(uint64_t at)
{
    return (at >> WHEEL_TICK_SHIFT) + 1;
}

void wheel_init(struct wheel *wheel, uint64_t now)
{
    *wheel = (struct wheel){.tick = now >> WHEEL_TICK_SHIFT};
}

bool wheel_set(struct wheel *wheel, struct deadline *d, uint64_t at)
{
    uint64_t tick = tick_of(at);
    d->at = at;
    if (d->prev && d->tick <= tick)
        return false; /* it is looked at in time, and moved on then */
    if (d->prev)
        unlink_one(wheel, d);
    insert(wheel, d, tick, wheel->tick);
    return true;
}

void deadline_end(struct wheel *wheel, struct deadline *d)
{
    if (d->prev)
        unlink_one(wheel, d);
    d->at = 0;
}

/* Spreads a slot of a higher level over the levels below. */
static void cascade(struct wheel *wheel, unsigned level, unsigned slot)
{
    struct deadline *list = wheel->slots[level][slot];
    wheel->slots[level][slot] = NULL;
    wheel->bits[level] &= ~(1ull << slot);
    while (list) {
        struct deadline *d = list;
        list = d->next;
        d->prev = NULL;
        /* wheel->tick is one before the tick being done, so `tick` lies ahead of it. */
        if (d->at)
            insert(wheel, d, tick_of(d->at), wheel->tick + 1);
    }
}

static void fire(struct wheel *wheel, unsigned slot, uint64_t now)
{
    struct deadline *d;
    while ((d = wheel->slots[0][slot]) && d->tick <= wheel->tick) {
        unlink_one(wheel, d);
        if (!d->at)
            continue;
        if (d->at > now) {
            insert(wheel, d, tick_of(d->at), wheel->tick);
            continue;
        }
        d->at = 0;
        d->on_due(d);
    }
}

void wheel_advance(struct wheel *wheel, uint64_t now)
{
    uint64_t end = now >> WHEEL_TICK_SHIFT;
    while (wheel->tick < end) {
        uint64_t next = wheel_next(wheel);
        uint64_t tick = next == UINT64_MAX ? end : next >> WHEEL_TICK_SHIFT;
        if (tick > end) {
            /* Nothing happens until then, and no boundary of an occupied slot is crossed. */
            wheel->tick = end;
            return;
        }
        if (tick > wheel->tick + 1)
            wheel->tick = tick - 1;
        for (unsigned level = WHEEL_LEVELS - 1; level > 0; level--) {
            uint64_t below = (1ull << (WHEEL_BITS * level)) - 1;
            if ((tick & below) == 0)
                cascade(wheel, level,
                        (unsigned)(tick >> (WHEEL_BITS * level)) & (WHEEL_SLOTS - 1));
        }
        wheel->tick = tick;
        fire(wheel, (unsigned)tick & (WHEEL_SLOTS - 1), now);
    }
}

uint64_t wheel_next(const struct wheel *wheel)
{
    uint64_t best = UINT64_MAX;
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        uint64_t bits = wheel->bits[level];
        if (!bits)
            continue;
        unsigned shift = WHEEL_BITS * level;
        uint64_t here = wheel->tick >> shift;
        unsigned from = (unsigned)(here + 1) & (WHEEL_SLOTS - 1);
        uint64_t turned = from ? bits >> from | bits << (WHEEL_SLOTS - from) : bits;
        uint64_t tick = (here + 1 + (unsigned)__builtin_ctzll(turned)) << shift;
        if (tick < best)
            best = tick;
    }
    return best == UINT64_MAX ? best : best << WHEEL_TICK_SHIFT;
}
