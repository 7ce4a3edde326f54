/* A worker: one thread, one loop, its own listening sockets, connections and pools.
 *
 * The main thread talks to it by letters only (worker_* below post them, any order is kept)
 * and hears back through the functions given at start, which run on the worker's thread and
 * are expected to post a letter themselves. */
#ifndef POSTERN_APP_WORKER_H
#define POSTERN_APP_WORKER_H

#include "http/h2_server.h"
#include "net/shake.h"
#include "proxy/exchange.h"

struct worker;
struct downstream; /* a client's connection */

struct worker_ops {
    void (*on_warm)(struct worker *worker);     /* what was prepared is ready */
    void (*on_failed)(struct worker *worker);   /* no memory: nothing was prepared */
    void (*on_switched)(struct worker *worker); /* it is in force here */
    void (*on_ended)(struct worker *worker);    /* drained; the thread ends */
};

/* A listening socket that is handed to a worker. */
struct worker_port {
    struct addr addr;
    int fd; /* -1: the worker listens there already */
    char *listener;
    struct acceptor *acceptor; /* the memory for one, where there is a socket */
};

/* One address that a worker accepts on. Lives until its last connection is closed. */
struct acceptor {
    struct acceptor *next;
    struct worker *worker;
    struct addr addr;
    int fd; /* -1: closed */
    struct event event;
    bool armed;
    bool scarce;  /* the last connection took what clients may have of descriptors */
    int listener; /* index in the configuration in force, or in `view`'s */
    /* A removed listener's last connections are served under the configuration that still had
     * it: held as if by an exchange. NULL while it is in force. */
    struct view *view;
    uint32_t connections, max_connections; /* 0: no limit */
    bool proxy_protocol;                   /* connections begin with a PROXY header */
    struct tls_front *front;               /* and then with a TLS handshake; NULL: none */
    struct h1_server_config config;
    struct series *gauge;
    struct deadline retry_due;
};

struct worker {
    pthread_t thread;
    struct loop loop;
    struct context cx;
    struct h2_kit h2;
    const struct worker_ops *ops;
    void *owner;
    unsigned index;
    struct acceptor *acceptors;
    struct downstream *connections;
    uint32_t connection_count;
    struct arrival *arriving; /* whose PROXY header or TLS handshake is awaited */
    struct shakes shakes;
    struct slab downstreams, arrivals, destinations;
    struct letter *to_switch; /* so that it cannot fail: at most one is under way */
    bool draining;
    struct deadline drain_due;
    int drain_step;
};

/* Starts the thread. 0 or -errno. `metrics` outlives the worker. */
int worker_start(struct worker *worker, unsigned index, unsigned count, struct metrics *metrics,
                 const struct worker_ops *ops, void *owner);
void worker_join(struct worker *worker); /* after on_ended */

void worker_ports_free(struct worker_port *ports, size_t count); /* and closes; NULL is fine */

/* Warms what `snapshot` needs (takes a reference of its own). */
int worker_prepare(struct worker *worker, struct snapshot *snapshot);
/* Puts it in force. `ports`: every address of the new configuration; owned by the worker from
 * here on (the array and the descriptors). Addresses not among them stop listening. */
/* Cannot fail; the next only behind on_switched. Takes over the list. */
void worker_switch(struct worker *worker, struct worker_port *ports, size_t count);
int worker_forget(struct worker *worker);
/* A server of `cluster` (a reference of its own is taken) is back and to be warmed, or drained.
 */
int worker_recover(struct worker *worker, struct cluster *cluster, uint32_t server);
int worker_retire(struct worker *worker, struct cluster *cluster, uint32_t server);
/* What the TLS of `cluster` (a reference of its own is taken) is made of has changed:
 * connections that began before serve no more requests. */
int worker_renew(struct worker *worker, struct cluster *cluster);
/* No more accepting; ends when the last connection is closed, at most `timeout_ms` from now
 * (then what is left is answered with `draining` or cut). 0: at once. */
int worker_drain(struct worker *worker, uint32_t timeout_ms);

#endif
