/* A stream: one connected socket with what was read and not yet used, and what is to be
 * written and not yet taken. The only place that touches a connection's descriptor.
 *
 *   in:   [0 .. r: used | r .. w: unread | w .. cap: room]   one block, none while idle
 *   out:  segments, each a piece of a block; small pieces are copied into one tail block
 *
 * Writes are collected and go out at the end of the callback that made them, in one call;
 * EV_WRITE is asked for only when the kernel takes no more. A read that does not fill its
 * room means that the socket is drained, so it is not read again. A paused stream stays
 * registered until something arrives: pausing and resuming within a request costs nothing.
 * With TLS the same, sealed and opened on the way; a socket that ends without the peer's word
 * for it is an error then (ECONNRESET), not the end of a stream.
 * Embedded in its owner, who closes it, and buries its own memory afterwards. */
#ifndef POSTERN_NET_STREAM_H
#define POSTERN_NET_STREAM_H

#include "net/loop.h"
#include "net/sock.h"

struct stream;
struct tls; /* net/tls */

/* A piece of what is to be written. */
struct seg {
    struct seg *next;
    struct block *block; /* NULL: memory that outlives the write */
    const char *p;
    size_t n;
};

/* The owner may close the stream in any of these. */
struct stream_ops {
    void (*on_connected)(struct stream *stream);
    /* There are unread bytes. What is left unread is offered again with the next ones, or
     * after stream_resume. */
    void (*on_read)(struct stream *stream);
    /* Bytes that stream_pipe asked for: a pipe (net/pipe), which cannot be looked into. The
     * owner's, with its reference. NULL where nobody asks. */
    void (*on_piped)(struct stream *stream, struct slice slice);
    /* The peer sends no more (its FIN). Told once, behind the last on_read. */
    void (*on_eof)(struct stream *stream);
    /* Everything written has been taken by the kernel. */
    void (*on_drained)(struct stream *stream);
    /* The kernel took some of it or nothing, and the rest waits (see written_total). */
    void (*on_pending)(struct stream *stream);
    /* Connecting, reading or writing failed: `err` is the errno. The stream is dead and only
     * waits for stream_close; unread bytes may still be used. */
    void (*on_error)(struct stream *stream, int err);
};

struct stream {
    struct loop *loop;
    const struct stream_ops *ops;
    int fd; /* -1: closed */
    int err;
    bool connecting, shaking /* its TLS handshake, while connecting */;
    bool paused, read_armed, eof, shut, shut_wanted, no_memory;
    bool late; /* an error waits for stream_resume */
    bool grow; /* the last read filled its block: the next block is a large one */
    uint32_t r, w;
    struct block *in;
    struct seg *first, **last;
    struct block *tail; /* where small pieces are copied; its last seg grows */
    uint32_t tail_used;
    uint32_t piped; /* bytes still to come through pipes */
    size_t pending; /* bytes in segs, and sealed ones */
    uint64_t read_total, written_total;
    struct task flush, deliver;
    struct tls *tls; /* NULL: the bytes are the socket's */
    uint32_t sealed; /* of pending: what waits as TLS records */
    struct event ev_read;
    struct event *ev_write; /* asked for; NULL: most streams never wait to write */
};

/* Takes over the connected (or, with `connecting`, still connecting) descriptor and starts to
 * watch it. With `tls` (taken over; NULL: none) everything passes through it: of a connected
 * descriptor its handshake is done; else on_connected tells that it is. 0 or -ENOMEM (the
 * descriptor is closed, tls freed). */
int stream_open(struct stream *stream, struct loop *loop, int fd, bool connecting,
                struct tls *tls, const struct stream_ops *ops);
/* ALPN's choice; .p NULL: none. */
struct str stream_protocol(const struct stream *stream);
/* Whether what was read may be somebody else's, who has recorded it (tls_is_early). */
bool stream_is_early(const struct stream *stream);
/* Whether it began with what its upstream's files held before they changed (tls_is_outdated).
 */
bool stream_is_outdated(const struct stream *stream);
/* Behind on_error: in words that live for ever, why TLS failed; NULL: it did not. */
const char *stream_why(const struct stream *stream);
/* At once; unwritten bytes are lost. Harmless when closed. */
void stream_close(struct stream *stream);
/* As close, but the peer gets a reset: it cannot take what it got for complete. */
void stream_reset(struct stream *stream);

static inline struct str stream_unread(const struct stream *stream)
{
    if (!stream->in)
        return (struct str){NULL, 0};
    return (struct str){stream->in->data + stream->r, stream->w - stream->r};
}
void stream_skip(struct stream *stream, size_t n); /* n unread bytes are used up */
/* As skip, and the bytes stay alive with the slice. */
struct slice stream_take(struct stream *stream, size_t n);
/* The next `n` bytes behind the unread ones need not be seen: they come as pipes, as far as
 * there are any to be had, else as ever. Not with TLS. */
static inline void stream_pipe(struct stream *stream, uint32_t n)
{
    if (!stream->tls)
        stream->piped = n;
}
/* Nothing is read and on_read is not called until stream_resume, which offers what is unread
 * later in the same turn. */
void stream_pause(struct stream *stream);
void stream_resume(struct stream *stream);

/* Writing cannot fail here: a dead stream swallows bytes, and running out of memory kills the
 * stream, which on_error tells later in the turn.
 *
 * Room for up to `n` contiguous bytes at the end of what is to be written; commit what was
 * used of it. NULL: nothing can be written any more. More than BLOCK_LARGE is more memory than
 * there is. */
char *stream_reserve(struct stream *stream, size_t n);
void stream_commit(struct stream *stream, size_t n);
void stream_write(struct stream *stream, const char *p, size_t n); /* copies */
/* Takes the reference; copies only what is small. */
void stream_write_slice(struct stream *stream, struct slice slice);
/* Now, and not later in the turn: for the last words of who closes it. */
void stream_flush(struct stream *stream);
/* Bytes that the kernel took from us and the peer has not acknowledged. */
size_t stream_unacked(const struct stream *stream);
/* The errno that waits on the socket and no event has told yet (a reset behind a FIN), or 0. */
int stream_pending_error(struct stream *stream);
/* In on_error: reads what the peer sent before, as far as on_read takes it. Its end is not
 * told: what ends in a failure may have been cut. True: it is paused, and there may be more;
 * when it is resumed on_error comes once more. */
bool stream_salvage(struct stream *stream);
/* Whether there is something to read, a FIN or an error: asks the socket. */
bool stream_has_news(const struct stream *stream);
/* After what waits has been written: no more comes (shutdown of the writing side). */
void stream_shutdown(struct stream *stream);

#endif
