#include "up/balance.h"

/* The next in the order that was not tried. A server stepped over gives its turn to the one
 * behind it, so with none tried the spread is exact. */
static int round_robin(struct cluster *cluster, const struct tried *tried,
                       const uint16_t *order, uint32_t len)
{
    if (!len)
        return -1;
    uint64_t turn = atomic_fetch_add_explicit(&cluster->counter, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < len; i++) {
        unsigned server = order[(turn + i) % len];
        if (!tried_has(tried, server))
            return (int)server;
    }
    return -1;
}

/* Requests in flight per weight, compared without dividing. */
static bool is_less_busy(const struct server *a, const struct server *b)
{
    uint64_t load_a = atomic_load_explicit(&a->active, memory_order_relaxed);
    uint64_t load_b = atomic_load_explicit(&b->active, memory_order_relaxed);
    return (load_a + 1) * b->weight < (load_b + 1) * a->weight;
}

/* Among equals the round robin decides, so that an idle cluster is used evenly. */
static int least_requests(struct cluster *cluster, const struct tried *tried)
{
    int best = round_robin(cluster, tried, cluster->order, cluster->order_len);
    if (best < 0)
        return -1;
    for (uint32_t i = 0; i < cluster->primaries; i++)
        if (!tried_has(tried, i) && is_less_busy(&cluster->servers[i], &cluster->servers[best]))
            best = (int)i;
    return best;
}

static int two_choices(struct cluster *cluster, const struct tried *tried, uint64_t random)
{
    int one = round_robin(cluster, tried, cluster->order, cluster->order_len);
    if (one < 0)
        return -1;
    unsigned other = cluster->order[random % cluster->order_len];
    if (tried_has(tried, other) ||
        !is_less_busy(&cluster->servers[other], &cluster->servers[one]))
        return one;
    return (int)other;
}

/* With a bound: what a unit of weight may have under way, in thousandths. Of the servers that
 * were not tried, so that those who are out neither count nor carry. */
static uint64_t bound_for(const struct cluster *cluster, const struct tried *tried)
{
    uint64_t weight = cluster->weight;
    uint64_t active = atomic_load_explicit(&cluster->active, memory_order_relaxed);
    for (uint32_t word = 0; word * 64 < cluster->primaries; word++)
        for (uint64_t left = tried->bits[word]; left; left &= left - 1) {
            uint32_t i = word * 64 + (uint32_t)__builtin_ctzll(left);
            if (i < cluster->primaries)
                weight -= cluster->servers[i].weight;
        }
    return weight ? (active + 1) * cluster->hash_bound / weight : 0;
}

/* The fair share is rounded up: a server may always have one. */
static bool is_loaded(const struct server *server, uint64_t bound)
{
    uint64_t load = atomic_load_explicit(&server->active, memory_order_relaxed);
    return load && load * 1000 >= bound * server->weight;
}

/* The first server behind the key's point that was not tried, and with a bound has room: its
 * overflow goes to the next one, and always to the same. Where all are full, as without. */
static int by_ring(struct cluster *cluster, const struct tried *tried, uint64_t hash)
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
        if (tried_has(tried, server))
            continue;
        if (!bound || !is_loaded(&cluster->servers[server], bound))
            return (int)server;
        if (first < 0)
            first = (int)server;
    }
    return first;
}

int balance_pick(struct cluster *cluster, const struct tried *tried, uint64_t hash,
                 uint64_t random)
{
    int server = -1;
    switch (cluster->balance) {
    case BALANCE_LEAST_REQUESTS:
        server = least_requests(cluster, tried);
        break;
    case BALANCE_TWO_CHOICES:
        server = two_choices(cluster, tried, random);
        break;
    case BALANCE_HASH:
        if (hash) {
            server = by_ring(cluster, tried, hash);
            break;
        }
        server = round_robin(cluster, tried, cluster->order, cluster->order_len);
        break;
    case BALANCE_ROUND_ROBIN:
        server = round_robin(cluster, tried, cluster->order, cluster->order_len);
        break;
    }
    if (server < 0)
        server = round_robin(cluster, tried, cluster->backup_order, cluster->backup_order_len);
    return server;
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
