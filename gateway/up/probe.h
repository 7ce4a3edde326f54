/* One look at a server: can it be connected to, and does it answer as its upstream expects.
 *
 * Over a connection of its own, never blocking, and bounded: in time by the policy's timeout,
 * which covers all of it, and in bytes. One loop's thread (the main thread's). */
#ifndef POSTERN_UP_PROBE_H
#define POSTERN_UP_PROBE_H

#include "net/loop.h"
#include "up/cluster.h"

#define PROBE_BODY (64u * 1024) /* of an answer's body; what comes behind is not looked at */
#define PROBE_WHY  160

/* How a probe ends; the names stand in the metrics. */
enum probe_end {
    PROBE_OK,
    PROBE_CONNECT,
    PROBE_TIMEOUT,
    PROBE_RESET,
    PROBE_PROTOCOL,
    PROBE_STATUS,
    PROBE_BODY_LACKS,
    PROBE_SELF, /* we lack memory or descriptors: says nothing about the server */
    PROBE_ENDS,
};
extern const char *const probe_end_names[PROBE_ENDS];

struct probe_result {
    enum probe_end end;
    char why[PROBE_WHY]; /* what was expected and what came; empty with PROBE_OK */
};

struct probe;
/* Looks at that server as cluster->watch.health says, which is not HEALTH_OFF. on_done follows
 * once, never from inside the call, unless it is cancelled. NULL: no memory. */
struct probe *probe_start(struct loop *loop, struct cluster *cluster, uint32_t server,
                          void (*on_done)(void *arg, const struct probe_result *result),
                          void *arg);
void probe_cancel(struct probe *probe); /* NULL is fine; not from inside on_done */

#endif
