#include "app/worker.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "app/worker_parts.h"

#define ACCEPTS_MAX     64 /* in one wake-up */
#define ACCEPT_RETRY_MS 100
#define CUT_MS          500 /* for the last answers to arrive, when time is up */
#define LOG_RING        (1u << 20)

/* One client's connection. It begins as HTTP/1; what its first bytes say may make it HTTP/2. */
struct downstream {
    union {
        struct stream stream;
        struct h1_server h1;
        struct h2_server h2;
    };
    bool is_h2;
    struct downstream *next, **prev;
    struct acceptor *acceptor;
    struct peer peer; /* with what it points to */
};

_Static_assert(offsetof(struct h1_server, stream) == 0, "see on_http2");
_Static_assert(offsetof(struct h2_server, stream) == 0, "see on_http2");

/* `server`: the HTTP/1 or the HTTP/2 one. */
static struct downstream *downstream_of(void *server)
{
    return server; /* it is the first member */
}

static void downstream_drain(struct downstream *down)
{
    if (down->is_h2)
        h2_server_drain(&down->h2);
    else
        h1_server_drain(&down->h1);
}

static void downstream_close(struct downstream *down)
{
    if (down->is_h2)
        h2_server_close(&down->h2);
    else
        h1_server_close(&down->h1);
}

/* ---- acceptors ---- */

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

/* ---- connections ---- */

static void end_if_drained(struct worker *worker)
{
    if (worker->draining && !worker->connection_count)
        loop_stop(&worker->loop);
}

static bool begin(struct downstream *down, struct leg *leg)
{
    struct acceptor *acceptor = down->acceptor;
    struct context *cx = &acceptor->worker->cx;
    return exchange_begin(cx, acceptor->view ? acceptor->view : cx->view, leg, &down->peer,
                          acceptor->listener);
}

static void closed(struct downstream *down)
{
    struct acceptor *acceptor = down->acceptor;
    *down->prev = down->next;
    if (down->next)
        down->next->prev = down->prev;
    acceptor->worker->connection_count--;
    series_add(acceptor->gauge, (uint64_t)-1);
}

/* Behind `closed`, at the end of the turn: nothing looks at the connection any more. */
static void bury(struct downstream *down)
{
    struct acceptor *acceptor = down->acceptor;
    struct worker *worker = acceptor->worker;
    slab_give(&worker->destinations, down->peer.destination);
    tls_facts_free(down->peer.tls);
    slab_give(&worker->downstreams, down);
    acceptor->connections--;
    acceptor_arm(acceptor);
    acceptor_free_if_done(acceptor);
    end_if_drained(worker);
}

static const struct h1_server_config *on_h2_config(struct h2_server *server)
{
    return &downstream_of(server)->acceptor->config;
}

static bool on_h2_begin(struct h2_server *server, struct leg *leg)
{
    return begin(downstream_of(server), leg);
}

static void on_h2_flood(struct h2_server *server, enum h2_flood kind)
{
    struct acceptor *acceptor = downstream_of(server)->acceptor;
    struct context *cx = &acceptor->worker->cx;
    const struct view *view = acceptor->view ? acceptor->view : cx->view;
    unsigned labels[4] = {view->snapshot->listener_names[acceptor->listener], kind};
    series_add(metrics_series(cx->metrics, METRIC_HTTP2_FLOODS, labels), 1);
}

static void on_h2_closed(struct h2_server *server)
{
    closed(downstream_of(server));
}

static void on_h2_bury(struct h2_server *server)
{
    bury(downstream_of(server));
}

static const struct h2_server_ops h2_ops = {
    .config = on_h2_config,
    .on_begin = on_h2_begin,
    .on_flood = on_h2_flood,
    .on_closed = on_h2_closed,
    .bury = on_h2_bury,
};

static const struct h1_server_config *on_config(struct h1_server *server)
{
    return &downstream_of(server)->acceptor->config;
}

static bool on_begin(struct h1_server *server, struct leg *leg)
{
    return begin(downstream_of(server), leg);
}

static void on_closed(struct h1_server *server)
{
    closed(downstream_of(server));
}

static void on_bury(struct h1_server *server)
{
    bury(downstream_of(server));
}

