/* The access log: one line for each request, written by the worker into its ring.
 *
 * JSON or combined, always valid UTF-8, credentials in query strings masked. Worker's thread;
 * nothing here blocks or allocates. */
#ifndef POSTERN_PROXY_ACCESS_H
#define POSTERN_PROXY_ACCESS_H

#include "base/log.h"
#include "conf/conf.h"
#include "http/reason.h"

/* Everything a line says. Spans may hold any bytes; .p NULL means "not known" and is written
 * as null (JSON) or "-" (combined). Times are nanoseconds; UINT64_MAX: not known. */
struct access_record {
    uint64_t wall_ms; /* when the request's first byte was read */
    struct str req_id, trace_id, client_ip, proto, sni, method, host, path, query;
    struct str route, upstream, server, credential, user_agent, referer;
    struct str tls_version, tls_cipher, client_subject; /* written with tls only */
    bool tls, reused;
    uint16_t status, upstream_status; /* 0: none */
    enum reason reason;
    size_t offset;                /* of the byte at fault, with bad_request.*; 0 otherwise */
    uint64_t bytes_in, bytes_out; /* body bytes received from and sent to the client */
    uint64_t dur, gw, connect, ttfb;
    unsigned attempts; /* tries at upstreams, the first included */
    uint64_t generation;
};

/* The part of the configuration that decides what is logged. */
struct access_policy {
    bool combined;
    uint32_t sample;      /* every n-th successful request; 1: all */
    uint64_t slower_than; /* ns: keep only what took at least this long */
    /* Parameters whose values are masked beside the usual ones, as conf.h has them. */
    struct conf_strs secrets;
};

/* Whether that request is to be logged: failures (status >= 400 or a reason) always are,
 * others by time and then by sample. `counter`: the worker's own, counted up here. */
bool access_wants(const struct access_policy *policy, uint32_t *counter,
                  const struct access_record *record);
/* Formats and commits the line. Long values are cut to a bound and end in "...". */
void access_write(struct log_ring *ring, const struct access_policy *policy,
                  const struct access_record *record);

/* The formatting alone, for tests: returns the length of the line with its LF. `cap`:
 * at least ACCESS_LINE_MAX, which no line exceeds; otherwise 0. */
#define ACCESS_LINE_MAX 8192
size_t access_format(char *out, size_t cap, const struct access_policy *policy,
                     const struct access_record *record);

#endif
