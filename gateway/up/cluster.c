#include "up/cluster.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "up/balance.h"
#include "up/smooth.h"

/* Points on the hash ring for each unit of weight, and the most for one server: where some
 * weight would need more, all get fewer, in proportion. */
#define RING_POINTS 256
#define RING_MOST   4096

/* Slots of clusters that live; a slot is taken again when its cluster is gone. */
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *slots_used;
static unsigned slots_words;

static int slot_take(void)
{
    pthread_mutex_lock(&slots_lock);
    unsigned word = 0;
    while (word < slots_words && slots_used[word] == UINT64_MAX)
        word++;
    if (word == slots_words) {
        uint64_t *more = mem_realloc(slots_used, (slots_words + 1) * sizeof(*more));
        if (!more) {
            pthread_mutex_unlock(&slots_lock);
            return -1;
        }
        more[slots_words++] = 0;
        slots_used = more;
    }
    unsigned bit = (unsigned)__builtin_ctzll(~slots_used[word]);
    slots_used[word] |= 1ull << bit;
    pthread_mutex_unlock(&slots_lock);
    return (int)(word * 64 + bit);
}

static void slot_give(unsigned slot)
{
    pthread_mutex_lock(&slots_lock);
    slots_used[slot / 64] &= ~(1ull << (slot % 64));
    pthread_mutex_unlock(&slots_lock);
}

/* The order in which servers `from` to `to` - 1 take turns. False: no memory. */
static bool expand(const struct server *servers, uint32_t from, uint32_t to,
                   uint16_t **ret_order, uint32_t *ret_len)
{
    uint32_t weights[CLUSTER_SERVERS];
    for (uint32_t i = from; i < to; i++)
        weights[i - from] = servers[i].weight;
    if (!smooth_order(weights, to - from, ret_order, ret_len))
        return false;
    for (uint32_t n = 0; n < *ret_len; n++)
        (*ret_order)[n] = (uint16_t)((*ret_order)[n] + from);
    return true;
}

struct point {
    uint64_t hash;
    uint16_t server;
};

static int by_hash(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->hash < y->hash ? -1 : x->hash > y->hash;
}

/* Of the server itself and of the heaviest that there may be: who else is there at the moment
 * must not move a server's points. */
static uint32_t points_of(const struct server *server, uint32_t heaviest)
{
    if (heaviest <= RING_MOST / RING_POINTS)
        return RING_POINTS * server->weight;
    uint32_t points = RING_MOST * server->weight / heaviest;
    return points ? points : 1;
}

static bool make_ring(struct cluster *cluster, uint32_t heaviest)
{
    uint32_t len = 0;
    for (uint32_t i = 0; i < cluster->primaries; i++)
        if (cluster->servers[i].weight > heaviest)
            heaviest = cluster->servers[i].weight;
    for (uint32_t i = 0; i < cluster->primaries; i++)
        len += points_of(&cluster->servers[i], heaviest);
    struct point *points = mem_alloc((len + 1) * sizeof(*points));
    cluster->ring_hashes = mem_alloc((len + 1) * sizeof(*cluster->ring_hashes));
    cluster->ring_servers = mem_alloc((len + 1) * sizeof(*cluster->ring_servers));
    if (!points || !cluster->ring_hashes || !cluster->ring_servers) {
        mem_free(points);
        return false;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < cluster->primaries; i++) {
        const struct server *server = &cluster->servers[i];
        uint64_t base = balance_hash(str_of(server->text));
        for (uint32_t k = 0, count = points_of(server, heaviest); k < count; k++) {
            uint64_t seed[2] = {base, k};
            points[n].hash = balance_hash((struct str){(const char *)seed, sizeof(seed)});
            points[n++].server = (uint16_t)i;
        }
    }
    qsort(points, n, sizeof(*points), by_hash);
    for (uint32_t i = 0; i < n; i++) {
        cluster->ring_hashes[i] = points[i].hash;
        cluster->ring_servers[i] = points[i].server;
    }
    cluster->ring_len = n;
    mem_free(points);
    return true;
}

/* Of the address, so that it stays with it; with the name, or a client could see which of its
 * upstreams share a server. */
static bool make_ids(struct cluster *cluster, const struct sip_key *key)
{
    cluster->ids = mem_alloc((cluster->count + 1) * sizeof(*cluster->ids));
    for (uint32_t i = 0; cluster->ids && i < cluster->count; i++) {
        uint64_t parts[2] = {sip_hash(key, str_of(cluster->name)),
                             sip_hash(key, str_of(cluster->servers[i].text))};
        cluster->ids[i] = sip_hash(key, (struct str){(const char *)parts, sizeof(parts)});
    }
    return cluster->ids != NULL;
}

static char *copy(const char *text) /* NULL for NULL too */
{
    size_t n = text ? strlen(text) + 1 : 0;
    char *out = text ? mem_alloc(n) : NULL;
    return out ? memcpy(out, text, n) : NULL;
}

/* False: no memory. */
static bool add_servers(struct cluster *cluster, const struct cluster_server *servers,
                        size_t count, bool backups)
{
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        if (servers[i].backup != backups)
            continue;
        struct server *server = &cluster->servers[cluster->count++];
        memset(server, 0, sizeof(*server));
        server->addr = servers[i].addr;
        server->weight = servers[i].weight;
        server->backup = backups;
        server->from = servers[i].from;
        server->origin = servers[i].origin;
        server->host = copy(servers[i].host);
        server->name = copy(servers[i].name);
        all &= (server->host || !servers[i].host) && (server->name || !servers[i].name);
        addr_put(server->text, &server->addr);
    }
    return all;
}

