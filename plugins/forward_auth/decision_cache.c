#include "decision_cache.h"

#include <stdlib.h>

#define WAYS 4 /* entries that one hash can be in */

struct entry {
    uint64_t hash, until_ns, used;
    char *key; /* NULL: the entry is free */
    size_t n;
    struct decision *decision;
};

struct decision_cache {
    uint64_t seed, clock; /* clock: counts uses, for who was used last */
    size_t mask;          /* of sets */
    struct entry entries[];
};

struct decision_cache *decision_cache_new(size_t entries, uint64_t seed)
{
    size_t sets = 1;
    struct decision_cache *cache;

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
    free(entry->key);
    free(entry->decision);
    *entry = (struct entry){0};
}

void decision_cache_free(struct decision_cache *cache)
{
    for (size_t i = 0; cache && i < (cache->mask + 1) * WAYS; i++)
        clear(&cache->entries[i]);
    free(cache);
}

/* Keys that meet only push each other out of the table, so a fast hash will do; the seed keeps
 * strangers from choosing whom they push. */
static uint64_t hash_of(const struct decision_cache *cache, struct postern_str key)
{
    uint64_t hash = cache->seed ^ key.n, word;

    for (size_t i = 0; i < key.n; i += sizeof(word)) {
        size_t rest = key.n - i < sizeof(word) ? key.n - i : sizeof(word);

        word = 0;
        memcpy(&word, key.p + i, rest);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

static struct entry *set_of(struct decision_cache *cache, uint64_t hash)
{
    return &cache->entries[((hash >> 8) & cache->mask) * WAYS];
}

const struct decision *decision_cache_find(struct decision_cache *cache, struct postern_str key,
                                           uint64_t now_ns)
{
    uint64_t hash;
    struct entry *set;

    if (!cache || !key.p)
        return NULL;
    hash = hash_of(cache, key);
    set = set_of(cache, hash);
    for (size_t i = 0; i < WAYS; i++) {
        struct entry *entry = &set[i];

        if (!entry->key || entry->hash != hash || entry->n != key.n ||
            memcmp(entry->key, key.p, key.n) != 0)
            continue;
        if (entry->until_ns <= now_ns) {
            clear(entry);
            return NULL;
        }
        entry->used = ++cache->clock;
        return entry->decision;
    }
    return NULL;
}

void decision_cache_put(struct decision_cache *cache, struct postern_str key,
                        struct decision *decision, uint64_t now_ns)
{
    char *copy = cache && key.p && decision->keep_ms > 0 ? malloc(key.n ? key.n : 1) : NULL;
    struct entry *set, *victim;
    uint64_t hash;

    if (!copy) {
        free(decision);
        return;
    }
    memcpy(copy, key.p, key.n);
    hash = hash_of(cache, key);
    victim = set = set_of(cache, hash);
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].key && set[i].hash == hash && set[i].n == key.n &&
            memcmp(set[i].key, key.p, key.n) == 0) {
            victim = &set[i]; /* two asked at once: the later word counts */
            break;
        }
        if (set[i].used < victim->used)
            victim = &set[i];
    }
    clear(victim);
    *victim = (struct entry){.hash = hash,
                             .until_ns = now_ns + decision->keep_ms * UINT64_C(1000000),
                             .used = ++cache->clock,
                             .key = copy,
                             .n = key.n,
                             .decision = decision};
}
