/* The names of servers and the addresses they have now: a book of one configuration.
 *
 * Names are added, all looked up at once in a bounded wait, and from resolver_watch on each is
 * looked up again on the loop when its record expires. A look-up that fails changes nothing:
 * the last good addresses stay, and it is tried again. /etc/hosts comes before DNS. Main thread
 * only. */
#ifndef POSTERN_UP_RESOLVER_H
#define POSTERN_UP_RESOLVER_H

#include "up/dns.h"

#define RESOLVE_MAX (2 * DNS_MAX) /* addresses of one name that are used */

/* An address of a server's text. */
struct resolved {
    struct addr addr;
    uint32_t weight; /* 1 to 1000, as its SRV record says; 0: it is not of one */
    bool backup;     /* its record's priority is behind that of others with addresses */
};

struct resolver;

/* Called from tasks of the loop or from its callbacks; must not free the resolver. */
struct resolver_ops {
    /* Some names have other addresses than before; once for all that changed in a turn. */
    void (*on_change)(void *arg);
    /* A look-up failed, the first after one that did not; the name keeps `count` addresses. */
    void (*on_failed)(void *arg, const char *host, const char *why, size_t count);
    /* The first that did not fail after ones that did. */
    void (*on_found)(void *arg, const char *host, size_t count);
};

/* `servers`: as in dns_new. NULL: no memory. */
struct resolver *resolver_new(const struct addr *servers, size_t count);
void resolver_free(struct resolver *resolver); /* NULL is fine */

/* A server's text: "127.0.0.1:80", "[::1]:80", "unix:/path", "name:80" or "_http._tcp.name",
 * whose SRV records name targets and ports; only the last two add a name, and only once. 0 or
 * -ENOMEM. */
int resolver_add(struct resolver *resolver, struct str text);
/* Names that `old` (NULL: nothing) has too begin with the addresses they have there. */
void resolver_inherit(struct resolver *resolver, const struct resolver *old);
/* Looks up all names at once and blocks, at most `ms` milliseconds. */
void resolver_wait(struct resolver *resolver, uint64_t ms);
/* The same on the loop, which lives longer: tell_it is called from a task when all of them are
 * looked up, or when the time is over; then resolver_watch may follow. Must not free the
 * resolver. */
void resolver_start(struct resolver *resolver, struct loop *loop, uint64_t ms,
                    void (*tell_it)(void *arg), void *arg);
/* Keeps the names up to date. The loop lives longer. */
void resolver_watch(struct resolver *resolver, struct loop *loop,
                    const struct resolver_ops *ops, void *arg);

/* The addresses of a server's text, those of a name sorted so that the order never depends on
 * the answer's. Returns how many. *ret_why: NULL when the last look-up went well, else a text
 * that says why not. `resolver` may be NULL when there are no names. */
size_t resolver_get(const struct resolver *resolver, struct str text,
                    struct resolved ret[RESOLVE_MAX], const char **ret_why);

#endif
