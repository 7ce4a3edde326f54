/* The addresses that the gateway listens on, and their sockets on the way to the workers. */
#ifndef POSTERN_APP_PORTS_H
#define POSTERN_APP_PORTS_H

#include "app/worker.h"

/* What one configuration listens on. */
struct ports {
    struct worker_port *list; /* fd here is not used */
    size_t count;
    int *fds; /* count * workers: fds[i * workers + worker]; -1: open already */
    unsigned workers;
};

/* Binds what `conf` wants and `old` (NULL: nothing) does not have. 0, or -1 with faults and
 * nothing left open. An address that somebody else listens on is a fault, although the
 * kernel would share it. */
int ports_open(struct ports *ports, const struct conf *conf, const struct ports *old,
               unsigned workers, struct conf_faults *faults);
void ports_close(struct ports *ports); /* closes what no worker got */
/* Takes away the files of unix addresses that `kept` (NULL: nothing) does not have, before who
 * accepts on them closes: nobody may connect to a queue that is not looked at. */
void ports_forget(const struct ports *gone, const struct ports *kept);
/* The list for one worker, who owns it and its descriptors. NULL: no memory. */
struct worker_port *ports_for(struct ports *ports, unsigned worker);

#endif
