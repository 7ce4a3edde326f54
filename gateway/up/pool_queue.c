/* Who waits for a connection, in order, and for how long. */
#include "up/pool_parts.h"

#include <errno.h>

struct pool_waiter *pool_next_waiter(struct pool *pool)
{
    struct pool_waiter *waiter = pool->waiters;
    if (waiter)
        pool_cancel(waiter);
    return waiter;
}

void pool_cancel(struct pool_waiter *waiter)
{
    if (!waiter->prev)
        return;
    struct pool *pool = waiter->pool;
    *waiter->prev = waiter->next;
    if (waiter->next)
        waiter->next->prev = waiter->prev;
    else
        pool->last_waiter = waiter->prev;
    waiter->prev = NULL;
    pool->waiting--;
    breaker_waits_no_more(&pool->cluster->breaker, 1);
    if (pool->permits.wants && pool->waiting <= pool->connecting)
        permits_want(&pool->permits, pool->loop->now, false);
    deadline_end(&pool->loop->wheel, &waiter->due);
}

void pool_fail_waiter(struct pool *pool, const struct leg_fault *fault)
{
    struct pool_waiter *waiter = pool_next_waiter(pool);
    if (waiter)
        waiter->on_failed(waiter, fault);
}

struct pool_waiter *pool_newest(const struct pool *pool)
{
    return (struct pool_waiter *)((char *)pool->last_waiter -
                                  offsetof(struct pool_waiter, next));
}

void pool_fail_newest(struct pool *pool)
{
    struct pool_waiter *waiter = pool_newest(pool);
    struct leg_fault fault = {.reason = R_UPSTREAM_OVERFLOW,
                              .which = LIMIT_PENDING,
                              .limit = pool->cluster->breaker.limits.pending,
                              .actual = waiter->place,
                              .untouched = true,
                              .silent = true};
    pool_cancel(waiter);
    waiter->on_failed(waiter, &fault);
}

static void on_waiter_due(struct deadline *deadline)
{
    struct pool_waiter *waiter =
        (struct pool_waiter *)((char *)deadline - offsetof(struct pool_waiter, due));
    struct pool *pool = waiter->pool;
    uint64_t connect = pool->cluster->limits.connect;
    bool full =
        pool->waiting > pool->connecting && !permits_may_take(&pool->permits, pool->loop->now);
    if (!full && !waiter->late) { /* a connection is on its way, and has a timer of its own */
        waiter->late = true;
        loop_deadline(pool->loop, deadline, connect ? connect + 1 : 0);
        return;
    }
    struct leg_fault fault = {.reason = full ? R_UPSTREAM_OVERFLOW : R_UPSTREAM_TIMEOUT_CONNECT,
                              .err = full ? 0 : ETIMEDOUT,
                              .which = full ? LIMIT_CONNECTIONS : LIMIT_NONE,
                              .limit = full ? pool->permits.limit : 0,
                              .actual = full ? pool->permits.limit + pool->waiting : 0,
                              .untouched = true,
                              .silent = true};
    pool_cancel(waiter);
    waiter->on_failed(waiter, &fault);
}

/* Told from a task: nobody is called back from inside pool_take. */
void pool_queue(struct pool *pool, struct pool_waiter *waiter)
{
    waiter->pool = pool;
    waiter->next = NULL;
    waiter->prev = pool->last_waiter;
    *pool->last_waiter = waiter;
    pool->last_waiter = &waiter->next;
    pool->waiting++;
    waiter->late = false;
    waiter->over = !breaker_waits(&pool->cluster->breaker, &waiter->place);
    deadline_init(&waiter->due, on_waiter_due);
    /* The connection has its own timer; this one is for who waits for somebody else's. */
    loop_deadline(pool->loop, &waiter->due, pool->cluster->limits.queue);
}
