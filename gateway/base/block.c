#include "base/block.h"

#include <assert.h>
#include <sanitizer/asan_interface.h> /* its macros are empty without ASan */

/* What a worker keeps for the next burst: 4 MiB of each. More goes back to malloc. */
#ifndef POSTERN_NO_SLABS
#define KEEP_SMALL 256u
#define KEEP_LARGE 64u
#else /* perf/ladder: what keeping blocks is worth */
#define KEEP_SMALL 0u
#define KEEP_LARGE 0u
#endif

void block_pool_init(struct block_pool *pool)
{
    *pool = (struct block_pool){0};
}

static struct block *pop(struct block **list)
{
    struct block *block = *list;

    ASAN_UNPOISON_MEMORY_REGION(block, sizeof(*block));
    *list = block->next;
    return block;
}

void block_pool_done(struct block_pool *pool)
{
    assert(pool->live == 0); /* a live block would point to a pool that is no more */
    while (pool->small)
        mem_free(pop(&pool->small));
    while (pool->large)
        mem_free(pop(&pool->large));
    block_pool_init(pool);
}

struct block *block_take(struct block_pool *pool, uint32_t cap)
{
    bool is_large = cap == BLOCK_LARGE;
    struct block **list = is_large ? &pool->large : &pool->small;
    struct block *block;

    assert(cap == BLOCK_SMALL || cap == BLOCK_LARGE);
    if (*list) {
        block = pop(list);
        ASAN_UNPOISON_MEMORY_REGION(block->data, cap);
        *(is_large ? &pool->idle_large : &pool->idle_small) -= 1;
    } else {
        block = mem_alloc(sizeof(*block) + cap);
        if (!block)
            return NULL;
    }
    block->pool = pool;
    block->next = NULL;
    block->refs = 1;
    block->cap = cap;
    pool->live++;
    return block;
}

void block_unref_last(struct block *block)
{
    struct block_pool *pool = block->pool;
    bool is_large = block->cap == BLOCK_LARGE;
    struct block **list = is_large ? &pool->large : &pool->small;
    unsigned *idle = is_large ? &pool->idle_large : &pool->idle_small;

    assert(block->refs == 0);
    pool->live--;
    if (block->cap == 0) {
        pool->give_foreign(block);
        return;
    }
    if (*idle >= (is_large ? KEEP_LARGE : KEEP_SMALL)) {
        mem_free(block);
        return;
    }
    block->next = *list;
    *list = block;
    *idle += 1;
    ASAN_POISON_MEMORY_REGION(block, sizeof(*block) + block->cap);
}
