/* Blocks: the memory that body bytes travel in, from the read to the last write, uncopied.
 *
 * A block is filled once by a read and then shared by reference: the reading stream holds
 * one, each slice that waits in an out-queue another. Counts are plain: blocks never leave
 * their worker's thread. Two sizes: BLOCK_SMALL, and BLOCK_LARGE for a flow that stays full. */
#ifndef POSTERN_BASE_BLOCK_H
#define POSTERN_BASE_BLOCK_H

#include "base/mem.h"

#ifndef BLOCK_SMALL /* perf/ladder builds with others */
#define BLOCK_SMALL (16u * 1024)
#define BLOCK_LARGE (64u * 1024)
#endif

struct block_pool;

struct block {
    struct block_pool *pool;
    struct block *next; /* in the pool's free list */
    uint32_t refs;
    uint32_t cap; /* bytes of data; 0: it stands for bytes elsewhere (net/pipe) */
    char data[];
};

struct block_pool {
    struct block *small, *large;
    unsigned idle_small, idle_large, live;
    void (*give_foreign)(struct block *block); /* gets those of cap 0 back; NULL: none exist */
};

/* Bytes in a block, and one reference to it. `block` NULL: memory that outlives the slice's
 * user (a literal, an arena that dies later). */
struct slice {
    struct block *block;
    const char *p;
    size_t n;
};

void block_pool_init(struct block_pool *pool);
void block_pool_done(struct block_pool *pool);
/* cap is BLOCK_SMALL or BLOCK_LARGE; the caller holds the one reference. NULL: no memory. */
struct block *block_take(struct block_pool *pool, uint32_t cap);
void block_unref_last(struct block *block);

static inline struct block *block_ref(struct block *block)
{
    block->refs++;
    return block;
}

static inline void block_unref(struct block *block)
{
    if (block && --block->refs == 0)
        block_unref_last(block);
}

static inline void slice_drop(struct slice *slice)
{
    block_unref(slice->block);
    slice->block = NULL;
    slice->n = 0;
}

#endif
