#include "proxy/context.h"

#include <errno.h>
#include <sys/random.h>

#include "proxy/call.h"
#include "proxy/plugins.h"
#include "proxy/shed.h"

int context_init(struct context *cx, struct loop *loop, unsigned index, unsigned count,
                 struct metrics *metrics)
{
    *cx = (struct context){.loop = loop, .index = index, .count = count, .metrics = metrics};
    slab_init(&cx->exchanges, sizeof(struct exchange), 1024);
    calls_begin(cx);
    cx->station = station_open(loop, index, count, cx);
    if (!cx->station)
        return -ENOMEM;
    cx->station->on_resume = plugins_resume;
    ssize_t n = getrandom(cx->random, sizeof(cx->random), 0);
    return n == sizeof(cx->random) ? 0 : -errno;
}

/* ---- views ---- */

static bool runs(const struct view *view, const struct view *like)
{
    return view && view->started && view->snapshot->conf == like->snapshot->conf;
}

/* Snapshots of one configuration are one to plugins: they are told of the first and the last.
 */
static bool runs_anywhere(const struct context *cx, const struct view *like)
{
    bool found = cx->view != like && runs(cx->view, like);
    for (const struct view *v = cx->retired; v && !found; v = v->older)
        found = v != like && runs(v, like);
    return found;
}

static void tell_start(struct context *cx, struct view *view)
{
    if (!runs_anywhere(cx, view))
        plugins_start(cx->station, view->snapshot->conf);
    view->started = true;
}

static void tell_stop(struct context *cx, struct view *view)
{
    if (view->started && !runs_anywhere(cx, view))
        plugins_stop(cx->station, view->snapshot->conf);
    view->started = false;
}

static void view_free(struct view *view)
{
    if (!view)
        return;
    snapshot_unref(view->snapshot);
    mem_free(view->cells);
    mem_free(view->bytes_in);
    mem_free(view->bytes_out);
    mem_free(view);
}

/* Takes over the snapshot's reference, also when it fails. */
static struct view *view_new(struct context *cx, struct snapshot *snapshot)
{
    const struct conf *conf = snapshot->conf;
    struct view *view = mem_zalloc(sizeof(*view));
    if (!view) {
        snapshot_unref(snapshot);
        return NULL;
    }
    view->snapshot = snapshot;
    view->policy = (struct access_policy){
        .combined = conf->access_log.combined,
        .sample = conf->access_log.sample,
        .slower_than = conf->access_log.slower_than * NS_PER_MS,
        .secrets = conf->secret_parameters,
    };
    view->cells = mem_zalloc((conf->route_count + 1) * sizeof(*view->cells));
    view->bytes_in = mem_zalloc((conf->listener_count + 1) * sizeof(struct series *));
    view->bytes_out = mem_zalloc((conf->listener_count + 1) * sizeof(struct series *));
    if (!view->cells || !view->bytes_in || !view->bytes_out) {
        view_free(view);
        return NULL;
    }
    for (size_t i = 0; i < conf->listener_count; i++) {
        unsigned name = snapshot->listener_names[i];
        view->bytes_in[i] =
            metrics_series(cx->metrics, METRIC_DOWNSTREAM_BYTES, (unsigned[4]){name, 0});
        view->bytes_out[i] =
            metrics_series(cx->metrics, METRIC_DOWNSTREAM_BYTES, (unsigned[4]){name, 1});
    }
    return view;
}

/* ---- fleets ---- */

/* Keeps nothing open any more, but for pools that went over to a cluster in force. */
static void fleet_retire(struct fleet *fleet)
{
    for (uint32_t i = 0; fleet->pools && i < fleet->cluster->count; i++)
        if (fleet->pools[i] && pool_is_of(fleet->pools[i], fleet->cluster))
            pool_retire(fleet->pools[i]);
}

static bool counts_for(const struct cluster *cluster, unsigned upstream, unsigned server)
{
    for (uint32_t i = 0; cluster->metric_name == upstream && i < cluster->count; i++)
        if (cluster->servers[i].metric_name == server)
            return true;
    return false;
}

