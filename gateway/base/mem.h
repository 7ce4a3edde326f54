/* Memory: a fault-injecting malloc, slabs of one type, arenas that die with an exchange.
 *
 * Slabs and arenas belong to one worker and are used only on its thread. No function here
 * aborts: out of memory is NULL, and the caller refuses the one request it was serving. */
#ifndef POSTERN_BASE_MEM_H
#define POSTERN_BASE_MEM_H

#include "base/str.h"

/* As malloc, calloc, realloc and free. In debug builds POSTERN_FAULT=alloc:N (or
 * mem_fail_at) makes the N-th call from then on fail, once. */
void *mem_alloc(size_t n);
void *mem_zalloc(size_t n);
void *mem_realloc(void *p, size_t n);
void mem_free(void *p); /* NULL is fine */
/* The n-th call from now fails, 1 the very next; 0: none does. Debug builds only. */
void mem_fail_at(unsigned long n);

/* Objects of one size. Freed ones wait in a list for the next taker, at most `keep` of them. */
struct slab {
    void *free_list;
    size_t size;
    unsigned idle, keep, live;
};

void slab_init(struct slab *slab, size_t size, unsigned keep);
void slab_done(struct slab *slab);          /* frees the idle ones; live must be 0 */
void *slab_take(struct slab *slab);         /* contents undefined; NULL: out of memory */
void slab_give(struct slab *slab, void *p); /* poisoned in debug builds; NULL is fine */

/* Memory of one exchange: taken by moving a pointer, given back all at once. */
#define ARENA_CHUNK 4096

struct arena_chunk;
struct arena {
    char *p, *end;
    struct arena_chunk *chunks; /* newest first */
    struct slab *slab;          /* where chunks of ARENA_CHUNK bytes come from */
    size_t total;               /* bytes handed out, for limits and for the log */
};

/* `slab` must have been made for ARENA_CHUNK bytes and must outlive the arena. */
void arena_init(struct arena *arena, struct slab *slab);
void arena_done(struct arena *arena); /* gives all chunks back; the arena may be used anew */
/* Aligned to 8 bytes, contents undefined. NULL: out of memory. */
void *arena_alloc(struct arena *arena, size_t n);
/* A copy of `s` (not NUL-terminated); .p is NULL when out of memory. */
struct str arena_copy(struct arena *arena, struct str s);
/* A NUL-terminated copy, NULL when out of memory. */
char *arena_copyz(struct arena *arena, struct str s);
/* All `n` spans one after another; .p is NULL when out of memory. */
struct str arena_join(struct arena *arena, const struct str *parts, size_t n);

#endif
