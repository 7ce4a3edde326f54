/* The seam of the gateway. An exchange (one request and its answer) has two legs: `down` to
 * the client and `up` to the upstream. A leg is one turn of an HTTP/1 connection or one
 * HTTP/2 stream; the exchange cannot tell which.
 *
 *      codec ── leg_events ──▶ exchange        what arrived
 *      codec ◀── leg_ops ───── exchange        what to send
 *
 * A codec embeds a struct leg, sets `ops`, and calls events only while `events` is set. An
 * exchange takes a leg by setting `events` and `owner` and lets go by leg_release. Either
 * side may call into the other from inside a call, with two rules: a leg never calls an event
 * from inside send_* (what fails there is told by on_gone later in the same turn), and after
 * on_gone or abort the leg calls nothing any more. One worker's thread. */
#ifndef POSTERN_HTTP_LEG_H
#define POSTERN_HTTP_LEG_H

#include "base/block.h"
#include "http/head.h"

struct leg;

/* Which limit R_UPSTREAM_OVERFLOW is about. */
enum fault_limit { LIMIT_NONE, LIMIT_PENDING, LIMIT_REQUESTS, LIMIT_CONNECTIONS, FAULT_LIMITS };

/* Why a leg ended early. */
struct leg_fault {
    enum reason reason;
    enum fault_limit which;
    size_t offset;    /* of the byte at fault in the message, where there is one */
    struct str field; /* the field at fault; .p NULL: none */
    /* With on_bad before a head, as far as they can be told: what was asked for, and the
     * Accept of who did. Gone when on_bad returns. */
    struct str method, target, accept;
    uint64_t limit, actual; /* where a limit was met; both 0: none */
    int err;                /* errno, where there is one */
    const char *why;        /* in words that live for ever, where TLS failed; NULL: none */
    bool untouched;         /* up: not one byte of the request reached the socket */
    bool silent;            /* up: not one byte of the response came */
};

/* What a leg tells its exchange. */
struct leg_events {
    /* The message's head; up: interim ones (1xx) too. Lives in the exchange's arena. */
    void (*on_head)(struct leg *leg, struct head *head);
    /* A piece of body; the exchange owns the slice's reference. */
    void (*on_body)(struct leg *leg, struct slice slice);
    /* The message that arrives is complete. `trailers` NULL: none; lives in the arena. In a
     * tunnel: the peer sends no more. */
    void (*on_end)(struct leg *leg, struct head *trailers);
    /* What waits to be written fell below the low mark. Also told when it never was full. */
    void (*on_room)(struct leg *leg);
    /* down only: all that was sent, up to and with send_end, has been taken by the kernel. */
    void (*on_sent)(struct leg *leg);
    /* down only: the request is malformed, too large or too slow. It can still be answered;
     * nothing more of it arrives, and the connection closes behind the answer. */
    void (*on_bad)(struct leg *leg, const struct leg_fault *fault);
    /* The leg is over before its time. */
    void (*on_gone)(struct leg *leg, const struct leg_fault *fault);
};

/* What an exchange asks of a leg. */
struct leg_ops {
    /* up: the request's head; down: the response's, interim ones too. head->framing says what
     * will follow; the codec adapts it to what its peer understands. The head need not live
     * longer than the call, but for a request with `upgrade`: until its answer comes. */
    void (*send_head)(struct leg *leg, const struct head *head);
    void (*send_body)(struct leg *leg, struct slice slice); /* takes the reference */
    /* The message is complete. In a tunnel: half-close. */
    void (*send_end)(struct leg *leg, const struct head *trailers);
    /* Stop and go on delivering on_body and on_end. Resuming delivers later in the turn. */
    void (*pause)(struct leg *leg);
    void (*resume)(struct leg *leg);
    /* From now on bytes pass both ways without framing (after a 101). */
    void (*tunnel)(struct leg *leg);
    /* Down: the answer cannot be completed; the client must be able to tell. Up: the exchange
     * wants no more. The leg is released and calls nothing any more. */
    void (*abort)(struct leg *leg);
    /* Bytes given to send_* that the kernel has not taken. */
    size_t (*pending)(const struct leg *leg);
    /* Down: whether send_body takes pipes (net/pipe) of the answer whose head was sent. NULL:
     * it never does. */
    bool (*takes_pipes)(const struct leg *leg);
    /* The exchange is done with a leg whose answer ended well. Down: told after on_sent; if the
     * request's body is still coming the codec drains or closes. Up: the connection can be used
     * again if the request was sent to its end too. The leg calls nothing any more. */
    void (*release)(struct leg *leg);
};

struct leg {
    const struct leg_ops *ops;
    const struct leg_events *events; /* NULL: nobody listens */
    void *owner;
    struct arena *arena; /* the exchange's: where heads that arrive are put */
    bool pipes;          /* up: who listens takes body slices that are pipes (net/pipe) */
};

#define LEG_HIGH (128u * 1024) /* pending bytes from which a leg is full */
#define LEG_LOW  (32u * 1024)  /* and below which there is room again */

static inline bool leg_is_full(const struct leg *leg)
{
    return leg->ops->pending(leg) >= LEG_HIGH;
}

#endif
