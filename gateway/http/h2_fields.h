/* HTTP/2 field sections to heads and back. What HTTP/1 would have refused is refused here by
 * the same rules (http/head), so that nothing reaches an HTTP/1 backend by way of HTTP/2.
 *
 * nghttp2 has decoded the section and checks much of RFC 9113 8 itself; what it lets pass is
 * looked at here. One worker's thread. */
#ifndef POSTERN_HTTP_H2_FIELDS_H
#define POSTERN_HTTP_H2_FIELDS_H

#include <nghttp2/nghttp2.h>

#include "http/h1_parse.h"
#include "http/leg.h"

/* A section that arrives field by field. */
struct h2_section {
    struct arena *arena; /* where it is put */
    struct head *head;   /* NULL: no memory */
    struct str method, scheme, authority, path, protocol, status;
    uint32_t lines, crumbs; /* regular fields; those of Cookie, which count as one */
    uint64_t bytes;         /* as RFC 9113 6.5.2 counts: 32 more for each field */
    struct leg_fault fault; /* the first thing wrong with it; its rest is not kept */
};

/* Begins one; `arena` outlives it. */
void h2_section_begin(struct h2_section *section, struct arena *arena);
/* The next field. */
void h2_section_add(struct h2_section *section, struct str name, struct str value,
                    const struct h1_limits *limits);
/* nghttp2 refuses a field for a byte in it. */
void h2_section_refuse(struct h2_section *section, struct str name);

/* The section is complete. `ended`: and the message with it. The head, or NULL with
 * section->fault filled. For websockets (RFC 8441) the head is that of the HTTP/1 request
 * that asks for the same; its key is random. */
struct head *h2_section_request(struct h2_section *section, bool ended,
                                const struct h1_limits *limits);
/* `method`: of the request that it answers. Faults have the reason R_UPSTREAM_PROTOCOL. */
struct head *h2_section_response(struct h2_section *section, bool ended, enum method method);
/* Fields that do not belong there are dropped; what is left is copied to `arena`. */
struct head *h2_section_trailers(struct h2_section *section, struct arena *arena);

/* What nghttp2_submit_* takes. */
struct h2_nv {
    nghttp2_nv *list;
    size_t count;
    char status[4], length[20];
};

/* Room on the caller's stack for most heads. */
#define H2_NV_USUAL 48

/* Fill `nv`, in `usual` or in the arena when that is too small. Names and values are the
 * head's or in `nv`; names are in any case (nghttp2 makes them small when it copies them). What
 * only has a meaning on an HTTP/1 connection is left out. 0 or -ENOMEM. */
int h2_put_response(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                    const struct head *head);
int h2_put_request(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                   const struct head *head, struct str scheme);
/* RFC 8441 4: a request for a websocket, as HTTP/1 has it, as an extended CONNECT. */
int h2_put_connect(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                   const struct head *head, struct str scheme);
int h2_put_trailers(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                    const struct head *trailers);

#endif
