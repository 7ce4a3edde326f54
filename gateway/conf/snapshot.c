#include "conf/snapshot.h"

#include "up/resolve.h"

#define MEMORY_FAULT "out of memory while the configuration is put together"

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

/* All addresses of all servers of an upstream. False: too many, with a fault. */
static bool resolve_all(const struct conf_upstream *up, struct cluster_server *list,
                        size_t *ret_count, struct conf_faults *faults,
                        struct conf_faults *warnings)
{
    size_t count = 0;
    for (size_t i = 0; i < up->server_count; i++) {
        const struct conf_server *server = &up->servers[i];
        struct addr addrs[RESOLVE_MAX];
        const char *why = "";
        size_t n = resolve_server(str_of(server->text), addrs, &why);
        if (!n)
            conf_fault(warnings, server->where,
                       "server \"%s\" of upstream \"%s\" is left out: its name cannot be "
                       "resolved: %s",
                       server->text, up->name, why);
        if (count + n > CLUSTER_SERVERS) {
            conf_fault(faults, server->where,
                       "upstream \"%s\" has more than %d addresses, expected at most that",
                       up->name, CLUSTER_SERVERS);
            return false;
        }
        for (size_t k = 0; k < n; k++)
            list[count++] =
                (struct cluster_server){addrs[k], server->weight, server->backup, (uint16_t)i};
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
            if (server->from != list[i].from || !addr_eq(&server->addr, &list[i].addr))
                return false;
        }
    return true;
}

static struct cluster *make_cluster(const struct conf_upstream *up, const struct snapshot *old,
                                    struct conf_faults *faults, struct conf_faults *warnings)
{
    struct cluster_server *list = mem_alloc(CLUSTER_SERVERS * sizeof(*list));
    if (!list) {
        conf_fault(faults, up->where, MEMORY_FAULT);
        return NULL;
    }
    struct cluster *cluster = NULL;
    size_t count = 0, index;
    bool ok = resolve_all(up, list, &count, faults, warnings);
    const struct conf_upstream *before = find_upstream(old, up->name, &index);
    if (ok && before && conf_upstream_eq(before, up) &&
        same_servers(old->clusters[index], list, count)) {
        cluster = cluster_ref(old->clusters[index]);
    } else if (ok) {
        struct cluster_spec spec = {
            .name = up->name,
            .balance = up->balance,
            .limits = {up->pool.warm, up->pool.idle, up->pool.connections, up->pool.requests,
                       up->pool.idle_timeout, up->pool.lifetime, up->timeouts.connect,
                       up->timeouts.response, up->timeouts.idle, up->timeouts.total},
            .retry_attempts = up->retry.attempts,
            .retry_budget_permille = up->retry.budget_permille,
            .retry_on = up->retry.on,
            .proxy_protocol = up->proxy_protocol,
        };
        cluster = cluster_new(&spec, list, count);
        if (!cluster)
            conf_fault(faults, up->where, MEMORY_FAULT);
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

static bool make_splits(struct snapshot *snapshot, const struct snapshot *old)
{
    const struct conf *conf = snapshot->conf;
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
        snapshot->splits[route->split.index] = split;
        if (!split)
            return false;
    }
    return true;
}

struct snapshot *snapshot_new(struct conf *conf, const struct snapshot *old,
                              struct conf_faults *faults, struct conf_faults *warnings)
{
    size_t before = faults->count;
    struct conf_where where = {conf->file, 0};
    struct snapshot *snapshot = mem_zalloc(sizeof(*snapshot));
    if (!snapshot) {
        conf_free(conf);
        conf_fault(faults, (struct conf_where){"-", 0}, MEMORY_FAULT);
        return NULL;
    }
    atomic_init(&snapshot->refs, 1);
    snapshot->generation = old ? old->generation + 1 : 1;
    snapshot->conf = conf;
    snapshot->clusters = mem_zalloc((conf->upstream_count + 1) * sizeof(struct cluster *));
    snapshot->route_names = mem_zalloc((conf->route_count + 1) * sizeof(unsigned));
    snapshot->listener_names = mem_zalloc((conf->listener_count + 1) * sizeof(unsigned));
    snapshot->splits = mem_zalloc((conf->split_count + 1) * sizeof(struct split *));
    if (!snapshot->clusters || !snapshot->route_names || !snapshot->listener_names ||
        !snapshot->splits || !make_splits(snapshot, old)) {
        conf_fault(faults, where, MEMORY_FAULT);
    } else {
        for (size_t i = 0; i < conf->upstream_count; i++)
            snapshot->clusters[i] = make_cluster(&conf->upstreams[i], old, faults, warnings);
        snapshot->router = router_new(conf, faults);
    }
    if (faults->count == before && snapshot->router)
        return snapshot;
    if (faults->count == before)
        conf_fault(faults, where, MEMORY_FAULT);
    snapshot_unref(snapshot);
    return NULL;
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
    for (size_t i = 0; snapshot->clusters && i < snapshot->conf->upstream_count; i++)
        cluster_unref(snapshot->clusters[i]);
    for (size_t i = 0; snapshot->splits && i < snapshot->conf->split_count; i++)
        split_free(snapshot->splits[i]);
    mem_free(snapshot->splits);
    router_free(snapshot->router);
    mem_free(snapshot->clusters);
    mem_free(snapshot->route_names);
    mem_free(snapshot->listener_names);
    conf_free(snapshot->conf);
    mem_free(snapshot);
}

int snapshot_listener(const struct snapshot *snapshot, const char *name)
{
    for (size_t i = 0; i < snapshot->conf->listener_count; i++)
        if (strcmp(snapshot->conf->listeners[i].name, name) == 0)
            return (int)i;
    return -1;
}
