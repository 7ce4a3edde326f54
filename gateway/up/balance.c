#include "up/balance.h"

#define GOLDEN 2654435769u /* 2^32 over the golden ratio */

/* Whether a server that has eased in so far gets the n-th of what is its share: spread evenly
 * over n, and a part of the yes at a higher ease. */
static bool eases(uint32_t word, uint64_t n)
{
    return (uint32_t)n * GOLDEN >> 22 < word_ease(word);
}

/* `n`: the turn, or whatever stands for it. */
static bool is_passed(const struct cluster *cluster, const struct tried *tried, unsigned server,
                      bool ease, uint64_t n)
{
    uint32_t word = vitals_word(cluster->servers[server].vitals);
    if (tried_has(tried, server) || (word & VITAL_OUT & ~tried->regardless))
        return true;
    return ease && !eases(word, n);
}

#define DETOURS 4 /* guesses before the search goes on step by step */

/* The next in the order that is not passed over. With none passed over the spread is exact; the
 * turns of one that is are shared out among the others, so that who stands behind it does not
 * get all of them. */
static int round_robin(struct cluster *cluster, const struct tried *tried,
                       const uint16_t *order, uint32_t len, bool ease)
{
    if (!len)
        return -1;
    uint64_t turn = atomic_fetch_add_explicit(&cluster->counter, 1, memory_order_relaxed);
    uint64_t round = turn / len, digits = round;
    uint32_t at = (uint32_t)(turn % len);
    for (uint32_t i = 0; i < len + DETOURS; i++) {
        if (!is_passed(cluster, tried, order[at], ease, round))
            return order[at];
        at++;
        if (i < DETOURS && len > 1) {
            at += (uint32_t)(digits % (len - 1));
            digits /= len - 1;
        }
        at %= len;
    }
    return -1;
}

/* Requests in flight per weight, compared without dividing: with the one that it would get,
 * but for servers that ease in, which would never get the first then. */
static bool is_less_busy(const struct server *a, const struct server *b)
{
    uint64_t load_a = atomic_load_explicit(&a->active, memory_order_relaxed);
    uint64_t load_b = atomic_load_explicit(&b->active, memory_order_relaxed);
    uint32_t ease_a = word_ease(vitals_word(a->vitals));
    uint32_t ease_b = word_ease(vitals_word(b->vitals));
    uint64_t one = ease_a == EASE_FULL && ease_b == EASE_FULL;
    return (load_a + one) * b->weight * ease_b < (load_b + one) * a->weight * ease_a;
}

/* Among equals the round robin decides, so that an idle cluster is used evenly. */
static int least_requests(struct cluster *cluster, const struct tried *tried, bool ease)
{
    int best = round_robin(cluster, tried, cluster->order, cluster->order_len, ease);
    if (best < 0)
        return -1;
    for (uint32_t i = 0; i < cluster->primaries; i++)
        if (!is_passed(cluster, tried, i, false, 0) &&
            is_less_busy(&cluster->servers[i], &cluster->servers[best]))
            best = (int)i;
    return best;
}

static int two_choices(struct cluster *cluster, const struct tried *tried, uint64_t random,
                       bool ease)
{
    int one = round_robin(cluster, tried, cluster->order, cluster->order_len, ease);
    if (one < 0)
        return -1;
    unsigned other = cluster->order[random % cluster->order_len];
    if (is_passed(cluster, tried, other, false, 0) ||
        !is_less_busy(&cluster->servers[other], &cluster->servers[one]))
        return one;
    return (int)other;
}

/* With a bound: what a unit of weight may have under way, in thousandths. Of the servers that
 * are not passed over, so that those who are out neither count nor carry. */
static uint64_t bound_for(const struct cluster *cluster, const struct tried *tried)
{
    uint64_t weight = cluster->weight;
    uint64_t active = atomic_load_explicit(&cluster->active, memory_order_relaxed);
    for (uint32_t i = 0; i < cluster->primaries; i++)
        if (is_passed(cluster, tried, i, false, 0))
            weight -= cluster->servers[i].weight;
    return weight ? (active + 1) * cluster->hash_bound / weight : 0;
}

