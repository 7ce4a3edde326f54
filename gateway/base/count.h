/* Counters that one thread writes and any thread reads. */
#ifndef POSTERN_BASE_COUNT_H
#define POSTERN_BASE_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

/* Adds `n`; (uint64_t)-1 takes one away, of a gauge. The writer's thread only: a load and a
 * store cost a tenth of an addition that others might make too. */
static inline void count_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

#endif
