/* One worker's connection to one Redis, on the worker's loop: it connects by itself, again and
 * again with growing pauses, and tells once when Redis goes away and once when it is back.
 *
 * Commands go out together at the end of the turn and are answered in order. Nothing here
 * waits: a command that is not answered within the target's timeout fails, and with it the
 * connection, for what comes after it would wait as well.
 *
 * A target is shared by all sections that name the same Redis in the same way, and by all
 * workers; each has its own link, used on its thread only. */
#ifndef POSTERN_RATE_LIMIT_REDIS_LINK_H
#define POSTERN_RATE_LIMIT_REDIS_LINK_H

#include <stdatomic.h>

#include "postern_plugin.h"

struct redisReply;
struct redis_link;
struct redis_target;

struct redis_address {
    const char *host; /* an IP address; NULL: `path` */
    const char *path;
    uint16_t port;
    const char *user, *password; /* NULL: none */
    unsigned db;
    uint32_t timeout_ms;
};

/* Main thread. Copies what it is given. NULL: no memory. */
struct redis_target *redis_target_new(const struct postern_api *api,
                                      const struct redis_address *address, const char *name);
void redis_target_free(void *target);

/* The worker's link, for one more user; the first one connects. NULL: no memory. */
struct redis_link *redis_join(struct redis_target *target, struct postern_worker *worker);
/* One user less; with the last one it is closed, and what it has sent fails. */
void redis_leave(struct redis_link *link);

struct redis_call {
    struct redis_call *next;
    struct redis_link *link;
    uint64_t sent;
    /* Called once for each command sent. NULL: it failed. An error of NOSCRIPT comes here too,
     * any other error is a failure. The reply lives for that call. */
    void (*done)(struct redis_call *call, struct redisReply *reply);
};

/* False: Redis is away (or no memory), and done will not be called. */
bool redis_send(struct redis_link *link, struct redis_call *call, int argc, const char **argv,
                const size_t *lengths);
bool redis_is_away(const struct redis_link *link);

#endif
