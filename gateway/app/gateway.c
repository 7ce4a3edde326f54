#include "app/gateway.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include "app/notify.h"
#include "app/process.h"

/* ---- what workers say: letters to the main loop ---- */

enum news { NEWS_WARM, NEWS_FAILED, NEWS_SWITCHED, NEWS_ENDED };

struct news_letter {
    struct message message;
    struct gateway *gw;
    enum news news;
    _Atomic bool *spare; /* NULL: from the heap */
};

/* What a worker reports by when there is no memory: the main thread must not wait for ever. */
struct spare_letter {
    struct news_letter letter;
    _Atomic bool taken;
};

static void worker_ended(struct gateway *gw)
{
    if (--gw->worker_count == 0)
        loop_stop(&gw->loop);
}

static void give_letter(struct news_letter *letter)
{
    if (letter->spare)
        atomic_store(letter->spare, false);
    else
        mem_free(letter);
}

static void on_news(struct message *message)
{
    struct news_letter *letter = (struct news_letter *)message;
    struct gateway *gw = letter->gw;
    switch (letter->news) {
    case NEWS_WARM:
    case NEWS_FAILED:
        reload_on_warm(gw, letter->news == NEWS_FAILED);
        break;
    case NEWS_SWITCHED:
        reload_on_switched(gw);
        break;
    case NEWS_ENDED:
        worker_ended(gw);
        break;
    }
    give_letter(letter);
}

static void drop_news(struct message *message)
{
    if (message->run == on_news)
        give_letter((struct news_letter *)message);
    else if (!health_drop(message))
        mem_free(message);
}

/* The spare one is on its way only until the main thread's next turn, which never waits for a
 * worker. */
static struct news_letter *take_letter(struct gateway *gw, unsigned worker)
{
    struct news_letter *letter = mem_alloc(sizeof(*letter));
    struct spare_letter *spare = &gw->spares[worker];
    if (letter) {
        letter->spare = NULL;
        return letter;
    }
    while (atomic_exchange(&spare->taken, true))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    spare->letter.spare = &spare->taken;
    return &spare->letter;
}

static void tell(struct worker *worker, enum news news)
{
    struct gateway *gw = worker->owner;
    struct news_letter *letter = take_letter(gw, worker->index);
    letter->message = (struct message){.run = on_news};
    letter->gw = gw;
    letter->news = news;
    loop_post(&gw->loop, &letter->message);
}

static void on_warm(struct worker *worker)
{
    tell(worker, NEWS_WARM);
}

static void on_failed(struct worker *worker)
{
    tell(worker, NEWS_FAILED);
}

static void on_switched(struct worker *worker)
{
    tell(worker, NEWS_SWITCHED);
}

static void on_ended(struct worker *worker)
{
    tell(worker, NEWS_ENDED);
}

static const struct worker_ops worker_ops = {
    .on_warm = on_warm,
    .on_failed = on_failed,
    .on_switched = on_switched,
    .on_ended = on_ended,
};

/* ---- signals ---- */

void gateway_stop(struct gateway *gw, uint32_t timeout_ms)
{
    if (gw->phase != PHASE_DRAINING) {
        notify("STOPPING=1\nSTATUS=Draining");
        ports_forget(&gw->ports, NULL);
        ports_forget(&gw->next_ports, NULL);
    }
    gw->phase = PHASE_DRAINING;
    for (unsigned i = 0; i < gw->started; i++)
        if (worker_drain(&gw->workers[i], timeout_ms) < 0)
            log_error("out of memory: worker %u does not hear that it should stop", i);
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct gateway *gw = arg;
    loop_enter(&gw->loop);
    uint32_t timeout = gw->snapshot ? gw->snapshot->conf->drain_timeout : 0;
    if (gw->phase == PHASE_DRAINING) {
        log_info("asked again: stopping at once");
        timeout = 0;
    } else {
        log_info("draining for up to %u ms", timeout);
    }
    gateway_stop(gw, timeout);
    loop_leave(&gw->loop);
}

