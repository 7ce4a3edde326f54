#include "app/gateway.h"
#include "app/notify.h"
#include "app/process.h"
#include "proxy/names.h"

#include <malloc.h>
#include <unistd.h>

#define WARM_MAX_MS  5000 /* for pools to warm before a configuration takes effect anyway */
#define SWEEP_MS     50   /* until what is out of force is looked at, and later ever longer */
#define SWEEP_MAX_MS 10000

static void forget_faults(struct gateway *gw)
{
    conf_faults_done(&gw->last.faults);
    gw->last.faults = (struct conf_faults){0};
}

/* The old addresses stay. */
static void refuse_names(struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        log_error("%s:%d: %s; the addresses stay as they are", faults->list[i].where.file,
                  faults->list[i].where.line, faults->list[i].message);
    conf_faults_done(faults);
}

/* The old configuration stays. One line per fault says why. */
static void refuse(struct gateway *gw, struct conf_faults *faults)
{
    forget_faults(gw);
    gw->last.ok = false;
    gw->last.at_ms = clock_wall_ms();
    gw->last.faults = *faults;
    for (size_t i = 0; i < faults->count; i++)
        log_error("reload: %s:%d: %s", faults->list[i].where.file, faults->list[i].where.line,
                  faults->list[i].message);
    log_error("reload: refused for %zu fault%s; generation %llu stays in force", faults->count,
              faults->count == 1 ? "" : "s", (unsigned long long)gw->snapshot->generation);
    notify("READY=1\nSTATUS=Reload refused: %zu fault%s, first %s:%d", faults->count,
           faults->count == 1 ? "" : "s", faults->list[0].where.file,
           faults->list[0].where.line);
}

static void renew(struct gateway *gw);

static void end_reload(struct gateway *gw)
{
    if (gw->phase == PHASE_RELOADING)
        gw->phase = PHASE_RUNNING;
    gw->renewing = false;
    if (gw->reload_again) {
        gw->reload_again = false;
        reload_on_signal(gw);
    } else if (gw->names_changed || gw->follow.changed) {
        renew(gw);
    }
}

/* ---- what is out of force ---- */

/* They have clusters: these go first. */
static void sweep_snapshots(struct gateway *gw)
{
    size_t kept = 0;
    for (size_t i = 0; i < gw->past_count; i++) {
        struct snapshot *snapshot = gw->past[i];
        if (atomic_load_explicit(&snapshot->refs, memory_order_acquire) > 1) {
            gw->past[kept++] = snapshot;
            continue;
        }
        metrics_give(gw->metrics, gw->started, snapshot->route_names,
                     snapshot->conf->route_count);
        snapshot_unref(snapshot);
    }
    if (kept < gw->past_count)
        malloc_trim(0); /* the old configuration's memory goes back to the system */
    gw->past_count = kept;
}

static void on_sweep_due(struct deadline *deadline)
{
    struct gateway *gw =
        (struct gateway *)((char *)deadline - offsetof(struct gateway, sweep_due));
    deadline_off(deadline);
    reload_sweep(gw);
    gw->sweep_ms = gw->sweep_ms < SWEEP_MAX_MS / 2 ? gw->sweep_ms * 2 : SWEEP_MAX_MS;
    if (gw->past_count || gw->retired_count)
        loop_deadline(&gw->loop, deadline, gw->sweep_ms);
}

/* Takes over the reference. Without memory its names keep their numbers. */
static void retire_snapshot(struct gateway *gw, struct snapshot *snapshot)
{
    struct snapshot **more =
        mem_realloc(gw->past, (gw->past_count + 1) * sizeof(struct snapshot *));
    if (!more) {
        snapshot_unref(snapshot);
        return;
    }
    gw->past = more;
    gw->past[gw->past_count++] = snapshot;
    gw->sweep_due.on_due = on_sweep_due;
    gw->sweep_ms = SWEEP_MS;
    loop_deadline(&gw->loop, &gw->sweep_due, SWEEP_MS);
    reload_sweep(gw); /* most often all workers have let go of it already */
}