static void find_siblings(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++)
        for (uint32_t k = 0; k < cluster->count && !cluster->servers[i].siblings; k++)
            cluster->servers[i].siblings =
                k != i && cluster->servers[k].from == cluster->servers[i].from &&
                cluster->servers[k].backup == cluster->servers[i].backup;
}

/* The same address, if possible of the same server of the upstream; each is taken once. */
static struct vitals *inherit(const struct cluster *before, const struct server *server,
                              bool taken[CLUSTER_SERVERS])
{
    int found = -1;
    for (uint32_t i = 0; before && i < before->count; i++) {
        const struct server *other = &before->servers[i];
        if (!taken[i] && addr_eq(&other->addr, &server->addr) &&
            (found < 0 || other->origin == server->origin))
            found = (int)i;
    }
    if (found < 0)
        return NULL;
    taken[found] = true;
    return vitals_ref(before->servers[found].vitals);
}

static bool add_vitals(struct cluster *cluster, const struct cluster *before)
{
    bool taken[CLUSTER_SERVERS] = {false};
    cluster->ward = before ? ward_ref(before->ward) : ward_new();
    for (uint32_t i = 0; cluster->ward && i < cluster->count; i++) {
        struct server *server = &cluster->servers[i];
        server->vitals = inherit(before, server, taken);
        if (server->vitals)
            continue;
        server->vitals = vitals_new(cluster->ward);
        if (!server->vitals)
            return false;
        server->vitals->joined = before && before->count;
    }
    return cluster->ward != NULL;
}

struct cluster *cluster_new(const struct cluster_spec *spec,
                            const struct cluster_server *servers, size_t count)
{
    static uint64_t kins;
    if (count > CLUSTER_SERVERS)
        return NULL;
    struct cluster *cluster = aligned_alloc(CACHE_LINE, sizeof(*cluster));
    if (!cluster)
        return NULL;
    memset(cluster, 0, sizeof(*cluster));
    int slot = slot_take();
    cluster->slot = (unsigned)slot;
    cluster->kin = spec->kin ? spec->kin->kin : ++kins;
    cluster->balance = spec->balance;
    cluster->hash_bound = spec->balance == BALANCE_HASH ? spec->hash_bound : 0;
    cluster->limits = spec->limits;
    cluster->breaker.limits = spec->breaker;
    cluster->retry_attempts = spec->retry_attempts;
    cluster->retry_budget_permille = spec->retry_budget_permille;
    cluster->retry_on = spec->retry_on;
    cluster->proxy_protocol = spec->proxy_protocol;
    cluster->http2 = spec->http2;
    cluster->tls = spec->tls ? tls_back_ref(spec->tls) : NULL;
    atomic_init(&cluster->refs, 1);
    cluster->name = copy(spec->name);
    cluster->servers = aligned_alloc(CACHE_LINE, (count ? count : 1) * sizeof(struct server));
    if (watch_copy(&cluster->watch, &spec->watch) < 0 || slot < 0 || !cluster->name ||
        !cluster->servers)
        goto fail;
    bool all = add_servers(cluster, servers, count, false);
    cluster->primaries = cluster->count;
    for (uint32_t i = 0; i < cluster->primaries; i++)
        cluster->weight += cluster->servers[i].weight;
    all &= add_servers(cluster, servers, count, true);
    find_siblings(cluster);
    if (!all || !add_vitals(cluster, spec->before ? spec->before : spec->kin) ||
        !expand(cluster->servers, 0, cluster->primaries, &cluster->order,
                &cluster->order_len) ||
        !expand(cluster->servers, cluster->primaries, cluster->count, &cluster->backup_order,
                &cluster->backup_order_len) ||
        (spec->sticky && !make_ids(cluster, spec->sticky)) ||
        (spec->balance == BALANCE_HASH && !make_ring(cluster, spec->heaviest)))
        goto fail;
    return cluster;
fail:
    if (slot < 0)
        cluster->slot = UINT32_MAX;
    cluster_unref(cluster);
    return NULL;
}

struct cluster *cluster_ref(struct cluster *cluster)
{
    atomic_fetch_add_explicit(&cluster->refs, 1, memory_order_relaxed);
    return cluster;
}

void cluster_unref(struct cluster *cluster)
{
    if (!cluster || atomic_fetch_sub_explicit(&cluster->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (cluster->slot != UINT32_MAX)
        slot_give(cluster->slot);
    for (uint32_t i = 0; i < cluster->count; i++) {
        vitals_unref(cluster->servers[i].vitals);
        mem_free(cluster->servers[i].host);
        mem_free(cluster->servers[i].name);
    }
    ward_unref(cluster->ward);
    watch_done(&cluster->watch);
    mem_free(cluster->order);
    mem_free(cluster->backup_order);
    mem_free(cluster->ring_hashes);
    mem_free(cluster->ring_servers);
    mem_free(cluster->ids);
    mem_free(cluster->name);
    tls_back_unref(cluster->tls);
    free(cluster->servers);
    free(cluster);
}

uint64_t cluster_back_at(const struct cluster *cluster)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < cluster->count; i++) {
        uint64_t at =
            atomic_load_explicit(&cluster->servers[i].vitals->back_at, memory_order_relaxed);
        if (at && (!first || at < first))
            first = at;
    }
    return first;
}
