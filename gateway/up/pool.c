#include "up/pool_parts.h"

#include <errno.h>

#include "base/count.h"
#include "base/log.h"
#include "up/outlier.h"

#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define LOOK_MS        10   /* while it waits for what others give back, and ... */
#define LOOK_IDLE_MS   1000 /* ... while only its warm floor does */
#define SURPLUS_MS     100  /* what was not used for so long is unused */

/* A lane is no connection: its trunk is counted by itself. */
static void count_connection(const struct h1_client *client, _Atomic uint64_t *counter,
                             uint64_t n)
{
    if (!client->shared)
        count_add(counter, n);
}

/* ---- lists ---- */

static void list_put(struct h1_client **head, struct h1_client *client)
{
    client->next = *head;
    if (client->next)
        client->next->prev = &client->next;
    client->prev = head;
    *head = client;
}

static void list_cut(struct h1_client *client)
{
    *client->prev = client->next;
    if (client->next)
        client->next->prev = client->prev;
    client->prev = NULL;
}

static void fewer_idle(struct pool *pool)
{
    if (--pool->idle < pool->least_idle)
        pool->least_idle = pool->idle;
}

/* ---- how long a connection may be idle ---- */

static uint16_t next_spread(struct pool *pool)
{
    pool->jitter = pool->jitter * 6364136223846793005ull + 1442695040888963407ull;
    return (uint16_t)(pool->jitter >> 54);
}

/* ns; 0: it has no end. */
static uint64_t end_of_life(const struct pool *pool, const struct h1_client *client)
{
    uint64_t lifetime = pool->cluster->limits.lifetime;
    return lifetime ? client->opened_at + h1_client_limit(lifetime * NS_PER_MS, client->spread)
                    : 0;
}

/* ---- connections ---- */

static void on_bury_pool(struct grave *grave)
{
    struct pool *pool = (struct pool *)((char *)grave - offsetof(struct pool, grave));
    slab_done(&pool->clients);
    h2_trunks_done(&pool->trunks);
    tls_peer_done(&pool->peer);
    cluster_unref(pool->cluster);
    mem_free(pool);
}

static void bury_if_done(struct pool *pool)
{
    if (pool->closed && !pool->clients.live)
        loop_bury(pool->loop, &pool->grave, on_bury_pool);
}

static bool is_draining(const struct pool *pool)
{
    return vitals_word(pool->server->vitals) & VITAL_DRAINING;
}

static void end_recovery(struct pool *pool)
{
    if (pool->recovering)
        vitals_warmed(pool->server->vitals);
    pool->recovering = false;
}

static void told_warm(struct pool *pool)
{
    if (pool->connecting)
        return;
    end_recovery(pool);
    if (!pool->on_warm)
        return;
    void (*on_warm)(void *) = pool->on_warm;
    pool->on_warm = NULL;
    on_warm(pool->on_warm_arg);
}

static void on_bury_client(struct h1_client *client)
{
    struct pool *pool = client->owner;
    slab_give(&pool->clients, client);
    bury_if_done(pool);
}

static void on_idle_due(struct h1_client *client)
{
    h1_client_close(client);
}

/* Others come first: what is idle goes, so that they can open one. */
static void pay(struct pool *pool)
{
    while (pool->idle_first && permits_owes(&pool->permits, pool->loop->now))
        h1_client_close(pool->idle_first);
}

/* Looks again in so many ms, or earlier if that was said before. */
static void look_in(struct pool *pool, uint64_t ms)
{
    if (!deadline_is_on(&pool->look_due) ||
        pool->look_due.at > pool->loop->now + ms * NS_PER_MS)
        loop_deadline(pool->loop, &pool->look_due, ms);
}

/* Fewer connections than workers: what is idle here may be all there is. */
static bool is_scarce(const struct pool *pool)
{
    return pool->permits.limit && pool->permits.limit < pool->permits.count;
}

