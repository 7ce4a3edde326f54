#include "conf/snapshot.h"

#include <sys/random.h>

#include "conf/tls_make.h"
#include "up/balance.h"

#define MEMORY_FAULT "out of memory while the configuration is put together"

/* Everything but the clusters. It lives as long as one of its snapshots does. */
struct snapshot_base {
    _Atomic uint32_t refs;
    struct conf *conf;
    struct router *router;
    struct split **splits;
    unsigned *route_names, *listener_names;
};

static const struct conf_upstream *find_upstream(const struct snapshot *old, const char *name,
                                                 size_t *ret_index)
{
    for (size_t i = 0; old && i < old->conf->upstream_count; i++) {
        if (strcmp(old->conf->upstreams[i].name, name) == 0) {
            *ret_index = i;
            return &old->conf->upstreams[i];
        }
    }
    return NULL;
}

static void warn_of_name(const struct conf_upstream *up, const struct conf_server *server,
                         size_t count, const char *why, struct conf_faults *warnings)
{
    if (count)
        conf_fault(
            warnings, server->where,
            "server \"%s\" of upstream \"%s\" keeps the addresses it had (%zu): its name "
            "cannot be resolved: %s",
            server->text, up->name, count, why);
    else
        conf_fault(warnings, server->where,
                   "server \"%s\" of upstream \"%s\" is left out: its name cannot be "
                   "resolved: %s",
                   server->text, up->name, why);
}

/* All addresses of all servers of an upstream. False: too many, with a fault. `warnings` may
 * be NULL. */
static bool resolve_all(const struct conf_upstream *up, const struct resolver *names,
                        struct cluster_server *list, size_t *ret_count,
                        struct conf_faults *faults, struct conf_faults *warnings)
{
    size_t count = 0;
    for (size_t i = 0; i < up->server_count; i++) {
        const struct conf_server *server = &up->servers[i];
        struct resolved found[RESOLVE_MAX];
        const char *why;
        size_t n = resolver_get(names, str_of(server->text), found, &why);
        if (why && warnings)
            warn_of_name(up, server, n, why, warnings);
        if (count + n > CLUSTER_SERVERS) {
            conf_fault(faults, server->where,
                       "upstream \"%s\" has more than %d addresses, expected at most that",
                       up->name, CLUSTER_SERVERS);
            return false;
        }
        const char *name =
            strncmp(server->text, "unix:", 5) == 0 ? "localhost" : conf_server_name(server);
        for (size_t k = 0; k < n; k++)
            list[count++] = (struct cluster_server){
                .addr = found[k].addr,
                .weight = found[k].weight ? found[k].weight : server->weight,
                .backup = server->backup || found[k].backup,
                .from = (uint16_t)i,
                .origin = balance_hash(str_of(server->text)),
                .host = up->tls && up->tls->server_name ? up->tls->server_name : server->host,
                .name = name,
            };
    }
    *ret_count = count;
    return true;
}

static bool same_servers(const struct cluster *cluster, const struct cluster_server *list,
                         size_t count)
{
    if (cluster->count != count)
        return false;
    size_t at = 0; /* clusters keep backups behind the others, each in its order */
    for (int backup = 0; backup < 2; backup++)
        for (size_t i = 0; i < count; i++) {
            if (list[i].backup != backup)
                continue;
            const struct server *server = &cluster->servers[at++];
            if (server->from != list[i].from || server->backup != list[i].backup ||
                server->weight != list[i].weight || !addr_eq(&server->addr, &list[i].addr))
                return false;
        }
    return true;
}

static uint32_t heaviest_of(const struct conf_upstream *up)
{
    uint32_t heaviest = 0;
    for (size_t i = 0; i < up->server_count; i++)
        if (!up->servers[i].backup && up->servers[i].weight > heaviest)
            heaviest = up->servers[i].weight;
    return heaviest;
}

