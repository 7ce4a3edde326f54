/* The plugin's inside: one instance for each section, as rate_conf makes it and the hooks in
 * rate_limit.c use it. Read-only once configured; what changes is in the table (shared by all
 * workers and by the instances before and after a reload) and in `redis` (a part for each
 * worker). */
#ifndef POSTERN_RATE_LIMIT_RATE_LIMIT_H
#define POSTERN_RATE_LIMIT_RATE_LIMIT_H

#include "limit/limit_by.h"
#include "postern_plugin.h"
#include "rate_limit/rate_fields.h"
#include "rate_limit/rate_table.h"

enum rate_down { RATE_LOCAL, RATE_OPEN, RATE_CLOSED };
enum rate_headers { RATE_DRAFT, RATE_LEGACY, RATE_BOTH, RATE_NONE };

struct rate_redis;

struct rate_limit {
    struct gcra gcra;
    struct limit_by by;
    struct rate_fields fields;
    enum rate_headers headers;
    bool dry_run;
    struct slots *table;      /* api->shared owns it */
    struct rate_redis *redis; /* NULL: limits are this process's own */
    enum rate_down down;
    int refused, would_refuse, displaced, without_redis; /* counters */
};

extern const struct postern_api *rate_api; /* what load() was given */
enum {
    RATE_O_RATE,
    RATE_O_BURST,
    RATE_O_BY,
    RATE_O_COST,
    RATE_O_DRY_RUN,
    RATE_O_HEADERS,
    RATE_O_KEYS,
    RATE_O_IPV6_PREFIX,
    RATE_O_REDIS,
    RATE_O_REDIS_DOWN,
    RATE_O_REDIS_USER,
    RATE_O_REDIS_PASSWORD,
    RATE_O_REDIS_DB,
    RATE_O_REDIS_PREFIX,
    RATE_O_REDIS_TIMEOUT,
    RATE_OPTIONS,
};
extern const struct postern_option rate_options[RATE_OPTIONS];

bool rate_configure(struct postern_setup *s, const struct postern_values *values,
                    void **ret_instance);
void rate_discard(void *instance);

#endif
