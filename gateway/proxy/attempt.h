/* What requests of clients and calls of plugins do alike at an upstream: choosing a server,
 * trying again within the retry budget, and saying what speaks against a server. One worker's
 * thread. */
#ifndef POSTERN_PROXY_ATTEMPT_H
#define POSTERN_PROXY_ATTEMPT_H

#include "http/leg.h"
#include "proxy/context.h"
#include "up/balance.h"

#define RETRY_FLOOR 10             /* retries in a window that no budget forbids */
#define RETRY_HALF  (5 * NS_PER_S) /* half of the budget's window */

/* A server for somebody with that key (0: none), or -1: one that is not passed over, can be
 * connected to and has a connection to spare; if there is none, the first that is only busy,
 * else the first whose last connect failed. A cold server is better than none; and so is any
 * that nobody took out on purpose, where the upstream says so. */
int attempt_pick(struct context *cx, const struct fleet *fleet, const struct tried *tried,
                 uint64_t hash);

/* Which server of the fleet's that pool is for, when somebody who has tried `tried` and waits
 * for a busy one may as well go there; -1: it is none of those. */
int attempt_moves_to(const struct fleet *fleet, const struct tried *tried,
                     const struct pool *pool);

void attempt_budget_turn(struct fleet *fleet, uint64_t now); /* the window moves on */
/* One more request, to which retries are in proportion. */
static inline void attempt_begun(struct fleet *fleet, uint64_t now)
{
    if (now - fleet->window_at >= RETRY_HALF)
        attempt_budget_turn(fleet, now);
    fleet->requests[0]++;
}
/* Whether one more retry is in proportion; counted in fleet->retried[0] by who makes it, and
 * as refused here where it is not. */
bool attempt_may_retry(struct fleet *fleet, uint64_t now);

/* What of retry.on a failure, or an answer's status, is; 0: nothing. */
unsigned attempt_kind(enum reason reason);
unsigned attempt_status_kind(unsigned status);

/* A failure speaks against the server, if it is of a kind that does. */
void attempt_note(const struct cluster *cluster, unsigned server, enum reason reason,
                  uint64_t now);

#endif