/* Without a secret the ids hold as long as the process does. */
static struct sip_key sticky_key(const struct conf_upstream *up)
{
    static struct sip_key own;
    if (up->sticky.secret)
        return sip_key_of(str_of(up->sticky.secret));
    while (!own.k0)
        if (getrandom(&own, sizeof(own), 0) != sizeof(own))
            own.k0 = 0;
    return own;
}

/* Kin go on with the context they have, and with its connections. */
static struct tls_back *back_of(const struct conf_upstream *up, const struct cluster *kin,
                                struct conf_faults *faults)
{
    return kin ? tls_back_ref(kin->tls) : tls_make_back(up, false, faults);
}

static struct cluster *make_cluster(const struct conf_upstream *up, const struct snapshot *old,
                                    const struct resolver *names, struct conf_faults *faults,
                                    struct conf_faults *warnings)
{
    struct cluster_server *list = mem_alloc(CLUSTER_SERVERS * sizeof(*list));
    if (!list) {
        conf_fault(faults, up->where, MEMORY_FAULT);
        return NULL;
    }
    struct cluster *cluster = NULL;
    size_t count = 0, index;
    bool ok = resolve_all(up, names, list, &count, faults, warnings);
    const struct conf_upstream *like = find_upstream(old, up->name, &index);
    const struct cluster *kin =
        like && conf_upstream_kin(like, up) ? old->clusters[index] : NULL;
    if (ok && kin && conf_upstream_eq(like, up) && watch_eq(&like->watch, &up->watch) &&
        same_servers(kin, list, count)) {
        cluster = cluster_ref(old->clusters[index]);
    } else if (ok) {
        struct tls_back *tls = up->tls ? back_of(up, kin, faults) : NULL;
        struct sip_key key = up->sticky.name ? sticky_key(up) : (struct sip_key){0, 0};
        struct cluster_spec spec = {
            .name = up->name,
            .balance = up->balance,
            .hash_bound = up->hash_bound,
            .heaviest = heaviest_of(up),
            .limits = {up->pool.warm, up->pool.idle, up->pool.connections, up->pool.requests,
                       up->pool.idle_timeout, up->pool.lifetime, up->timeouts.connect,
                       up->timeouts.response, up->timeouts.idle, up->timeouts.total,
                       up->timeouts.queue},
            .breaker = up->breaker,
            .retry_attempts = up->retry.attempts,
            .retry_budget_permille = up->retry.budget_permille,
            .retry_on = up->retry.on,
            .proxy_protocol = up->proxy_protocol,
            .http2 = up->http2,
            .sticky = up->sticky.name ? &key : NULL,
            .watch = up->watch,
            .tls = tls,
            .kin = kin,
            .before = like ? old->clusters[index] : NULL,
        };
        bool good = tls || !up->tls; /* else there is a fault already */
        cluster = good ? cluster_new(&spec, list, count) : NULL;
        if (good && !cluster)
            conf_fault(faults, up->where, MEMORY_FAULT);
        tls_back_unref(tls);
    }
    mem_free(list);
    return cluster;
}

/* An unchanged split goes on where it stood, so that reloads do not favour anybody. Routes
 * mostly keep their order, so the search begins behind the last one found. */
static uint64_t split_turn(const struct snapshot *old, const struct conf_route *route,
                           size_t *at)
{
    for (size_t i = 0; old && i < old->conf->route_count; i++) {
        size_t k = (*at + i) % old->conf->route_count;
        const struct conf_route *before = &old->conf->routes[k];
        if (before->action != ACTION_SPLIT || !conf_split_eq(before, route))
            continue;
        *at = k + 1;
        return atomic_load_explicit(&old->splits[before->split.index]->counter,
                                    memory_order_relaxed);
    }
    return 0;
}

