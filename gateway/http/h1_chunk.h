/* The chunked coding (RFC 9112 7.1), read: a pure function over bytes.
 *
 * The decoder never copies payload: it tells which part of the input is data. Extensions are
 * read for their bounds and dropped. Lines end in CR LF exactly. */
#ifndef POSTERN_HTTP_H1_CHUNK_H
#define POSTERN_HTTP_H1_CHUNK_H

#include "base/str.h"

enum h1_chunk_state {
    CHUNK_SIZE,    /* in a size's digits, none seen yet or some */
    CHUNK_EXT,     /* in extensions, or behind the digits */
    CHUNK_SIZE_LF, /* CR seen, LF must follow */
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILERS, /* the last chunk's line is read: trailer section or CR LF follows */
    CHUNK_BAD,
};

#define H1_CHUNK_EXT_MAX   1024u /* bytes of extensions in one chunk line */
#define H1_CHUNK_EXT_TOTAL 8192u /* and in one message */

struct h1_chunk {
    enum h1_chunk_state state;
    uint8_t digits;
    uint16_t ext; /* extension bytes in this line */
    uint32_t ext_total;
    uint32_t taken; /* bytes of the body so far; of very long ones the low half */
    uint64_t left;  /* payload bytes left in this chunk */
};

void h1_chunk_init(struct h1_chunk *chunk);

/* Reads from `p`, `n`. Returns how many bytes were taken (also 0), or -1 when the coding is
 * broken (where in the body the bad byte stands in *ret_bad). Of the bytes taken, *ret_data is
 * the payload, always at the end of what was taken: call again for what is left until nothing
 * is taken or the state is CHUNK_TRAILERS, from where the caller looks for the trailers' end
 * itself. */
long h1_chunk_read(struct h1_chunk *chunk, const char *p, size_t n, struct str *ret_data,
                   size_t *ret_bad);

#endif
