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
/* From here on POSTERN_FAULT=alloc-every:N and alloc-once:N hold for this thread. */
void mem_fail_often(void);

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
/* Address sanitizers are told in there what is in use. */
#if defined(__SANITIZE_ADDRESS__)
#define MEM_IS_WATCHED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEM_IS_WATCHED
#endif
#endif

void *arena_alloc_slow(struct arena *arena, size_t n); /* arena_alloc's other half */

/* Aligned to 8 bytes, contents undefined. NULL: out of memory. */
static inline void *arena_alloc(struct arena *arena, size_t n)
{
#ifndef MEM_IS_WATCHED
    size_t size = (n + 7) & ~(size_t)7;
    char *p = arena->p;

    /* Nothing at all, and what overflows, wraps around to more than there is. */
    if (__builtin_expect(size - 1 < (size_t)(arena->end - p), 1)) {
        arena->p = p + size;
        arena->total += size;
        return p;
    }
#endif
    return arena_alloc_slow(arena, n);
}
/* A copy of `s` (not NUL-terminated); .p is NULL when out of memory. */
struct str arena_copy(struct arena *arena, struct str s);
/* A NUL-terminated copy, NULL when out of memory. */
char *arena_copyz(struct arena *arena, struct str s);
/* All `n` spans one after another; .p is NULL when out of memory. */
struct str arena_join(struct arena *arena, const struct str *parts, size_t n);

#endif
