/* The server side of an HTTP/2 connection, on nghttp2: frames are its business, streams are
 * legs of ours. What nghttp2 is told and asked happens in two places, whatever else goes on:
 *
 *   on_read ─▶ nghttp2_session_mem_recv ─▶ callbacks ─▶ leg events
 *   flush   ◀─ nghttp2_session_mem_send ◀─ what legs have queued; once in a turn of the loop
 *
 * Flow control is backpressure: what an exchange cannot pass on is not consumed, so that its
 * stream stops and the connection does not. What it sends waits in its stream's own queue
 * until the client's window and the socket have room for it; bodies are not copied.
 *
 * A stream's memory goes when nghttp2 has closed it and its exchange has let go. Owned by one
 * worker. */
#ifndef POSTERN_HTTP_H2_SERVER_H
#define POSTERN_HTTP_H2_SERVER_H

#include "http/h1_server.h"
#include "http/h2_fields.h"
#include "http/h2_guard.h"

struct h2_server;

/* What all HTTP/2 connections of a worker share. */
struct h2_kit {
    struct loop *loop;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct slab streams, intakes;
};
int h2_kit_init(struct h2_kit *kit, struct loop *loop); /* 0 or -ENOMEM */
void h2_kit_done(struct h2_kit *kit);                   /* no connection lives any more */

/* As h1_server_ops, but there may be many requests at a time. */
struct h2_server_ops {
    const struct h1_server_config *(*config)(struct h2_server *server);
    bool (*on_begin)(struct h2_server *server, struct leg *leg);
    /* The client overdoes it; the connection ends. */
    void (*on_flood)(struct h2_server *server, enum h2_flood kind);
    void (*on_closed)(struct h2_server *server);
    void (*bury)(struct h2_server *server);
};

#define H2_CLOSED_KEPT 8

enum h2_server_state { H2_OPEN, H2_LINGER, H2_CLOSED };

struct h2_stream;
struct h2_intake;

struct h2_server {
    struct stream stream; /* first: it was an h1_server's */
    struct h2_kit *kit;
    nghttp2_session *session;
    const struct h2_server_ops *ops;
    void *owner;
    enum h2_server_state state;
    bool draining;             /* told the client so; the last stream is not fixed yet */
    bool lost;                 /* the session's memory is in disorder */
    bool goaway;               /* it is fixed */
    bool crowded;              /* much waits to be sent: every stream is full */
    enum reason reason;        /* what the connection ends with; R_NONE: with the client */
    uint32_t requests;         /* begun */
    struct h2_stream *streams; /* all of them */
    struct h2_stream *sent, **last_sent; /* answers that wait for the kernel to take them */
    struct h2_stream *roomy;             /* whose exchange is to be told that there is room */
    size_t queued;                       /* bytes in the streams' queues */
    struct h2_intake *intake;            /* the field section that arrives; NULL: none */
    struct h2_guard guard;
    uint32_t frame_left;            /* bytes of the frame that is being read */
    bool frame_ends_head;           /* and no more of the field section comes behind it */
    int32_t last_id;                /* the highest that the client has used */
    int32_t closed[H2_CLOSED_KEPT]; /* the last ids that were closed */
    uint32_t closed_count;
    uint64_t reset_at; /* ns: our last reset of a stream; 0: none */
    uint32_t taken;    /* as in h1_server */
    struct pace out;
    struct deadline due; /* idle, head or linger */
    struct deadline write_due, drain_due;
    struct task flush;
    struct grave grave;
};

/* Makes an HTTP/2 connection of memory that begins with an open stream, whose unread bytes are
 * the client's first. Without memory it is closed, on_closed and bury are called. */
void h2_server_open(struct h2_server *server, struct h2_kit *kit,
                    const struct h2_server_ops *ops, void *owner);
/* No further request, but every one that was on its way is served (RFC 9113 6.8). */
void h2_server_drain(struct h2_server *server);
/* At once. Exchanges under way are told on_gone. */
void h2_server_close(struct h2_server *server);
/* Calls `call` with the leg of each request under way, which may end it. */
void h2_server_each(struct h2_server *server, void (*call)(struct leg *leg));

#endif
