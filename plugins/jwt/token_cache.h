/* Tokens that were verified, and what they give, until they expire: a table of fixed size for
 * each worker, used on its thread alone. A token is found only when all of it is the same; what
 * is in the way of a new one is dropped. */
#ifndef JWT_TOKEN_CACHE_H
#define JWT_TOKEN_CACHE_H

#include "grant.h"

struct token_cache;

/* Room for at least so many entries; `seed` is not to be guessed. NULL: no memory. */
struct token_cache *token_cache_new(size_t entries, uint64_t seed);
void token_cache_free(struct token_cache *cache); /* NULL is fine */

/* NULL: not there, expired, or verified with keys of another generation. Lent until the next
 * call. */
const struct grant *token_cache_find(struct token_cache *cache, struct postern_str token,
                                     uint64_t now_ms, uint64_t generation);
/* Takes the grant, in any case. Without memory it is simply not kept. */
void token_cache_put(struct token_cache *cache, struct postern_str token, struct grant *grant,
                     uint64_t expires_ms, uint64_t generation);

#endif
