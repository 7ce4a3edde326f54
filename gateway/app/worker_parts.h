/* What the files of a worker share; nobody else includes it. */
#ifndef POSTERN_APP_WORKER_PARTS_H
#define POSTERN_APP_WORKER_PARTS_H

#include "app/worker.h"
#include "net/tls.h"

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

/* worker.c */
void worker_end_if_drained(struct worker *worker);

/* acceptor.c */
struct acceptor *acceptor_find(struct worker *worker, const struct addr *addr);
/* Takes over port->fd and port->acceptor. */
struct acceptor *acceptor_add(struct worker *worker, const struct worker_port *port);
/* As the listener of that name is in the configuration in force; accepts from here on. */
void acceptor_configure(struct acceptor *acceptor, const char *name);
/* Who waits in the kernel's queue is served, and everybody is asked to leave. It may be gone
 * behind this. */
void acceptor_close(struct acceptor *acceptor);
/* One of its connections is over, after which it may be gone too. */
void acceptor_let_go(struct acceptor *acceptor);
const char *acceptor_listener_name(const struct acceptor *acceptor);

/* downstream.c */
/* Takes over a socket that HTTP is spoken on from its first byte. */
void downstream_open(struct acceptor *acceptor, int fd, const struct addr *addr);
void downstream_count(struct acceptor *acceptor);   /* one that has not come so far yet */
void downstream_uncount(struct acceptor *acceptor); /* it was none after all */
/* Takes over a counted connection that is ready for HTTP: the socket, its TLS (NULL: none) and
 * `destination` (NULL: none; of worker->destinations). */
void downstream_serve(struct acceptor *acceptor, int fd, struct tls *tls,
                      const struct addr *addr, struct addr *destination);
void downstream_drain(struct downstream *down);
void downstream_close(struct downstream *down);
size_t downstream_size(void);

/* arrival.c */
/* Takes over an accepted socket of which a PROXY header or a TLS handshake is awaited first. */
void arrival_begin(struct acceptor *acceptor, int fd, const struct addr *addr);
/* The worker drains: who has begun may come in, and who has only just connected has a moment.
 */
void arrival_hurry_all(struct worker *worker);
void arrival_drop_all(struct worker *worker); /* closes them */
size_t arrival_size(void);

#endif
