/* A connection before HTTP is spoken on it: its PROXY header is read, where connections begin
 * with one, and its TLS handshake done, where the listener has TLS. */
#include <errno.h>
#include <unistd.h>

#include "app/worker_parts.h"
#include "net/preface.h"
#include "net/shake.h"

#define LAST_CALL_MS 500

struct arrival {
    union {
        struct preface preface; /* first */
        struct shake shake;     /* then */
    };
    struct worker *worker;
    struct acceptor *acceptor;
    int fd;
    bool shaking;
    struct addr addr;         /* whose it is */
    struct addr *destination; /* as its PROXY header has it; NULL: there is none */
    struct arrival *next, **prev;
    struct grave grave;
};

size_t arrival_size(void)
{
    return sizeof(struct arrival);
}

static void on_bury(struct grave *grave)
{
    struct arrival *arrival =
        (struct arrival *)((char *)grave - offsetof(struct arrival, grave));
    slab_give(&arrival->worker->arrivals, arrival);
}

/* It waits no longer; its memory goes at the end of the turn. */
static void end(struct arrival *arrival)
{
    *arrival->prev = arrival->next;
    if (arrival->next)
        arrival->next->prev = arrival->prev;
    loop_bury(&arrival->worker->loop, &arrival->grave, on_bury);
}

static void drop(struct arrival *arrival)
{
    struct acceptor *acceptor = arrival->acceptor;
    if (arrival->shaking)
        shake_leave(&arrival->shake);
    slab_give(&arrival->worker->destinations, arrival->destination);
    close(arrival->fd);
    end(arrival);
    downstream_uncount(acceptor);
}

static void serve(struct arrival *arrival, struct tls *tls)
{
    end(arrival);
    downstream_serve(arrival->acceptor, arrival->fd, tls, &arrival->addr, arrival->destination);
    if (arrival->shaking)
        shake_leave(&arrival->shake);
}

/* ---- TLS ---- */

static void count_handshake(const struct acceptor *acceptor, unsigned outcome)
{
    const struct snapshot *snapshot =
        (acceptor->view ? acceptor->view : acceptor->worker->cx.view)->snapshot;
    unsigned labels[4] = {snapshot->listener_names[acceptor->listener], outcome};
    series_add(metrics_series(acceptor->worker->cx.metrics, METRIC_TLS_HANDSHAKES, labels), 1);
}

/* Who connects and leaves again without a word (a balancer that looks whether we are there) is
 * not worth a line. */
static void refuse_shake(struct arrival *arrival, int err)
{
    const char *why = tls_why(arrival->shake.tls);
    char from[ADDR_TEXT];
    if (err != -ECONNRESET || arrival->shake.begun) {
        addr_put(from, &arrival->addr);
        log_info("closed a connection from %s to listener \"%s\": its TLS handshake %s%s", from,
                 acceptor_listener_name(arrival->acceptor),
                 err == -ETIMEDOUT    ? "was not done in time"
                 : err == -ECONNRESET ? "was broken off"
                                      : "failed: ",
                 err == -ETIMEDOUT || err == -ECONNRESET ? ""
                 : why                                   ? why
                                                         : strerror(-err));
        count_handshake(arrival->acceptor, HANDSHAKE_FAILED);
    }
    tls_free(arrival->shake.tls);
    drop(arrival);
}

static void on_shaken(struct shake *shake, int err)
{
    struct arrival *arrival =
        (struct arrival *)((char *)shake - offsetof(struct arrival, shake));
    if (err == 0) {
        count_handshake(arrival->acceptor,
                        tls_is_resumed(shake->tls) ? HANDSHAKE_RESUMED : HANDSHAKE_FULL);
        serve(arrival, shake->tls);
    } else if (err == -ENOMSG) {
        tls_free(shake->tls);
        serve(arrival, NULL); /* it hears in plain words that this is no place for them */
    } else {
        refuse_shake(arrival, err);
    }
}

/* Takes over the arrival, whose socket is there for TLS or HTTP. */
static void go_on(struct arrival *arrival)
{
    struct acceptor *acceptor = arrival->acceptor;
    struct worker *worker = arrival->worker;
    if (!acceptor->front) {
        serve(arrival, NULL);
        return;
    }
    struct tls *tls = tls_accept(acceptor->front, &worker->loop, arrival->fd);
    if (!tls || shake_open(&arrival->shake, &worker->shakes, tls, arrival->fd,
                           acceptor->config.timeouts.header, on_shaken) < 0)
        drop(arrival);
    else
        arrival->shaking = true;
}

/* ---- PROXY headers ---- */

static void refuse_preface(struct arrival *arrival, int err)
{
    char from[ADDR_TEXT], why[64];
    addr_put(from, &arrival->addr);
    if (err == -EPROTO)
        snprintf(why, sizeof(why), "malformed at byte %zu", arrival->preface.offset);
    else
        snprintf(why, sizeof(why), "%s",
                 err == -ETIMEDOUT    ? "not there in time"
                 : err == -ECONNRESET ? "missing, it was closed before"
                                      : strerror(-err));
    log_info("closed a connection from %s to listener \"%s\": its PROXY header is %s", from,
             acceptor_listener_name(arrival->acceptor), why);
    drop(arrival);
}

static void on_preface(struct preface *preface, int err)
{
    struct arrival *arrival =
        (struct arrival *)((char *)preface - offsetof(struct arrival, preface));
    if (err == 0 && !preface->header.is_local) {
        arrival->destination = slab_take(&arrival->worker->destinations);
        err = arrival->destination ? 0 : -ENOMEM;
    }
    if (err < 0) {
        refuse_preface(arrival, err);
        return;
    }
    if (arrival->destination) {
        arrival->addr = preface->header.source;
        *arrival->destination = preface->header.destination;
    }
    go_on(arrival); /* in whose place the handshake is */
}

/* ---- both ---- */

void arrival_begin(struct acceptor *acceptor, int fd, const struct addr *addr)
{
    struct worker *worker = acceptor->worker;
    struct arrival *arrival = slab_take(&worker->arrivals);
    if (!arrival) {
        close(fd);
        return;
    }
    arrival->worker = worker;
    arrival->acceptor = acceptor;
    arrival->fd = fd;
    arrival->shaking = false;
    arrival->addr = *addr;
    arrival->destination = NULL;
    arrival->next = worker->arriving;
    if (arrival->next)
        arrival->next->prev = &arrival->next;
    arrival->prev = &worker->arriving;
    worker->arriving = arrival;
    downstream_count(acceptor);
    if (!acceptor->proxy_protocol)
        go_on(arrival);
    else if (preface_open(&arrival->preface, &worker->loop, fd,
                          acceptor->config.timeouts.header, on_preface) < 0)
        drop(arrival);
}

void arrival_hurry_all(struct worker *worker)
{
    for (struct arrival *arrival = worker->arriving; arrival; arrival = arrival->next) {
        if (!arrival->shaking)
            loop_deadline(&worker->loop, &arrival->preface.due, LAST_CALL_MS);
        else if (!arrival->shake.begun)
            loop_deadline(&worker->loop, &arrival->shake.due, LAST_CALL_MS);
    }
}

void arrival_drop_all(struct worker *worker)
{
    while (worker->arriving) {
        struct arrival *arrival = worker->arriving;
        if (arrival->shaking)
            shake_stop(&arrival->shake);
        else
            preface_stop(&arrival->preface);
        drop(arrival);
    }
}
