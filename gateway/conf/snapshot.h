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
#include "up/split.h"

struct snapshot {
    _Atomic uint32_t refs;
    uint64_t generation; /* 1 for the first */
    struct conf *conf;
    struct router *router;
    struct cluster **clusters; /* as conf->upstreams */
    struct split **splits;     /* by split.index of their routes */
    unsigned *route_names;     /* what stands for them in the metrics: as conf->routes */
    unsigned *listener_names;  /* as conf->listeners */
};

/* Takes over `conf` (also when it fails). Names are resolved; clusters of `old` (NULL: none)
 * that did not change are adopted. Faults: conflicting routes, too many addresses. NULL with at
 * least one fault. A name that does not resolve is only a warning: the upstream has the
 * servers that do. */
struct snapshot *snapshot_new(struct conf *conf, const struct snapshot *old,
                              struct conf_faults *faults, struct conf_faults *warnings);
struct snapshot *snapshot_ref(struct snapshot *snapshot);
void snapshot_unref(struct snapshot *snapshot); /* any thread; NULL is fine */

/* The index of the listener of that name, or -1. */
int snapshot_listener(const struct snapshot *snapshot, const char *name);

#endif