void reload_sweep(struct gateway *gw)
{
    size_t kept = 0;
    sweep_snapshots(gw);
    for (size_t i = 0; i < gw->retired_count; i++) {
        struct cluster *cluster = gw->retired[i];
        if (atomic_load_explicit(&cluster->refs, memory_order_acquire) > 1) {
            gw->retired[kept++] = cluster;
            continue;
        }
        for (uint32_t k = 0; k < cluster->count; k++)
            names_give(cluster->servers[k].metric_name);
        metrics_give(gw->metrics, gw->started, &cluster->metric_name, 1);
        cluster_unref(cluster);
    }
    gw->retired_count = kept;
}

static bool has_cluster(const struct snapshot *snapshot, const struct cluster *cluster)
{
    for (size_t i = 0; snapshot && i < snapshot->conf->upstream_count; i++)
        if (snapshot->clusters[i] == cluster)
            return true;
    return false;
}

/* Those of `from` that `snapshot` (NULL: nothing) does not have. Without memory their names
 * keep their numbers. */
static void retire_clusters(struct gateway *gw, const struct snapshot *from,
                            const struct snapshot *snapshot)
{
    size_t most = gw->retired_count + from->conf->upstream_count;
    struct cluster **more = mem_realloc(gw->retired, (most + 1) * sizeof(struct cluster *));
    if (!more)
        return;
    gw->retired = more;
    for (size_t i = 0; i < from->conf->upstream_count; i++)
        if (!has_cluster(snapshot, from->clusters[i]))
            gw->retired[gw->retired_count++] = cluster_ref(from->clusters[i]);
    reload_sweep(gw);
}

static void give_up(struct gateway *gw)
{
    if (gw->next && gw->next_admin_fd >= 0)
        sock_forget(&gw->next->conf->admin);
    if (gw->next_admin_fd >= 0)
        close(gw->next_admin_fd);
    gw->next_admin_fd = -1;
    ports_close(&gw->next_ports);
    if (gw->next && gw->next_named) {
        retire_clusters(gw, gw->next, gw->snapshot);
        retire_snapshot(gw, gw->next);
    } else {
        snapshot_unref(gw->next);
    }
    gw->next_named = false;
    gw->next = NULL;
    resolver_free(gw->next_names);
    gw->next_names = NULL;
}

/* ---- step by step ---- */

static void name_sections(struct snapshot *snapshot)
{
    const struct conf *conf = snapshot->conf;
    for (size_t i = 0; i < conf->route_count; i++)
        snapshot->route_names[i] = metrics_name(str_of(conf->routes[i].name));
    for (size_t i = 0; i < conf->listener_count; i++)
        snapshot->listener_names[i] = metrics_name(str_of(conf->listeners[i].name));
}

/* It has the numbers already, which are one more user's from now on. */
static void name_again(const struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->conf->route_count; i++)
        metrics_name(str_of(snapshot->conf->routes[i].name));
}

static void name_clusters(struct gateway *gw, struct snapshot *snapshot)
{
    reload_sweep(gw);
    gw->next_named = true;
    for (size_t i = 0; i < snapshot->conf->upstream_count; i++) {
        struct cluster *cluster = snapshot->clusters[i];
        if (cluster->metric_name)
            continue; /* adopted: workers may be reading it */
        cluster->metric_name = metrics_name(str_of(cluster->name));
        for (uint32_t k = 0; k < cluster->count; k++)
            cluster->servers[k].metric_name = metrics_name(str_of(cluster->servers[k].text));
    }
}

static int open_admin(struct gateway *gw, const struct conf *conf, struct conf_faults *faults)
{
    gw->next_admin_fd = -1;
    if (!conf->has_admin || (gw->has_admin && addr_eq(&conf->admin, &gw->admin_addr)))
        return 0;
    int rc = sock_listen(&conf->admin, false, &gw->next_admin_fd);
    if (rc == 0)
        return 0;
    char text[ADDR_TEXT];
    addr_put(text, &conf->admin);
    conf_fault(faults, (struct conf_where){conf->file, 0}, "admin: cannot listen on %s: %s",
               text, strerror(-rc));
    return -1;
}