static void on_look_due(struct deadline *deadline)
{
    struct pool *pool = (struct pool *)((char *)deadline - offsetof(struct pool, look_due));
    deadline_off(&pool->look_due);
    pay(pool);
    if (pool->idle && is_scarce(pool))
        look_in(pool, LOOK_MS);
    loop_task(pool->loop, &pool->refill);
}

/* Under load many are idle for a moment, between an answer and the next request. Those beyond
 * the limit that nobody needed since the last look go: as many as were idle all that time. */
static void watch_surplus(struct pool *pool)
{
    if (pool->idle <= pool->max_idle || deadline_is_on(&pool->surplus_due))
        return;
    pool->least_idle = pool->idle;
    loop_deadline(pool->loop, &pool->surplus_due, SURPLUS_MS);
}

static void on_surplus_due(struct deadline *deadline)
{
    struct pool *pool = (struct pool *)((char *)deadline - offsetof(struct pool, surplus_due));
    struct h1_client *client = pool->idle_first, *next;
    deadline_off(&pool->surplus_due);
    /* the most recently used come first, and stay */
    uint32_t unused = pool->least_idle > pool->max_idle ? pool->least_idle - pool->max_idle : 0;
    for (uint32_t kept = pool->idle - unused; kept; kept--)
        client = client->next;
    for (; client; client = next) {
        next = client->next;
        h1_client_close(client);
    }
    watch_surplus(pool);
}

/* An idle one goes when it has been idle for as long as it may, or at its end of life. */
static void set_idle_due(struct pool *pool, struct h1_client *client)
{
    uint64_t now = pool->loop->now,
             limit = habit_idle_ms(&pool->habit, pool->cluster->limits.idle_timeout),
             end = end_of_life(pool, client);
    uint64_t idle = (now - client->idle_at) / NS_PER_MS;
    if (limit)
        limit = limit > idle ? limit - idle : 1;
    if (end) {
        uint64_t left = end > now ? (end - now) / NS_PER_MS + 1 : 1;
        limit = limit && limit < left ? limit : left;
    }
    client->on_idle_due = on_idle_due;
    loop_deadline(pool->loop, &client->due, limit);
}

/* It must not serve any more: it has had all its requests, or dates from before what its TLS is
 * made of now. */
static bool is_over(const struct pool *pool, const struct h1_client *client)
{
    uint32_t requests = pool->cluster->limits.requests;
    if (client->shared)
        return h2_lane_is_over((const struct h2_lane *)client);
    return (requests && client->requests >= h1_client_limit(requests, client->spread)) ||
           stream_is_outdated(&client->stream);
}

/* Idle from now on: lent to who waits longest, else kept. */
static void offer(struct pool *pool, struct h1_client *client)
{
    uint64_t end = end_of_life(pool, client);
    bool expired = end && pool->loop->now >= end;
    list_put(&pool->idle_first, client);
    pool->idle++;
    count_connection(client, pool->counters.idle, 1);
    bool in_vain = !pool->waiters && (!pool->max_idle || is_draining(pool));
    if (pool->closed || is_over(pool, client) || expired || in_vain) {
        h1_client_close(client);
        return;
    }
    pay(pool);
    if (client->state == CLIENT_CLOSED)
        return;
    if (is_scarce(pool))
        look_in(pool, LOOK_MS);
    set_idle_due(pool, client);
    pool_serve(pool);
    while (pool->idle_first && pool_fetch(pool)) /* nobody waits here: who waits elsewhere? */
        ;
    watch_surplus(pool);
}

/* The server takes connections (again). */
static void end_backoff(struct pool *pool)
{
    if (pool->backoff_ms)
        atomic_fetch_sub_explicit(&pool->server->down, 1, memory_order_relaxed);
    pool->backoff_ms = 0;
    pool->asked_for = false;
}

