/* Which servers are in use: what up/health finds goes to the log and to the workers, and what
 * operators take out stays out over reloads and other addresses. */
#include "app/gateway.h"

/* A server that an operator took out: by the name that the file has for it, which covers all
 * its addresses, or by one of them. Lives as long as the configuration has it. */
struct drained {
    struct drained *next;
    char *upstream, *server;
};

/* ---- what is found ---- */

static void log_change(const struct health_change *change)
{
    const char *name = change->cluster->name;
    const char *server = change->cluster->servers[change->server].text;
    switch (change->event) {
    case HEALTH_WENT_DOWN:
        log_warn("upstream \"%s\": server %s is down: %s; %u of %u servers are left", name,
                 server, change->why, change->left, change->cluster->count);
        break;
    case HEALTH_CAME_UP:
        log_info("upstream \"%s\": server %s is up: %s", name, server, change->why);
        break;
    case HEALTH_WAS_EJECTED:
        log_warn(
            "upstream \"%s\": server %s is ejected for %u ms: %s; %u of %u servers are left",
            name, server, change->ms, change->why, change->left, change->cluster->count);
        break;
    case HEALTH_RETURNED:
        log_info("upstream \"%s\": server %s is back: %s", name, server, change->why);
        break;
    case HEALTH_DRAINS:
        log_info(
            "upstream \"%s\": server %s is drained by an operator; %u of %u servers are left",
            name, server, change->left, change->cluster->count);
        break;
    case HEALTH_IS_READY:
        log_info("upstream \"%s\": server %s is put back by an operator", name, server);
        break;
    }
}

static void on_change(void *owner, const struct health_change *change)
{
    (void)owner;
    log_change(change);
}

static void on_prepared(void *owner)
{
    reload_on_warm(owner, false);
}

static void warm(void *owner, struct cluster *cluster, uint32_t server)
{
    struct gateway *gw = owner;
    struct vitals *vitals = cluster->servers[server].vitals;
    vitals_warm(vitals, gw->started);
    for (unsigned i = 0; i < gw->started; i++)
        if (worker_recover(&gw->workers[i], cluster, server) < 0)
            vitals_warmed(vitals); /* it will be cold there, and opens when it is needed */
}

static void drain(void *owner, struct cluster *cluster, uint32_t server)
{
    struct gateway *gw = owner;
    for (unsigned i = 0; i < gw->started; i++)
        if (worker_retire(&gw->workers[i], cluster, server) < 0)
            log_error("out of memory: worker %u keeps idle connections to %s", i,
                      cluster->servers[server].text);
}

const struct health_ops servers_ops = {
    .on_prepared = on_prepared,
    .on_change = on_change,
    .warm = warm,
    .drain = drain,
};

void servers_renew(struct gateway *gw, struct cluster *cluster)
{
    for (unsigned i = 0; i < gw->started; i++)
        if (worker_renew(&gw->workers[i], cluster) < 0)
            log_error(
                "out of memory: worker %u keeps idle connections of upstream \"%s\" until "
                "they are asked for",
                i, cluster->name);
}

/* ---- what operators say ---- */

static bool is_named(const struct conf_upstream *upstream, const struct server *server,
                     const char *name)
{
    return strcmp(server->text, name) == 0 ||
           strcmp(upstream->servers[server->from].text, name) == 0;
}

static bool is_drained(const struct gateway *gw, const struct conf_upstream *upstream,
                       const struct server *server)
{
    for (const struct drained *drained = gw->drained; drained; drained = drained->next)
        if (strcmp(drained->upstream, upstream->name) == 0 &&
            is_named(upstream, server, drained->server))
            return true;
    return false;
}

static void drained_free(struct drained *drained)
{
    free(drained->upstream);
    free(drained->server);
    mem_free(drained);
}

/* False: no memory. */
static bool remember(struct gateway *gw, const char *upstream, const char *server)
{
    for (const struct drained *drained = gw->drained; drained; drained = drained->next)
        if (strcmp(drained->upstream, upstream) == 0 && strcmp(drained->server, server) == 0)
            return true;
    struct drained *drained = mem_zalloc(sizeof(*drained));
    if (!drained)
        return false;
    drained->upstream = strdup(upstream);
    drained->server = strdup(server);
    if (!drained->upstream || !drained->server) {
        drained_free(drained);
        return false;
    }
    drained->next = gw->drained;
    gw->drained = drained;
    return true;
}

/* What was remembered under that name, and all that covers `server` (NULL: nothing): the name
 * of one that is put back does not hold for its other addresses any more either. */
static void forget(struct gateway *gw, const struct conf_upstream *upstream, const char *name,
                   const struct server *server)
{
    struct drained **at = &gw->drained;
    while (*at) {
        struct drained *drained = *at;
        bool covers = strcmp(drained->server, name) == 0 ||
                      (server && is_named(upstream, server, drained->server));
        if (strcmp(drained->upstream, upstream->name) != 0 || !covers) {
            at = &drained->next;
            continue;
        }
        *at = drained->next;
        drained_free(drained);
    }
}

