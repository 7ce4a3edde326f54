/* HTTP/1 heads and chunk framing, written in canonical form into a buffer of the caller's.
 * Pure functions; any thread. */
#ifndef POSTERN_HTTP_H1_WRITE_H
#define POSTERN_HTTP_H1_WRITE_H

#include "http/head.h"

/* How the connection is to be marked. */
enum h1_persist {
    H1_PERSIST_DEFAULT, /* say nothing: HTTP/1.1 keeps alive by itself */
    H1_PERSIST_CLOSE,   /* Connection: close */
    H1_PERSIST_KEEP,    /* Connection: keep-alive, for an HTTP/1.0 client that asked */
    H1_PERSIST_UPGRADE, /* Connection: upgrade, with Upgrade: head->upgrade */
};

/* The most bytes that h1_write_* can need for this head: reserve that many. */
size_t h1_write_bound(const struct head *head);

/* Writes "METHOD target HTTP/1.1" and fields; head->target is sent as it stands. Framing
 * fields from head->framing and head->length: FRAMING_LENGTH writes Content-Length,
 * FRAMING_CHUNKED writes Transfer-Encoding: chunked. FRAMING_NONE writes neither.
 * Every name and value is checked once more: returns the length, or 0 when one could split
 * the message (CR, LF, NUL), in which case nothing may be sent. */
size_t h1_write_request(char *out, const struct head *head, enum h1_persist persist);

/* Writes "HTTP/1.1 status reason" and fields. With FRAMING_NONE and has_length (an answer to
 * HEAD, a 304) Content-Length is written for information, except on 1xx and 204
 * (RFC 9110 8.6). An empty reason phrase is left empty: "HTTP/1.1 299 ". */
size_t h1_write_response(char *out, const struct head *head, enum h1_persist persist);

/* Fields of a trailer section and the final empty line; bound by h1_write_bound. */
size_t h1_write_trailers(char *out, const struct head *trailers);

#define H1_CHUNK_LINE_MAX 18 /* 16 hex digits, CR, LF */
/* "1f4\r\n" */
size_t h1_write_chunk_line(char out[H1_CHUNK_LINE_MAX], uint64_t size);

/* The standard phrase for a status ("Not Found"), or "" for one without. */
struct str h1_phrase(unsigned status);

#endif
