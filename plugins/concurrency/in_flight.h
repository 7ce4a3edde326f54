/* How many requests of a key are on their way: a table of slots with one count each.
 *
 * A slot that counts something is never given away; where all eight of a set do, a new key
 * counts in another's slot, the emptiest, so that its limit is rather met too early than
 * exceeded. Any thread. */
#ifndef POSTERN_CONCURRENCY_IN_FLIGHT_H
#define POSTERN_CONCURRENCY_IN_FLIGHT_H

#include "limit/slots.h"

struct in_flight_verdict {
    _Atomic uint64_t *held; /* for in_flight_leave; NULL: the limit is met */
    uint64_t count;         /* with this request */
    bool shared;            /* with another key */
};

struct in_flight_verdict in_flight_enter(struct slots *table, uint64_t hash, uint64_t limit);
void in_flight_leave(_Atomic uint64_t *held);

#endif