static void on_http2(struct h1_server *server)
{
    struct downstream *down = downstream_of(server);
    struct worker *worker = down->acceptor->worker;
    bool closing = server->closing;
    down->is_h2 = true;
    h2_server_open(&down->h2, &worker->h2, &h2_ops, worker);
    if (closing)
        h2_server_drain(&down->h2);
}

static const struct h1_server_ops server_ops = {
    .config = on_config,
    .on_begin = on_begin,
    .on_closed = on_closed,
    .bury = on_bury,
    .on_http2 = on_http2,
};

void worker_count_connection(struct acceptor *acceptor)
{
    acceptor->worker->connection_count++;
    acceptor->connections++;
    series_add(acceptor->gauge, 1);
}

void worker_uncount_connection(struct acceptor *acceptor)
{
    struct worker *worker = acceptor->worker;
    worker->connection_count--;
    acceptor->connections--;
    series_add(acceptor->gauge, (uint64_t)-1);
    acceptor_arm(acceptor);
    acceptor_free_if_done(acceptor);
    end_if_drained(worker);
}

static void set_peer(struct downstream *down, const struct addr *addr)
{
    char text[ADDR_TEXT];
    size_t n = addr_put_host(text, addr);
    down->peer.addr = *addr;
    down->peer.ip_len = (uint8_t)(n < sizeof(down->peer.ip) ? n : sizeof(down->peer.ip));
    memcpy(down->peer.ip, text, down->peer.ip_len);
}

/* A connection that HTTP is spoken on from here. Takes over the descriptor and its TLS. NULL:
 * no memory, it is closed. */
static struct downstream *open_connection(struct acceptor *acceptor, int fd, struct tls *tls,
                                          const struct addr *addr)
{
    struct worker *worker = acceptor->worker;
    struct downstream *down = slab_take(&worker->downstreams);
    if (!down) {
        tls_free(tls);
        close(fd);
        return NULL;
    }
    down->acceptor = acceptor;
    down->peer.destination = NULL;
    down->peer.stream = &down->stream;
    down->is_h2 = false;
    set_peer(down, addr);
    down->peer.tls = tls ? tls_facts_new(tls) : NULL;
    if (tls && !down->peer.tls) {
        tls_free(tls);
        close(fd);
        slab_give(&worker->downstreams, down);
        return NULL;
    }
    if (h1_server_open(&down->h1, &worker->loop, fd, tls, &server_ops, worker) < 0) {
        tls_facts_free(down->peer.tls);
        slab_give(&worker->downstreams, down);
        return NULL;
    }
    down->next = worker->connections;
    if (down->next)
        down->next->prev = &down->next;
    down->prev = &worker->connections;
    worker->connections = down;
    return down;
}

void worker_serve(struct acceptor *acceptor, int fd, struct tls *tls, const struct addr *addr,
                  struct addr *destination)
{
    struct downstream *down = open_connection(acceptor, fd, tls, addr);
    if (!down) {
        slab_give(&acceptor->worker->destinations, destination);
        worker_uncount_connection(acceptor);
        return;
    }
    down->peer.destination = destination;
    /* Its listener has gone meanwhile; or it will only hear that this is no place for it. */
    if (acceptor->fd < 0 || (acceptor->front && !tls))
        downstream_drain(down);
}

const char *worker_listener_name(const struct acceptor *acceptor)
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
    else if (open_connection(acceptor, fd, NULL, addr))
        worker_count_connection(acceptor);
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

static struct acceptor *find_acceptor(struct worker *worker, const struct addr *addr)
{
    for (struct acceptor *a = worker->acceptors; a; a = a->next)
        if (a->fd >= 0 && addr_eq(&a->addr, addr))
            return a;
    return NULL;
}

