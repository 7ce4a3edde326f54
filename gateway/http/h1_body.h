/* Bodies on their way out of an HTTP/1 connection, as both its sides write them. */
#ifndef POSTERN_HTTP_H1_BODY_H
#define POSTERN_HTTP_H1_BODY_H

#include "http/head.h"
#include "net/stream.h"

/* A piece that is not empty, as a chunk of its own or plain. Takes the reference. */
void h1_body_write(struct stream *stream, struct slice slice, bool chunked);
/* The last chunk, with trailers (NULL: none). */
void h1_body_end_chunks(struct stream *stream, const struct head *trailers);

#endif