/* The fair share is rounded up: a server may always have one. */
static bool is_loaded(const struct server *server, uint64_t bound)
{
    uint64_t load = atomic_load_explicit(&server->active, memory_order_relaxed);
    return load && load * 1000 >= bound * server->weight;
}

/* The first server behind the key's point that is not passed over, and with a bound has room:
 * its overflow goes to the next one, and always to the same. Where all are full, as without. No
 * other key moves. A server that eases in gets its keys back one by one. */
static int by_ring(struct cluster *cluster, const struct tried *tried, uint64_t hash, bool ease)
{
    uint64_t bound = cluster->hash_bound ? bound_for(cluster, tried) : 0;
    int first = -1;
    uint32_t low = 0, high = cluster->ring_len;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cluster->ring_hashes[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (uint32_t i = 0; i < cluster->ring_len; i++) {
        unsigned server = cluster->ring_servers[(low + i) % cluster->ring_len];
        if (is_passed(cluster, tried, server, ease, hash ^ hash >> 32))
            continue;
        if (!bound || !is_loaded(&cluster->servers[server], bound))
            return (int)server;
        if (first < 0)
            first = (int)server;
    }
    return first;
}

static int primary(struct cluster *cluster, const struct tried *tried, uint64_t hash,
                   uint64_t random, bool ease)
{
    switch (cluster->balance) {
    case BALANCE_LEAST_REQUESTS:
        return least_requests(cluster, tried, ease);
    case BALANCE_TWO_CHOICES:
        return two_choices(cluster, tried, random, ease);
    case BALANCE_HASH:
        if (hash)
            return by_ring(cluster, tried, hash, ease);
        break;
    case BALANCE_ROUND_ROBIN:
        break;
    }
    return round_robin(cluster, tried, cluster->order, cluster->order_len, ease);
}

static int backup(struct cluster *cluster, const struct tried *tried, bool ease)
{
    return round_robin(cluster, tried, cluster->backup_order, cluster->backup_order_len, ease);
}

int balance_pick(struct cluster *cluster, const struct tried *tried, uint64_t hash,
                 uint64_t random)
{
    int server = primary(cluster, tried, hash, random, true);
    if (server < 0) /* whoever is left eases in, and has to do it all the same */
        server = primary(cluster, tried, hash, random, false);
    if (server < 0)
        server = backup(cluster, tried, true);
    return server < 0 ? backup(cluster, tried, false) : server;
}

static bool looks_at_load(const struct cluster *cluster)
{
    return cluster->balance == BALANCE_LEAST_REQUESTS ||
           cluster->balance == BALANCE_TWO_CHOICES || cluster->hash_bound;
}

void balance_begin(struct cluster *cluster, unsigned server)
{
    if (looks_at_load(cluster))
        atomic_fetch_add_explicit(&cluster->servers[server].active, 1, memory_order_relaxed);
    if (cluster->hash_bound)
        atomic_fetch_add_explicit(&cluster->active, 1, memory_order_relaxed);
}

void balance_end(struct cluster *cluster, unsigned server)
{
    if (looks_at_load(cluster))
        atomic_fetch_sub_explicit(&cluster->servers[server].active, 1, memory_order_relaxed);
    if (cluster->hash_bound)
        atomic_fetch_sub_explicit(&cluster->active, 1, memory_order_relaxed);
}

/* FNV-1a, then a finisher that spreads it over all bits (splitmix64). */
uint64_t balance_hash(struct str key)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < key.n; i++)
        h = (h ^ (unsigned char)key.p[i]) * 0x100000001b3ull;
    h ^= h >> 30;
    h *= 0xbf58476d1ce4e5b9ull;
    h ^= h >> 27;
    h *= 0x94d049bb133111ebull;
    h ^= h >> 31;
    return h ? h : 1;
}