static void on_connected(struct h1_client *client)
{
    struct pool *pool = client->owner;
    list_cut(client);
    pool->connecting--;
    end_backoff(pool);
    client->fresh = !client->joined;
    offer(pool, client);
    if (client->state == CLIENT_IDLE)
        client->fresh = false;            /* nobody waited for it */
    loop_task(pool->loop, &pool->refill); /* it answers again: the floor can be refilled */
    told_warm(pool);
}

static void on_idle(struct h1_client *client)
{
    struct pool *pool = client->owner;
    pool->told_why = NULL;
    pool->lent--;
    count_connection(client, pool->counters.active, (uint64_t)-1);
    client->fresh = false;
    if (client->keep_alive_s)
        pool->habit.said_s = client->keep_alive_s;
    offer(pool, client);
}

static void back_off(struct pool *pool)
{
    if (!pool->backoff_ms)
        atomic_fetch_add_explicit(&pool->server->down, 1, memory_order_relaxed);
    pool->backoff_ms = pool->backoff_ms ? pool->backoff_ms * 2 : BACKOFF_MIN_MS;
    if (pool->backoff_ms > BACKOFF_MAX_MS)
        pool->backoff_ms = BACKOFF_MAX_MS;
    pool->down_until = pool->loop->now + pool->backoff_ms * NS_PER_MS;
    habit_unlearn(&pool->habit);
}

/* Requests that went elsewhere count as one that failed here. */
static void note_in_vain(struct pool *pool)
{
    if (pool->asked_for)
        outlier_note(pool->cluster, (unsigned)pool_server(pool, pool->cluster), OUTLIER_CONNECT,
                     pool->loop->now);
    pool->asked_for = false;
}

static void on_closed(struct h1_client *client, const struct leg_fault *fault)
{
    struct pool *pool = client->owner;
    permits_give(&pool->permits);
    if (fault && fault->why && fault->why != pool->told_why) {
        pool->told_why = fault->why; /* once, until it is another reason or one has served */
        log_warn("upstream \"%s\": TLS with server %s failed: %s", pool->cluster->name,
                 pool->server->text, fault->why);
    }
    if (!client->prev) { /* lent */
        pool->lent--;
        count_connection(client, pool->counters.active, (uint64_t)-1);
    } else if (client->idle_at) {
        list_cut(client);
        fewer_idle(pool);
        count_connection(client, pool->counters.idle, (uint64_t)-1);
        if (client->stream.eof)
            habit_hung_up(&pool->habit, pool->loop->now / NS_PER_MS,
                          (pool->loop->now - client->idle_at) / NS_PER_MS);
        /* TLS 1.3 lets a server refuse our certificate when we are done shaking hands. */
        if (fault && fault->why && !client->requests && !pool->closed)
            back_off(pool);
    } else {
        list_cut(client);
        pool->connecting--;
        if (!pool->closed)
            back_off(pool);
        note_in_vain(pool);
        /* One connection for one waiter: who has none coming any more hears of it. */
        if (pool->waiting > pool->connecting)
            pool_fail_waiter(pool, fault);
    }
    if (!pool->closed)
        loop_task(pool->loop, &pool->refill);
    told_warm(pool);
}

static const struct h1_client_ops client_ops = {
    .on_connected = on_connected,
    .on_idle = on_idle,
    .on_closed = on_closed,
    .bury = on_bury_client,
};

static struct h1_client_timeouts timeouts_of(const struct pool *pool)
{
    const struct cluster_limits *limits = &pool->cluster->limits;
    return (struct h1_client_timeouts){limits->connect, limits->response, limits->between};
}

