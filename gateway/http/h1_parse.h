/* The HTTP/1 head parser (RFC 9112): a pure function over bytes. No I/O, no clock, no
 * allocation, no state but what the caller keeps. Strict: one way to read each message.
 *
 * Two steps, so that a head can be copied once, whole, to where it will live:
 *   h1_head_end   looks for the end while bytes arrive, and refuses early what can never
 *                 become a head (bare LF, control bytes, a TLS hello, an HTTP/2 preface);
 *   h1_parse_*    reads the complete head.
 * Refused: bare LF or CR, NUL and control bytes, obs-fold, blank before the colon, an empty
 * name, a Content-Length that is not one plain decimal, Content-Length with
 * Transfer-Encoding, any coding but one final `chunked`, codings on HTTP/1.0, not exactly one
 * Host on 1.1, versions but 1.0 and 1.1, targets with bytes outside VCHAR or with `#`, CONNECT
 * and a `*` with any method but OPTIONS. Unknown methods pass. */
#ifndef POSTERN_HTTP_H1_PARSE_H
#define POSTERN_HTTP_H1_PARSE_H

#include "http/head.h"

struct h1_limits {
    uint32_t header_bytes; /* whole head, with the request line and the final empty line */
    uint32_t headers;      /* field lines */
    uint32_t target_bytes;
};

/* What was wrong, and where. */
struct h1_fault {
    enum reason reason;
    size_t offset;    /* bytes from the start of the message */
    struct str field; /* the field that it was in (in the input, or a literal); .p NULL: none */
    uint64_t limit, actual; /* with the *_TOO_* reasons */
};

/* Progress of the search for a head's end. Zero it before a new message. For the end of a
 * trailer section set `lines` to 1: there is no first line, and none need come. */
struct h1_scan {
    uint32_t pos;   /* bytes looked at */
    uint32_t line;  /* where the line under way begins */
    uint32_t lines; /* complete lines seen, the request or status line included */
};

/* `p`, `n`: all bytes of the message so far, from its first byte. Empty lines before a
 * request line (RFC 9112 2.2) are the caller's: skip them with h1_skip_empty first.
 * Returns the head's length including its empty line, 0 when more bytes are needed, or -1
 * with *ret_fault filled. `request`: false for a response head.
 * A head that is there whole at the first look is only found, not judged: h1_parse_* then tells
 * the same fault that would have been told here. */
long h1_head_end(struct h1_scan *scan, bool request, const char *p, size_t n,
                 const struct h1_limits *limits, struct h1_fault *ret_fault);

/* How many bytes of empty lines (CR LF) `p` starts with. A lone CR at the end counts not. */
size_t h1_skip_empty(const char *p, size_t n);

/* Of a request whose head cannot be read, as far as its bytes tell: what it asked for, for the
 * log, and which kinds of answer its client likes. What they do not tell stays untouched; the
 * target is one that begins with a slash, without an end. */
void h1_glance(const char *p, size_t n, struct str *ret_method, struct str *ret_target,
               struct str *ret_accept);
/* `p`, `n`: a complete head, as h1_head_end found it. head->fields must have room for
 * head->cap fields, at least scan.lines; everything else in *head is set here. Spans point
 * into `p`. Returns 0, or -1 with *ret_fault filled. */
int h1_parse_request(const char *p, size_t n, const struct h1_limits *limits, struct head *head,
                     struct h1_fault *ret_fault);

/* As above for a response. `method`: of the request that it answers (HEAD has no body).
 * Faults have the reason R_UPSTREAM_PROTOCOL. 1xx, 204 and 304 and answers to HEAD get
 * FRAMING_NONE whatever their fields say (RFC 9112 6.3). Content-Length with
 * Transfer-Encoding, repeated or malformed lengths, codings but a single chunked, and
 * codings on 1.0 are refused. A status line without reason phrase is taken with and without
 * its blank; status 100 to 599 only. */
int h1_parse_response(const char *p, size_t n, const struct h1_limits *limits,
                      enum method method, struct head *head, struct h1_fault *ret_fault);

/* A trailer section: `p`, `n` from behind the last chunk's line to and with the empty line.
 * Fields that frame, route, authenticate or steer (RFC 9110 6.5.1) are dropped from the
 * result; malformed lines are faults (R_BAD_TRAILER; R_UPSTREAM_PROTOCOL on responses). */
int h1_parse_trailers(const char *p, size_t n, bool request, const struct h1_limits *limits,
                      struct head *head, struct h1_fault *ret_fault);

#endif
