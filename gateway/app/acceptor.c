#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "app/worker_parts.h"

#define ACCEPTS_MAX     64 /* in one wake-up */
#define ACCEPT_RETRY_MS 100

static void acceptor_arm(struct acceptor *acceptor)
{
    bool full = acceptor->max_connections && acceptor->connections >= acceptor->max_connections;
    if (acceptor->fd >= 0 && !acceptor->armed && !full)
        acceptor->armed = event_add(&acceptor->event, NULL) == 0;
}

static void acceptor_disarm(struct acceptor *acceptor)
{
    if (acceptor->armed)
        event_del(&acceptor->event);
    acceptor->armed = false;
}

static void acceptor_free_if_done(struct acceptor *acceptor)
{
    if (acceptor->fd >= 0 || acceptor->connections)
        return;
    struct acceptor **at = &acceptor->worker->acceptors;
    while (*at != acceptor)
        at = &(*at)->next;
    *at = acceptor->next;
    deadline_end(&acceptor->worker->loop.wheel, &acceptor->retry_due);
    if (acceptor->view)
        context_exchange_ended(&acceptor->worker->cx, acceptor->view);
    mem_free(acceptor);
}

void acceptor_let_go(struct acceptor *acceptor)
{
    acceptor->connections--;
    acceptor_arm(acceptor);
    acceptor_free_if_done(acceptor);
}

const char *acceptor_listener_name(const struct acceptor *acceptor)
{
    const struct view *view = acceptor->view ? acceptor->view : acceptor->worker->cx.view;
    return view->snapshot->conf->listeners[acceptor->listener].name;
}

static void add_connection(struct acceptor *acceptor, int fd, const struct addr *addr)
{
    if (addr->sa.sa_family != AF_UNIX)
        sock_no_delay(fd);
    if (acceptor->proxy_protocol || acceptor->front)
        arrival_begin(acceptor, fd, addr);
    else
        downstream_open(acceptor, fd, addr);
}

/* True: there may be more. */
static bool accept_one(struct acceptor *acceptor)
{
    struct addr addr;
    int fd;
    int rc =
        acceptor->scarce && sock_is_scarce() ? -EMFILE : sock_accept(acceptor->fd, &fd, &addr);
    bool known = acceptor->scarce;
    if (rc == 0) {
        acceptor->scarce = sock_is_last(fd);
        add_connection(acceptor, fd, &addr);
        if (!acceptor->scarce)
            return true;
        rc = -EMFILE;
    }
    if (rc == -ECONNABORTED || rc == -EINTR)
        return true;
    if (rc == -EAGAIN)
        return false;
    /* Out of descriptors or memory: clients wait in the kernel's queue for a while. */
    if (!known)
        log_warn(
            "cannot accept connections for a while: %s (%u open in this worker); raise the "
            "limit of open files or lower limits.connections",
            strerror(-rc), acceptor->worker->connection_count);
    acceptor_disarm(acceptor);
    loop_deadline(&acceptor->worker->loop, &acceptor->retry_due, ACCEPT_RETRY_MS);
    return false;
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct acceptor *acceptor = arg;
    loop_enter(&acceptor->worker->loop);
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        if (acceptor->max_connections && acceptor->connections >= acceptor->max_connections) {
            acceptor_disarm(acceptor);
            break;
        }
        if (!accept_one(acceptor))
            break;
    }
    loop_leave(&acceptor->worker->loop);
}

static void on_retry_due(struct deadline *deadline)
{
    acceptor_arm((struct acceptor *)((char *)deadline - offsetof(struct acceptor, retry_due)));
}

struct acceptor *acceptor_find(struct worker *worker, const struct addr *addr)
{
    for (struct acceptor *a = worker->acceptors; a; a = a->next)
        if (a->fd >= 0 && addr_eq(&a->addr, addr))
            return a;
    return NULL;
}

struct acceptor *acceptor_add(struct worker *worker, const struct worker_port *port)
{
    struct acceptor *acceptor = port->acceptor;
    acceptor->worker = worker;
    acceptor->addr = port->addr;
    acceptor->fd = port->fd;
    deadline_init(&acceptor->retry_due, on_retry_due);
    event_assign(&acceptor->event, worker->loop.base, port->fd, EV_READ | EV_PERSIST,
                 on_acceptable, acceptor);
    acceptor->next = worker->acceptors;
    worker->acceptors = acceptor;
    return acceptor;
}

void acceptor_configure(struct acceptor *acceptor, const char *name)
{
    struct worker *worker = acceptor->worker;
    const struct snapshot *snapshot = worker->cx.view->snapshot;
    int index = snapshot_listener(snapshot, name);
    assert(index >= 0);
    const struct conf_listener *conf = &snapshot->conf->listeners[index];
    struct series *gauge = metrics_series(worker->cx.metrics, METRIC_DOWNSTREAM_CONNECTIONS,
                                          (unsigned[4]){snapshot->listener_names[index]});
    if (acceptor->gauge && acceptor->gauge != gauge) {
        series_add(acceptor->gauge, (uint64_t) - (int64_t)acceptor->connections);
        series_add(gauge, acceptor->connections);
    }
    acceptor->gauge = gauge;
    acceptor->listener = index;
    unsigned of = worker->cx.count, share = worker->index;
    uint32_t limit = conf->limits.connections;
    acceptor->max_connections = limit ? limit / of + (share < limit % of) : 0;
    if (limit && !acceptor->max_connections)
        acceptor->max_connections = 1;
    acceptor->proxy_protocol = conf->proxy_protocol;
    acceptor->front = snapshot->fronts[index];
    acceptor->config = (struct h1_server_config){
        .limits = {conf->limits.header_bytes, conf->limits.headers, conf->limits.target_bytes},
        .requests = conf->limits.requests_per_connection,
        .http2 = conf->http2,
        .streams = conf->limits.streams,
        .timeouts = {conf->timeouts.header, conf->timeouts.body, conf->timeouts.idle,
                     conf->timeouts.write, conf->timeouts.rate, conf->timeouts.rate_window},
    };
    acceptor_arm(acceptor);
}

/* Closing a listening socket resets who waits in its queue: those are served first. */
void acceptor_close(struct acceptor *acceptor)
{
    acceptor_disarm(acceptor);
    deadline_off(&acceptor->retry_due);
    while (accept_one(acceptor))
        ;
    deadline_off(&acceptor->retry_due);
    close(acceptor->fd);
    acceptor->fd = -1;
    struct downstream *next;
    for (struct downstream *down = acceptor->worker->connections; down; down = next) {
        next = down->next;
        if (down->acceptor == acceptor)
            downstream_drain(down);
    }
    acceptor_free_if_done(acceptor);
}
