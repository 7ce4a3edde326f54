#include "app/worker.h"

#include <errno.h>
#include <unistd.h>

#include "app/worker_parts.h"

#define CUT_MS   500 /* for the last answers to arrive, when time is up */
#define LOG_RING (1u << 20)

void worker_end_if_drained(struct worker *worker)
{
    if (worker->draining && !worker->connection_count)
        loop_stop(&worker->loop);
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
        struct acceptor *acceptor = ports[i].fd < 0 ? acceptor_find(worker, &ports[i].addr)
                                                    : acceptor_add(worker, &ports[i]);
        if (acceptor)
            acceptor_configure(acceptor, ports[i].listener);
    }
    struct acceptor *next;
    for (struct acceptor *a = worker->acceptors; a; a = next) {
        next = a->next;
        if (a->fd >= 0 && a->view)
            acceptor_close(a);
    }
    for (size_t i = 0; i < count; i++)
        mem_free(ports[i].listener);
    mem_free(ports);
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
    worker_end_if_drained(worker);
}

static void do_drain(struct worker *worker, uint32_t timeout_ms)
{
    if (!worker->draining) {
        struct acceptor *next;
        for (struct acceptor *a = worker->acceptors; a; a = next) {
            next = a->next;
            if (a->fd >= 0)
                acceptor_close(a);
        }
        worker->draining = true;
        arrival_hurry_all(worker);
    }
    if (!timeout_ms)
        worker->drain_step = 1;
    loop_deadline(&worker->loop, &worker->drain_due, timeout_ms ? timeout_ms : 1);
    worker_end_if_drained(worker);
}

static void free_letter(struct letter *letter)
{
    if (letter != letter->worker->to_switch)
        mem_free(letter);
}

static void on_letter(struct message *message)
{
    struct letter *letter = (struct letter *)message;
    struct worker *worker = letter->worker;
    bool switched = letter->kind == LETTER_SWITCH;
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
    free_letter(letter);
    if (switched) /* the letter may be written anew */
        worker->ops->on_switched(worker);
}

void worker_ports_free(struct worker_port *ports, size_t count)
{
    for (size_t i = 0; ports && i < count; i++) {
        if (ports[i].fd >= 0)
            close(ports[i].fd);
        mem_free(ports[i].listener);
        mem_free(ports[i].acceptor);
    }
    mem_free(ports);
}

/* A letter that nobody read. */
static void drop_letter(struct message *message)
{
    struct letter *letter = (struct letter *)message;
    snapshot_unref(letter->snapshot);
    worker_ports_free(letter->ports, letter->count);
    cluster_unref(letter->cluster);
    free_letter(letter);
}

static void post_in(struct letter *letter, struct worker *worker, const struct letter *text)
{
    *letter = *text;
    letter->worker = worker;
    letter->message.run = on_letter;
    loop_post(&worker->loop, &letter->message);
}

static int post(struct worker *worker, const struct letter *text)
{
    struct letter *letter = mem_alloc(sizeof(*letter));
    if (!letter)
        return -ENOMEM;
    post_in(letter, worker, text);
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

void worker_switch(struct worker *worker, struct worker_port *ports, size_t count)
{
    post_in(worker->to_switch, worker,
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
    mem_fail_often();
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
    slab_init(&worker->downstreams, downstream_size(), 1024);
    slab_init(&worker->arrivals, arrival_size(), 16);
    shakes_init(&worker->shakes, &worker->loop);
    slab_init(&worker->destinations, sizeof(struct addr), 1024);
    deadline_init(&worker->drain_due, on_drain_due);
    if ((rc = context_init(&worker->cx, &worker->loop, index, count, metrics)) == 0)
        rc = h2_kit_init(&worker->h2, &worker->loop);
    worker->cx.owner = worker;
    worker->to_switch = mem_alloc(sizeof(*worker->to_switch));
    if (rc == 0 && !worker->to_switch)
        rc = -ENOMEM;
    if (rc == 0)
        rc = -pthread_create(&worker->thread, NULL, worker_main, worker);
    if (rc < 0) {
        if (worker->cx.station)
            station_close(worker->cx.station);
        loop_done(&worker->loop);
        mem_free(worker->to_switch);
    }
    return rc;
}

void worker_join(struct worker *worker)
{
    pthread_join(worker->thread, NULL);
    /* Only now: until it was joined, letters could still be posted. */
    loop_discard(&worker->loop, drop_letter);
    mem_free(worker->to_switch);
    shakes_done(&worker->shakes);
    loop_done(&worker->loop); /* buries pools and connections, whose memory the slabs own */
    h2_kit_done(&worker->h2);
    slab_done(&worker->downstreams);
    slab_done(&worker->arrivals);
    slab_done(&worker->destinations);
}
