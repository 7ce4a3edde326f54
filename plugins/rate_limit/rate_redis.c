#include "rate_limit/rate_redis.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rate_limit/lease.h"
#include "rate_limit/rate_script.h"
#include "rate_limit/redis_link.h"

#define WORKERS     256
#define TRIPS_MAX   4096 /* on their way, of one worker and section */
#define LEASES_MAX  8192 /* keys that a worker remembers */
#define PART_MAX    96   /* of a key's text, for each part; longer ones as a digest */
#define PREFIX_MAX  256
#define KEY_MAX     (PREFIX_MAX + LIMIT_BY_MAX * (PART_MAX + 16))
#define ARGS        (6 + 2 * GCRA_MAX)
#define DIGEST_HEX  32 /* 128 bits of a SHA-256 */
#define NUMBER_TEXT 32

struct part;

struct rate_redis {
    const struct gcra *gcra;
    const struct limit_by *by;
    struct redis_target *target; /* api->shared owns it */
    size_t keys;
    char prefix[PREFIX_MAX];
    size_t prefix_n;
    char sha[2 * SHA_DIGEST_LENGTH + 1];
    char numbers[2 * GCRA_MAX][NUMBER_TEXT]; /* take and tolerance, as the script wants them */
    int trips, failures;                     /* counters */
    struct part *parts[WORKERS];             /* each touched by its worker only */
};

/* On one worker. Trips that are on their way when it ends come home to nobody. */
struct part {
    struct rate_redis *redis;
    struct postern_worker *worker;
    struct redis_link *link;
    struct leases *leases;
    struct trip *trips, *spare;
    unsigned count;
};

/* Lives in the request. `trip` is NULL once it has been answered, or the request is gone. */
struct waiter {
    struct waiter *next, **place;
    struct trip *trip;
    struct postern_token token;
    bool away;
    struct gcra_verdict verdict;
};

struct trip {
    struct redis_call call; /* first */
    struct trip *next, **place;
    struct part *part;   /* NULL: it has ended */
    struct lease *lease; /* NULL: there was no room for one */
    struct waiter *waiters, **last;
    uint32_t waiting, wanted, back;
    bool whole; /* the script was sent, not its name */
    size_t key_n;
    char key[KEY_MAX];
};

/* ---- the text of a key ---- */

struct key_text {
    char *p;
};

static void put_digest(struct key_text *t, struct postern_str bytes)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)bytes.p, bytes.n, digest);
    *t->p++ = '#';
    for (unsigned i = 0; i < DIGEST_HEX / 2; i++) {
        *t->p++ = hex[digest[i] >> 4];
        *t->p++ = hex[digest[i] & 15];
    }
}

/* Names and addresses can be read by who looks into Redis. A header's value may be a secret. */
static void put_part(void *arg, enum limit_by_kind kind, struct postern_str bytes)
{
    static const char letters[] = "?ichpru"; /* by kind */
    struct key_text *t = arg;
    *t->p++ = ':';
    *t->p++ = letters[kind];
    *t->p++ = '=';
    if (kind == LIMIT_BY_IP) {
        uint8_t address[16] = {0};
        memcpy(address, bytes.p, bytes.n);
        inet_ntop(bytes.n == 4 ? AF_INET : AF_INET6, address, t->p, INET6_ADDRSTRLEN);
        t->p += strlen(t->p);
    } else if (kind == LIMIT_BY_HEADER || bytes.n > PART_MAX - 4) {
        put_digest(t, bytes);
    } else {
        memcpy(t->p, bytes.p, bytes.n);
        t->p += bytes.n;
    }
}

static void put_key(const struct rate_redis *redis, struct postern_request *r,
                    struct trip *trip)
{
    struct key_text t = {trip->key + redis->prefix_n};
    memcpy(trip->key, redis->prefix, redis->prefix_n);
    limit_by_each(redis->by, rate_api, r, put_part, &t);
    trip->key_n = (size_t)(t.p - trip->key);
}

/* ---- trips ---- */

static void link_waiter(struct trip *trip, struct waiter *waiter)
{
    waiter->trip = trip;
    waiter->next = NULL;
    waiter->place = trip->last;
    *trip->last = waiter;
    trip->last = &waiter->next;
    trip->waiting++;
}

static void unlink_waiter(struct waiter *waiter)
{
    struct trip *trip = waiter->trip;
    *waiter->place = waiter->next;
    if (waiter->next)
        waiter->next->place = waiter->place;
    else
        trip->last = waiter->place;
    waiter->trip = NULL;
    trip->waiting--;
}

