#include "token_cache.h"

#include <stdlib.h>

#define WAYS 4 /* entries that one hash can be in */
#define TAIL                                                                                   \
    32 /* bytes of the signature that are hashed; no token that verifies is shorter            \
        */

struct entry {
    uint64_t hash, expires_ms, generation, used;
    char *token; /* NULL: the entry is free */
    size_t n;
    struct grant *grant;
};

struct token_cache {
    uint64_t seed, clock; /* clock: counts uses, for who was used last */
    size_t mask;          /* of sets */
    struct entry entries[];
};

struct token_cache *token_cache_new(size_t entries, uint64_t seed)
{
    size_t sets = 1;
    struct token_cache *cache;

    while (sets * WAYS < entries)
        sets *= 2;
    cache = calloc(1, sizeof(*cache) + sets * WAYS * sizeof(struct entry));
    if (cache) {
        cache->seed = seed;
        cache->mask = sets - 1;
    }
    return cache;
}

static void clear(struct entry *entry)
{
    free(entry->token);
    grant_free(entry->grant);
    *entry = (struct entry){0};
}

void token_cache_free(struct token_cache *cache)
{
    for (size_t i = 0; cache && i < (cache->mask + 1) * WAYS; i++)
        clear(&cache->entries[i]);
    free(cache);
}

/* The end of a signature is as good as random, and only tokens that verified get in, so a
 * stranger cannot choose where they meet; the seed keeps those with a key from choosing. */
static uint64_t hash_of(const struct token_cache *cache, struct postern_str token)
{
    uint64_t hash = cache->seed ^ token.n, word;

    for (size_t i = 0; i < TAIL; i += sizeof(word)) {
        memcpy(&word, token.p + token.n - TAIL + i, sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

/* In a time that does not tell where they differ. Both have `n` >= TAIL bytes. */
static bool same_bytes(const char *a, const char *b, size_t n)
{
    uint64_t x, y, differ = 0;

    for (size_t i = 0; i + sizeof(x) <= n; i += sizeof(x)) {
        memcpy(&x, a + i, sizeof(x));
        memcpy(&y, b + i, sizeof(y));
        differ |= x ^ y;
    }
    memcpy(&x, a + n - sizeof(x), sizeof(x));
    memcpy(&y, b + n - sizeof(y), sizeof(y));
    return (differ | (x ^ y)) == 0;
}

static struct entry *set_of(struct token_cache *cache, uint64_t hash)
{
    return &cache->entries[((hash >> 8) & cache->mask) * WAYS];
}

const struct grant *token_cache_find(struct token_cache *cache, struct postern_str token,
                                     uint64_t now_ms, uint64_t generation)
{
    uint64_t hash;
    struct entry *set;

    if (!cache || token.n < TAIL)
        return NULL;
    hash = hash_of(cache, token);
    set = set_of(cache, hash);
    for (size_t i = 0; i < WAYS; i++) {
        struct entry *entry = &set[i];

        if (!entry->token || entry->hash != hash || entry->n != token.n ||
            !same_bytes(entry->token, token.p, token.n))
            continue;
        if (entry->expires_ms <= now_ms || entry->generation != generation) {
            clear(entry);
            return NULL;
        }
        entry->used = ++cache->clock;
        return entry->grant;
    }
    return NULL;
}

void token_cache_put(struct token_cache *cache, struct postern_str token, struct grant *grant,
                     uint64_t expires_ms, uint64_t generation)
{
    struct entry *set, *victim;
    uint64_t hash;
    char *copy = cache && token.n >= TAIL ? malloc(token.n) : NULL;

    if (!copy) {
        grant_free(grant);
        return;
    }
    memcpy(copy, token.p, token.n);
    hash = hash_of(cache, token);
    victim = set = set_of(cache, hash);
    for (size_t i = 1; i < WAYS; i++)
        if (set[i].used < victim->used)
            victim = &set[i];
    clear(victim);
    *victim = (struct entry){.hash = hash,
                             .expires_ms = expires_ms,
                             .generation = generation,
                             .used = ++cache->clock,
                             .token = copy,
                             .n = token.n,
                             .grant = grant};
}