static void on_hup(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct gateway *gw = arg;
    loop_enter(&gw->loop);
    reload_on_signal(gw);
    loop_leave(&gw->loop);
}

static void on_usr1(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    const char *path = "";
    int rc = log_reopen(&path);
    if (rc < 0)
        log_error("cannot reopen log %s: %s; writing to the old one", path, strerror(-rc));
    else
        log_info("log files are open anew");
}

static void add_signal(struct gateway *gw, int number, event_callback_fn on_signal)
{
    struct event *event = &gw->signals[gw->signal_count++];
    event_assign(event, gw->loop.base, number, EV_SIGNAL | EV_PERSIST, on_signal, gw);
    event_add(event, NULL);
}

void gateway_hold_signals(bool ending)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGHUP);
    sigaddset(&held, SIGUSR1);
    sigaddset(&held, SIGUSR2);
    if (ending) {
        sigaddset(&held, SIGTERM);
        sigaddset(&held, SIGINT);
        sigaddset(&held, SIGQUIT);
    }
    pthread_sigmask(SIG_BLOCK, &held, NULL);
}

static void watch_signals(struct gateway *gw)
{
    sigset_t none;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    add_signal(gw, SIGHUP, on_hup);
    add_signal(gw, SIGUSR1, on_usr1);
    add_signal(gw, SIGTERM, on_stop);
    add_signal(gw, SIGINT, on_stop);
    add_signal(gw, SIGQUIT, on_stop);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* ---- start and end ---- */

static void print_faults(const struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        const struct conf_fault *fault = &faults->list[i];
        if (fault->where.line)
            log_error("%s:%d: %s", fault->where.file, fault->where.line, fault->message);
        else
            log_error("%s: %s", fault->where.file, fault->message);
    }
}