/* Series of servers that no other fleet has. The cluster's own is not among the fleets any
 * more. */
static void forget_series(struct context *cx, const struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++) {
        unsigned server = cluster->servers[i].metric_name;
        bool kept = !server;
        for (unsigned k = 0; k < cx->fleet_slots && !kept; k++)
            kept = cx->fleets[k] &&
                   counts_for(cx->fleets[k]->cluster, cluster->metric_name, server);
        if (!kept)
            metrics_forget(cx->metrics, cluster->metric_name, server);
    }
}

static void fleet_free(struct context *cx, struct fleet *fleet)
{
    shed_done(cx, fleet);
    fleet_retire(fleet); /* whoever shares its pools is retired already */
    for (uint32_t i = 0; fleet->pools && i < fleet->cluster->count; i++)
        if (fleet->pools[i]) {
            pool_leave(fleet->pools[i], &fleet->line);
            pool_close(fleet->pools[i]);
        }
    forget_series(cx, fleet->cluster);
    cluster_unref(fleet->cluster);
    mem_free(fleet->pools);
    mem_free(fleet);
}

static _Atomic uint64_t *cell(struct context *cx, enum metric metric,
                              const struct cluster *cluster, const struct server *server,
                              unsigned state)
{
    unsigned labels[4] = {cluster->metric_name, server->metric_name, state};
    return &metrics_series(cx->metrics, metric, labels)->value;
}

/* The fleet in force of the same upstream, when its connections are the same. */
static const struct fleet *find_kin(struct context *cx, const struct cluster *cluster)
{
    const struct snapshot *snapshot = cx->view ? cx->view->snapshot : NULL;
    for (size_t i = 0; snapshot && i < snapshot->conf->upstream_count; i++)
        if (snapshot->clusters[i]->kin == cluster->kin)
            return context_fleet(cx, snapshot->clusters[i]);
    return NULL;
}

/* The pool that `kin` (NULL: nobody) has for the same server. */
static struct pool *find_pool(const struct fleet *kin, const struct server *server)
{
    for (uint32_t i = 0; kin && i < kin->cluster->count; i++) {
        const struct server *other = &kin->cluster->servers[i];
        if (other->origin == server->origin && addr_eq(&other->addr, &server->addr))
            return kin->pools[i];
    }
    return NULL;
}

static struct pool *make_pool(struct context *cx, struct cluster *cluster, uint32_t i)
{
    const struct server *server = &cluster->servers[i];
    struct pool_counters counters = {
        .opened = cell(cx, METRIC_UPSTREAM_OPENED, cluster, server, 0),
        .reuses = cell(cx, METRIC_UPSTREAM_REUSES, cluster, server, 0),
        .idle = cell(cx, METRIC_UPSTREAM_CONNECTIONS, cluster, server, 0),
        .active = cell(cx, METRIC_UPSTREAM_CONNECTIONS, cluster, server, 1),
    };
    return pool_new(cx->loop, cluster, i, cx->index, cx->count, &counters);
}

/* Pools of servers that the upstream in force has too are shared with it, not opened anew. */
static struct fleet *fleet_new(struct context *cx, struct cluster *cluster)
{
    const struct fleet *kin = find_kin(cx, cluster);
    struct fleet *fleet = mem_zalloc(sizeof(*fleet));
    if (!fleet)
        return NULL;
    fleet->cluster = cluster_ref(cluster);
    fleet->duration =
        metrics_histogram(cx->metrics, METRIC_UPSTREAM_DURATION, cluster->metric_name);
    fleet->retries = metrics_series(cx->metrics, METRIC_UPSTREAM_RETRIES,
                                    (unsigned[4]){cluster->metric_name});
    fleet->refused = metrics_series(cx->metrics, METRIC_RETRIES_REFUSED,
                                    (unsigned[4]){cluster->metric_name});
    fleet->pools = mem_zalloc(cluster->count * sizeof(*fleet->pools));
    for (uint32_t i = 0; fleet->pools && i < cluster->count; i++) {
        struct pool *pool = find_pool(kin, &cluster->servers[i]);
        fleet->pools[i] = pool ? pool_share(pool) : make_pool(cx, cluster, i);
        if (!fleet->pools[i]) {
            fleet_free(cx, fleet);
            return NULL;
        }
    }
    if (!fleet->pools) {
        fleet_free(cx, fleet);
        return NULL;
    }
    fleet->line = (struct pool_line){.pools = fleet->pools, .count = cluster->count};
    /* Those that are shared stay where they are until they move. */
    for (uint32_t i = 0; i < cluster->count; i++)
        if (pool_is_of(fleet->pools[i], cluster))
            pool_join(fleet->pools[i], &fleet->line);
    return fleet;
}