static void switch_admin(struct gateway *gw, const struct conf *conf)
{
    bool same = conf->has_admin && gw->has_admin && addr_eq(&conf->admin, &gw->admin_addr);
    if (same)
        return;
    if (gw->has_admin) {
        sock_forget(&gw->admin_addr);
        admin_unlisten(gw->admin);
    }
    gw->has_admin = conf->has_admin;
    gw->admin_addr = conf->admin;
    int fd = gw->next_admin_fd;
    gw->next_admin_fd = -1;
    if (fd >= 0 && admin_listen(gw->admin, fd) < 0)
        log_error("out of memory: the admin listener does not answer");
}

static void warn_of_what_stays(const struct gateway *gw, const struct conf *before,
                               const struct conf *now)
{
    if (gw->started != now->workers)
        log_warn("reload: workers = %u takes effect at the next start, until then there %s %u",
                 now->workers, gw->started == 1 ? "is" : "are", gw->started);
    if (strcmp(before->user ? before->user : "", now->user ? now->user : "") != 0)
        log_warn("reload: a changed user takes effect at the next start");
    if (strcmp(before->pid_file ? before->pid_file : "", now->pid_file ? now->pid_file : "") !=
        0)
        log_warn("reload: a changed pid_file takes effect at the next start");
}

static void on_warm_due(struct deadline *deadline)
{
    struct gateway *gw =
        (struct gateway *)((char *)deadline - offsetof(struct gateway, warm_due));
    log_warn("pools are not warm, or servers not probed, after %d ms; the configuration takes "
             "effect all the same",
             WARM_MAX_MS);
    gw->waiting = 1;
    reload_on_warm(gw, false);
}

/* A start with a certificate that has ended serves what else there is, and says so; a reload
 * that brings one is refused. */
static int check_dates(struct gateway *gw, struct conf_faults *faults)
{
    struct conf_faults warnings = {0};
    size_t before = faults->count;
    snapshot_check_dates(gw->next, gw->snapshot, gw->snapshot ? faults : &warnings, &warnings);
    for (size_t i = 0; i < warnings.count; i++)
        log_warn("%s:%d: %s", warnings.list[i].where.file, warnings.list[i].where.line,
                 warnings.list[i].message);
    conf_faults_done(&warnings);
    return faults->count == before ? 0 : -1;
}

/* Its names are looked up. Takes over `conf`. */
static int build(struct gateway *gw, struct conf *conf, struct conf_faults *faults)
{
    struct conf_faults warnings = {0};
    gw->next = snapshot_new(conf, gw->snapshot, gw->next_names, faults, &warnings);
    for (size_t i = 0; i < warnings.count; i++)
        log_warn("%s:%d: %s", warnings.list[i].where.file, warnings.list[i].where.line,
                 warnings.list[i].message);
    conf_faults_done(&warnings);
    if (!gw->next || check_dates(gw, faults) < 0) {
        give_up(gw);
        return -1;
    }
    name_sections(gw->next);
    name_clusters(gw, gw->next);
    if (open_admin(gw, conf, faults) < 0 ||
        ports_open(&gw->next_ports, conf, gw->snapshot ? &gw->ports : NULL, gw->worker_count,
                   faults) < 0) {
        give_up(gw);
        return -1;
    }
    /* The admin listener is there from the first moment: it tells that we are starting. */
    if (!gw->snapshot)
        switch_admin(gw, conf);
    return 0;
}

static int no_names(struct conf *conf, struct conf_faults *faults)
{
    conf_fault(faults, (struct conf_where){conf->file, 0}, "out of memory");
    conf_free(conf);
    return -1;
}

int reload_begin(struct gateway *gw, struct conf *conf, struct conf_faults *faults)
{
    gw->next_names = snapshot_names(conf, gw->names);
    return gw->next_names ? build(gw, conf, faults) : no_names(conf, faults);
}

