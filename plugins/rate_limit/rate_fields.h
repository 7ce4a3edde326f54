/* What a client is told about its limits: the fields of draft-ietf-httpapi-ratelimit-headers
 * (revisions 09 to 11 agree on this much), and the older three.
 *
 *      RateLimit-Policy: "100/s";q=100;w=1, "5000/h";q=5000;w=3600
 *      RateLimit: "100/s";r=42;t=1, "5000/h";r=4711;t=1
 *
 * Pure functions; texts are not NUL-terminated. */
#ifndef POSTERN_RATE_LIMIT_RATE_FIELDS_H
#define POSTERN_RATE_LIMIT_RATE_FIELDS_H

#include "rate_limit/gcra.h"

#define RATE_NAME_MAX  48 /* of "NUMBER/TIME" */
#define RATE_STATE_MAX (GCRA_MAX * 128)

/* What does not change from request to request. */
struct rate_fields {
    char policy[GCRA_MAX * 128];
    char label[GCRA_MAX][RATE_NAME_MAX + 8]; /* how each window's part of RateLimit begins */
    size_t policy_n, label_n[GCRA_MAX];
};

void rate_fields_set(struct rate_fields *f, const struct gcra *g);
size_t rate_state(const struct rate_fields *f, const struct gcra *g,
                  const struct gcra_verdict *v, char out[RATE_STATE_MAX]);

/* "100/s", "100/500ms" */
size_t rate_name(const struct gcra_window *w, char out[RATE_NAME_MAX]);
/* The window that the older three tell of: the one with the least left. */
unsigned rate_tightest(const struct gcra *g, const struct gcra_verdict *v);
size_t rate_number(uint64_t n, char out[20]);

#endif
