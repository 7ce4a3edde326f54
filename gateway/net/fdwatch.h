/* A descriptor of somebody else's that is watched on a loop: tells when it can be read or
 * written, and touches nothing itself. One loop's thread. */
#ifndef POSTERN_NET_FDWATCH_H
#define POSTERN_NET_FDWATCH_H

#include "net/loop.h"

#define FDWATCH_READ  1u
#define FDWATCH_WRITE 2u

struct fdwatch {
    struct loop *loop;
    struct event event;
    unsigned wanted; /* WATCH_* bits; 0: not watched */
    void (*on_ready)(struct fdwatch *watch, unsigned events);
};

/* Sets what is watched for; 0 ends it. Zeroed memory with loop and on_ready is a watch that is
 * not watched. 0 or -errno. May be called from on_ready. */
int fdwatch_set(struct fdwatch *watch, int fd, unsigned wanted);

#endif
