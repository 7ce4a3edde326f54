/* The answer of a server that a retry may better: kept until another server has answered, and
 * what the client gets when none does. Its body waits, a little of it here and the rest on its
 * connection. Lives in the exchange's arena. */
#ifndef POSTERN_PROXY_SPARE_H
#define POSTERN_PROXY_SPARE_H

#include "proxy/exchange.h"

/* Keeps the answer that has just begun on the exchange's up leg, which is then free for another
 * server's. One that was kept before goes. */
void spare_keep(struct exchange *ex, struct head *head);
/* It is not wanted any more; harmless when there is none. */
void spare_drop(struct exchange *ex);
/* The client gets it after all. False: there is none, or it has not survived; with `whole` also
 * when more of it is to come. */
bool spare_use(struct exchange *ex, bool whole);

#endif