static bool names_server(const struct conf *conf, const struct snapshot *snapshot,
                         const struct drained *drained)
{
    for (size_t i = 0; i < conf->upstream_count; i++) {
        const struct conf_upstream *upstream = &conf->upstreams[i];
        if (strcmp(upstream->name, drained->upstream) != 0)
            continue;
        for (size_t k = 0; k < upstream->server_count; k++)
            if (strcmp(upstream->servers[k].text, drained->server) == 0)
                return true;
        for (uint32_t k = 0; k < snapshot->clusters[i]->count; k++)
            if (strcmp(snapshot->clusters[i]->servers[k].text, drained->server) == 0)
                return true;
    }
    return false;
}

static void drain_remembered(struct gateway *gw, const struct snapshot *snapshot)
{
    for (size_t i = 0; gw->drained && i < snapshot->conf->upstream_count; i++)
        for (uint32_t k = 0; k < snapshot->clusters[i]->count; k++) {
            const struct server *server = &snapshot->clusters[i]->servers[k];
            if (is_drained(gw, &snapshot->conf->upstreams[i], server))
                health_drain(gw->health, server->vitals, true);
        }
}

int servers_prepare(struct gateway *gw)
{
    const struct snapshot *next = gw->next;
    int rc = health_prepare(gw->health, next->clusters, next->conf->upstream_count);
    if (rc >= 0)
        drain_remembered(gw, next);
    return rc;
}

void servers_switch(struct gateway *gw)
{
    struct drained **at = &gw->drained;
    health_switch(gw->health);
    drain_remembered(gw, gw->snapshot); /* by a name, while it was being prepared */
    while (*at) { /* what the configuration has no more is new when it comes again */
        struct drained *drained = *at;
        if (names_server(gw->snapshot->conf, gw->snapshot, drained)) {
            at = &drained->next;
            continue;
        }
        *at = drained->next;
        drained_free(drained);
    }
}

/* Puts into `detail` which there are, as far as there is room. */
static void list_servers(const struct conf_upstream *upstream, char detail[ADMIN_DETAIL])
{
    int n = snprintf(detail, ADMIN_DETAIL, "Upstream \"%.100s\" has no such server; it has",
                     upstream->name);
    for (size_t i = 0; i < upstream->server_count; i++) {
        if (n > ADMIN_DETAIL - 160) {
            snprintf(detail + n, (size_t)(ADMIN_DETAIL - n), " and %zu more",
                     upstream->server_count - i);
            return;
        }
        n += snprintf(detail + n, (size_t)(ADMIN_DETAIL - n), "%s %.128s", i ? "," : "",
                      upstream->servers[i].text);
    }
}

static void list_upstreams(const struct conf *conf, char detail[ADMIN_DETAIL])
{
    int n = snprintf(detail, ADMIN_DETAIL, "There is no such upstream; there %s",
                     conf->upstream_count ? "are" : "is none");
    for (size_t i = 0; i < conf->upstream_count; i++) {
        if (n > ADMIN_DETAIL - 160) {
            snprintf(detail + n, (size_t)(ADMIN_DETAIL - n), " and %zu more",
                     conf->upstream_count - i);
            return;
        }
        n += snprintf(detail + n, (size_t)(ADMIN_DETAIL - n), "%s \"%.100s\"", i ? "," : "",
                      conf->upstreams[i].name);
    }
}

static bool drain_named(struct gateway *gw, const struct conf_upstream *upstream,
                        struct cluster *cluster, const char *name, bool is_drain)
{
    bool found = false;
    for (size_t i = 0; i < upstream->server_count; i++) /* it may have no address now */
        found |= strcmp(upstream->servers[i].text, name) == 0;
    if (!is_drain)
        forget(gw, upstream, name, NULL);
    for (uint32_t k = 0; k < cluster->count; k++) {
        if (!is_named(upstream, &cluster->servers[k], name))
            continue;
        found = true;
        if (!is_drain)
            forget(gw, upstream, name, &cluster->servers[k]);
        health_drain(gw->health, cluster->servers[k].vitals, is_drain);
    }
    return found;
}

json_t *servers_drain(void *owner, const char *upstream, const char *server, bool is_drain,
                      char detail[ADMIN_DETAIL])
{
    struct gateway *gw = owner;
    const struct snapshot *snapshot = gw->snapshot;
    if (!snapshot) {
        snprintf(detail, ADMIN_DETAIL, "The gateway is starting; there is no upstream yet");
        return NULL;
    }
    for (size_t i = 0; i < snapshot->conf->upstream_count; i++) {
        const struct conf_upstream *named = &snapshot->conf->upstreams[i];
        if (strcmp(named->name, upstream) != 0)
            continue;
        if (!drain_named(gw, named, snapshot->clusters[i], server, is_drain)) {
            list_servers(named, detail);
            return NULL;
        }
        if (is_drain && !remember(gw, upstream, server))
            log_error("out of memory: that %s of upstream \"%s\" is drained is forgotten by "
                      "the next reload",
                      server, upstream);
        return status_upstream(gw, i);
    }
    list_upstreams(snapshot->conf, detail);
    return NULL;
}

void servers_done(struct gateway *gw)
{
    health_free(gw->health);
    gw->health = NULL;
    while (gw->drained) {
        struct drained *drained = gw->drained;
        gw->drained = drained->next;
        drained_free(drained);
    }
}
