/* A worker as plugins see it. One for each, used on its thread; it stays until the process
 * ends, because a late word of another thread may still look at it. */
#ifndef POSTERN_PLUGIN_STATION_H
#define POSTERN_PLUGIN_STATION_H

#include "plugin/counter.h"
#include "plugin/host.h"

#define STATIONS_MAX 256

struct postern_worker {
    struct loop *loop; /* NULL: it has ended */
    unsigned index, count;
    void *owner; /* of the room above */
    struct counters counters;
};

/* Main thread, before the worker's thread begins. NULL: no memory. */
struct postern_worker *station_open(struct loop *loop, unsigned index, unsigned count,
                                    void *owner);
/* On the worker's thread, when it ends: nothing comes to it any more. */
void station_close(struct postern_worker *worker);
/* All stations, for who sums what they counted. Main thread. */
size_t station_counters(struct counters *ret[STATIONS_MAX]);
/* The threads have ended: their memory goes. Main thread. */
void stations_free(void);
void station_fill(struct postern_api *api);

#endif