static bool make_splits(struct snapshot_base *base, const struct snapshot *old)
{
    const struct conf *conf = base->conf;
    size_t at = 0;
    for (size_t i = 0; i < conf->route_count; i++) {
        const struct conf_route *route = &conf->routes[i];
        uint32_t weights[SPLIT_SHARES];
        if (route->action != ACTION_SPLIT)
            continue;
        for (size_t k = 0; k < route->split.count; k++)
            weights[k] = route->split.shares[k].weight;
        struct split *split =
            split_new(weights, (uint32_t)route->split.count, split_turn(old, route, &at));
        base->splits[route->split.index] = split;
        if (!split)
            return false;
    }
    return true;
}

static void base_unref(struct snapshot_base *base)
{
    if (!base || atomic_fetch_sub_explicit(&base->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; base->splits && i < base->conf->split_count; i++)
        split_free(base->splits[i]);
    mem_free(base->splits);
    router_free(base->router);
    mem_free(base->route_names);
    mem_free(base->listener_names);
    conf_free(base->conf);
    mem_free(base);
}

/* Takes over `conf`. NULL with a fault. */
static struct snapshot_base *base_new(struct conf *conf, const struct snapshot *old,
                                      struct conf_faults *faults)
{
    struct snapshot_base *base = mem_zalloc(sizeof(*base));
    if (!base) {
        conf_free(conf);
        conf_fault(faults, (struct conf_where){"-", 0}, MEMORY_FAULT);
        return NULL;
    }
    size_t before = faults->count;
    atomic_init(&base->refs, 1);
    base->conf = conf;
    base->route_names = mem_zalloc((conf->route_count + 1) * sizeof(unsigned));
    base->listener_names = mem_zalloc((conf->listener_count + 1) * sizeof(unsigned));
    base->splits = mem_zalloc((conf->split_count + 1) * sizeof(struct split *));
    if (base->route_names && base->listener_names && base->splits && make_splits(base, old))
        base->router = router_new(conf, faults);
    if (base->router)
        return base;
    if (faults->count == before)
        conf_fault(faults, (struct conf_where){conf->file, 0}, MEMORY_FAULT);
    base_unref(base);
    return NULL;
}

/* A snapshot of the same configuration has the same ones, a new one what its files hold. */
static void make_fronts(struct snapshot *snapshot, const struct snapshot *old,
                        struct conf_faults *faults)
{
    const struct conf *conf = snapshot->conf;
    snapshot->fronts = mem_zalloc((conf->listener_count + 1) * sizeof(struct tls_front *));
    if (!snapshot->fronts) {
        conf_fault(faults, (struct conf_where){conf->file, 0}, MEMORY_FAULT);
        return;
    }
    bool same = old && old->base == snapshot->base;
    for (size_t i = 0; i < conf->listener_count; i++) {
        const struct conf_listener *listener = &conf->listeners[i];
        int at = old ? snapshot_listener(old, listener->name) : -1;
        struct tls_front *before = at < 0 ? NULL : old->fronts[at];
        if (listener->tls)
            snapshot->fronts[i] =
                same ? tls_front_ref(before) : tls_make_front(listener, false, before, faults);
    }
}

void snapshot_set_front(struct snapshot *snapshot, size_t index, struct tls_front *front)
{
    tls_front_unref(snapshot->fronts[index]);
    snapshot->fronts[index] = tls_front_ref(front);
}

void snapshot_check_dates(const struct snapshot *snapshot, const struct snapshot *before,
                          struct conf_faults *faults, struct conf_faults *warnings)
{
    for (size_t i = 0; i < snapshot->conf->listener_count; i++) {
        const struct conf_listener *listener = &snapshot->conf->listeners[i];
        int at = before ? snapshot_listener(before, listener->name) : -1;
        if (listener->tls)
            tls_check_dates(listener, snapshot->fronts[i], at < 0 ? NULL : before->fronts[at],
                            time(NULL), faults, warnings);
    }
}

/* Takes over the reference to `base`. NULL with a fault. */
static struct snapshot *make(struct snapshot_base *base, const struct snapshot *old,
                             const struct resolver *names, struct conf_faults *faults,
                             struct conf_faults *warnings)
{
    const struct conf *conf = base->conf;
    size_t before = faults->count;
    struct snapshot *snapshot = mem_zalloc(sizeof(*snapshot));
    struct cluster **clusters =
        mem_zalloc((conf->upstream_count + 1) * sizeof(struct cluster *));
    if (!snapshot || !clusters) {
        conf_fault(faults, (struct conf_where){conf->file, 0}, MEMORY_FAULT);
        mem_free(snapshot);
        mem_free(clusters);
        base_unref(base);
        return NULL;
    }
    *snapshot = (struct snapshot){
        .base = base,
        .conf = base->conf,
        .router = base->router,
        .splits = base->splits,
        .route_names = base->route_names,
        .listener_names = base->listener_names,
        .clusters = clusters,
    };
    atomic_init(&snapshot->refs, 1);
    for (size_t i = 0; i < conf->upstream_count; i++)
        clusters[i] = make_cluster(&conf->upstreams[i], old, names, faults, warnings);
    make_fronts(snapshot, old, faults);
    if (faults->count == before)
        return snapshot;
    snapshot_unref(snapshot);
    return NULL;
}

struct snapshot *snapshot_new(struct conf *conf, const struct snapshot *old,
                              const struct resolver *names, struct conf_faults *faults,
                              struct conf_faults *warnings)
{
    struct snapshot_base *base = base_new(conf, old, faults);
    struct snapshot *snapshot = base ? make(base, old, names, faults, warnings) : NULL;
    if (snapshot)
        snapshot->generation = old ? old->generation + 1 : 1;
    return snapshot;
}

struct snapshot *snapshot_renew(const struct snapshot *old, const struct resolver *names,
                                struct conf_faults *faults)
{
    atomic_fetch_add_explicit(&old->base->refs, 1, memory_order_relaxed);
    struct snapshot *snapshot = make(old->base, old, names, faults, NULL);
    if (snapshot)
        snapshot->generation = old->generation;
    return snapshot;
}

struct resolver *snapshot_book(const struct conf *conf, const struct resolver *old)
{
    struct resolver *names = resolver_new(conf->resolvers, conf->resolver_count);
    for (size_t i = 0; names && i < conf->upstream_count; i++) {
        const struct conf_upstream *up = &conf->upstreams[i];
        for (size_t k = 0; k < up->server_count; k++) {
            if (resolver_add(names, str_of(up->servers[k].text)) == 0)
                continue;
            resolver_free(names);
            return NULL;
        }
    }
    if (names)
        resolver_inherit(names, old);
    return names;
}

struct resolver *snapshot_names(const struct conf *conf, const struct resolver *old)
{
    struct resolver *names = snapshot_book(conf, old);
    if (names)
        resolver_wait(names, SNAPSHOT_NAMES_MS);
    return names;
}

struct snapshot *snapshot_ref(struct snapshot *snapshot)
{
    atomic_fetch_add_explicit(&snapshot->refs, 1, memory_order_relaxed);
    return snapshot;
}

void snapshot_unref(struct snapshot *snapshot)
{
    if (!snapshot || atomic_fetch_sub_explicit(&snapshot->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < snapshot->conf->upstream_count; i++)
        cluster_unref(snapshot->clusters[i]);
    mem_free(snapshot->clusters);
    for (size_t i = 0; snapshot->fronts && i < snapshot->conf->listener_count; i++)
        tls_front_unref(snapshot->fronts[i]);
    mem_free(snapshot->fronts);
    base_unref(snapshot->base);
    mem_free(snapshot);
}

int snapshot_listener(const struct snapshot *snapshot, const char *name)
{
    for (size_t i = 0; i < snapshot->conf->listener_count; i++)
        if (strcmp(snapshot->conf->listeners[i].name, name) == 0)
            return (int)i;
    return -1;
}