/* The letters go out once the threads are there. */
void reload_prepare(struct gateway *gw)
{
    gw->warming = true;
    gw->warm_due.on_due = on_warm_due;
    loop_deadline(&gw->loop, &gw->warm_due, WARM_MAX_MS);
    int rc = servers_prepare(gw);
    gw->prepare_failed = rc < 0;
    gw->waiting = gw->worker_count + (rc > 0);
    for (unsigned i = 0; i < gw->worker_count; i++)
        if (worker_prepare(&gw->workers[i], gw->next) < 0)
            reload_on_warm(gw, true);
}

/* There was a fault, or no memory; nothing has changed. */
static void fail_switch(struct gateway *gw, struct conf_faults *faults)
{
    if (!faults->count)
        conf_fault(faults, (struct conf_where){gw->path, 0}, "out of memory");
    for (unsigned i = 0; i < gw->worker_count; i++)
        worker_forget(&gw->workers[i]);
    health_forget(gw->health);
    give_up(gw);
    if (!gw->snapshot) {
        log_error("cannot start: %s", faults->list[0].message);
        conf_faults_done(faults);
        gw->exit_status = 1;
        gateway_stop(gw, 0);
        return;
    }
    if (gw->renewing)
        refuse_names(faults);
    else
        refuse(gw, faults);
    end_reload(gw);
}

/* Every worker is warm: the point of no return. */
static void switch_all(struct gateway *gw)
{
    struct conf_faults faults = {0};
    struct worker_port **lists = mem_zalloc(gw->worker_count * sizeof(*lists));
    bool ok = lists && !gw->prepare_failed &&
              (gw->renewing || process_open_logs(gw->next->conf, &faults) == 0);
    for (unsigned i = 0; ok && i < gw->worker_count; i++) {
        lists[i] = ports_for(&gw->next_ports, i);
        ok = lists[i] != NULL;
    }
    if (!ok) {
        for (unsigned i = 0; lists && i < gw->worker_count; i++)
            worker_ports_free(lists[i], gw->next_ports.count);
        mem_free(lists);
        fail_switch(gw, &faults);
        return;
    }
    log_set_level(gw->next->conf->error_log.level);
    gw->waiting = gw->worker_count;
    for (unsigned i = 0; i < gw->worker_count; i++)
        worker_switch(&gw->workers[i], lists[i], gw->next_ports.count);
    mem_free(lists);
}

void reload_on_warm(struct gateway *gw, bool failed)
{
    if (!gw->warming) /* a late word: the timer went on without it */
        return;
    gw->prepare_failed |= failed;
    if (--gw->waiting)
        return;
    gw->warming = false;
    deadline_end(&gw->loop.wheel, &gw->warm_due);
    switch_all(gw);
}

/* ---- names that come to other addresses: the same configuration, another snapshot ---- */

static void renew(struct gateway *gw)
{
    struct conf_faults faults = {0};
    if (gw->phase != PHASE_RUNNING)
        return; /* end_reload asks again */
    gw->names_changed = false;
    gw->next = snapshot_renew(gw->snapshot, gw->names, &faults);
    if (gw->next)
        follow_apply(&gw->follow, gw->next);
    if (gw->next && ports_open(&gw->next_ports, gw->next->conf, &gw->ports, gw->worker_count,
                               &faults) == 0) {
        name_again(gw->next);
        name_clusters(gw, gw->next);
        gw->phase = PHASE_RELOADING;
        gw->renewing = true;
        reload_prepare(gw);
        return;
    }
    give_up(gw);
    refuse_names(&faults);
}

static void on_followed(void *gw)
{
    renew(gw);
}

static void on_renewed(void *gw, struct cluster *cluster)
{
    servers_renew(gw, cluster);
}

const struct follow_ops reload_follow_ops = {
    .on_changed = on_followed,
    .on_renewed = on_renewed,
};

static void on_names_changed(void *arg)
{
    struct gateway *gw = arg;
    gw->names_changed = true;
    renew(gw);
}

static void on_name_failed(void *arg, const char *host, const char *why, size_t count)
{
    (void)arg;
    log_warn("the name %s cannot be resolved: %s; it keeps the addresses it had (%zu)", host,
             why, count);
}

static void on_name_found(void *arg, const char *host, size_t count)
{
    (void)arg;
    log_info("the name %s can be resolved again (%zu)", host, count);
}

