#include "key_table.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "key_tag.h"

struct key_hasher {
    EVP_MD_CTX *ctx;
};

/* An entry's tag, and whether somebody has taken it on himself to write it. */
struct slot {
    struct key_tag tag;
    atomic_bool is_claimed;
};

struct key_table {
    struct key_file *file;
    uint64_t secret[2];
    size_t mask;               /* of both indexes: open addressing, at most half full */
    _Atomic uint32_t *by_tag;  /* entry + 1, or 0 */
    uint32_t *by_hash;         /* only entries of which a hash is all that is known */
    struct slot *slots;        /* one for each entry */
    struct key_hasher *hasher; /* while the table is made */
};

struct key_hasher *key_hasher_new(void)
{
    struct key_hasher *hasher = calloc(1, sizeof(*hasher));
    if (!hasher)
        return NULL;
    hasher->ctx = EVP_MD_CTX_new();
    if (!hasher->ctx || EVP_DigestInit_ex(hasher->ctx, EVP_sha256(), NULL) != 1) {
        key_hasher_free(hasher);
        return NULL;
    }
    return hasher;
}

void key_hasher_free(struct key_hasher *hasher)
{
    if (hasher)
        EVP_MD_CTX_free(hasher->ctx);
    free(hasher);
}

/* The context keeps its algorithm, so that a second hash looks for none and allocates nothing.
 */
static bool hash_of(struct key_hasher *hasher, const char *salt, const char *key, size_t n,
                    uint8_t out[KEY_HASH])
{
    return EVP_DigestInit_ex(hasher->ctx, NULL, NULL) == 1 &&
           EVP_DigestUpdate(hasher->ctx, salt, strlen(salt)) == 1 &&
           EVP_DigestUpdate(hasher->ctx, key, n) == 1 &&
           EVP_DigestFinal_ex(hasher->ctx, out, NULL) == 1;
}

static size_t hash_start(const uint8_t hash[KEY_HASH])
{
    uint64_t word;
    memcpy(&word, hash, sizeof(word));
    return (size_t)word;
}

/* The entry + 1 with that hash under that salt, or 0; *ret_at is where it stands or would. */
static uint32_t find_hash(const struct key_table *table, unsigned salt,
                          const uint8_t hash[KEY_HASH], size_t *ret_at)
{
    uint32_t it;
    size_t at = hash_start(hash) & table->mask;
    for (; (it = table->by_hash[at]); at = (at + 1) & table->mask) {
        const struct key_entry *entry = &table->file->entries[it - 1];
        if (entry->salt == salt && CRYPTO_memcmp(entry->hash, hash, KEY_HASH) == 0)
            break;
    }
    *ret_at = at;
    return it;
}

/* The same for a tag. What a worker adds meanwhile is seen or not. */
static uint32_t find_tag(const struct key_table *table, struct key_tag tag, size_t *ret_at)
{
    uint32_t it;
    size_t at = (size_t)tag.a & table->mask;
    for (; (it = atomic_load_explicit(&table->by_tag[at], memory_order_acquire));
         at = (at + 1) & table->mask) {
        const struct key_tag *other = &table->slots[it - 1].tag;
        if (((other->a ^ tag.a) | (other->b ^ tag.b)) == 0)
            break;
    }
    *ret_at = at;
    return it;
}

/* Lets an entry be known by its tag. Only the first to come writes it, and it is there to be
 * found when its index is. */
static void publish(struct key_table *table, uint32_t it, struct key_tag tag)
{
    struct slot *slot = &table->slots[it - 1];
    if (atomic_exchange_explicit(&slot->is_claimed, true, memory_order_relaxed))
        return;
    slot->tag = tag;
    for (size_t at = (size_t)tag.a & table->mask;; at = (at + 1) & table->mask) {
        uint32_t free_slot = 0;
        if (atomic_compare_exchange_strong_explicit(&table->by_tag[at], &free_slot, it,
                                                    memory_order_release, memory_order_relaxed))
            return;
    }
}

