/* What plugins do at one place of a configuration, flattened: for each phase the hooks that
 * there are, in order. Made when a configuration is loaded, immutable, shared by all places
 * where the same instances count. */
#ifndef POSTERN_PLUGIN_PHASES_H
#define POSTERN_PLUGIN_PHASES_H

#include "plugin/host.h"

enum phase {
    PHASE_REQUEST,
    PHASE_PREFLIGHT,
    PHASE_RESPONSE, /* the last in order comes first, as in PHASE_RESPONSE_BODY */
    PHASE_LOG,
    PHASE_REQUEST_BODY,
    PHASE_RESPONSE_BODY,
    PHASES
};

/* What a call needs lies side by side: hooks run for every request. */
struct hook {
    union {
        postern_decide *decide;
        postern_hear *hear;
        postern_pass *pass;
    };
    void *self;
    unsigned at; /* of the instance among all */
    /* How many hooks of the request phase [0], or of the preflight phase [1], must have been
     * called before the instance knows of the request; 0: it asks for none. */
    unsigned need[2];
    const struct instance *instance;
};

struct phases {
    const struct instance **instances; /* in order */
    unsigned count;
    struct {
        struct hook *hooks;
        unsigned count;
    } of[PHASES];
};

/* `instances`: at most PHASES_INSTANCES, in any order. NULL: no memory. */
#define PHASES_INSTANCES 64
struct phases *phases_new(const struct instance *const *instances, unsigned count);
void phases_free(struct phases *phases); /* NULL is fine */

#endif
