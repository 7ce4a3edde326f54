#include <unistd.h>

#include "app/worker_parts.h"

_Static_assert(offsetof(struct h1_server, stream) == 0, "see on_http2");
_Static_assert(offsetof(struct h2_server, stream) == 0, "see on_http2");

/* `server`: the HTTP/1 or the HTTP/2 one. */
static struct downstream *downstream_of(void *server)
{
    return server; /* it is the first member */
}

void downstream_drain(struct downstream *down)
{
    if (down->is_h2)
        h2_server_drain(&down->h2);
    else
        h1_server_drain(&down->h1);
}

void downstream_close(struct downstream *down)
{
    if (down->is_h2)
        h2_server_close(&down->h2);
    else
        h1_server_close(&down->h1);
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
    acceptor_let_go(acceptor);
    worker_end_if_drained(worker);
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

void downstream_count(struct acceptor *acceptor)
{
    acceptor->worker->connection_count++;
    acceptor->connections++;
    series_add(acceptor->gauge, 1);
}

void downstream_uncount(struct acceptor *acceptor)
{
    struct worker *worker = acceptor->worker;
    worker->connection_count--;
    series_add(acceptor->gauge, (uint64_t)-1);
    acceptor_let_go(acceptor);
    worker_end_if_drained(worker);
}

static void set_peer(struct downstream *down, const struct addr *addr)
{
    char text[ADDR_TEXT];
    size_t n = addr_put_host(text, addr);
    down->peer.addr = *addr;
    down->peer.ip_len = (uint8_t)(n < sizeof(down->peer.ip) ? n : sizeof(down->peer.ip));
    memcpy(down->peer.ip, text, down->peer.ip_len);
}

/* Takes over the descriptor and its TLS. NULL: no memory, it is closed. */
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

void downstream_serve(struct acceptor *acceptor, int fd, struct tls *tls,
                      const struct addr *addr, struct addr *destination)
{
    struct downstream *down = open_connection(acceptor, fd, tls, addr);
    if (!down) {
        slab_give(&acceptor->worker->destinations, destination);
        downstream_uncount(acceptor);
        return;
    }
    down->peer.destination = destination;
    /* Its listener has gone meanwhile; or it will only hear that this is no place for it. */
    if (acceptor->fd < 0 || (acceptor->front && !tls))
        downstream_drain(down);
}

void downstream_open(struct acceptor *acceptor, int fd, const struct addr *addr)
{
    if (open_connection(acceptor, fd, NULL, addr))
        downstream_count(acceptor);
}

size_t downstream_size(void)
{
    return sizeof(struct downstream);
}
