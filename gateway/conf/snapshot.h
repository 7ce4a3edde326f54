/* A snapshot: one configuration in force, everything a worker looks at for a request.
 *
 * Made on the main thread from a checked file, immutable afterwards. Counted by reference:
 * the main thread and each worker hold one; a worker lets go when the last exchange that
 * began under it has ended, so no shared word is written for a request. */
#ifndef POSTERN_CONF_SNAPSHOT_H
#define POSTERN_CONF_SNAPSHOT_H

#include <stdatomic.h>

#include "conf/conf.h"
#include "conf/route.h"
#include "net/tls_front.h"
#include "up/resolver.h"
#include "up/split.h"

struct snapshot_base; /* what snapshots of one configuration share */

struct snapshot {
    _Atomic uint32_t refs;
    uint64_t generation;        /* 1 for the first */
    struct snapshot_base *base; /* owns what stands between here and the clusters */
    struct conf *conf;
    struct router *router;
    struct split **splits;     /* by split.index of their routes */
    unsigned *route_names;     /* what stands for them in the metrics: as conf->routes */
    unsigned *listener_names;  /* as conf->listeners */
    struct cluster **clusters; /* as conf->upstreams */
    struct tls_front **fronts; /* as conf->listeners; NULL: without TLS */
};

/* The names of all servers of `conf`, looked up: blocks, for about two seconds at most. `old`
 * (NULL: none) has the addresses of names that cannot be looked up now. NULL: no memory. Main
 * thread. */
struct resolver *snapshot_names(const struct conf *conf, const struct resolver *old);
/* The same without looking them up, which is then resolver_start's. */
struct resolver *snapshot_book(const struct conf *conf, const struct resolver *old);
#define SNAPSHOT_NAMES_MS 2000 /* a start and a reload wait so long for names */

/* Takes over `conf` (also when it fails). Servers have the addresses that `names` has; clusters
 * of `old` (NULL: none) that did not change are adopted. Faults: conflicting routes, too many
 * addresses. NULL with at least one fault. A name that does not resolve is only a warning: the
 * upstream has the servers that do. */
struct snapshot *snapshot_new(struct conf *conf, const struct snapshot *old,
                              const struct resolver *names, struct conf_faults *faults,
                              struct conf_faults *warnings);
/* The same configuration, and so the same generation, with the addresses that `names` has now.
 * NULL with a fault. */
struct snapshot *snapshot_renew(const struct snapshot *old, const struct resolver *names,
                                struct conf_faults *faults);
/* As snapshot_renew; the `index`-th listener has `front` (a reference is taken). */
void snapshot_set_front(struct snapshot *snapshot, size_t index, struct tls_front *front);
/* Certificates that are not valid now: faults; those that were in force `before` (NULL: none)
 * and as bad are only warned of. */
void snapshot_check_dates(const struct snapshot *snapshot, const struct snapshot *before,
                          struct conf_faults *faults, struct conf_faults *warnings);
struct snapshot *snapshot_ref(struct snapshot *snapshot);
void snapshot_unref(struct snapshot *snapshot); /* any thread; NULL is fine */

/* The index of the listener of that name, or -1. */
int snapshot_listener(const struct snapshot *snapshot, const char *name);

#endif