/* One more connection on its way. 0, -EBUSY: there are as many as there may be, or -errno. */
static int open_one(struct pool *pool)
{
    if (!permits_take(&pool->permits, pool->loop->now))
        return -EBUSY;
    struct h1_client *client = slab_take(&pool->clients);
    if (!client) {
        permits_give(&pool->permits);
        return -ENOMEM;
    }
    struct h1_client_timeouts timeouts = timeouts_of(pool);
    struct tls_peer *peer = pool->peer.back ? &pool->peer : NULL;
    const struct addr *addr = &pool->server->addr;
    uint16_t spread = next_spread(pool);
    int rc = pool->cluster->http2
                 ? h2_lane_open((struct h2_lane *)client, &pool->trunks, addr, peer, &timeouts,
                                spread, &client_ops, pool)
                 : h1_client_open(client, pool->loop, addr, peer, &timeouts, &client_ops, pool);
    if (rc < 0) {
        slab_give(&pool->clients, client);
        permits_give(&pool->permits);
        back_off(pool);
        return rc;
    }
    if (!client->shared)
        client->spread = spread;
    list_put(&pool->connecting_first, client);
    pool->connecting++;
    if (!client->shared)
        count_add(pool->counters.opened, 1);
    return 0;
}

/* ---- lending ---- */

static struct h1_client *lend(struct pool *pool, struct h1_client *client)
{
    list_cut(client);
    fewer_idle(pool);
    pool->lent++;
    count_connection(client, pool->counters.idle, (uint64_t)-1);
    count_connection(client, pool->counters.active, 1);
    if (!client->fresh)
        count_add(pool->counters.reuses, 1);
    client->timeouts = timeouts_of(pool);
    deadline_off(&client->due);
    if (client->shared)
        h2_lane_lend((struct h2_lane *)client);
    return client;
}

void pool_serve(struct pool *pool)
{
    while (pool->waiters && pool->idle_first) {
        struct h1_client *client = lend(pool, pool->idle_first);
        struct pool_waiter *waiter = pool_next_waiter(pool);
        waiter->on_ready(waiter, client);
    }
}

/* Whatever began with the files of before closes; without TLS there is none. */
static void drop_outdated(struct pool *pool)
{
    struct h1_client *next;
    for (struct h1_client *client = pool->idle_first; client; client = next) {
        next = client->next;
        if (stream_is_outdated(&client->stream))
            h1_client_close(client);
    }
    h2_trunks_renew(&pool->trunks);
}

struct h1_client *pool_take(struct pool *pool, bool fresh, struct pool_waiter *waiter)
{
    /* The files may have changed a moment before pool_renew says so. */
    if (pool->peer.back && pool->idle_first && is_over(pool, pool->idle_first))
        drop_outdated(pool);
    if (!fresh && pool->idle_first)
        return lend(pool, pool->idle_first);
    pool_queue(pool, waiter);
    if (pool->closed || waiter->over || pool->waiting > pool->connecting)
        loop_task(pool->loop, &pool->refill);
    return NULL;
}

static bool may_open(const struct pool *pool)
{
    return permits_may_take(&pool->permits, pool->loop->now);
}

static bool is_trying(const struct pool *pool)
{
    return pool->connecting || pool->loop->now < pool->down_until;
}

/* Somebody would like to know whether the server can be connected to again. */
static void try_again(struct pool *pool)
{
    if (pool->asked_for && pool->backoff_ms && !is_trying(pool))
        open_one(pool);
}

