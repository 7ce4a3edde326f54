#include "up/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "up/smooth.h"

struct split *split_new(const uint32_t *weights, uint32_t count, uint64_t turn)
{
    struct split *split = aligned_alloc(_Alignof(struct split), sizeof(*split));
    if (!split)
        return NULL;
    memset(split, 0, sizeof(*split));
    split->count = count;
    split->ends = mem_alloc(count * sizeof(*split->ends));
    if (!split->ends || !smooth_order(weights, count, &split->order, &split->order_len)) {
        split_free(split);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        split->ends[i] = split->total += weights[i];
    atomic_init(&split->counter, turn);
    return split;
}

void split_free(struct split *split)
{
    if (!split)
        return;
    mem_free(split->order);
    mem_free(split->ends);
    free(split);
}

uint32_t split_pick(struct split *split, uint64_t hash)
{
    if (!hash) {
        uint64_t turn = atomic_fetch_add_explicit(&split->counter, 1, memory_order_relaxed);
        return split->order[turn % split->order_len];
    }
    /* Behind it a hashing balance may choose by the same key: bits of its own (splitmix64's
     * second half), or each side would only ever see half the servers' keys. */
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9ull;
    uint64_t point = (hash ^ hash >> 27) % split->total;
    uint32_t i = 0;
    while (split->ends[i] <= point)
        i++;
    return i;
}
