/* Counters of plugins: postern_plugin_NAME_total{plugin, place}.
 *
 * Each worker has numbers of its own, which only it writes; the main thread sums them while
 * they change. Counters are made on the main thread and live as long as the process, so that a
 * section that comes back goes on where it stood; their number is bounded. */
#ifndef POSTERN_PLUGIN_COUNTER_H
#define POSTERN_PLUGIN_COUNTER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTER_CHUNK  256
#define COUNTER_CHUNKS 256

/* One worker's numbers. Zeroed memory is a set where nothing has been counted. */
struct counters {
    struct counter_chunk *_Atomic chunks[COUNTER_CHUNKS];
};
void counters_done(struct counters *counters);
/* On the thread that owns the set. A number that is no counter's is harmless. */
void counters_add(struct counters *counters, int counter, uint64_t n);

/* The number of the counter, the same one for the same names; -1: no memory, too many, or no
 * name ([a-z][a-z0-9_]*). Main thread, as the rest. */
int counter_id(const char *plugin, const char *place, const char *name, const char *help);

struct counter_view {
    const char *plugin, *place, *name, *help;
    uint64_t value; /* all sets together */
};
/* Calls each() for all counters, those of one name behind each other. */
void counter_each(struct counters *const *sets, size_t count,
                  void (*each)(void *arg, const struct counter_view *view), void *arg);

#endif
