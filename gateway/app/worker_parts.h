/* What the files of a worker share; nobody else includes it. */
#ifndef POSTERN_APP_WORKER_PARTS_H
#define POSTERN_APP_WORKER_PARTS_H

#include "app/worker.h"
#include "net/tls.h"

/* worker.c */
void worker_count_connection(struct acceptor *acceptor);
void worker_uncount_connection(struct acceptor *acceptor); /* it was none after all */
/* Takes over a counted connection that is ready for HTTP: the socket, its TLS (NULL: none) and
 * `destination` (NULL: none; of worker->destinations). */
void worker_serve(struct acceptor *acceptor, int fd, struct tls *tls, const struct addr *addr,
                  struct addr *destination);
const char *worker_listener_name(const struct acceptor *acceptor);

/* arrival.c */
/* Takes over an accepted socket of which a PROXY header or a TLS handshake is awaited first. */
void arrival_begin(struct acceptor *acceptor, int fd, const struct addr *addr);
/* The worker drains: who has begun may come in, and who has only just connected has a moment.
 */
void arrival_hurry_all(struct worker *worker);
void arrival_drop_all(struct worker *worker); /* closes them */
size_t arrival_size(void);

#endif
