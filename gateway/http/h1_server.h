/* The server side of an HTTP/1 connection: a client's connection and its requests, one after
 * the other. Each request is one turn of the connection's leg.
 *
 *   IDLE ─▶ HEAD ─▶ BODY ─▶ WAIT ─▶ (answer sent) ─▶ IDLE      keep-alive
 *                     │       └────▶ TUNNEL                      after 101
 *                     └─▶ DRAIN ───▶ IDLE                        answered before the body's end
 *   any ─▶ BAD ─▶ (answer sent) ─▶ LINGER ─▶ CLOSED              malformed, too slow
 *
 * Pipelined requests wait unread until the one before is answered. Owned by one worker. */
#ifndef POSTERN_HTTP_H1_SERVER_H
#define POSTERN_HTTP_H1_SERVER_H

#include "http/h1_chunk.h"
#include "http/h1_parse.h"
#include "http/leg.h"
#include "http/pace.h"
#include "net/stream.h"

#define HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

/* Read anew for every request, so that a reload reaches living connections. Connections of
 * HTTP/2 have the same. */
struct h1_server_config {
    struct h1_limits limits;
    bool http2;        /* a connection may begin with HTTP/2's preface */
    uint32_t streams;  /* HTTP/2: requests at a time; 0: no limit */
    uint32_t requests; /* per connection; 0: no limit */
    struct {
        uint32_t header, body, idle, write; /* ms, 0: none */
        uint32_t rate, rate_window;         /* bytes a second over so many ms; rate 0: none */
    } timeouts;
};

struct h1_server;

/* What the owner gives at construction. */
struct h1_server_ops {
    const struct h1_server_config *(*config)(struct h1_server *server);
    /* A request begins: set leg->events, owner and arena, and note what the head says by the
     * event that follows at once (on_head or on_bad). False: no memory; it is refused. */
    bool (*on_begin)(struct h1_server *server, struct leg *leg);
    /* The connection is closed; its memory goes at the end of the turn (bury). */
    void (*on_closed)(struct h1_server *server);
    void (*bury)(struct h1_server *server);
    /* With config->http2: the client speaks HTTP/2. The owner makes something else of the
     * stream, which stays where it is with all that is unread; the rest of the server is dead.
     */
    void (*on_http2)(struct h1_server *server);
};

enum server_state {
    SERVER_IDLE,
    SERVER_HEAD,
    SERVER_BODY,
    SERVER_WAIT, /* the request is complete, its answer is not */
    SERVER_TUNNEL,
    SERVER_BAD,   /* nothing more is read; the answer is on its way */
    SERVER_DRAIN, /* answered; what is left of the body is read and thrown away */
    SERVER_LINGER,
    SERVER_CLOSED,
};

enum server_answer { ANSWER_NONE, ANSWER_HEAD, ANSWER_ENDED, ANSWER_ABORTED };

struct h1_server {
    struct stream stream; /* first: see on_http2 */
    struct leg leg;
    const struct h1_server_ops *ops;
    void *owner;
    enum server_state state;
    enum server_answer answer;
    bool keep_alive; /* of this request */
    bool closing;    /* the owner wants no further request */
    bool chunked_out, chunked_in, head_request, old_client /* HTTP/1.0 */, expects, lf_seen;
    bool probed;         /* a client that half-closed was asked whether it is there */
    bool until_close;    /* the answer's end is the connection's */
    uint32_t requests;   /* begun on this connection */
    uint64_t body_left;  /* of a request with Content-Length; of what is drained */
    uint32_t taken;      /* low half of what the peer had taken at the last look */
    struct pace in, out; /* of a body that comes; of an answer that waits to be taken */
    struct h1_scan scan;
    struct h1_chunk chunk;
    struct deadline read_due, write_due;
    struct task turn; /* the answer has ended: go on */
    struct grave grave;
};

/* Takes over an accepted socket, and with it the TLS whose handshake is done (NULL: none).
 * 0 or -ENOMEM (socket closed, tls freed, server not started). */
int h1_server_open(struct h1_server *server, struct loop *loop, int fd, struct tls *tls,
                   const struct h1_server_ops *ops, void *owner);
/* No further request: closes now when idle, else behind the answer under way. */
void h1_server_drain(struct h1_server *server);
/* At once. The exchange under way is told on_gone. */
void h1_server_close(struct h1_server *server);

#endif
