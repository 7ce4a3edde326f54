/* What the admin listener tells: readiness, configuration, upstreams, metrics. */
#include "app/gateway.h"

static bool is_ready(void *owner)
{
    struct gateway *gw = owner;
    return gw->phase == PHASE_RUNNING || gw->phase == PHASE_RELOADING;
}

static json_t *time_text(uint64_t wall_ms)
{
    if (!wall_ms)
        return json_null();
    char text[CLOCK_ISO_LEN];
    clock_put_iso(text, wall_ms);
    return json_stringn(text, sizeof(text));
}

static json_t *faults_json(const struct conf_faults *faults)
{
    json_t *list = json_array();
    for (size_t i = 0; i < faults->count; i++) {
        const struct conf_fault *fault = &faults->list[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:s}", "file", fault->where.file, "line",
                                        fault->where.line, "message", fault->message));
    }
    return list;
}

static json_t *config(void *owner)
{
    struct gateway *gw = owner;
    json_int_t generation = gw->snapshot ? (json_int_t)gw->snapshot->generation : 0;
    return json_pack("{s:I, s:s, s:o, s:{s:b, s:o, s:o}}", "generation", generation, "file",
                     gw->path, "loaded_at", time_text(gw->loaded_at_ms), "last_reload", "ok",
                     gw->last.ok, "at", time_text(gw->last.at_ms), "faults",
                     faults_json(&gw->last.faults));
}

static json_int_t sum(struct gateway *gw, enum metric metric, const struct cluster *cluster,
                      unsigned name, unsigned state)
{
    unsigned labels[4] = {cluster->metric_name, name, state};
    return (json_int_t)metrics_sum(gw->metrics, gw->worker_count, metric, labels);
}

/* What keeps a server out, the most deliberate first; else whether any worker's last try to
 * connect failed. */
static const char *state_of(const struct cluster *cluster, uint32_t i)
{
    const struct server *server = &cluster->servers[i];
    uint32_t word = vitals_word(server->vitals);
    if (word & VITAL_DRAINING)
        return "draining";
    if (word & VITAL_DOWN)
        return "down";
    if (word & VITAL_EJECTED)
        return "ejected";
    if (word & VITAL_WARMING)
        return "warming";
    return atomic_load_explicit(&server->down, memory_order_relaxed) ? "down" : "up";
}

static bool is_up(const struct cluster *cluster, uint32_t i)
{
    return strcmp(state_of(cluster, i), "up") == 0;
}

static json_t *server_json(struct gateway *gw, const struct cluster *cluster, uint32_t i)
{
    const struct server *server = &cluster->servers[i];
    const char *why = health_why(server->vitals);
    unsigned name = server->metric_name;
    json_t *json = json_pack("{s:s, s:s, s:i, s:b, s:I, s:I, s:I, s:I, s:I}", "address",
                             server->text, "state", state_of(cluster, i), "weight",
                             (int)server->weight, "backup", server->backup, "requests",
                             sum(gw, METRIC_UPSTREAM_REQUESTS, cluster, name, METRIC_ANY),
                             "idle", sum(gw, METRIC_UPSTREAM_CONNECTIONS, cluster, name, 0),
                             "active", sum(gw, METRIC_UPSTREAM_CONNECTIONS, cluster, name, 1),
                             "opened", sum(gw, METRIC_UPSTREAM_OPENED, cluster, name, 0),
                             "reused", sum(gw, METRIC_UPSTREAM_REUSES, cluster, name, 0));
    if (json && *why)
        json_object_set_new(json, "why", json_string(why));
    return json;
}

json_t *status_upstream(struct gateway *gw, size_t i)
{
    static const char *const balances[] = {
        [BALANCE_ROUND_ROBIN] = "round_robin",
        [BALANCE_LEAST_REQUESTS] = "least_requests",
        [BALANCE_TWO_CHOICES] = "two_choices",
        [BALANCE_HASH] = "hash",
    };
    const struct cluster *cluster = gw->snapshot->clusters[i];
    json_t *servers = json_array();
    for (uint32_t k = 0; k < cluster->count; k++)
        json_array_append_new(servers, server_json(gw, cluster, k));
    return json_pack("{s:s, s:s, s:o}", "name", cluster->name, "balance",
                     balances[cluster->balance], "servers", servers);
}

static json_t *upstreams(void *owner)
{
    struct gateway *gw = owner;
    json_t *list = json_array();
    for (size_t i = 0; gw->snapshot && i < gw->snapshot->conf->upstream_count; i++)
        json_array_append_new(list, status_upstream(gw, i));
    return list;
}

/* Two names may have come to one address: its samples must not stand twice. */
static bool stood_before(const struct cluster *cluster, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (cluster->servers[k].metric_name == cluster->servers[i].metric_name)
            return true;
    return false;
}

static void write_server(FILE *out, const char *name, const struct cluster *cluster, uint32_t i,
                         const char *result, double value)
{
    const char *labels[] = {
        "upstream", cluster->name, "server", cluster->servers[i].text, result ? "result" : NULL,
        result,     NULL};
    metrics_write_value(out, name, labels, value);
}

