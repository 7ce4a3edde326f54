/* One direction of body: request down to up, or response up to down. The same code with the
 * ends exchanged.
 *
 * Bytes pass by reference and are never looked at. A receiver that is full pauses the source:
 * that is all of backpressure, and bounds what waits. Until there is a receiver a little is
 * held, and what is held can be sent again to another one while it is all there is. */
#ifndef POSTERN_PROXY_FLOW_H
#define POSTERN_PROXY_FLOW_H

#include "http/leg.h"

#define FLOW_HOLD_BYTES  (64u * 1024)
#define FLOW_HOLD_SLICES 64 /* at the least; a slice keeps a whole block */
#define FLOW_SLICE_BYTES 1024

struct held;

struct flow {
    struct leg *from, *to; /* to NULL: not there yet */
    uint64_t bytes;        /* arrived */
    bool ended;            /* the source has sent all */
    bool paused;
    bool holds; /* everything that arrived is held: it can be sent again */
    bool lost;  /* out of memory while nobody took it: the message cannot be completed */
    struct head *trailers;
    struct held *first, **last;
    uint32_t held_bytes, held_slices;
    uint32_t
        hold_max; /* bytes that are little; FLOW_HOLD_BYTES unless the owner says otherwise */
};

/* `hold`: keep what arrives until flow_drop, as long as it is little. */
void flow_init(struct flow *flow, struct leg *from, bool hold);
void flow_body(struct flow *flow, struct slice slice); /* takes the reference */
void flow_end(struct flow *flow, struct head *trailers);
void flow_room(struct flow *flow); /* the receiver has room again */
/* A receiver is there: it gets what is held, and the end if it has come. Also another one,
 * after the first failed, while `holds`. */
void flow_connect(struct flow *flow, struct leg *to);
/* `to` becomes what `from` was, which is nobody's any more. */
void flow_move(struct flow *to, const struct flow *from);
void flow_disconnect(struct flow *flow); /* the receiver is gone */
/* Takes what is held out again and gives it to feed(), with its references; nobody takes it
 * yet. */
void flow_refeed(struct flow *flow, void (*feed)(void *arg, struct slice slice), void *arg);
/* Nothing will be sent again: lets go of what is held. */
void flow_drop(struct flow *flow);

#endif