struct fleet *context_fleet(struct context *cx, const struct cluster *cluster)
{
    return cluster->slot < cx->fleet_slots ? cx->fleets[cluster->slot] : NULL;
}

static bool names_cluster(const struct view *view, const struct cluster *cluster)
{
    for (size_t i = 0; view && i < view->snapshot->conf->upstream_count; i++)
        if (view->snapshot->clusters[i] == cluster)
            return true;
    return false;
}

/* Fleets that no view names go. Those that only retired ones name serve on, for the exchanges
 * that began under them, but keep nothing open. */
static void drop_fleets(struct context *cx)
{
    for (unsigned i = 0; i < cx->fleet_slots; i++) {
        struct fleet *fleet = cx->fleets[i];
        if (!fleet || names_cluster(cx->view, fleet->cluster) ||
            names_cluster(cx->next, fleet->cluster))
            continue;
        const struct view *view = cx->retired;
        while (view && !names_cluster(view, fleet->cluster))
            view = view->older;
        if (view) {
            fleet_retire(fleet);
            continue;
        }
        cx->fleets[i] = NULL;
        fleet_free(cx, fleet);
    }
}

static int add_fleet(struct context *cx, struct cluster *cluster)
{
    if (cluster->slot >= cx->fleet_slots) {
        unsigned slots = cluster->slot + 16;
        struct fleet **more = mem_realloc(cx->fleets, slots * sizeof(struct fleet *));
        if (!more)
            return -ENOMEM;
        memset(more + cx->fleet_slots, 0, (slots - cx->fleet_slots) * sizeof(struct fleet *));
        cx->fleets = more;
        cx->fleet_slots = slots;
    }
    if (!cx->fleets[cluster->slot])
        cx->fleets[cluster->slot] = fleet_new(cx, cluster);
    return cx->fleets[cluster->slot] ? 0 : -ENOMEM;
}

void context_recover(struct context *cx, const struct cluster *cluster, uint32_t server)
{
    struct fleet *fleet = context_fleet(cx, cluster);
    if (fleet && fleet->cluster == cluster)
        pool_recover(fleet->pools[server]);
    else
        vitals_warmed(cluster->servers[server].vitals); /* nothing of it here */
}

void context_drain(struct context *cx, const struct cluster *cluster, uint32_t server)
{
    struct fleet *fleet = context_fleet(cx, cluster);
    if (fleet && fleet->cluster == cluster)
        pool_drain(fleet->pools[server]);
}

void context_renew(struct context *cx, const struct cluster *cluster)
{
    struct fleet *fleet = context_fleet(cx, cluster);
    for (uint32_t i = 0; fleet && fleet->cluster == cluster && i < cluster->count; i++)
        pool_renew(fleet->pools[i]);
}

/* ---- prepare, switch ---- */

static void on_pool_warm(void *arg)
{
    struct context *cx = arg;
    if (--cx->warming == 0 && cx->on_warm)
        cx->on_warm(cx);
}