static struct trip *trip_new(struct part *part)
{
    struct trip *trip = part->spare;
    if (trip)
        part->spare = trip->next;
    else if (part->count == TRIPS_MAX || !(trip = malloc(sizeof(*trip))))
        return NULL;
    else
        part->count++;
    trip->part = part;
    trip->lease = NULL;
    trip->waiters = NULL;
    trip->last = &trip->waiters;
    trip->waiting = 0;
    trip->whole = false;
    trip->next = part->trips;
    if (trip->next)
        trip->next->place = &trip->next;
    trip->place = &part->trips;
    part->trips = trip;
    return trip;
}

static void trip_end(struct trip *trip)
{
    struct part *part = trip->part;
    *trip->place = trip->next;
    if (trip->next)
        trip->next->place = trip->place;
    trip->next = part->spare;
    part->spare = trip;
}

static void on_answer(struct redis_call *call, struct redisReply *reply);

static bool trip_send(struct trip *trip, bool whole)
{
    const struct rate_redis *redis = trip->part->redis;
    char wanted[20], back[20];
    const char *argv[ARGS] = {whole ? "EVAL" : "EVALSHA",
                              whole ? rate_script : redis->sha,
                              "1",
                              trip->key,
                              wanted,
                              back};
    size_t lengths[ARGS];
    int argc = 6;
    for (unsigned i = 0; i < 2 * redis->gcra->count; i++)
        argv[argc++] = redis->numbers[i];
    for (int i = 0; i < argc; i++)
        lengths[i] = i >= 3 && i < 6 ? 0 : strlen(argv[i]);
    lengths[3] = trip->key_n;
    lengths[4] = rate_number(trip->wanted, wanted);
    lengths[5] = rate_number(trip->back, back);
    trip->whole = whole;
    trip->call.done = on_answer;
    if (!redis_send(trip->part->link, &trip->call, argc, argv, lengths))
        return false;
    rate_api->count(trip->part->worker, redis->trips, 1);
    return true;
}

static bool read_reply(const struct trip *trip, const redisReply *reply,
                       struct lease_reply *ret)
{
    const struct gcra *gcra = trip->part->redis->gcra;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 + gcra->count)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != REDIS_REPLY_INTEGER || reply->element[i]->integer < 0)
            return false;
    if (reply->element[0]->integer > trip->wanted)
        return false;
    ret->wanted = trip->wanted;
    ret->granted = (uint32_t)reply->element[0]->integer;
    ret->wait_us = (uint64_t)reply->element[1]->integer;
    for (unsigned i = 0; i < gcra->count; i++)
        ret->ahead_us[i] = (uint64_t)reply->element[2 + i]->integer;
    return true;
}

static void resume(struct waiter *waiter)
{
    unlink_waiter(waiter);
    rate_api->resume(waiter->token, waiter, NULL);
}

static void turn_all_away(struct trip *trip)
{
    while (trip->waiters) {
        trip->waiters->away = true;
        resume(trip->waiters);
    }
    if (trip->lease)
        trip->lease->trip = NULL;
    trip_end(trip);
}

/* First come, first served. Who came while it was on its way may not have been asked for. */
static void serve(struct trip *trip, const struct lease_reply *reply)
{
    struct part *part = trip->part;
    uint64_t now = rate_api->now_ns();
    uint32_t left = reply->granted;
    bool all = reply->granted == reply->wanted;
    while (trip->waiters && (left > 0 || !all)) {
        bool allowed = left > 0;
        left -= allowed;
        lease_verdict(part->redis->gcra, reply, allowed, left, &trip->waiters->verdict);
        resume(trip->waiters);
    }
    if (trip->lease)
        lease_got(part->leases, trip->lease, now, reply, reply->granted - left);
    if (!trip->waiters) {
        trip_end(trip);
        return;
    }
    trip->back = 0;
    trip->wanted = trip->waiting;
    if (trip->lease) {
        trip->wanted = lease_want(part->leases, trip->lease, trip->waiting, now, &trip->back);
        trip->lease->trip = trip;
    }
    if (!trip_send(trip, false))
        turn_all_away(trip);
}

static void on_answer(struct redis_call *call, struct redisReply *reply)
{
    struct trip *trip = (struct trip *)call;
    struct lease_reply read;
    if (!trip->part) {
        free(trip);
        return;
    }
    if (reply && reply->type == REDIS_REPLY_ERROR && !trip->whole && trip_send(trip, true))
        return; /* Redis did not know the script by its name */
    if (reply && read_reply(trip, reply, &read)) {
        serve(trip, &read);
        return;
    }
    rate_api->count(trip->part->worker, trip->part->redis->failures, 1);
    turn_all_away(trip);
}

/* ---- requests ---- */

