/* The client side of HTTP/2: few connections to a server, each with many requests at a time.
 *
 *   pool ─▶ lane ─▶ trunk ─▶ server
 *
 * A trunk is a connection. A lane is the right to one request at a time on a trunk, and looks
 * to the pool and to exchanges like a connection of HTTP/1 (it is an h1_client whose leg is one
 * stream after another): lent, released, idle, closed. So waiting, limits and retries are the
 * pool's, as ever. A lane takes a trunk that has room, else opens one; a trunk without lanes
 * closes, and so does one that has lived long enough, had as many requests as it may, has gone
 * silent or is outdated, once its requests have ended. For a while behind one that broke under
 * several requests, each has a trunk to itself, or the next would fail together too, and what
 * tries again with them. One worker's thread. */
#ifndef POSTERN_HTTP_H2_CLIENT_H
#define POSTERN_HTTP_H2_CLIENT_H

#include "http/h1_client.h"
#include "http/h2_fields.h"

struct h2_trunk;

/* What counts trunks; one writer. */
struct h2_trunks_counters {
    _Atomic uint64_t *opened, *idle, *active; /* idle: it stands, without a request */
};

/* The trunks to one server. Embedded in the pool. */
struct h2_trunks {
    struct loop *loop;
    struct h2_trunk *first;
    struct h2_trunks_counters counters;
    uint32_t lifetime;   /* of a trunk, ms; 0: no limit. The owner's to set */
    uint32_t requests;   /* on a trunk; 0: no limit. The owner's to set */
    uint32_t said;       /* lanes of a trunk, as the server last said; 0: it has not */
    uint64_t wary_until; /* ns: trunks have broken under several requests; 0: they have not */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
};
void h2_trunks_init(struct h2_trunks *trunks, struct loop *loop,
                    const struct h2_trunks_counters *counters);
void h2_trunks_done(struct h2_trunks *trunks); /* no lane lives any more */
/* Those that are outdated (stream_is_outdated) take no more requests. */
void h2_trunks_renew(struct h2_trunks *trunks);

struct h2_lane {
    struct h1_client client; /* first: what the owner sees. Its stream is no socket's */
    struct h2_trunk *trunk;
    struct h2_lane *next, **prev; /* the trunk's */
    int32_t id;                   /* of the stream under way; 0: none */
    bool lent;                    /* somebody has it, until it is idle or closed */
    bool has_body;                /* of the request: what is queued goes out */
    bool deferred;                /* nghttp2 waits for more in the queue */
    bool paused;
    bool in_ended; /* of a tunnel: the server sends no more */
    enum h2_lane_tunnel { LANE_PLAIN, LANE_ASKS, LANE_TUNNEL } tunnel;
    enum reason doom;        /* it fails later in the turn, for that; R_NONE: it does not */
    const struct head *held; /* asks for a tunnel before the server said whether it takes any */
    struct str key;          /* of the websocket that was asked for */
    struct seg *first, **last; /* what is to be sent */
    size_t queued;
    const struct head *trailers; /* the exchange's */
    uint32_t unconsumed;
    uint64_t heard;    /* of the trunk's bytes, when the server last said something here */
    struct task later; /* its trunk stood when it came, or it is doomed */
};

/* As h1_client_open, of the lane's client. `spread`: of a trunk that is opened for it. */
int h2_lane_open(struct h2_lane *lane, struct h2_trunks *trunks, const struct addr *addr,
                 struct tls_peer *peer, const struct h1_client_timeouts *timeouts,
                 uint16_t spread, const struct h1_client_ops *ops, void *owner);
/* An IDLE one gets a request, for which h1_client_lend comes next. Other lanes of its trunk may
 * be closed by it. */
void h2_lane_lend(struct h2_lane *lane);
/* Whether its trunk takes no more requests. */
bool h2_lane_is_over(const struct h2_lane *lane);

#endif
