/* What a worker's requests share: its loop, the configuration in force, its pools, its logs
 * and counters. One for each worker, used on its thread only. */
#ifndef POSTERN_PROXY_CONTEXT_H
#define POSTERN_PROXY_CONTEXT_H

#include "conf/snapshot.h"
#include "plugin/station.h"
#include "proxy/access.h"
#include "proxy/metrics.h"
#include "up/balance.h"
#include "up/pool.h"

/* The counters of one route, found when it has its first request: of thousands of routes most
 * have none, and nobody waits while a new view finds theirs. */
struct route_cells {
    struct histogram *duration, *gateway;
    unsigned key; /* which request series `requests` is: listener, method, status; 0: new */
    struct series *requests;
};

/* A snapshot as this worker sees it, and how many exchanges began under it. */
struct view {
    struct view *older; /* views that still have exchanges */
    struct snapshot *snapshot;
    uint64_t exchanges;
    bool retired; /* no longer in force: goes with its last exchange */
    bool started; /* plugins know that it takes effect */
    struct access_policy policy;
    struct route_cells *cells; /* by route; the last one for requests without a route */
    struct series **bytes_in, **bytes_out; /* by listener */
};

/* The pools of one cluster. */
struct fleet {
    struct cluster *cluster;
    struct pool **pools; /* by server */
    struct pool_line line;
    struct series **reuses;
    struct histogram *duration;
    struct series *retries, *refused; /* refused: by the budget */
    /* The retry budget: requests and retries of this half window and the one before. */
    uint64_t window_at;
    uint32_t requests[2], retried[2];
    struct loop *loop;        /* with calm_due */
    struct deadline calm_due; /* on while this worker is to tell that an overflow is over */
};

struct context {
    struct loop *loop;
    unsigned index, count; /* this worker, of how many */
    struct view *view;     /* in force; NULL before the first */
    struct view *retired;  /* the newest that is not */
    struct view *next;     /* being warmed */
    unsigned warming;      /* pools that are not warm yet */
    void (*on_warm)(struct context *cx);
    struct fleet **fleets; /* by cluster slot */
    unsigned fleet_slots;
    struct metrics *metrics;
    struct postern_worker *station; /* this worker, to plugins */
    struct log_ring *ring;          /* NULL: no access log */
    uint32_t log_counter;
    struct slab exchanges, calls;
    struct call *calling; /* requests of plugins under way */
    bool calls_over;
    uint64_t random[2];
    uint64_t date_s;
    char date[CLOCK_HTTP_LEN];
    void *owner;
};

/* 0 or -errno. `metrics` belongs to the caller and outlives the context. */
int context_init(struct context *cx, struct loop *loop, unsigned index, unsigned count,
                 struct metrics *metrics);
void context_done(struct context *cx); /* no exchange lives any more */

/* Gets ready for `snapshot` (takes over one reference): opens and warms the pools of its new
 * clusters; on_warm follows when they stand, perhaps at once. 0 or -ENOMEM. */
int context_prepare(struct context *cx, struct snapshot *snapshot,
                    void (*on_warm)(struct context *cx));
/* Puts in force what was prepared. Pools of clusters that are gone close. */
void context_switch(struct context *cx);
/* Forgets what was prepared. */
void context_forget(struct context *cx);

/* A server of `cluster` is back: its pool is warmed (vitals_warmed is called), or it is
 * drained: its pool keeps nothing unused. */
void context_recover(struct context *cx, const struct cluster *cluster, uint32_t server);
void context_drain(struct context *cx, const struct cluster *cluster, uint32_t server);
/* What `cluster`'s TLS is made of has changed (pool_renew). */
void context_renew(struct context *cx, const struct cluster *cluster);

/* An exchange of that view has ended. */
void context_exchange_ended(struct context *cx, struct view *view);

struct fleet *context_fleet(struct context *cx, const struct cluster *cluster);

uint64_t context_random(struct context *cx);
/* Now, as in a Date field. Valid until the next call. */
struct str context_date(struct context *cx);

#endif