/* Opens what waiters and the warm floor need; fails those for whom nothing can be done. */
static void on_refill(struct task *task)
{
    struct pool *pool = (struct pool *)((char *)task - offsetof(struct pool, refill));
    while (pool->waiting && pool_newest(pool)->over)
        pool_fail_newest(pool);
    bool full = false;
    while (!full && pool->waiting > pool->connecting) {
        struct leg_fault fault = {
            .reason = R_UPSTREAM_CONNECT, .untouched = true, .silent = true};
        int rc = pool->closed ? -ESHUTDOWN : open_one(pool);
        full = rc == -EBUSY; /* somebody's connection comes back */
        if (rc == 0 || full)
            continue;
        fault.err = -rc;
        if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ENOBUFS)
            fault.reason = R_NO_MEMORY;
        if (rc == -ESHUTDOWN)
            fault.reason = R_UPSTREAM_NONE;
        pool_fail_waiter(pool, &fault);
    }
    if (pool->closed)
        return;
    try_again(pool);
    permits_want(&pool->permits, pool->loop->now, full);
    pool_stuck(pool, full);
    if (!full && !pool->waiting && !pool->backoff_ms && may_open(pool) && pool_fetch(pool)) {
        loop_task(pool->loop, &pool->refill); /* for whoever came, then for the floor */
        return;
    }
    if (full) {
        look_in(pool, LOOK_MS);
        return;
    }
    uint32_t open = pool->idle + pool->lent + pool->connecting;
    if (open >= pool->warm || is_draining(pool))
        return;
    if (pool->backoff_ms) {
        if (!deadline_is_on(&pool->refill_due))
            loop_deadline(pool->loop, &pool->refill_due, pool->backoff_ms);
        return;
    }
    int rc = 0;
    while (rc == 0 && open++ < pool->warm)
        rc = open_one(pool);
    if (rc == -EBUSY)
        look_in(pool, LOOK_IDLE_MS);
    if (pool->backoff_ms)
        loop_deadline(pool->loop, &pool->refill_due, pool->backoff_ms);
}

/* One at a time while the server refuses; the first that connects brings the others. */
static void on_refill_due(struct deadline *deadline)
{
    struct pool *pool = (struct pool *)((char *)deadline - offsetof(struct pool, refill_due));
    if (is_draining(pool))
        return;
    if (pool->idle + pool->lent + pool->connecting < pool->warm && open_one(pool) < 0)
        loop_deadline(pool->loop, &pool->refill_due, pool->backoff_ms);
}

void pool_warm(struct pool *pool, void (*on_warm)(void *), void *arg)
{
    pool->on_warm = on_warm;
    pool->on_warm_arg = arg;
    on_refill(&pool->refill);
    told_warm(pool);
}

void pool_renew(struct pool *pool)
{
    drop_outdated(pool);
    if (!pool->closed)
        loop_task(pool->loop, &pool->refill);
}

void pool_drain(struct pool *pool)
{
    while (pool->idle_first)
        h1_client_close(pool->idle_first);
}

void pool_recover(struct pool *pool)
{
    end_recovery(pool); /* one at a time */
    pool_drain(pool);
    end_backoff(pool);
    pool->recovering = true;
    if (!pool->closed)
        on_refill(&pool->refill);
    told_warm(pool);
}

void pool_forget_warm(struct pool *pool)
{
    pool->on_warm = NULL;
}

/* Shares of `n`: they add up to n, the first workers get what is over. */
static uint32_t share_of(const struct pool *pool, uint32_t n)
{
    return n / pool->permits.count + (pool->permits.index < n % pool->permits.count);
}

static void take_limits(struct pool *pool)
{
    const struct cluster_limits *limits = &pool->cluster->limits;
    pool->warm = share_of(pool, limits->warm);
    pool->max_idle = share_of(pool, limits->idle);
    pool->trunks.lifetime = limits->lifetime;
    pool->trunks.requests = limits->requests;
    if (limits->idle && !pool->max_idle)
        pool->max_idle = 1; /* every worker can serve */
}

struct pool *pool_new(struct loop *loop, struct cluster *cluster, unsigned server,
                      unsigned share, unsigned of, const struct pool_counters *counters)
{
    struct pool *pool = mem_zalloc(sizeof(*pool));
    if (!pool)
        return NULL;
    pool->loop = loop;
    pool->users = 1;
    pool->cluster = cluster_ref(cluster);
    pool->server = &cluster->servers[server];
    pool->peer = (struct tls_peer){.back = cluster->tls, .name = pool->server->host};
    pool->counters = *counters;
    pool->permits = (struct permit_user){.permits = &pool->server->vitals->permits,
                                         .limit = cluster->limits.connections,
                                         .index = share,
                                         .count = of};
    h2_trunks_init(
        &pool->trunks, loop,
        &(struct h2_trunks_counters){counters->opened, counters->idle, counters->active});
    take_limits(pool);
    pool->last_waiter = &pool->waiters;
    pool->refill.run = on_refill;
    pool->jitter = (uint64_t)(uintptr_t)pool ^ loop->now;
    deadline_init(&pool->refill_due, on_refill_due);
    deadline_init(&pool->look_due, on_look_due);
    deadline_init(&pool->surplus_due, on_surplus_due);
    slab_init(&pool->clients,
              cluster->http2 ? sizeof(struct h2_lane) : sizeof(struct h1_client), 64);
    return pool;
}