static struct trip *ask(struct part *part, struct lease *lease, struct postern_request *r,
                        uint64_t now)
{
    struct trip *trip = trip_new(part);
    if (!trip)
        return NULL;
    put_key(part->redis, r, trip);
    trip->back = 0;
    trip->wanted = lease ? lease_want(part->leases, lease, 1, now, &trip->back) : 1;
    if (!trip_send(trip, false)) {
        trip_end(trip);
        return NULL;
    }
    trip->lease = lease;
    if (lease)
        lease->trip = trip;
    return trip;
}

enum rate_redis_says rate_redis_take(struct rate_redis *redis, struct postern_request *r,
                                     uint64_t hash, struct gcra_verdict *ret)
{
    struct part *part = redis->parts[rate_api->worker_index(rate_api->worker(r))];
    if (!part || redis_is_away(part->link))
        return RATE_REDIS_AWAY;
    uint64_t now = rate_api->now_ns();
    struct lease *lease = leases_find(part->leases, hash, now);
    enum lease_says says = lease ? lease_say(part->leases, lease, now, ret) : LEASE_ASK;
    if (says == LEASE_ALLOWS || says == LEASE_REFUSES)
        return RATE_REDIS_SAID;
    void **slot = rate_api->slot(r);
    struct waiter *waiter = rate_api->alloc(r, sizeof(*waiter));
    if (!waiter)
        return RATE_REDIS_FAILED;
    struct trip *trip = says == LEASE_JOIN ? lease->trip : ask(part, lease, r, now);
    if (!trip)
        return RATE_REDIS_AWAY;
    waiter->away = false;
    waiter->token = rate_api->wait(r);
    link_waiter(trip, waiter);
    *slot = waiter;
    return RATE_REDIS_WAITS;
}

enum rate_redis_says rate_redis_result(void *result, struct gcra_verdict *ret)
{
    struct waiter *waiter = result;
    *ret = waiter->verdict;
    return waiter->away ? RATE_REDIS_AWAY : RATE_REDIS_SAID;
}

void rate_redis_cancel(struct postern_request *r)
{
    void **slot = rate_api->slot(r);
    struct waiter *waiter = *slot;
    if (waiter && waiter->trip)
        unlink_waiter(waiter);
}

/* ---- workers ---- */

void rate_redis_start(struct rate_redis *redis, struct postern_worker *w)
{
    struct part *part = calloc(1, sizeof(*part));
    if (!part)
        return; /* without a part Redis counts as away */
    size_t keys = redis->keys < LEASES_MAX ? redis->keys : LEASES_MAX;
    *part = (struct part){.redis = redis, .worker = w};
    part->leases = leases_new(redis->gcra, keys);
    part->link = part->leases ? redis_join(redis->target, w) : NULL;
    if (!part->link) {
        leases_free(part->leases);
        free(part);
        return;
    }
    redis->parts[rate_api->worker_index(w)] = part;
}

void rate_redis_stop(struct rate_redis *redis, struct postern_worker *w)
{
    unsigned index = rate_api->worker_index(w);
    struct part *part = redis->parts[index];
    if (!part)
        return;
    redis->parts[index] = NULL;
    for (struct trip *trip = part->trips; trip; trip = trip->next) {
        while (trip->waiters) {
            trip->waiters->away = true;
            resume(trip->waiters);
        }
        trip->part = NULL;
    }
    for (struct trip *trip; (trip = part->spare);) {
        part->spare = trip->next;
        free(trip);
    }
    redis_leave(part->link);
    leases_free(part->leases);
    free(part);
}

/* ---- configuration ---- */

static const char *text(const struct postern_values *v)
{
    return v->count ? v->list[0].text.p : NULL;
}

static bool read_address(struct postern_setup *s, const char *where, char host[64],
                         struct redis_address *ret)
{
    char bare[64];
    unsigned char binary[16];
    const char *colon = strrchr(where, ':');
    if (strncmp(where, "unix:", 5) == 0 && where[5] == '/') {
        ret->path = where + 5;
        return true;
    }
    size_t n = colon ? (size_t)(colon - where) : 0;
    char *end = NULL;
    unsigned long port =
        colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
    bool six = n > 2 && where[0] == '[' && where[n - 1] == ']';
    if (n > 0 && n < sizeof(bare) && port >= 1 && port <= 65535 && !*end) {
        memcpy(bare, where + six, n - 2 * six);
        bare[n - 2 * six] = '\0';
        if (inet_pton(six ? AF_INET6 : AF_INET, bare, binary) == 1) {
            memcpy(host, bare, sizeof(bare));
            ret->host = host;
            ret->port = (uint16_t)port;
            return true;
        }
    }
    rate_api->fault(s, RATE_O_REDIS, 0,
                    "redis is \"%s\", expected an IP address with a port or unix:/PATH", where);
    return false;
}

struct target_setup {
    const struct redis_address *address;
    const char *name;
};

