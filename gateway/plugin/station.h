/* A worker as plugins see it: what it counts, who waits on it, its timers and descriptors, and
 * the way for other threads to reach it. One for each, used on its thread but for resume, post
 * and retire; it stays until the process ends, because a late word of another thread may still
 * look at it. */
#ifndef POSTERN_PLUGIN_STATION_H
#define POSTERN_PLUGIN_STATION_H

#include "plugin/counter.h"
#include "plugin/host.h"

#define STATIONS_MAX 256

struct wait_chunk;
struct timer_slot;
struct station_watch;

#define WAIT_CHUNK  256 /* places to wait in, taken together */
#define WAIT_CHUNKS 1024

struct postern_worker {
    struct loop *loop;
    unsigned index, count;
    void *owner; /* of the room above */
    struct counters counters;
    /* Who waits: `result` comes from resume(). On the worker's thread. */
    void (*on_resume)(void *waiter, void *result);

    _Atomic bool open;        /* it takes letters */
    _Atomic unsigned posting; /* threads that are at it just now */
    struct wait_chunk *_Atomic waits[WAIT_CHUNKS];
    struct wait_place *free_wait;
    unsigned wait_count;
    uint64_t generation;
    struct timer_slot *timers;
    uint32_t timer_count, free_timer; /* the latter + 1; 0: none is free */
    struct station_watch *watches;
};

/* Main thread, before the worker's thread begins. NULL: no memory. */
struct postern_worker *station_open(struct loop *loop, unsigned index, unsigned count,
                                    void *owner);
/* On the worker's thread, when it ends: nothing comes to it any more but the letters that are
 * on their way, which loop_discard drops. Timers and watches end. */
void station_close(struct postern_worker *worker);
/* All stations, for who sums what they counted. Main thread. */
size_t station_counters(struct counters *ret[STATIONS_MAX]);
/* The threads have ended: their memory goes. Main thread. */
void stations_free(void);
void station_fill(struct postern_api *api);

/* A place to wait in. False: no memory, or too many wait. */
bool station_wait(struct postern_worker *worker, void *waiter, struct postern_token *ret_token);
/* Nobody waits there any more; what comes is dropped. Harmless when it came already. */
void station_leave(struct postern_worker *worker, struct postern_token token);

#endif