static void write_up(FILE *out, const char *name, const struct cluster *cluster, uint32_t i)
{
    write_server(out, name, cluster, i, NULL, is_up(cluster, i));
}

static void write_ejections(FILE *out, const char *name, const struct cluster *cluster,
                            uint32_t i)
{
    const struct health_counts *counts = health_counts(cluster->servers[i].vitals);
    if (counts && cluster->watch.outlier.on)
        write_server(out, name, cluster, i, NULL, (double)counts->ejections);
}

static void write_probes(FILE *out, const char *name, const struct cluster *cluster, uint32_t i)
{
    const struct health_counts *counts = health_counts(cluster->servers[i].vitals);
    for (int end = 0; counts && end < PROBE_ENDS; end++)
        if (cluster->watch.health.type != HEALTH_OFF)
            write_server(out, name, cluster, i, probe_end_names[end],
                         (double)counts->probes[end]);
}

static const struct {
    const char *name, *type, *help;
    void (*write)(FILE *out, const char *name, const struct cluster *cluster, uint32_t server);
} server_metrics[] = {
    {"postern_upstream_server_up", "gauge",
     "1 while a server is in use and can be connected to.", write_up},
    {"postern_upstream_ejections_total", "counter",
     "Times that a server was ejected because its requests failed.", write_ejections},
    {"postern_upstream_probes_total", "counter", "Health probes, by how they ended.",
     write_probes},
};

static void write_servers(struct gateway *gw, FILE *out)
{
    for (size_t m = 0; m < sizeof(server_metrics) / sizeof(*server_metrics); m++) {
        metrics_write_head(out, server_metrics[m].name, server_metrics[m].type,
                           server_metrics[m].help);
        for (size_t i = 0; gw->snapshot && i < gw->snapshot->conf->upstream_count; i++) {
            const struct cluster *cluster = gw->snapshot->clusters[i];
            for (uint32_t k = 0; k < cluster->count; k++)
                if (!stood_before(cluster, k))
                    server_metrics[m].write(out, server_metrics[m].name, cluster, k);
        }
    }
}

static void write_expiry(struct gateway *gw, FILE *out)
{
    time_t now = time(NULL);
    metrics_write_head(out, "postern_certificate_expiry_seconds", "gauge",
                       "Until a listener's certificate ends; below 0 when it has.");
    for (size_t i = 0; gw->snapshot && i < gw->snapshot->conf->listener_count; i++) {
        const struct conf_listener *listener = &gw->snapshot->conf->listeners[i];
        for (size_t k = 0; listener->tls && k < listener->tls->count; k++) {
            const struct tls_front *front = gw->snapshot->fronts[i];
            const char *labels[] = {"listener",    listener->name,
                                    "certificate", listener->tls->certificates[k].name,
                                    "kind",        tls_front_kind(front, k),
                                    NULL};
            metrics_write_value(out, "postern_certificate_expiry_seconds", labels,
                                (double)(tls_front_expiry(front, k) - now));
        }
    }
}

static void write_one(FILE *out, const char *name, const char *type, const char *help,
                      double value)
{
    static const char *const none[] = {NULL};
    metrics_write_head(out, name, type, help);
    metrics_write_value(out, name, none, value);
}

struct counting {
    FILE *out;
    const char *last; /* the counter whose head is written */
};

static void write_counter(void *arg, const struct counter_view *view)
{
    struct counting *counting = arg;
    const char *labels[] = {"plugin", view->plugin, "place", view->place, NULL};
    char name[128];
    snprintf(name, sizeof(name), "postern_plugin_%s_total", view->name);
    if (!counting->last || strcmp(counting->last, view->name) != 0)
        metrics_write_head(counting->out, name, "counter", view->help);
    counting->last = view->name;
    metrics_write_value(counting->out, name, labels, (double)view->value);
}

static void write_counters(FILE *out)
{
    struct counters *sets[STATIONS_MAX];
    size_t count = station_counters(sets);
    counter_each(sets, count, write_counter, &(struct counting){.out = out});
}

static void write_metrics(void *owner, FILE *out)
{
    struct gateway *gw = owner;
    reload_sweep(gw);
    metrics_write(gw->metrics, gw->worker_count, out);
    write_servers(gw, out);
    write_expiry(gw, out);
    write_counters(out);
    write_one(out, "postern_config_generation", "gauge",
              "Counts up with each configuration that takes effect.",
              gw->snapshot ? (double)gw->snapshot->generation : 0);
    write_one(out, "postern_config_last_reload_success", "gauge",
              "1 if the last reload took effect, or none was asked for.", gw->last.ok);
    write_one(out, "postern_access_log_dropped_total", "counter",
              "Log lines dropped because the log could not be written fast enough.",
              (double)log_dropped());
    metrics_write_head(out, "postern_build_info", "gauge", "Always 1; the version is a label.");
    const char *labels[] = {"version", POSTERN_VERSION, NULL};
    metrics_write_value(out, "postern_build_info", labels, 1);
}

const struct admin_ops status_ops = {
    .is_ready = is_ready,
    .config = config,
    .upstreams = upstreams,
    .metrics = write_metrics,
    .drain = servers_drain,
};
