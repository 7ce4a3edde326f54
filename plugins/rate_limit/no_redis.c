/* In place of rate_redis.c where there is no hiredis: the options are there, and say so. */
#include "rate_limit/rate_redis.h"

bool rate_redis_read(struct postern_setup *s, const struct postern_values *values,
                     const struct rate_limit *l, struct rate_redis **ret)
{
    (void)l;
    *ret = NULL;
    if (!values[RATE_O_REDIS].count)
        return true;
    rate_api->fault(s, RATE_O_REDIS, 0,
                    "redis is not in this build, expected one with hiredis");
    return false;
}

void rate_redis_free(struct rate_redis *redis)
{
    (void)redis;
}

void rate_redis_start(struct rate_redis *redis, struct postern_worker *w)
{
    (void)redis;
    (void)w;
}

void rate_redis_stop(struct rate_redis *redis, struct postern_worker *w)
{
    (void)redis;
    (void)w;
}

enum rate_redis_says rate_redis_take(struct rate_redis *redis, struct postern_request *r,
                                     uint64_t hash, struct gcra_verdict *ret)
{
    (void)redis;
    (void)r;
    (void)hash;
    (void)ret;
    return RATE_REDIS_FAILED;
}

enum rate_redis_says rate_redis_result(void *result, struct gcra_verdict *ret)
{
    (void)result;
    (void)ret;
    return RATE_REDIS_FAILED;
}

void rate_redis_cancel(struct postern_request *r)
{
    (void)r;
}
