/* Keys from a URL, shared by all workers and kept over reloads: fetched when they are due,
 * fetched once more when a token names a key that is not there, and never dropped because a
 * fetch failed.
 *
 * One jwks for each URL. Each worker has a seat: what it keeps there (its timer, the requests
 * that wait, the instances that use the URL) is touched on its thread alone. One worker at a
 * time fetches, and tells the others. */
#ifndef JWT_JWKS_H
#define JWT_JWKS_H

#include <sys/queue.h>

#include "keyset.h"

#define JWKS_ORIGINS 8

/* How an instance gets at the keys. Made by configure. */
struct jwks_plan {
    struct postern_origin *origin;
    const char *target, *shown; /* shown: the URL without its query, for the log */
    struct postern_str issuer;  /* .p NULL: target has the keys, else the discovery */
    struct {
        struct postern_str name;
        struct postern_origin *origin;
    } origins[JWKS_ORIGINS]; /* where the discovery may say that the keys are */
    size_t origin_count, max_bytes, max_waiting;
    uint64_t refresh_ms, floor_ms, grace_ms;
    uint32_t timeout_ms;
};

struct jwks;
struct jwks_seat;

/* One instance's use of the keys on one worker. */
struct jwks_user {
    LIST_ENTRY(jwks_user) next;
    const struct jwks_plan *plan;
};

/* A request that waits. Lives as long as the request. */
struct jwks_waiter {
    TAILQ_ENTRY(jwks_waiter) next;
    struct jwks_seat *seat; /* NULL: it does not wait */
    struct postern_token token;
    uint64_t deadline_ns;
};

/* What a request gets by on_resume. */
extern const char jwks_woken[], jwks_too_late[];

/* All that the keys need to know about the world. Set once, before anything else. */
void jwks_use(const struct postern_api *api, const struct postern_plugin *plugin);

void *jwks_new(void *unused);  /* for shared(); NULL: no memory */
void jwks_unref(void *object); /* for shared() */

/* The keys that there are now, for this hook; NULL: none came yet. */
const struct keyset *jwks_keys(struct jwks *jwks);

/* On each worker, from start and stop. NULL: no memory. */
struct jwks_seat *jwks_join(struct jwks *jwks, struct postern_worker *w,
                            struct jwks_user *user);
void jwks_leave(struct jwks_seat *seat, struct postern_worker *w, struct jwks_user *user);

enum jwks_advice {
    JWKS_WAIT,   /* jwks_wait() */
    JWKS_LATER,  /* asked not long ago: the key is unknown */
    JWKS_BROKEN, /* the last try failed, or too many wait */
};

/* A token's key is not among the keys. Begins a fetch when it may. */
enum jwks_advice jwks_miss(struct jwks_seat *seat, struct postern_worker *w);
/* Until a fetch brought something, or that time of now_ns() has come. */
void jwks_wait(struct jwks_seat *seat, struct postern_worker *w, struct jwks_waiter *waiter,
               struct postern_token token, uint64_t deadline_ns);
void jwks_unwait(struct jwks_waiter *waiter); /* harmless when it does not wait */

#endif
