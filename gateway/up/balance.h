/* Which server gets a request. No lock; one relaxed fetch_add on the shared counter at most.
 * Any worker's thread. */
#ifndef POSTERN_UP_BALANCE_H
#define POSTERN_UP_BALANCE_H

#include "up/cluster.h"

/* Which servers are passed over for this request: a bit each for those tried already, and those
 * that are out (enum vital) for another reason than `regardless` has. */
struct tried {
    uint64_t bits[CLUSTER_SERVERS / 64];
    uint32_t regardless;
};
static inline void tried_add(struct tried *tried, unsigned i)
{
    tried->bits[i / 64] |= 1ull << (i % 64);
}
static inline bool tried_has(const struct tried *tried, unsigned i)
{
    return tried->bits[i / 64] >> (i % 64) & 1;
}

/* The index of a server that is not passed over, or -1 when all are. Backups only when every
 * primary is. A server that eases in gets its part of the choices, or of the keys. `hash`: of
 * the request's key, with BALANCE_HASH (0: it has none; then as round robin). `random`: a fresh
 * random number, with BALANCE_TWO_CHOICES. */
int balance_pick(struct cluster *cluster, const struct tried *tried, uint64_t hash,
                 uint64_t random);

/* A request begins and ends at a server; only kept count of where the balance looks at it. */
void balance_begin(struct cluster *cluster, unsigned server);
void balance_end(struct cluster *cluster, unsigned server);

/* A hash of any bytes, the same in every process: where a client sticks to a server across
 * restarts and gateways. Not for tables that a client could flood. Never 0. */
uint64_t balance_hash(struct str key);

#endif
