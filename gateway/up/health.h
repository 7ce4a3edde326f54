/* The one who watches all servers, for all workers: sends probes, puts servers out and takes
 * them back, and lets them come back gently.
 *
 *   up ──probes fail──▶ down ──probes succeed──┐
 *   up ──requests fail─▶ ejected ──time is up──┤──▶ warming ──workers are warm──▶ up, easing in
 *   up ──operator──────▶ draining ──operator───┘
 *
 * The reasons to be out are independent: a server is back when the last of them is gone. A
 * server that a configuration brings is up until proven down, but its first probe is waited
 * for before the configuration takes effect, and decides alone. Lives on the main thread; only
 * health_tell is for others. */
#ifndef POSTERN_UP_HEALTH_H
#define POSTERN_UP_HEALTH_H

#include "up/probe.h"

struct health;

enum health_event {
    HEALTH_WENT_DOWN,
    HEALTH_CAME_UP,
    HEALTH_WAS_EJECTED,
    HEALTH_RETURNED, /* from an ejection */
    HEALTH_DRAINS,
    HEALTH_IS_READY, /* an operator put it back */
};

struct health_change {
    enum health_event event;
    const struct cluster *cluster;
    uint32_t server;
    uint32_t left; /* servers of the cluster that are not out */
    uint32_t ms;   /* of an ejection */
    char why[PROBE_WHY];
};

/* What others have to do; none may call back into health but for what is said here. */
struct health_ops {
    /* The first probes of what health_prepare was given have ended. */
    void (*on_prepared)(void *owner);
    void (*on_change)(void *owner, const struct health_change *change);
    /* It comes back: begin with vitals_warm and have each worker warm it (vitals_warmed). */
    void (*warm)(void *owner, struct cluster *cluster, uint32_t server);
    /* It is drained: workers close what they keep open to it unused. */
    void (*drain)(void *owner, struct cluster *cluster, uint32_t server);
};

/* NULL: no memory. `loop` lives longer. */
struct health *health_new(struct loop *loop, const struct health_ops *ops, void *owner);
void health_free(struct health *health); /* NULL is fine */

/* A configuration with these clusters is being prepared: what is new in it is probed for the
 * first time. 1: on_prepared follows; 0: there is nothing to wait for; -ENOMEM: as if it had
 * not been called. */
int health_prepare(struct health *health, struct cluster *const *clusters, size_t count);
/* It is in force: what it has not is watched no more, and how it watches holds from now on. */
void health_switch(struct health *health);
/* It will not be. */
void health_forget(struct health *health);

/* An operator takes a server of a cluster in force out, or puts it back. */
void health_drain(struct health *health, struct vitals *vitals, bool drain);

/* Why it is out, or "". */
const char *health_why(const struct vitals *vitals);
/* What happened to it since it came; NULL: it is not watched. */
struct health_counts {
    uint64_t probes[PROBE_ENDS], ejections;
};
const struct health_counts *health_counts(const struct vitals *vitals);

/* It was ejected just now. Any thread. */
void health_tell(struct vitals *vitals);
/* For loop_discard: whether a message is one of health_tell's, which is then done with. */
bool health_drop(struct message *message);

#endif
