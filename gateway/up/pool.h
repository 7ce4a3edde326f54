/* Connections of one worker to one server: the idle ones, and who waits for one.
 *
 * A connection is in exactly one place: connecting, idle here, or lent to an exchange. The
 * most recently used idle one is lent first. The pool keeps `warm` connections open at all
 * times, opens them anew when they end (with back-off while the server refuses), and retires
 * idle ones before the server hangs up: at idle_timeout, at the end of their lifetime, at what
 * the server's Keep-Alive said, or at what its hanging up has taught. None that began with a
 * certificate or authorities of before serves on when those have changed. Owned by one worker.
 */
#ifndef POSTERN_UP_POOL_H
#define POSTERN_UP_POOL_H

#include "http/h2_client.h"
#include "up/cluster.h"

struct pool;
struct pool_waiter;

/* Where a pool counts; written with relaxed stores by its worker only. Each may be shared by
 * pools of one worker. */
struct pool_counters {
    _Atomic uint64_t *opened, *reuses, *idle, *active; /* of HTTP/2: connections, not lanes */
};

/* Somebody who wants a connection; embedded in the exchange. */
struct pool_waiter {
    struct pool_waiter *next, **prev; /* prev NULL: does not wait */
    struct pool *pool;
    struct deadline due;
    bool late;      /* `due` came, and a connection was on its way */
    bool over;      /* one too many waits: it is told so in the same turn */
    uint32_t place; /* how many waited when it came */
    uint64_t since; /* ns */
    /* While everything is busy where it waits, somebody else's connection will do: whether that
     * pool's would, and that it waits there from now on. NULL: it wants this server. */
    bool (*may_move)(const struct pool_waiter *waiter, const struct pool *to);
    void (*on_moved)(struct pool_waiter *waiter, const struct pool *to);
    void (*on_ready)(struct pool_waiter *waiter, struct h1_client *client);
    void (*on_failed)(struct pool_waiter *waiter, const struct leg_fault *fault);
};

/* One worker's pools of one upstream: who waits for a connection that somebody else has gets
 * the first that comes free at any of them, who has waited longest first. Whoever has the pools
 * owns it. */
struct pool_line {
    struct pool **pools;
    uint32_t count;
    uint32_t stuck; /* pools where somebody waits for a connection to come free */
};

/* `share`, `of`: worker number and count. Warm and idle connections are this worker's share;
 * how many may be open at all counts over all workers (up/permits.h). */
struct pool *pool_new(struct loop *loop, struct cluster *cluster, unsigned server,
                      unsigned share, unsigned of, const struct pool_counters *counters);
/* One more user of the pool, for a cluster that is the kin of its own and has the same server
 * too. Each user closes it. */
struct pool *pool_share(struct pool *pool);
bool pool_is_of(const struct pool *pool, const struct cluster *cluster);
/* It will move to `next`, and keeps as many connections warm already as that asks for. NULL: it
 * will not, after all. */
void pool_expect(struct pool *pool, const struct cluster *next);
/* It belongs to that line from now on. NULL: to none. */
void pool_join(struct pool *pool, struct pool_line *line);
/* Harmless when it is in another. */
void pool_leave(struct pool *pool, const struct pool_line *line);
/* Which of `cluster`'s servers it is for; -1: it is another cluster's. */
int pool_server(const struct pool *pool, const struct cluster *cluster);
/* From now on it is that cluster's, whose server has the same address, and keeps its
 * connections, under the limits of the new one. Harmless when it is already. */
void pool_move(struct pool *pool, struct cluster *cluster, unsigned server);
/* Keeps nothing open any more, but still serves: for a cluster that only exchanges begun under
 * an earlier configuration use. */
void pool_retire(struct pool *pool);
/* Its last user: closes what is idle and connecting; what is lent closes when it comes back,
 * and then the pool's memory goes. Waiters are told R_UPSTREAM_NONE. */
void pool_close(struct pool *pool);

/* Opens connections up to the warm floor. `on_warm` is called once, when the floor stands or
 * every attempt has failed, perhaps at once. */
void pool_warm(struct pool *pool, void (*on_warm)(void *), void *arg);
/* The server is back after it was out: what is idle dates from before and is closed, the floor
 * is opened anew, and vitals_warmed is called once when that has succeeded or failed. */
void pool_recover(struct pool *pool);
/* What its upstream's TLS is made of has changed (tls_back_renew): idle connections that began
 * with what it was close now, those that are lent when they come back. */
void pool_renew(struct pool *pool);
/* It is drained (VITAL_DRAINING is set): nothing unused stays open. */
void pool_drain(struct pool *pool);
/* Nobody waits for on_warm any more. */
void pool_forget_warm(struct pool *pool);

/* An idle connection, lent (the caller sets the leg and calls h1_client_lend), or NULL: then
 * the waiter is queued and told later in the turn or later, also of a failure. `fresh`: idle
 * ones are not trusted; a new one is opened, or one comes that has just served somebody. */
struct h1_client *pool_take(struct pool *pool, bool fresh, struct pool_waiter *waiter);
void pool_cancel(struct pool_waiter *waiter); /* harmless when it does not wait */
/* Whether the last try to connect failed and none has gone well since: better ask another
 * server. When it is time for the next try, this begins it. */
bool pool_is_down(struct pool *pool);
/* Whether a request would have to wait for somebody else's connection. */
bool pool_is_busy(const struct pool *pool);
/* Whether a lent connection had been idle: warm, or used before. */
static inline bool pool_is_reused(const struct h1_client *client)
{
    return !client->fresh;
}

#endif