struct pool *pool_share(struct pool *pool)
{
    pool->users++;
    return pool;
}

bool pool_is_of(const struct pool *pool, const struct cluster *cluster)
{
    return pool->cluster == cluster;
}

int pool_server(const struct pool *pool, const struct cluster *cluster)
{
    return pool->cluster == cluster ? (int)(pool->server - cluster->servers) : -1;
}

void pool_move(struct pool *pool, struct cluster *cluster, unsigned server)
{
    if (pool->cluster == cluster)
        return;
    struct server *to = &cluster->servers[server];
    if (pool->backoff_ms) { /* it is this worker's word, wherever it stands */
        atomic_fetch_sub_explicit(&pool->server->down, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&to->down, 1, memory_order_relaxed);
    }
    pool->server = to;
    permits_move(&pool->permits, &to->vitals->permits, cluster->limits.connections);
    breaker_waits_no_more(&pool->cluster->breaker, pool->waiting);
    atomic_fetch_add_explicit(&cluster->breaker.pending, pool->waiting, memory_order_relaxed);
    pool->peer.name = to->host; /* its context is the same: they are kin */
    cluster_ref(cluster);
    cluster_unref(pool->cluster);
    pool->cluster = cluster;
    take_limits(pool);
    while (pool->idle > pool->max_idle)
        h1_client_close(pool->idle_first);
    for (struct h1_client *client = pool->idle_first; client; client = client->next)
        set_idle_due(pool, client);
    if (!pool->closed)
        loop_task(pool->loop, &pool->refill);
}

void pool_expect(struct pool *pool, const struct cluster *next)
{
    uint32_t warm = next ? share_of(pool, next->limits.warm) : 0;
    if (!next)
        take_limits(pool);
    else if (warm > pool->warm)
        pool->warm = warm;
}

void pool_retire(struct pool *pool)
{
    pool->warm = pool->max_idle = 0;
    while (pool->idle_first)
        h1_client_close(pool->idle_first);
}

/* A request that finds out whether the server is there again may wait for all of
 * timeouts.connect, and others behind it: so a connection is tried without any. */
bool pool_is_down(struct pool *pool)
{
    if (!pool->backoff_ms || pool->idle)
        return false;
    if (!is_trying(pool)) {
        if (pool->closed || !may_open(pool))
            return false;
        loop_task(pool->loop, &pool->refill);
    }
    pool->asked_for = true;
    return true;
}

bool pool_is_busy(const struct pool *pool)
{
    return !pool->idle_first && !may_open(pool);
}

void pool_close(struct pool *pool)
{
    if (--pool->users)
        return;
    end_backoff(pool);
    pool->closed = true;
    pool->on_warm = NULL;
    end_recovery(pool);
    loop_cancel(pool->loop, &pool->refill);
    deadline_end(&pool->loop->wheel, &pool->refill_due);
    deadline_end(&pool->loop->wheel, &pool->look_due);
    deadline_end(&pool->loop->wheel, &pool->surplus_due);
    while (pool->waiters)
        pool_fail_waiter(
            pool,
            &(struct leg_fault){.reason = R_UPSTREAM_NONE, .untouched = true, .silent = true});
    while (pool->idle_first)
        h1_client_close(pool->idle_first);
    while (pool->connecting_first)
        h1_client_close(pool->connecting_first);
    bury_if_done(pool);
}
