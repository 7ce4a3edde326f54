/* The PROXY protocol, versions 1 and 2: a header in front of a connection's bytes that says
 * whose it is, as load balancers send it. Pure; any thread. */
#ifndef POSTERN_NET_PROXY_PROTOCOL_H
#define POSTERN_NET_PROXY_PROTOCOL_H

#include "net/addr.h"

/* The longest header that is taken: version 2 with what a balancer may add to the addresses. */
#define PROXY_PROTOCOL_MAX 4096

struct proxy_header {
    /* The balancer speaks for itself (LOCAL), or does not know (UNKNOWN, UNSPEC): the
     * connection's own addresses count, and the two below are not set. */
    bool is_local;
    struct addr source, destination;
};

/* The header at the front of `p`, all or nothing: its length, 0 when it is not complete (every
 * byte seen belongs to it then), or -EINVAL with *ret_offset the byte at fault as soon as no
 * header can come of it any more. */
long proxy_protocol_read(const char *p, size_t n, struct proxy_header *ret, size_t *ret_offset);

#define PROXY_PROTOCOL_WRITE 232 /* version 2 with two unix addresses */
/* Writes a header of `version` (1 or 2) for a connection from `source` to `destination`;
 * returns its length. An address of another family than the source's is written as if unknown;
 * without a source that the version has words for, so is the whole. NULL: unknown. */
size_t proxy_protocol_write(char out[PROXY_PROTOCOL_WRITE], unsigned version,
                            const struct addr *source, const struct addr *destination);

#endif
