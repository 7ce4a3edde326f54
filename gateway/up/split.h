/* A split: whose turn it is among some that share requests out by weight.
 *
 * Made on the main thread; immutable afterwards but for its counter, which all workers share,
 * so that turns are exact over all of them. */
#ifndef POSTERN_UP_SPLIT_H
#define POSTERN_UP_SPLIT_H

#include <stdatomic.h>
#include <stdint.h>

struct split {
    uint16_t *order; /* smooth weighted round robin, expanded */
    uint32_t order_len;
    uint32_t *ends; /* where each one's part of `total` ends */
    uint32_t count, total;
    /* The one word that every request of every worker writes. */
    _Alignas(64) _Atomic uint64_t counter;
};

/* One of the weights is above 0, together they fit 32 bits. `turn`: where to go on. NULL: no
 * memory. */
struct split *split_new(const uint32_t *weights, uint32_t count, uint64_t turn);
void split_free(struct split *split); /* NULL is fine */
/* Whose it is: `hash` of the client's key decides, the same for the same client as long as the
 * weights are the same, and for most of them when the weights change a little; 0: turns do. Any
 * thread. */
uint32_t split_pick(struct split *split, uint64_t hash);

#endif
