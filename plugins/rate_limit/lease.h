/* What one worker knows about keys whose limits are kept in Redis: requests that it has paid
 * for there in advance, and until when Redis would refuse. With these a busy key costs a trip
 * now and then and not one for each request.
 *
 * Paid-for requests are good for LEASE_NS; those not used then go back with the next trip, for
 * which it is never too late: what was never used may be used by others. So in any time t no
 * more than burst + (t + LEASE_NS) / step pass, over all gateways together, however many there
 * are. How many to pay for follows from how many came lately, and is a quarter of the burst at
 * most, so that little is lost when they stop coming.
 *
 * A table of fixed size; it forgets what is of no use any more, then what is oldest. Pure: no
 * clock, no I/O. Owned by one worker and used on its thread. Times in nanoseconds. */
#ifndef POSTERN_RATE_LIMIT_LEASE_H
#define POSTERN_RATE_LIMIT_LEASE_H

#include "rate_limit/gcra.h"

#define LEASE_NS UINT64_C(10000000)

struct trip;

struct lease {
    uint64_t hash, last; /* last: when somebody asked; 0: free */
    uint64_t good_until;
    uint32_t left; /* paid for and not used */
    uint32_t back; /* to be given back */
    uint32_t asked;
    uint64_t asked_from; /* `asked` counts from there */
    uint64_t refuse_until;
    uint64_t tats[GCRA_MAX]; /* on our clock, gcra_time */
    struct trip *trip;       /* on its way */
};

enum lease_says { LEASE_ALLOWS, LEASE_REFUSES, LEASE_JOIN, LEASE_ASK };

/* What came back. */
struct lease_reply {
    uint32_t wanted, granted;
    uint64_t wait_us, ahead_us[GCRA_MAX]; /* behind what was granted */
};

struct leases;
struct leases *leases_new(const struct gcra *gcra,
                          size_t keys);  /* gcra must stay. NULL: memory */
void leases_free(struct leases *leases); /* NULL is fine */
/* NULL: everything that could make room has a trip on its way. */
struct lease *leases_find(struct leases *leases, uint64_t hash, uint64_t now);

/* JOIN: a trip is on its way. ASK: make one. The verdict is set with the other two. */
enum lease_says lease_say(const struct leases *leases, struct lease *lease, uint64_t now,
                          struct gcra_verdict *ret);
/* How many requests the trip should ask for, for `waiting` that wait; and how many it gives
 * back. */
uint32_t lease_want(const struct leases *leases, struct lease *lease, uint32_t waiting,
                    uint64_t now, uint32_t *ret_back);
/* The trip is over; `used` of what was granted goes to who waited. */
void lease_got(const struct leases *leases, struct lease *lease, uint64_t now,
               const struct lease_reply *reply, uint32_t used);
/* For one of those who waited: `left` were granted and not used behind this one. */
void lease_verdict(const struct gcra *gcra, const struct lease_reply *reply, bool allowed,
                   uint32_t left, struct gcra_verdict *ret);

#endif
