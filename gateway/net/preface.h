/* A connection before its first byte for us: its PROXY header is read here, and nothing behind
 * it, so that whoever takes the socket over finds it as if there had been none.
 *
 * Embedded in its owner, who gets the descriptor back in on_done. One loop's thread. */
#ifndef POSTERN_NET_PREFACE_H
#define POSTERN_NET_PREFACE_H

#include "net/loop.h"
#include "net/proxy_protocol.h"

struct preface {
    struct loop *loop;
    int fd;
    /* 0: `header` is there, else -EPROTO (malformed, at `offset`), -ETIMEDOUT, -ECONNRESET (the
     * peer closed first) or another -errno of reading. Told once; watching has ended. */
    void (*on_done)(struct preface *preface, int err);
    struct proxy_header header;
    size_t offset;
    uint32_t n; /* bytes read so far */
    struct deadline due;
    struct event event;
    char bytes[PROXY_PROTOCOL_MAX];
};

/* Starts to watch. 0 or -ENOMEM. `ms`: until the header must be there; 0: no limit. */
int preface_open(struct preface *preface, struct loop *loop, int fd, uint64_t ms,
                 void (*on_done)(struct preface *preface, int err));
/* Ends watching; on_done is not called. The descriptor stays open. */
void preface_stop(struct preface *preface);

#endif
