/* What was decided about a request: a copy of the parts of the answer that are needed. */
#ifndef FORWARD_AUTH_DECISION_H
#define FORWARD_AUTH_DECISION_H

#include "forward_auth.h"

#define DECISION_HEADERS 64 /* of one answer; further ones are left out */

struct decision {
    unsigned status;  /* 0: nobody decided */
    uint64_t keep_ms; /* for how long it may be used again; 0: not at all */
    size_t header_count;
    struct postern_header headers[DECISION_HEADERS];
    struct postern_str type, body; /* of a no; .p NULL: none */
};

/* NULL: no memory. For free(). */
struct decision *decision_new(const struct forward_auth *auth,
                              const struct postern_reply *reply);

static inline bool decision_is_yes(const struct decision *decision)
{
    return decision->status >= 200 && decision->status < 300;
}

/* 3xx and 4xx are answers for the client; anything else is no decision. */
static inline bool decision_is_no(const struct decision *decision)
{
    return decision->status >= 300 && decision->status < 500;
}

#endif