/* Threads take no signals: the main thread's loop does. */
static int start_workers(struct gateway *gw, unsigned count)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    while (rc == 0 && gw->started < count) {
        unsigned i = gw->started;
        rc = worker_start(&gw->workers[i], i, count, gw->metrics[i], &worker_ops, gw);
        if (rc == 0)
            gw->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int make_workers(struct gateway *gw, unsigned count)
{
    gw->workers = mem_zalloc(count * sizeof(*gw->workers));
    gw->metrics = mem_zalloc(count * sizeof(struct metrics *));
    gw->spares = mem_zalloc(count * sizeof(*gw->spares));
    bool ok = gw->workers && gw->metrics && gw->spares;
    for (unsigned i = 0; ok && i < count; i++) {
        gw->metrics[i] = metrics_new();
        ok = gw->metrics[i] != NULL;
    }
    gw->worker_count = count;
    return ok ? 0 : -ENOMEM;
}

void gateway_started(struct gateway *gw)
{
    gw->last.ok = true;
    if (gw->phase != PHASE_STARTING)
        return; /* told to stop meanwhile */
    gw->phase = PHASE_RUNNING;
    malloc_trim(0); /* what reading the file took goes back to the system */
    log_info("postern %s is ready: %u worker%s, configuration %s", POSTERN_VERSION, gw->started,
             gw->started == 1 ? "" : "s", gw->path);
    notify("READY=1\nMAINPID=%ld\nSTATUS=Ready", (long)getpid());
    if (gw->reload_again) {
        gw->reload_again = false;
        reload_on_signal(gw);
    }
}

/* Everything that may fail before the threads run. */
static int prepare_start(struct gateway *gw, struct conf *conf, struct conf_faults *faults)
{
    if (process_open_logs(conf, faults) < 0) {
        conf_free(conf);
        return -1;
    }
    log_set_level(conf->error_log.level);
    if (process_limits(conf, faults) < 0 || make_workers(gw, conf->workers) < 0) {
        if (!faults->count)
            conf_fault(faults, (struct conf_where){conf->file, 0}, "out of memory");
        conf_free(conf);
        return -1;
    }
    if (reload_begin(gw, conf, faults) < 0)
        return -1;
    if (process_write_pid(conf, faults) < 0 || process_drop_root(conf, faults) < 0)
        return -1;
    gw->pid_file = conf->pid_file ? strdup(conf->pid_file) : NULL;
    return 0;
}

static void free_all(struct gateway *gw, unsigned count)
{
    if (gw->has_admin)
        sock_forget(&gw->admin_addr);
    admin_free(gw->admin);
    servers_done(gw);
    if (gw->next_admin_fd >= 0)
        close(gw->next_admin_fd);
    follow_done(&gw->follow);
    ports_close(&gw->ports);
    ports_close(&gw->next_ports);
    for (size_t i = 0; i < gw->past_count; i++)
        snapshot_unref(gw->past[i]);
    mem_free(gw->past);
    for (size_t i = 0; i < gw->retired_count; i++)
        cluster_unref(gw->retired[i]);
    mem_free(gw->retired);
    snapshot_unref(gw->snapshot);
    snapshot_unref(gw->next);
    host_run(NULL);
    stations_free();
    resolver_free(gw->names);
    resolver_free(gw->next_names);
    conf_free(gw->looked_up);
    conf_faults_done(&gw->last.faults);
    for (unsigned i = 0; gw->metrics && i < count; i++)
        metrics_free(gw->metrics[i]);
    mem_free(gw->metrics);
    mem_free(gw->workers);
    free(gw->pid_file);
    for (int i = 0; i < gw->signal_count; i++)
        event_del(&gw->signals[i]);
    deadline_end(&gw->loop.wheel, &gw->warm_due);
    deadline_end(&gw->loop.wheel, &gw->sweep_due);
    loop_discard(&gw->loop, drop_news);
    loop_done(&gw->loop);
    mem_free(gw->spares);
}

static int run(struct gateway *gw, struct conf *conf)
{
    struct conf_faults faults = {0};
    unsigned count = conf->workers;
    int rc = log_start();
    if (rc == 0)
        rc = prepare_start(gw, conf, &faults);
    if (rc == 0)
        rc = start_workers(gw, count);
    if (rc < 0) {
        print_faults(&faults);
        log_error("cannot start%s%s", faults.count ? "" : ": ",
                  faults.count ? "" : strerror(-rc));
        conf_faults_done(&faults);
        gw->exit_status = 1;
        if (!gw->started)
            return gw->worker_count ? (int)count : 0;
        gateway_stop(gw, 0);
    } else {
        reload_prepare(gw);
    }
    gw->worker_count = gw->started;
    loop_run(&gw->loop);
    for (unsigned i = 0; i < gw->started; i++)
        worker_join(&gw->workers[i]);
    return (int)count;
}

int gateway_run(const char *path, struct conf *conf)
{
    struct gateway gw = {.path = path, .next_admin_fd = -1, .phase = PHASE_STARTING};
    int rc = loop_init(&gw.loop);
    if (rc < 0) {
        log_error("cannot start: %s", strerror(-rc));
        conf_free(conf);
        return 1;
    }
    watch_signals(&gw);
    follow_init(&gw.follow, &gw.loop, &reload_follow_ops, &gw);
    host_run(&gw.loop);
    gw.admin = admin_new(gw.loop.base, &status_ops, &gw);
    gw.health = health_new(&gw.loop, &servers_ops, &gw);
    if (!gw.admin || !gw.health) {
        log_error("cannot start: out of memory");
        admin_free(gw.admin);
        servers_done(&gw);
        conf_free(conf);
        loop_done(&gw.loop);
        return 1;
    }
    int count = run(&gw, conf);
    gateway_hold_signals(true);
    process_remove_pid(gw.pid_file);
    free_all(&gw, (unsigned)count);
    log_info("stopped");
    log_stop();
    return gw.exit_status;
}