static struct acceptor *add_acceptor(struct worker *worker, const struct worker_port *port)
{
    struct acceptor *acceptor = mem_zalloc(sizeof(*acceptor));
    if (!acceptor) {
        log_error("out of memory: worker %u does not listen on \"%s\"", worker->index,
                  port->listener);
        close(port->fd);
        return NULL;
    }
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

static void configure_acceptor(struct acceptor *acceptor, const char *name)
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
static void close_acceptor(struct acceptor *acceptor)
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

/* ---- letters ---- */

enum letter_kind {
    LETTER_PREPARE,
    LETTER_SWITCH,
    LETTER_FORGET,
    LETTER_RECOVER,
    LETTER_RETIRE,
    LETTER_RENEW,
    LETTER_DRAIN
};

struct letter {
    struct message message;
    struct worker *worker;
    enum letter_kind kind;
    struct snapshot *snapshot;
    struct cluster *cluster; /* with the next: which server it is about */
    uint32_t server;
    struct worker_port *ports;
    size_t count;
    uint32_t timeout_ms;
};

static void on_warm(struct context *cx)
{
    struct worker *worker = cx->owner;
    worker->ops->on_warm(worker);
}

static bool is_among(const struct worker_port *ports, size_t count, const struct addr *addr)
{
    for (size_t i = 0; i < count; i++)
        if (addr_eq(&ports[i].addr, addr))
            return true;
    return false;
}

static void do_switch(struct worker *worker, struct worker_port *ports, size_t count)
{
    struct context *cx = &worker->cx;
    for (struct acceptor *a = worker->acceptors; a; a = a->next) {
        if (a->fd < 0 || is_among(ports, count, &a->addr))
            continue;
        a->view = cx->view;
        a->view->exchanges++;
    }
    context_switch(cx);
    for (size_t i = 0; i < count; i++) {
        struct acceptor *acceptor = ports[i].fd < 0 ? find_acceptor(worker, &ports[i].addr)
                                                    : add_acceptor(worker, &ports[i]);
        if (acceptor)
            configure_acceptor(acceptor, ports[i].listener);
    }
    struct acceptor *next;
    for (struct acceptor *a = worker->acceptors; a; a = next) {
        next = a->next;
        if (a->fd >= 0 && a->view)
            close_acceptor(a);
    }
    for (size_t i = 0; i < count; i++)
        mem_free(ports[i].listener);
    mem_free(ports);
    worker->ops->on_switched(worker);
}

static void fail_draining(struct leg *leg)
{
    exchange_fail(leg->owner, &(struct leg_fault){.reason = R_DRAINING});
}

/* Time is up. First what has no answer yet gets one that says why; then everything ends. */
static void on_drain_due(struct deadline *deadline)
{
    struct worker *worker =
        (struct worker *)((char *)deadline - offsetof(struct worker, drain_due));
    struct downstream *next;
    arrival_drop_all(worker);
    if (worker->drain_step++ == 0) {
        for (struct downstream *down = worker->connections; down; down = next) {
            next = down->next;
            if (down->is_h2)
                h2_server_each(&down->h2, fail_draining);
            else if (down->h1.leg.events)
                fail_draining(&down->h1.leg);
            else
                h1_server_close(&down->h1);
        }
        loop_deadline(&worker->loop, &worker->drain_due, CUT_MS);
        return;
    }
    while (worker->connections)
        downstream_close(worker->connections);
    end_if_drained(worker);
}

static void do_drain(struct worker *worker, uint32_t timeout_ms)
{
    if (!worker->draining) {
        struct acceptor *next;
        for (struct acceptor *a = worker->acceptors; a; a = next) {
            next = a->next;
            if (a->fd >= 0)
                close_acceptor(a);
        }
        worker->draining = true;
        arrival_hurry_all(worker);
    }
    if (!timeout_ms)
        worker->drain_step = 1;
    loop_deadline(&worker->loop, &worker->drain_due, timeout_ms ? timeout_ms : 1);
    end_if_drained(worker);
}

static void on_letter(struct message *message)
{
    struct letter *letter = (struct letter *)message;
    struct worker *worker = letter->worker;
    switch (letter->kind) {
    case LETTER_PREPARE:
        if (context_prepare(&worker->cx, letter->snapshot, on_warm) < 0)
            worker->ops->on_failed(worker);
        break;
    case LETTER_SWITCH:
        do_switch(worker, letter->ports, letter->count);
        break;
    case LETTER_FORGET:
        context_forget(&worker->cx);
        break;
    case LETTER_RECOVER:
        context_recover(&worker->cx, letter->cluster, letter->server);
        break;
    case LETTER_RETIRE:
        context_drain(&worker->cx, letter->cluster, letter->server);
        break;
    case LETTER_RENEW:
        context_renew(&worker->cx, letter->cluster);
        break;
    case LETTER_DRAIN:
        do_drain(worker, letter->timeout_ms);
        break;
    }
    cluster_unref(letter->cluster);
    mem_free(letter);
}

/* A letter that nobody read. */
static void drop_letter(struct message *message)
{
    struct letter *letter = (struct letter *)message;
    if (letter->kind == LETTER_PREPARE)
        snapshot_unref(letter->snapshot);
    for (size_t i = 0; i < letter->count; i++) {
        if (letter->ports[i].fd >= 0)
            close(letter->ports[i].fd);
        mem_free(letter->ports[i].listener);
    }
    mem_free(letter->ports);
    cluster_unref(letter->cluster);
    mem_free(letter);
}

static int post(struct worker *worker, const struct letter *text)
{
    struct letter *letter = mem_alloc(sizeof(*letter));
    if (!letter)
        return -ENOMEM;
    *letter = *text;
    letter->worker = worker;
    letter->message.run = on_letter;
    loop_post(&worker->loop, &letter->message);
    return 0;
}

int worker_prepare(struct worker *worker, struct snapshot *snapshot)
{
    struct letter letter = {.kind = LETTER_PREPARE, .snapshot = snapshot_ref(snapshot)};
    int rc = post(worker, &letter);
    if (rc < 0)
        snapshot_unref(snapshot);
    return rc;
}

int worker_switch(struct worker *worker, struct worker_port *ports, size_t count)
{
    return post(worker,
                &(struct letter){.kind = LETTER_SWITCH, .ports = ports, .count = count});
}

int worker_forget(struct worker *worker)
{
    return post(worker, &(struct letter){.kind = LETTER_FORGET});
}

static int post_server(struct worker *worker, enum letter_kind kind, struct cluster *cluster,
                       uint32_t server)
{
    struct letter letter = {.kind = kind, .cluster = cluster_ref(cluster), .server = server};
    int rc = post(worker, &letter);
    if (rc < 0)
        cluster_unref(cluster);
    return rc;
}

int worker_recover(struct worker *worker, struct cluster *cluster, uint32_t server)
{
    return post_server(worker, LETTER_RECOVER, cluster, server);
}

int worker_retire(struct worker *worker, struct cluster *cluster, uint32_t server)
{
    return post_server(worker, LETTER_RETIRE, cluster, server);
}

int worker_renew(struct worker *worker, struct cluster *cluster)
{
    return post_server(worker, LETTER_RENEW, cluster, 0);
}

int worker_drain(struct worker *worker, uint32_t timeout_ms)
{
    return post(worker, &(struct letter){.kind = LETTER_DRAIN, .timeout_ms = timeout_ms});
}

/* ---- the thread ---- */

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    worker->cx.ring = log_attach(LOG_RING);
    if (!worker->cx.ring)
        log_error("out of memory: worker %u writes no access log", worker->index);
    loop_run(&worker->loop);
    context_done(&worker->cx);
    if (worker->cx.ring)
        log_detach(worker->cx.ring);
    worker->ops->on_ended(worker);
    return NULL;
}

