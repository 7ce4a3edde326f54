/* Limits that several gateways share, kept in Redis: one script there does what gcra_take does
 * here, with Redis's own clock, for as many requests at once as the lease asks for.
 *
 * A request whose key has nothing paid for waits for a trip; others of that key wait with it.
 * When Redis is away each section does what its redis_down says.
 *
 * An instance has a part on each worker, from start to stop, used on that thread only. */
#ifndef POSTERN_RATE_LIMIT_RATE_REDIS_H
#define POSTERN_RATE_LIMIT_RATE_REDIS_H

#include "rate_limit/rate_limit.h"

/* The values of the redis options. *ret: NULL when the section names no Redis. False: a fault
 * was reported. */
bool rate_redis_read(struct postern_setup *s, const struct postern_values *values,
                     const struct rate_limit *l, struct rate_redis **ret);
void rate_redis_free(struct rate_redis *redis); /* NULL is fine */

void rate_redis_start(struct rate_redis *redis, struct postern_worker *w);
void rate_redis_stop(struct rate_redis *redis, struct postern_worker *w);

enum rate_redis_says {
    RATE_REDIS_SAID,   /* the verdict is there */
    RATE_REDIS_WAITS,  /* return POSTERN_WAIT */
    RATE_REDIS_AWAY,   /* act as redis_down says */
    RATE_REDIS_FAILED, /* no memory */
};
enum rate_redis_says rate_redis_take(struct rate_redis *redis, struct postern_request *r,
                                     uint64_t hash, struct gcra_verdict *ret);
/* In on_resume: what it has come to. */
enum rate_redis_says rate_redis_result(void *result, struct gcra_verdict *ret);
/* In on_cancel. */
void rate_redis_cancel(struct postern_request *r);

#endif
