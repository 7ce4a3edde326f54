/* Plugins at work on a request: their hooks in order, what they say, and waiting for them.
 *
 * A request that plugins have to do with has a struct postern_request in its arena, until its
 * log hooks have run. One worker's thread. */
#ifndef POSTERN_PROXY_PLUGINS_H
#define POSTERN_PROXY_PLUGINS_H

#include "plugin/phases.h"
#include "plugin/station.h"
#include "proxy/exchange.h"

/* A header that a plugin wants in the answer, whichever comes. */
struct kept_header {
    struct kept_header *next;
    struct str name, value;
    bool set; /* replaces what is there */
};

struct fact {
    struct fact *next;
    struct str name, value;
};

/* Pieces of a body between two hooks. */
struct pieces {
    struct slice *list;
    unsigned count, cap;
};

struct postern_request {
    struct exchange *ex;
    const struct phases *phases;
    const struct conf_route *route; /* that of a preflight is not the exchange's */
    struct kept_header **last_kept;

    /* Zero at first. */
    enum phase phase;
    unsigned at;       /* of the instance whose hook runs or is waited for */
    unsigned begun;    /* hooks of the request phase (or preflight phase) that were called */
    bool is_preflight; /* it was the latter */
    bool responded;    /* the response hooks have run */
    bool filters_request, filters_response; /* bodies pass through hooks */
    bool eventful; /* the hook did more than go on: it waits, waited, or has answered */
    bool waiting;  /* within the request phase */
    bool timed;    /* `due` is set for the instance at `at` */
    bool has_due;
    bool answered;
    struct head *head; /* the answer's, within response hooks; NULL otherwise */
    void **slots;
    struct kept_header *kept;
    struct fact *facts;

    /* From here on nothing is set before it is used. */
    struct pieces in, out;      /* there are hooks for bodies */
    struct postern_token token; /* waiting */
    struct deadline due;        /* has_due */
    /* The answer of a plugin: answered. */
    uint16_t status;
    enum reason reason; /* R_NONE: no refusal */
    uint64_t limit, actual;
    struct str detail, type, body; /* body .p NULL: a problem where there is a reason */
};

/* Fills host_api: once, on the main thread, before a configuration is loaded. */
void plugins_init(void);

/* Runs the request hooks. Goes on with exchange_go, or ends in an answer, at once or later. */
void plugins_request(struct exchange *ex, const struct phases *phases);
/* A request that no route takes: where it is a preflight and a plugin wants such, it gets its
 * answer here. False: it is an ordinary one. */
bool plugins_preflight(struct exchange *ex);
/* The exchange is answered or ends: who is waited for hears of it. */
void plugins_cancel(struct exchange *ex);
/* A word for who waits: `waiter` is its struct postern_request. */
void plugins_resume(void *waiter, void *result);
/* The answer's head is complete. False: no memory. */
bool plugins_response(struct exchange *ex, struct head *head);
void plugins_log(struct exchange *ex);

/* A configuration takes effect on this worker, or is over there. */
void plugins_start(struct postern_worker *worker, const struct conf *conf);
void plugins_stop(struct postern_worker *worker, const struct conf *conf);

/* plugin_body.c. Where an instance wants bodies: says that their length is not known, once the
 * head is about to go on; then pieces go through its hooks into the flow. All may end in
 * exchange_fail. */
void plugins_frame_request(struct exchange *ex);
void plugins_frame_response(struct exchange *ex, struct head *head);
bool plugins_refeed(struct exchange *ex);
void plugins_body(struct exchange *ex, struct flow *flow, struct slice slice);
bool plugins_body_last(struct exchange *ex, struct flow *flow); /* false: it failed */
void plugin_body_fill(struct postern_api *api);

/* plugin_request.c: the part of the API that is about requests. */
void plugin_request_fill(struct postern_api *api);

#endif
