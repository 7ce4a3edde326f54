/* What a plugin found out, kept for a while under the key it was found out about: a table of
 * fixed size for each worker, used on its thread alone. A key is found only when all of it is
 * the same; what is in the way of a new one is dropped. */
#ifndef MEMO_H
#define MEMO_H

#include "postern_plugin.h"

struct memo;

/* Room for at least so many entries; `seed` is not to be guessed. `tail`: how many bytes at the
 * end of a key tell it from others well enough, 0: all of it. NULL: no memory. */
struct memo *memo_new(size_t entries, uint64_t seed, size_t tail,
                      void (*free_value)(void *value));
void memo_free(struct memo *memo); /* NULL is fine */

/* NULL: not there, its time has come (`now`, as the caller counts), or it was found out about
 * another generation. Lent until the next call. */
void *memo_find(struct memo *memo, struct postern_str key, uint64_t now, uint64_t generation);
/* Keeps the value until that time, and it is the memo's from then on. False: it is not kept (no
 * memory, no memo), and still the caller's. */
bool memo_put(struct memo *memo, struct postern_str key, void *value, uint64_t until,
              uint64_t generation);

#endif
