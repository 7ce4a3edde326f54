/* Smooth weighted round robin, run once around and written down: an order to be walked by a
 * counter. Pure; any thread. */
#ifndef POSTERN_UP_SMOOTH_H
#define POSTERN_UP_SMOOTH_H

#include <stdbool.h>
#include <stdint.h>

/* An array (mem_free) in which each of 0 to count - 1 stands as often as its weight says,
 * divided by what all weights have in common, and spread as evenly as can be; a weight of 0
 * stands nowhere. Its length is 0 when all are 0. False: no memory. */
bool smooth_order(const uint32_t *weights, uint32_t count, uint16_t **ret_order,
                  uint32_t *ret_len);

#endif
