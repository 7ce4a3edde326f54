#include "memo/memo.h"

#include <stdlib.h>
#include <string.h>

#define WAYS 4 /* entries that one hash can be in */

struct entry {
    uint64_t hash, until, generation, used;
    char *key; /* NULL: the entry is free */
    size_t n;
    void *value;
};

struct memo {
    uint64_t seed, clock; /* clock: counts uses, for who was used last */
    size_t tail, mask;    /* mask: of sets */
    void (*free_value)(void *value);
    struct entry entries[];
};

struct memo *memo_new(size_t entries, uint64_t seed, size_t tail,
                      void (*free_value)(void *value))
{
    size_t sets = 1;
    struct memo *memo;

    while (sets * WAYS < entries)
        sets *= 2;
    memo = calloc(1, sizeof(*memo) + sets * WAYS * sizeof(struct entry));
    if (memo) {
        memo->seed = seed;
        memo->tail = tail ? tail : SIZE_MAX;
        memo->mask = sets - 1;
        memo->free_value = free_value;
    }
    return memo;
}

static void clear(const struct memo *memo, struct entry *entry)
{
    free(entry->key);
    if (entry->key)
        memo->free_value(entry->value);
    *entry = (struct entry){0};
}

void memo_free(struct memo *memo)
{
    for (size_t i = 0; memo && i < (memo->mask + 1) * WAYS; i++)
        clear(memo, &memo->entries[i]);
    free(memo);
}

/* Keys that meet only push each other out of the table, so a fast hash will do; the seed keeps
 * strangers from choosing whom they push. */
static uint64_t hash_of(const struct memo *memo, struct postern_str key)
{
    uint64_t hash = memo->seed ^ key.n, word;
    size_t start = key.n > memo->tail ? key.n - memo->tail : 0;

    for (size_t i = start; i < key.n; i += sizeof(word)) {
        size_t rest = key.n - i;

        word = 0;
        if (rest >= sizeof(word))
            memcpy(&word, key.p + i, sizeof(word));
        else
            memcpy(&word, key.p + i, rest);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

/* In a time that does not tell where they differ: keys are credentials. */
static bool same_bytes(const char *a, const char *b, size_t n)
{
    uint64_t x, y, differ = 0;
    size_t i = 0;

    for (; i + sizeof(x) <= n; i += sizeof(x)) {
        memcpy(&x, a + i, sizeof(x));
        memcpy(&y, b + i, sizeof(y));
        differ |= x ^ y;
    }
    for (; i < n; i++)
        differ |= (uint64_t)(unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}

static struct entry *set_of(struct memo *memo, uint64_t hash)
{
    return &memo->entries[((hash >> 8) & memo->mask) * WAYS];
}

static bool is_of(const struct entry *entry, uint64_t hash, struct postern_str key)
{
    return entry->key && entry->hash == hash && entry->n == key.n &&
           same_bytes(entry->key, key.p, key.n);
}

void *memo_find(struct memo *memo, struct postern_str key, uint64_t now, uint64_t generation)
{
    uint64_t hash;
    struct entry *set;

    if (!memo || !key.p)
        return NULL;
    hash = hash_of(memo, key);
    set = set_of(memo, hash);
    for (size_t i = 0; i < WAYS; i++) {
        struct entry *entry = &set[i];

        if (!is_of(entry, hash, key))
            continue;
        if (entry->until <= now || entry->generation != generation) {
            clear(memo, entry);
            return NULL;
        }
        entry->used = ++memo->clock;
        return entry->value;
    }
    return NULL;
}

bool memo_put(struct memo *memo, struct postern_str key, void *value, uint64_t until,
              uint64_t generation)
{
    char *copy = memo && key.p ? malloc(key.n ? key.n : 1) : NULL;
    struct entry *set, *victim;
    uint64_t hash;

    if (!copy)
        return false;
    memcpy(copy, key.p, key.n);
    hash = hash_of(memo, key);
    victim = set = set_of(memo, hash);
    for (size_t i = 0; i < WAYS; i++) {
        if (is_of(&set[i], hash, key)) {
            victim = &set[i]; /* two were at it at once: the later word counts */
            break;
        }
        if (set[i].used < victim->used)
            victim = &set[i];
    }
    clear(memo, victim);
    *victim = (struct entry){.hash = hash,
                             .until = until,
                             .generation = generation,
                             .used = ++memo->clock,
                             .key = copy,
                             .n = key.n,
                             .value = value};
    return true;
}
