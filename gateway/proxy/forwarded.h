/* Who asked, before and behind us: X-Forwarded-* and Forwarded (RFC 7239). */
#ifndef POSTERN_PROXY_FORWARDED_H
#define POSTERN_PROXY_FORWARDED_H

#include "proxy/exchange.h"

/* Sets ex->trusted, and ex->client_ip to the right-most address that trusted proxies name and
 * that is none of theirs. */
void forwarded_identify(struct exchange *ex);

/* What goes on to the upstream: made before the client's fields are thrown away, added behind
 * it. */
struct forwarded {
    struct str x_for, rfc7239; /* .p NULL: not wanted */
};
bool forwarded_make(struct exchange *ex, struct forwarded *ret); /* false: no memory */
bool forwarded_add(struct exchange *ex, const struct forwarded *forwarded);
/* Whether a client's field of that id, one of these, goes on as it came. */
bool forwarded_passes(const struct exchange *ex, enum field_id id);

/* The client's address with its port, as far as that is known. */
struct addr forwarded_client(const struct exchange *ex);
/* How the client speaks and whom it calls (host[:port]): to us, or to the trusted proxy in
 * front that says so in X-Forwarded-Proto and -Host. */
bool forwarded_is_https(const struct exchange *ex);
struct str forwarded_host(const struct exchange *ex);

#endif
