/* The compiled lookup from a request to its route: hosts by hash, paths by a radix tree.
 *
 * Built on the main thread when a configuration is loaded, immutable afterwards and read by
 * all workers without a lock or an allocation. */
#ifndef POSTERN_CONF_ROUTE_H
#define POSTERN_CONF_ROUTE_H

#include "conf/conf.h"
#include "http/head.h"

struct router;

/* Precedence: the longest literal host (an exact one before *.suffix, a longer suffix before
 * a shorter, any host last), then the most specific path, segment by segment (literal before
 * {x} before {x...}), then more conditions (methods count as one, each match_header and
 * match_query as one), then file order. A route that does not
 * match falls back to the next best. A route that gets no request at all, since another has
 * its host, path, listeners, methods and conditions and comes first, is a fault.
 * NULL when there are faults or no memory. */
struct router *router_new(const struct conf *conf, struct conf_faults *faults);
void router_free(struct router *router);
/* The faults that router_new would report of a configuration that has others. */
void router_check(const struct conf *conf, struct conf_faults *faults);

struct route_match {
    const struct conf_route *route; /* NULL: none matches */
    size_t index;                   /* of the route in conf->routes */
    /* with route NULL: paths matched but not the method; which would, as an Allow value
     * (written into `allow`, bounded) */
    bool wrong_method;
    struct str captures[ROUTE_CAPTURES]; /* spans of `path` */
    char allow[256];
};

/* `listener`: index in conf->listeners. `host`: lower case, without port and trailing dot.
 * `path`: in normal form (path_normalise). `method`: as it came; a route for GET does not
 * take HEAD unless it says so. `head`: what conditions look at, its fields and query; NULL: a
 * request without. */
void router_find(const struct router *router, size_t listener, struct str host, struct str path,
                 struct str method, const struct head *head, struct route_match *ret);

/* Why that request gets that route: lines of text for --explain. */
void router_explain(const struct router *router, size_t listener, struct str host,
                    struct str path, struct str method, const struct head *head, FILE *out);

#endif