int context_prepare(struct context *cx, struct snapshot *snapshot,
                    void (*on_warm)(struct context *cx))
{
    cx->next = view_new(cx, snapshot);
    if (!cx->next)
        return -ENOMEM;
    size_t count = snapshot->conf->upstream_count;
    cx->on_warm = NULL;
    cx->warming = 1; /* ourselves, so that it cannot end before all have begun */
    for (size_t i = 0; i < count; i++) {
        struct cluster *cluster = snapshot->clusters[i];
        bool fresh = !context_fleet(cx, cluster);
        int rc = add_fleet(cx, cluster);
        if (rc < 0) {
            context_forget(cx);
            return rc;
        }
        for (uint32_t k = 0; fresh && k < cluster->count; k++) {
            struct pool *pool = cx->fleets[cluster->slot]->pools[k];
            if (!pool_is_of(pool, cluster)) /* shared: it is at work */
                pool_expect(pool, cluster);
            cx->warming++;
            pool_warm(pool, on_pool_warm, cx);
        }
    }
    cx->on_warm = on_warm;
    on_pool_warm(cx);
    return 0;
}

static void view_end(struct context *cx, struct view *view)
{
    struct view **at = &cx->retired;
    while (*at != view)
        at = &(*at)->older;
    *at = view->older;
    tell_stop(cx, view);
    drop_fleets(cx);
    view_free(view);
}

/* Shared pools go over to the clusters now in force. */
static void move_pools(struct context *cx)
{
    const struct snapshot *snapshot = cx->view->snapshot;
    for (size_t i = 0; i < snapshot->conf->upstream_count; i++) {
        struct cluster *cluster = snapshot->clusters[i];
        struct fleet *fleet = context_fleet(cx, cluster);
        for (uint32_t k = 0; k < cluster->count; k++) {
            pool_move(fleet->pools[k], cluster, k);
            pool_join(fleet->pools[k], &fleet->line);
        }
    }
}

/* Pools that warm on are not waited for; their word must not count for the next time. */
static void forget_warming(struct context *cx)
{
    cx->on_warm = NULL;
    for (unsigned i = 0; i < cx->fleet_slots; i++)
        for (uint32_t k = 0; cx->fleets[i] && k < cx->fleets[i]->cluster->count; k++)
            pool_forget_warm(cx->fleets[i]->pools[k]);
}

void context_switch(struct context *cx)
{
    forget_warming(cx);
    struct view *old = cx->view;
    cx->view = cx->next;
    move_pools(cx);
    cx->next = NULL;
    tell_start(cx, cx->view); /* before the old one ends: what both share lives on */
    if (old) {
        old->retired = true;
        old->older = cx->retired;
        cx->retired = old;
        if (!old->exchanges)
            view_end(cx, old);
    }
    drop_fleets(cx);
}

void context_forget(struct context *cx)
{
    struct view *view = cx->next;
    cx->next = NULL;
    forget_warming(cx);
    for (size_t i = 0; view && i < view->snapshot->conf->upstream_count; i++) {
        const struct fleet *fleet = context_fleet(cx, view->snapshot->clusters[i]);
        for (uint32_t k = 0; fleet && k < fleet->cluster->count; k++)
            pool_expect(fleet->pools[k], NULL);
    }
    drop_fleets(cx);
    view_free(view);
}

void context_exchange_ended(struct context *cx, struct view *view)
{
    if (--view->exchanges == 0 && view->retired)
        view_end(cx, view);
}

void context_done(struct context *cx)
{
    struct view *view = cx->view;
    calls_end(cx);
    if (view)
        tell_stop(cx, view);
    station_close(cx->station);
    cx->view = NULL;
    context_forget(cx);
    view_free(view);
    mem_free(cx->fleets);
    slab_done(&cx->exchanges);
}

/* ---- small things ---- */

/* xorshift128+: fast, and seeded from the kernel. For ids and choices, not for secrets. */
uint64_t context_random(struct context *cx)
{
    uint64_t x = cx->random[0], y = cx->random[1];
    cx->random[0] = y;
    x ^= x << 23;
    cx->random[1] = x ^ y ^ (x >> 17) ^ (y >> 26);
    return cx->random[1] + y;
}

struct str context_date(struct context *cx)
{
    uint64_t wall = clock_wall_ms();
    if (wall / 1000 != cx->date_s) {
        cx->date_s = wall / 1000;
        clock_put_http(cx->date, wall);
    }
    return (struct str){cx->date, CLOCK_HTTP_LEN};
}
