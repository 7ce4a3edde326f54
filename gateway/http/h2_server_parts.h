/* What the files of h2_server share; nobody else includes it. */
#ifndef POSTERN_HTTP_H2_SERVER_PARTS_H
#define POSTERN_HTTP_H2_SERVER_PARTS_H

#include "http/h2_server.h"

/* A field section that arrives. Most connections have none most of the time. */
struct h2_intake {
    struct arena arena; /* until it is a request, which takes it over */
    struct h2_section section;
};

/* One request and its answer. */
struct h2_stream {
    struct leg leg;
    struct h2_server *server;
    struct h2_kit *kit;
    struct h2_stream *next, **prev; /* the connection's list */
    struct h2_stream *next_sent, *next_roomy;
    int32_t id;
    bool begun;         /* there is, or was, an exchange */
    bool request_ended; /* all of the request has come */
    bool has_body;      /* of the answer: what is queued goes out */
    bool ended;         /* all of the answer is in the queue */
    bool framed;        /* its end is in the socket's queue */
    bool muted;         /* nothing more of the answer goes out */
    bool closed;        /* nghttp2 knows it no more */
    bool is_sent;       /* in `sent` */
    bool is_roomy;      /* in `roomy` */
    bool deferred;      /* nghttp2 waits for more in the queue */
    bool paused, head_request, upgrade, tunnel, has_length;
    bool reset_by_peer, reset_by_us; /* us: not because of something the client did */
    enum reason reason;              /* what it ends for, where that is known */
    struct seg *first, **last;       /* what is to be sent */
    size_t queued;
    const struct head *trailers; /* the exchange's */
    uint32_t unconsumed;         /* bytes of body that came while paused */
    uint64_t in_bytes, out_bytes;
    uint64_t mark; /* in `sent`: the socket's written_total when the kernel has all of it */
    struct pace in, out;
    struct deadline read_due, write_due;
    struct grave grave;
};

/* What waits to be sent on one connection. Over HIGH each stream may queue but a FEW bytes,
 * until it is below LOW. */
#define H2_QUEUE_HIGH (512u * 1024)
#define H2_QUEUE_LOW  (256u * 1024)
#define H2_QUEUE_FEW  (16u * 1024)

/* h2_server.c: the connection */
void h2_server_flush(struct h2_server *server); /* later in the turn */
void h2_server_calm(struct h2_server *server, enum h2_flood kind);
void h2_server_goaway(struct h2_server *server);      /* behind a drain's notice */
bool h2_server_head_begins(struct h2_server *server); /* false: no memory */
void h2_server_head_ends(struct h2_server *server);
void h2_server_idle(struct h2_server *server); /* its last stream is gone */

/* h2_frames.c: what nghttp2 calls, and what it does not look at */
/* A frame begins: those that carry nothing are counted, whatever becomes of them. */
void h2_frames_begin(struct h2_server *server, const nghttp2_frame_hd *hd);
/* The connection ends with that error. */
void h2_server_violated(struct h2_server *server, uint32_t error);
void h2_frames_callbacks(nghttp2_session_callbacks *callbacks);

/* h2_stream.c: one stream, and what its exchange asks of it */
struct h2_stream *h2_stream_new(struct h2_server *server, int32_t id); /* NULL: no memory */
/* Its head is complete, or NULL and a fault. False: no memory for an exchange. */
bool h2_stream_begin(struct h2_stream *stream, struct head *head, bool ended,
                     const struct leg_fault *fault);
void h2_stream_body(struct h2_stream *stream, struct slice slice);
void h2_stream_end(struct h2_stream *stream, struct head *trailers);
void h2_stream_bad(struct h2_stream *stream, const struct leg_fault *fault);
/* nghttp2 is through with it. */
void h2_stream_closed(struct h2_stream *stream, uint32_t error);
/* The connection is dead under it. */
void h2_stream_cut(struct h2_stream *stream, enum reason reason, int err);
void h2_stream_on_framed(struct h2_stream *stream);
void h2_stream_on_sent(struct h2_stream *stream); /* taken out of `sent` */
/* What was framed of the queue: nghttp2's send_data_callback. */
int h2_stream_send(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
                   size_t length, nghttp2_data_source *source, void *arg);

#endif