static void *make_target(void *arg)
{
    const struct target_setup *setup = arg;
    return redis_target_new(rate_api, setup->address, setup->name);
}

/* Sections that name it in the same way share its connections. */
static struct redis_target *target_of(struct postern_setup *s,
                                      const struct redis_address *address, const char *where)
{
    struct target_setup setup = {address, where};
    char *name;
    if (asprintf(&name, "redis|%s|%s|%s|%u|%u", where, address->user ? address->user : "",
                 address->password ? address->password : "", address->db,
                 address->timeout_ms) < 0)
        return NULL;
    struct redis_target *target =
        rate_api->shared(s, name, make_target, &setup, redis_target_free);
    explicit_bzero(name, strlen(name));
    free(name);
    return target;
}

/* PREFIX:PLACE:RATES:BY: who has all of these equal has the same limits. */
static void set_prefix(struct rate_redis *redis, struct postern_setup *s, const char *prefix)
{
    struct postern_str place = rate_api->place(s);
    char by[256], rates[GCRA_MAX * RATE_NAME_MAX], *whole;
    size_t n = 0;
    limit_by_name(redis->by, by, sizeof(by));
    for (unsigned i = 0; i < redis->gcra->count; i++) {
        n += rate_name(&redis->gcra->windows[i], rates + n);
        rates[n++] = i + 1 < redis->gcra->count ? ',' : '\0';
    }
    int length = asprintf(&whole, "%s:%.*s:%s:%s", prefix, (int)place.n, place.p, rates, by);
    if (length < 0)
        return;
    if ((size_t)length < PREFIX_MAX) {
        memcpy(redis->prefix, whole, (size_t)length);
        redis->prefix_n = (size_t)length;
    } else {
        struct key_text t = {redis->prefix};
        put_digest(&t, (struct postern_str){whole, (size_t)length});
        redis->prefix_n = (size_t)(t.p - redis->prefix);
    }
    free(whole);
}

static void set_script(struct rate_redis *redis)
{
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1((const unsigned char *)rate_script, sizeof(rate_script) - 1, digest);
    for (unsigned i = 0; i < sizeof(digest); i++)
        snprintf(redis->sha + 2 * i, 3, "%02x", digest[i]);
    for (unsigned i = 0; i < redis->gcra->count; i++) {
        const struct gcra_window *w = &redis->gcra->windows[i];
        const double unit = GCRA_UNITS * 1000;
        snprintf(redis->numbers[2 * i], NUMBER_TEXT, "%.6f", (double)w->take / unit);
        snprintf(redis->numbers[2 * i + 1], NUMBER_TEXT, "%.6f", (double)w->tolerance / unit);
    }
}

/* Without `redis` nobody is told a password. */
static bool is_alone(struct postern_setup *s, const struct postern_values *values)
{
    if (values[RATE_O_REDIS_PASSWORD].count)
        rate_api->fault(s, RATE_O_REDIS_PASSWORD, 0, "redis_password needs a redis");
    return !values[RATE_O_REDIS_PASSWORD].count;
}

bool rate_redis_read(struct postern_setup *s, const struct postern_values *values,
                     const struct rate_limit *l, struct rate_redis **ret)
{
    const char *where = text(&values[RATE_O_REDIS]);
    char host[64];
    struct redis_address address = {
        .user = text(&values[RATE_O_REDIS_USER]),
        .password = text(&values[RATE_O_REDIS_PASSWORD]),
        .db = (unsigned)values[RATE_O_REDIS_DB].list[0].number,
        .timeout_ms = (uint32_t)values[RATE_O_REDIS_TIMEOUT].list[0].number,
    };
    *ret = NULL;
    if (address.user && !address.password) {
        rate_api->fault(s, RATE_O_REDIS_USER, 0, "redis_user needs a redis_password");
        return false;
    }
    if (!where)
        return is_alone(s, values);
    if (!read_address(s, where, host, &address))
        return false;
    struct rate_redis *redis = calloc(1, sizeof(*redis));
    struct redis_target *target = redis ? target_of(s, &address, where) : NULL;
    if (!target) {
        free(redis);
        rate_api->fault(s, -1, 0, "out of memory");
        return false;
    }
    redis->gcra = &l->gcra;
    redis->by = &l->by;
    redis->target = target;
    redis->keys = (size_t)values[RATE_O_KEYS].list[0].number;
    set_prefix(redis, s, text(&values[RATE_O_REDIS_PREFIX]));
    set_script(redis);
    redis->trips = rate_api->counter(s, "redis_trips", "Questions sent to Redis.");
    redis->failures =
        rate_api->counter(s, "redis_failures", "Questions that Redis did not answer.");
    *ret = redis;
    return true;
}

void rate_redis_free(struct rate_redis *redis)
{
    free(redis);
}
