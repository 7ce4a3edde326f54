/* A client's connection from its first byte to the end of its TLS handshake.
 *
 * Handshakes cost a thousand times what a request costs, so they take turns: a loop steps them
 * for a moment in each of its turns, at least one, and requests in between.
 * Embedded in its owner, who gets the socket back in on_done. One loop's thread. */
#ifndef POSTERN_NET_SHAKE_H
#define POSTERN_NET_SHAKE_H

#include "net/loop.h"
#include "net/tls.h"

struct shake;

/* Those of one loop that are ready for a step. Outlives them. */
struct shakes {
    struct loop *loop;
    struct shake *first, **last;
    struct event turn;
    bool turn_set;
    /* ns: until then this turn of the loop steps those that come; 0: none has come */
    uint64_t turn_end;
    struct task over;
};
void shakes_init(struct shakes *shakes, struct loop *loop);
void shakes_done(struct shakes *shakes);

struct shake {
    struct shakes *shakes;
    struct tls *tls; /* the owner's, in on_done */
    int fd;
    bool begun; /* a first byte has come */
    bool queued, read_armed, write_armed;
    struct shake *next, **prev; /* in the queue */
    /* 0: done, `tls` can be read and written; -ENOMSG: the first byte is none of TLS, and was
     * not taken off the socket; -ETIMEDOUT, -ECONNRESET, -EPROTO (tls_why says why) or another
     * -errno. Told once. The socket is watched until shake_leave, which comes behind whatever
     * watches it next and before it is closed. */
    void (*on_done)(struct shake *shake, int err);
    struct deadline due;
    struct event ev_read, ev_write;
};

/* Starts to watch, and takes over `tls`. 0 or -ENOMEM (tls is freed). `ms`: until the handshake
 * must be done; 0: no limit. */
int shake_open(struct shake *shake, struct shakes *shakes, struct tls *tls, int fd, uint64_t ms,
               void (*on_done)(struct shake *shake, int err));
void shake_leave(struct shake *shake); /* behind on_done */
/* Ends watching and frees `tls`; on_done is not called. The descriptor stays open. */
void shake_stop(struct shake *shake);

#endif
