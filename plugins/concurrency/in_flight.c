#include "concurrency/in_flight.h"

static uint64_t counted(const _Atomic uint64_t *counts, unsigned words, uint64_t now)
{
    (void)words;
    (void)now;
    return atomic_load(counts);
}

static bool raised_below(_Atomic uint64_t *count, uint64_t limit, uint64_t *ret_count)
{
    uint64_t old = atomic_load(count);
    do {
        *ret_count = old + 1;
        if (old >= limit)
            return false;
    } while (!atomic_compare_exchange_weak(count, &old, old + 1));
    return true;
}

struct in_flight_verdict in_flight_enter(struct slots *table, uint64_t hash, uint64_t limit)
{
    static const struct slots_rule rule = {.owed = counted};
    for (;;) {
        struct in_flight_verdict v = {NULL, 0, false};
        struct slots_place place;
        v.shared = slots_take(table, hash, 0, &rule, &place) == SLOTS_SHARED;
        bool raised = raised_below(place.values, limit, &v.count);
        if (slots_holds(&place)) {
            v.held = raised ? place.values : NULL;
            return v;
        }
        if (raised)
            in_flight_leave(place.values);
    }
}

void in_flight_leave(_Atomic uint64_t *held)
{
    atomic_fetch_sub(held, 1);
}
