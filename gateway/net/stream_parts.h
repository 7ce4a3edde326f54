/* What the two files of net/stream share; nobody else includes it. */
#ifndef POSTERN_NET_STREAM_PARTS_H
#define POSTERN_NET_STREAM_PARTS_H

#include "net/stream.h"
#include "net/tls.h"

#define READ_ROUNDS 4 /* reads in one wake-up, so that one socket cannot starve others */

/* stream.c */
bool stream_make_room(struct stream *stream); /* behind the unread bytes */
void stream_drop_in_if_empty(struct stream *stream);
void stream_fail(struct stream *stream, int err);
void stream_fail_room(struct stream *stream);       /* there was no room to be made */
void stream_stop_reading(struct stream *stream);    /* as far as events go */
void stream_taken(struct stream *stream, size_t n); /* of the segs */
void stream_drop_out(struct stream *stream);
void stream_written_all(struct stream *stream, bool some);
void stream_wait_writable(struct stream *stream);
bool stream_watch_write(struct stream *stream); /* false: no memory */
void stream_unwatch_write(struct stream *stream);
void stream_connected(struct stream *stream);

/* stream_tls.c: the same over TLS */
void stream_tls_read_more(struct stream *stream);
void stream_tls_write_more(struct stream *stream);
void stream_tls_shake(struct stream *stream); /* a step of the handshake */
void stream_tls_salvage(struct stream *stream);
void stream_tls_close(struct stream *stream);

#endif
