/* Whose requests are counted together: the option `by` of rate_limit and concurrency.
 *
 * A key is made of one or more parts: client_ip, credential, header:NAME, path, route. Where a
 * request has no credential, or not that header, the client's address takes its place, marked
 * as what it is, so nobody gets away from a limit by leaving something out, and nobody can
 * name himself like somebody's address. IPv6 clients are their network (`ipv6_prefix`, /64):
 * one customer has at least that many addresses. The peers of a unix socket have no address;
 * all of one listener's are one client.
 *
 * Filled in once by limit_by_read, then read-only: any thread. */
#ifndef POSTERN_LIMIT_BY_H
#define POSTERN_LIMIT_BY_H

#include "limit/siphash.h"
#include "postern_plugin.h"

#define LIMIT_BY_MAX 4

enum limit_by_kind {
    LIMIT_BY_IP = 1,
    LIMIT_BY_CREDENTIAL,
    LIMIT_BY_HEADER,
    LIMIT_BY_PATH,
    LIMIT_BY_ROUTE,
    LIMIT_BY_UNIX, /* what became of an address that is none: the listener's name */
};

struct limit_by_part {
    enum limit_by_kind kind;
    char header[64]; /* LIMIT_BY_HEADER: its name, in lower case */
};

struct limit_by {
    struct limit_by_part parts[LIMIT_BY_MAX];
    unsigned count;
    unsigned v6_bytes; /* of an IPv6 address */
    uint64_t secret[2];
};

/* What the tables of options have in common. */
#define LIMIT_BY_DEFAULT "client_ip"
#define LIMIT_BY_HELP                                                                          \
    "Whose requests count together: client_ip, credential, header:NAME, path, route, or a "    \
    "list of these."
#define LIMIT_V6_HELP "How many bits of an IPv6 address make a client: 32 to 128, in eights."

/* False: a fault was reported. `by` and `v6` are the values of the options of these numbers. */
bool limit_by_read(const struct postern_api *api, struct postern_setup *s, int by_option,
                   const struct postern_values *by, int v6_option,
                   const struct postern_values *v6, struct limit_by *ret);
/* "client_ip,header:x-tenant": the same for what counts alike. Cut off at `max`, NUL included.
 */
void limit_by_name(const struct limit_by *by, char *out, size_t max);

/* The key of a request, under this process's secret. */
uint64_t limit_by_hash(const struct limit_by *by, const struct postern_api *api,
                       struct postern_request *r);

/* The same key part by part, for who writes it down: `kind` is what the part was taken from in
 * the end, `bytes` are as they are: addresses in network order. */
void limit_by_each(const struct limit_by *by, const struct postern_api *api,
                   struct postern_request *r,
                   void (*part)(void *arg, enum limit_by_kind kind, struct postern_str bytes),
                   void *arg);

#endif
