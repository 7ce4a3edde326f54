/* Who waits for a connection, in order, and for how long. */
#include "up/pool_parts.h"

#include <errno.h>

#define LOOK_AT 16 /* so many of those who wait at a pool are asked whether they would move */

struct pool_waiter *pool_next_waiter(struct pool *pool)
{
    struct pool_waiter *waiter = pool->waiters;
    if (waiter)
        pool_cancel(waiter);
    return waiter;
}

static void set_stuck(struct pool *pool, bool stuck)
{
    if (pool->line && stuck != pool->stuck)
        pool->line->stuck += stuck ? 1u : -1u;
    pool->stuck = stuck;
}

static void put_last(struct pool *pool, struct pool_waiter *waiter)
{
    waiter->pool = pool;
    waiter->next = NULL;
    waiter->prev = pool->last_waiter;
    *pool->last_waiter = waiter;
    pool->last_waiter = &waiter->next;
    pool->waiting++;
}

static void cut(struct pool_waiter *waiter)
{
    struct pool *pool = waiter->pool;
    *waiter->prev = waiter->next;
    if (waiter->next)
        waiter->next->prev = waiter->prev;
    else
        pool->last_waiter = waiter->prev;
    waiter->prev = NULL;
    pool->waiting--;
    if (pool->waiting > pool->connecting)
        return;
    set_stuck(pool, false);
    if (pool->permits.wants)
        permits_want(&pool->permits, pool->loop->now, false);
}

void pool_cancel(struct pool_waiter *waiter)
{
    if (!waiter->prev)
        return;
    struct pool *pool = waiter->pool;
    cut(waiter);
    breaker_waits_no_more(&pool->cluster->breaker, 1);
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
    put_last(pool, waiter);
    waiter->since = pool->loop->now;
    waiter->late = false;
    waiter->over = !breaker_waits(&pool->cluster->breaker, &waiter->place);
    deadline_init(&waiter->due, on_waiter_due);
    /* The connection has its own timer; this one is for who waits for somebody else's. */
    loop_deadline(pool->loop, &waiter->due, pool->cluster->limits.queue);
}

/* ---- between pools ---- */

/* Whoever has waited longest here and would go there; NULL: nobody. */
static struct pool_waiter *mover(const struct pool *from, const struct pool *to)
{
    struct pool_waiter *waiter = from->waiters;
    if (from == to || from->cluster != to->cluster || from->waiting <= from->connecting)
        return NULL;
    for (unsigned i = 0; waiter && i < LOOK_AT; i++, waiter = waiter->next)
        if (waiter->may_move && !waiter->over && waiter->may_move(waiter, to))
            return waiter;
    return NULL;
}

/* It keeps its time: only where it waits is another place. */
static void move(struct pool_waiter *waiter, struct pool *to)
{
    cut(waiter);
    put_last(to, waiter);
    waiter->on_moved(waiter, to);
    pool_serve(to);
    if (to->waiting)
        loop_task(to->loop, &to->refill);
}

bool pool_fetch(struct pool *pool)
{
    struct pool_waiter *oldest = NULL;
    const struct pool_line *line = pool->line;
    for (uint32_t i = 0; line && line->stuck && i < line->count; i++) {
        struct pool_waiter *waiter = line->pools[i]->stuck ? mover(line->pools[i], pool) : NULL;
        if (waiter && (!oldest || waiter->since < oldest->since))
            oldest = waiter;
    }
    if (oldest)
        move(oldest, pool);
    return oldest;
}

static bool has_to_spare(const struct pool *pool)
{
    return !pool->closed && !pool->waiting &&
           (pool->idle_first ||
            (!pool->backoff_ms && permits_may_take(&pool->permits, pool->loop->now)));
}

void pool_stuck(struct pool *pool, bool stuck)
{
    const struct pool_line *line = pool->line;
    set_stuck(pool, stuck);
    for (uint32_t i = 0; line && pool->stuck && i < line->count; i++)
        while (has_to_spare(line->pools[i])) {
            struct pool_waiter *waiter = mover(pool, line->pools[i]);
            if (!waiter)
                break;
            move(waiter, line->pools[i]);
        }
}

void pool_join(struct pool *pool, struct pool_line *line)
{
    bool stuck = pool->stuck;
    set_stuck(pool, false);
    pool->line = line;
    set_stuck(pool, stuck);
}

void pool_leave(struct pool *pool, const struct pool_line *line)
{
    if (pool->line == line)
        pool_join(pool, NULL);
}
