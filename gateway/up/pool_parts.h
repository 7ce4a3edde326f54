/* What the files of the pool share; nobody else includes it. */
#ifndef POSTERN_UP_POOL_PARTS_H
#define POSTERN_UP_POOL_PARTS_H

#include "up/habit.h"
#include "up/pool.h"

struct pool {
    struct loop *loop;
    struct cluster *cluster;
    struct server *server;
    struct tls_peer peer; /* .back NULL: without TLS */
    const char *told_why; /* TLS failed; NULL: it did not, or nobody was told */
    unsigned users;
    struct pool_counters counters;
    uint32_t warm, max_idle;
    struct permit_user permits;
    uint32_t idle, lent, connecting;
    struct h1_client *idle_first; /* most recently used first */
    struct h1_client *connecting_first;
    struct pool_waiter *waiters, **last_waiter;
    uint32_t waiting;
    struct pool_line *line; /* NULL: it is alone */
    bool stuck;             /* and counts there */
    struct slab clients;
    struct h2_trunks trunks; /* what they share, with HTTP/2 */
    uint32_t backoff_ms;     /* 0: the last connect went well */
    uint64_t down_until;     /* ns, with backoff_ms */
    struct deadline refill_due, look_due, surplus_due;
    uint32_t least_idle; /* since surplus_due was set */
    struct task refill;
    struct habit habit; /* the server's, with idle connections */
    uint64_t jitter;
    void (*on_warm)(void *);
    void *on_warm_arg;
    bool asked_for; /* requests would have come here since it is down, or since the last try */
    bool closed;
    bool recovering; /* the server is back, and waits for our floor */
    struct grave grave;
};

/* Lends what is idle to who waits. */
void pool_serve(struct pool *pool);

/* pool_queue.c: who waits */
void pool_queue(struct pool *pool, struct pool_waiter *waiter);
struct pool_waiter *pool_next_waiter(struct pool *pool); /* waits no more; NULL: nobody waits */
struct pool_waiter *pool_newest(const struct pool *pool);
/* Harmless when nobody waits. */
void pool_fail_waiter(struct pool *pool, const struct leg_fault *fault);
/* Too many wait: who came last is sent away, not who has waited longest. */
void pool_fail_newest(struct pool *pool);
/* All that there may be is in use, and somebody waits: whether that is so. If so, others of the
 * line are asked who has one to spare. */
void pool_stuck(struct pool *pool, bool stuck);
/* It has one to spare, or may open one: fetches who waits longest elsewhere. False: nobody
 * comes. */
bool pool_fetch(struct pool *pool);

#endif