const struct key_entry *key_table_known(const struct key_table *table, const char *key,
                                        size_t n)
{
    size_t at;
    uint32_t it = find_tag(table, key_tag_of(table->secret, key, n), &at);
    return it ? &table->file->entries[it - 1] : NULL;
}

/* The entry + 1 whose hash the key has, under whichever salt. */
static uint32_t search(const struct key_table *table, struct key_hasher *hasher,
                       const char *key, size_t n)
{
    uint8_t hash[KEY_HASH];
    uint32_t it = 0;
    size_t at;
    for (unsigned salt = 0; !it && salt < table->file->salt_count; salt++)
        if (hash_of(hasher, table->file->salts[salt], key, n, hash))
            it = find_hash(table, salt, hash, &at);
    return it;
}

const struct key_entry *key_table_verify(struct key_table *table, struct key_hasher *hasher,
                                         const char *key, size_t n)
{
    uint32_t it = search(table, hasher, key, n);
    if (!it)
        return NULL;
    publish(table, it, key_tag_of(table->secret, key, n));
    return &table->file->entries[it - 1];
}

static void twice(struct key_report *report, const struct key_table *table, size_t i,
                  uint32_t first)
{
    key_report_fault(report, table->file->entries[i].line,
                     "entry %zu: the same key as entry %u", i + 1, first);
}

static void add_hashed(struct key_table *table, struct key_report *report)
{
    const struct key_file *file = table->file;
    for (size_t i = 0; i < file->count; i++) {
        size_t at;
        const struct key_entry *entry = &file->entries[i];
        if (entry->key)
            continue;
        uint32_t first = find_hash(table, entry->salt, entry->hash, &at);
        if (first)
            twice(report, table, i, first);
        else
            table->by_hash[at] = (uint32_t)i + 1;
    }
}

static void add_plain(struct key_table *table, struct key_report *report)
{
    const struct key_file *file = table->file;
    for (size_t i = 0; i < file->count; i++) {
        const char *key = file->entries[i].key;
        if (!key)
            continue;
        size_t at, n = strlen(key);
        struct key_tag tag = key_tag_of(table->secret, key, n);
        uint32_t first = find_tag(table, tag, &at);
        if (!first)
            first = search(table, table->hasher, key, n);
        if (first)
            twice(report, table, i, first);
        else
            publish(table, (uint32_t)i + 1, tag);
    }
}

struct key_table *key_table_new(struct key_file *file, struct key_report *report)
{
    unsigned before = report->count;
    size_t size = 16;
    while (size < 2 * file->count)
        size *= 2;
    struct key_table *table = calloc(1, sizeof(*table));
    if (!table) {
        key_file_free(file);
        key_report_fault(report, 0, "out of memory");
        return NULL;
    }
    table->file = file;
    table->mask = size - 1;
    table->by_tag = calloc(size, sizeof(*table->by_tag));
    table->by_hash = calloc(size, sizeof(*table->by_hash));
    table->slots = calloc(file->count + 1, sizeof(*table->slots));
    table->hasher = key_hasher_new();
    if (!table->by_tag || !table->by_hash || !table->slots || !table->hasher) {
        key_report_fault(report, 0, "out of memory");
    } else if (getrandom(table->secret, sizeof(table->secret), 0) !=
               (ssize_t)sizeof(table->secret)) {
        key_report_fault(report, 0, "the system gives no random numbers");
    } else {
        add_hashed(table, report);
        add_plain(table, report);
        key_file_wipe(file);
    }
    if (report->count == before)
        return table;
    key_table_free(table);
    return NULL;
}

void key_table_free(struct key_table *table)
{
    if (!table)
        return;
    OPENSSL_cleanse(table->secret, sizeof(table->secret));
    key_hasher_free(table->hasher);
    key_file_free(table->file);
    free((void *)table->by_tag);
    free(table->by_hash);
    free(table->slots);
    free(table);
}

const struct key_file *key_table_file(const struct key_table *table)
{
    return table->file;
}