int worker_start(struct worker *worker, unsigned index, unsigned count, struct metrics *metrics,
                 const struct worker_ops *ops, void *owner)
{
    *worker = (struct worker){.ops = ops, .owner = owner, .index = index};
    int rc = loop_init(&worker->loop);
    if (rc < 0)
        return rc;
    slab_init(&worker->downstreams, sizeof(struct downstream), 1024);
    slab_init(&worker->arrivals, arrival_size(), 16);
    shakes_init(&worker->shakes, &worker->loop);
    slab_init(&worker->destinations, sizeof(struct addr), 1024);
    deadline_init(&worker->drain_due, on_drain_due);
    rc = context_init(&worker->cx, &worker->loop, index, count, metrics);
    worker->cx.owner = worker;
    if (rc == 0)
        rc = h2_kit_init(&worker->h2, &worker->loop);
    if (rc == 0)
        rc = -pthread_create(&worker->thread, NULL, worker_main, worker);
    if (rc < 0) {
        if (worker->cx.station)
            station_close(worker->cx.station);
        loop_done(&worker->loop);
    }
    return rc;
}

void worker_join(struct worker *worker)
{
    pthread_join(worker->thread, NULL);
    /* Only now: until it was joined, letters could still be posted. */
    loop_discard(&worker->loop, drop_letter);
    shakes_done(&worker->shakes);
    loop_done(&worker->loop); /* buries pools and connections, whose memory the slabs own */
    h2_kit_done(&worker->h2);
    slab_done(&worker->downstreams);
    slab_done(&worker->arrivals);
    slab_done(&worker->destinations);
}
