/* Decisions that let a request through, for a while: a table of fixed size for each worker,
 * used on its thread alone. One is found only when all of its key is the same. */
#ifndef FORWARD_AUTH_DECISION_CACHE_H
#define FORWARD_AUTH_DECISION_CACHE_H

#include "decision.h"

struct decision_cache;

/* Room for at least so many; `seed` is not to be guessed. NULL: no memory. */
struct decision_cache *decision_cache_new(size_t entries, uint64_t seed);
void decision_cache_free(struct decision_cache *cache); /* NULL is fine */

/* NULL: none, or its time is over. Lent until the next call. */
const struct decision *decision_cache_find(struct decision_cache *cache, struct postern_str key,
                                           uint64_t now_ns);
/* Takes the decision; without memory it is simply not kept. */
void decision_cache_put(struct decision_cache *cache, struct postern_str key,
                        struct decision *decision, uint64_t now_ns);

#endif
