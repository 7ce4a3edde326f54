/* What a head gains and loses on its way through the gateway. */
#ifndef POSTERN_PROXY_FORWARD_H
#define POSTERN_PROXY_FORWARD_H

#include "proxy/exchange.h"

/* Who asks, and what for: host, normal path, client address behind trusted proxies, request
 * and trace id; hop-by-hop fields are taken out. Before the route is known. R_NONE, or why the
 * request is refused. */
enum reason forward_identify(struct exchange *ex, size_t *ret_offset);

/* Gives the exchange its request and trace id: for what is refused before its head was read.
 * False: no memory. */
bool forward_name(struct exchange *ex);

/* Makes the request's head what the upstream gets: X-Forwarded-*, Via, X-Request-Id and
 * traceparent in, the route's edits and rewrite. Once for each exchange. */
enum reason forward_request(struct exchange *ex);

/* How far a TRACE or an OPTIONS with Max-Forwards may go (RFC 9110 7.6.2), and one less behind
 * us. */
enum hops { HOPS_ON, HOPS_HERE, HOPS_BAD, HOPS_NO_MEMORY };
enum hops forward_hops(struct exchange *ex);

/* Whether the client expects the answer of a gRPC server. */
bool forward_is_grpc(const struct exchange *ex);
/* How long the client still waits, ms: as a trusted proxy says, or its Grpc-Timeout. False: it
 * does not say. */
bool forward_deadline(const struct exchange *ex, uint64_t *ret_ms);
/* Before it goes to another server: a Host that names the server names that one, and there is
 * less time. */
void forward_again(struct exchange *ex);
/* The PROXY header in front of the request, on a connection that is nobody else's. */
void forward_preface(struct exchange *ex);

/* Makes a response's head what the client gets. Interim ones too. R_NONE or R_NO_MEMORY. */
enum reason forward_response(struct exchange *ex, struct head *head);

/* A cookie's value in the request; .p NULL: it has none of that name. */
struct str forward_cookie(const struct head *head, struct str name);

/* The hash of what `on` takes from the request; 0: it has none. `name`: the header's or
 * cookie's. */
uint64_t forward_hash(const struct exchange *ex, enum conf_hash_on on, const char *name);

/* The route's edits of one side. False: no memory. */
bool forward_edit(struct exchange *ex, const struct conf_edit *edit, struct head *head);

#endif
