#include "base/mem.h"

#include <assert.h>
#include <sanitizer/asan_interface.h> /* its macros are empty without ASan */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/demand.h"

#ifndef NDEBUG

/* Calls left until one fails; 0: none does. Shared by all threads, so that N counts every
 * allocation of the process. */
static _Atomic unsigned long fail_in;

void mem_fail_at(unsigned long n)
{
    fail_in = n;
}

__attribute__((constructor)) static void read_fault(void)
{
    mem_fail_at((unsigned long)demand("alloc"));
}

/* Each `every`-th call of this thread fails, and its `once`-th. */
static _Thread_local uint64_t every, once, calls;

void mem_fail_often(void)
{
    every = demand("alloc-every");
    once = demand("alloc-once");
}

static bool must_fail_again(void)
{
    calls++;
    return calls == once || (every && calls % every == 0);
}

static bool must_fail(void)
{
    unsigned long left = fail_in;

    if (must_fail_again())
        return true;
    while (left)
        if (atomic_compare_exchange_weak_explicit(&fail_in, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return left == 1;
    return false;
}

#else

void mem_fail_at(unsigned long n)
{
    (void)n; /* release builds have no faults of our own making */
}

void mem_fail_often(void)
{
}

static inline bool must_fail(void)
{
    return false;
}

#endif

void *mem_alloc(size_t n)
{
    return must_fail() ? NULL : malloc(n ? n : 1);
}

void *mem_zalloc(size_t n)
{
    return must_fail() ? NULL : calloc(1, n ? n : 1);
}

void *mem_realloc(void *p, size_t n)
{
    return must_fail() ? NULL : realloc(p, n ? n : 1);
}

void mem_free(void *p)
{
    free(p);
}

/* What stands before an object of a slab. Release builds have nothing there, and use the
 * object's own first bytes for the list. */
#ifndef NDEBUG
#define MAGIC_LIVE  0x6c6976656f626a31ull
#define MAGIC_IDLE  0x69646c656f626a31ull
#define POISON_BYTE 0xa5
struct tag {
    uint64_t magic;
    struct slab *slab;
};
_Static_assert(sizeof(struct tag) % 16 == 0, "objects keep malloc's alignment");
#define TAG_SIZE sizeof(struct tag)
#else
#define TAG_SIZE ((size_t)0)
#endif

void slab_init(struct slab *slab, size_t size, unsigned keep)
{
#ifdef POSTERN_NO_SLABS /* perf/ladder: what keeping objects is worth */
    keep = 0;
#endif
    *slab = (struct slab){.size = size < sizeof(void *) ? sizeof(void *) : size, .keep = keep};
}

static void *pop(struct slab *slab)
{
    char *p = slab->free_list;

    ASAN_UNPOISON_MEMORY_REGION(p, slab->size);
    memcpy(&slab->free_list, p, sizeof(void *));
    slab->idle--;
    return p;
}

void slab_done(struct slab *slab)
{
    assert(slab->live == 0);
    while (slab->idle)
        mem_free((char *)pop(slab) - TAG_SIZE);
}

#ifndef NDEBUG
static void tag_live(struct slab *slab, char *p)
{
    struct tag *tag = (struct tag *)(void *)(p - TAG_SIZE);
    *tag = (struct tag){MAGIC_LIVE, slab};
}

/* Nobody wrote to the object while it was idle. */
static void check_idle(const struct slab *slab, const char *p)
{
    const struct tag *tag = (const struct tag *)(const void *)(p - TAG_SIZE);
    assert(tag->magic == MAGIC_IDLE);
    for (size_t i = sizeof(void *); i < slab->size; i++)
        assert((unsigned char)p[i] == POISON_BYTE);
}

static void tag_idle(struct slab *slab, char *p)
{
    struct tag *tag = (struct tag *)(void *)(p - TAG_SIZE);
    assert(tag->magic == MAGIC_LIVE); /* else given twice, or never taken */
    assert(tag->slab == slab);
    tag->magic = MAGIC_IDLE;
    memset(p, POISON_BYTE, slab->size);
}
#endif

void *slab_take(struct slab *slab)
{
    char *p;

    if (slab->idle) {
#ifndef NDEBUG
        if (must_fail_again())
            return NULL;
#endif
        p = pop(slab);
#ifndef NDEBUG
        check_idle(slab, p);
#endif
    } else {
        p = mem_alloc(TAG_SIZE + slab->size);
        if (!p)
            return NULL;
        p += TAG_SIZE;
    }
#ifndef NDEBUG
    tag_live(slab, p);
#endif
    slab->live++;
    return p;
}

void slab_give(struct slab *slab, void *p)
{
    if (!p)
        return;
#ifndef NDEBUG
    tag_idle(slab, p);
#endif
    slab->live--;
    if (slab->idle >= slab->keep) {
        mem_free((char *)p - TAG_SIZE);
        return;
    }
    memcpy(p, &slab->free_list, sizeof(void *));
    slab->free_list = p;
    slab->idle++;
    ASAN_POISON_MEMORY_REGION(p, slab->size);
}

struct arena_chunk {
    struct arena_chunk *next;
    size_t size; /* all of it; other than ARENA_CHUNK: not the slab's */
};

void arena_init(struct arena *arena, struct slab *slab)
{
    assert(slab->size == ARENA_CHUNK);
    *arena = (struct arena){.slab = slab};
}

void arena_done(struct arena *arena)
{
    struct arena_chunk *next;

    for (struct arena_chunk *chunk = arena->chunks; chunk; chunk = next) {
        next = chunk->next;
        ASAN_UNPOISON_MEMORY_REGION(chunk, chunk->size);
        if (chunk->size == ARENA_CHUNK)
            slab_give(arena->slab, chunk);
        else
            mem_free(chunk);
    }
    *arena = (struct arena){.slab = arena->slab};
}

/* A new chunk for at least `n` bytes (already rounded), which are returned. */
static void *arena_grow(struct arena *arena, size_t n)
{
    bool is_large = n > ARENA_CHUNK - sizeof(struct arena_chunk);
    size_t size = is_large ? n + sizeof(struct arena_chunk) : ARENA_CHUNK;
    struct arena_chunk *chunk = is_large ? mem_alloc(size) : slab_take(arena->slab);

    if (!chunk)
        return NULL;
    *chunk = (struct arena_chunk){arena->chunks, size};
    arena->chunks = chunk;
    arena->total += n;
    if (is_large)
        return chunk + 1; /* whole: what is left of the chunk in use stays in use */
    arena->p = (char *)(chunk + 1) + n;
    arena->end = (char *)chunk + size;
    ASAN_POISON_MEMORY_REGION(arena->p, (size_t)(arena->end - arena->p));
    return chunk + 1;
}

void *arena_alloc_slow(struct arena *arena, size_t n)
{
    void *p = arena->p;

    if (n > SIZE_MAX / 2)
        return NULL;
    n = n ? (n + 7) & ~(size_t)7 : 8; /* even nothing has an address of its own */
    if (n > (size_t)(arena->end - arena->p))
        return arena_grow(arena, n);
    arena->p += n;
    arena->total += n;
    ASAN_UNPOISON_MEMORY_REGION(p, n);
    return p;
}

struct str arena_copy(struct arena *arena, struct str s)
{
    char *p = arena_alloc(arena, s.n);
    if (p && s.n)
        memcpy(p, s.p, s.n);
    return (struct str){p, p ? s.n : 0};
}

char *arena_copyz(struct arena *arena, struct str s)
{
    const struct str parts[] = {s, STR("\0")};
    struct str copy = arena_join(arena, parts, 2);
    return (char *)copy.p;
}

struct str arena_join(struct arena *arena, const struct str *parts, size_t n)
{
    size_t len = 0, at = 0;
    char *p;

    for (size_t i = 0; i < n; i++)
        len += parts[i].n;
    p = arena_alloc(arena, len);
    if (!p)
        return (struct str){NULL, 0};
    for (size_t i = 0; i < n; i++) {
        if (parts[i].n)
            memcpy(p + at, parts[i].p, parts[i].n);
        at += parts[i].n;
    }
    return (struct str){p, len};
}
