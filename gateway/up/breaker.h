/* A breaker: how many requests one upstream may have waiting and under way, over all workers,
 * and when it began to refuse.
 *
 * Plain counters, no lock. Each refusal is counted; that it began is told once, and that it is
 * over once, to the worker that saw it begin. Any thread. */
#ifndef POSTERN_UP_BREAKER_H
#define POSTERN_UP_BREAKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BREAKER_CALM_NS                                                                        \
    (5ull * 1000 * 1000 * 1000) /* so long without a refusal, and it is over */

struct breaker_limits {
    uint32_t pending, requests; /* 0: no limit */
};

struct breaker {
    struct breaker_limits limits;
    _Alignas(64) _Atomic uint32_t pending;  /* requests that wait for a connection */
    _Alignas(64) _Atomic uint32_t requests; /* under way, where that is limited */
    /* ns; 0: it does not refuse. And what it has refused since then. */
    _Alignas(64) _Atomic uint64_t since, last, refused;
};

/* One more waits. False: that is one too many, but it counts until breaker_waits_no_more.
 * *ret_count: how many wait with it. */
bool breaker_waits(struct breaker *breaker, uint32_t *ret_count);
void breaker_waits_no_more(struct breaker *breaker, uint32_t count);
/* One more begins. False: it may not, and does not count. */
bool breaker_begin(struct breaker *breaker, uint32_t *ret_count);
void breaker_end(struct breaker *breaker); /* one that was let begin has ended */

/* One was refused, for whatever limit. True: the first; the caller tells, and from then on asks
 * breaker_is_over from time to time. */
bool breaker_refused(struct breaker *breaker, uint64_t now);
/* What has come of it: true once, when nothing was refused for a while. `force`: it is over for
 * the caller in any case. */
bool breaker_is_over(struct breaker *breaker, uint64_t now, bool force, uint64_t *ret_refused,
                     uint64_t *ret_ns);

#endif