static const struct resolver_ops names_ops = {
    .on_change = on_names_changed,
    .on_failed = on_name_failed,
    .on_found = on_name_found,
};

static void tell_renewed(const struct snapshot *before, const struct snapshot *now)
{
    for (size_t i = 0; i < now->conf->upstream_count; i++)
        if (before->clusters[i] != now->clusters[i])
            log_info("upstream \"%s\": its names have changed; %u addresses, before %u",
                     now->clusters[i]->name, now->clusters[i]->count,
                     before->clusters[i]->count);
}

void reload_on_switched(struct gateway *gw)
{
    if (!gw->next || !gw->waiting || --gw->waiting)
        return;
    struct snapshot *old = gw->snapshot;
    if (old)
        retire_clusters(gw, old, gw->next);
    gw->next_named = false;
    gw->snapshot = gw->next;
    gw->next = NULL;
    ports_forget(&gw->ports, &gw->next_ports);
    ports_close(&gw->ports);
    gw->ports = gw->next_ports;
    gw->next_ports = (struct ports){0};
    servers_switch(gw);
    follow_switch(&gw->follow, gw->snapshot);
    if (old && gw->renewing) {
        tell_renewed(old, gw->snapshot);
        retire_snapshot(gw, old);
        end_reload(gw);
        return;
    }
    gw->loaded_at_ms = clock_wall_ms();
    resolver_free(gw->names);
    gw->names = gw->next_names;
    gw->next_names = NULL;
    gw->names_changed = false; /* those were the old one's */
    resolver_watch(gw->names, &gw->loop, &names_ops, gw);
    if (!old) {
        gateway_started(gw);
        return;
    }
    switch_admin(gw, gw->snapshot->conf);
    warn_of_what_stays(gw, old->conf, gw->snapshot->conf);
    retire_snapshot(gw, old);
    forget_faults(gw);
    gw->last.ok = true;
    gw->last.at_ms = gw->loaded_at_ms;
    unsigned long long generation = gw->snapshot->generation;
    log_info("reload: generation %llu is in force", generation);
    notify("READY=1\nSTATUS=Reloaded: generation %llu is in force", generation);
    end_reload(gw);
}

static void fail_reload(struct gateway *gw, struct conf_faults *faults)
{
    refuse(gw, faults);
    end_reload(gw);
}

static void on_names_settled(void *arg)
{
    struct gateway *gw = arg;
    struct conf_faults faults = {0};
    struct conf *conf = gw->looked_up;
    gw->looked_up = NULL;
    if (gw->phase != PHASE_RELOADING) { /* told to stop meanwhile */
        conf_free(conf);
        return;
    }
    if (build(gw, conf, &faults) < 0)
        fail_reload(gw, &faults);
    else
        reload_prepare(gw);
}

/* Nobody waits for DNS but the reload itself: signals, probes and the admin listener go on. */
static int look_up(struct gateway *gw, struct conf *conf, struct conf_faults *faults)
{
    gw->next_names = snapshot_book(conf, gw->names);
    if (!gw->next_names)
        return no_names(conf, faults);
    gw->looked_up = conf;
    resolver_start(gw->next_names, &gw->loop, SNAPSHOT_NAMES_MS, on_names_settled, gw);
    return 0;
}

void reload_on_signal(struct gateway *gw)
{
    if (gw->phase == PHASE_DRAINING)
        return;
    if (gw->phase != PHASE_RUNNING) {
        gw->reload_again = true; /* once more when this one is through */
        return;
    }
    gw->phase = PHASE_RELOADING;
    notify_reloading();
    log_info("reload: reading %s", gw->path);
    struct conf_faults faults = {0};
    struct conf *conf = conf_load(gw->path, &faults);
    for (size_t i = 0; conf && i < conf->warnings.count; i++)
        log_warn("%s:%d: %s", conf->warnings.list[i].where.file,
                 conf->warnings.list[i].where.line, conf->warnings.list[i].message);
    if (!conf || look_up(gw, conf, &faults) < 0)
        fail_reload(gw, &faults);
}
