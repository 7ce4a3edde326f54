#include "jwks.h"

#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "web_url.h"

#define MS             UINT64_C(1000000)
#define BACKOFF_MIN_MS 250
#define BACKOFF_MAX_MS 60000

struct jwks_seat {
    struct jwks *jwks;
    LIST_HEAD(, jwks_user) users;
    TAILQ_HEAD(, jwks_waiter) waiting;
    size_t waiting_count;
    uint64_t timer, timer_ns; /* timer 0: not set */
};

struct hall {
    unsigned count;
    struct jwks_seat seats[];
};

struct jwks {
    atomic_uint refs;
    _Atomic(struct hall *) hall; /* made by the first worker that comes */
    _Atomic(struct keyset *) keys;
    _Atomic uint64_t due_ns; /* the next fetch by the clock */
    /* The last fetch; while both differ it is under way, and whoever set started_ns may write
     * what is not atomic. No other word says so: one that is set and taken back while somebody
     * looks whether a fetch is allowed would make others wait for a fetch that there is not. */
    _Atomic uint64_t started_ns, finished_ns;
    atomic_uint failures;     /* since the last that succeeded */
    unsigned char digest[32]; /* of what the keys were read from */
};

struct fetch {
    struct jwks *jwks; /* a reference */
    struct jwks_seat *seat;
    char target[WEB_URL_MAX + 1]; /* of the keys, once the discovery has named them */
    size_t origin;                /* there: which one of the plan's */
    bool discovered;
};

const char jwks_woken[] = "woken", jwks_too_late[] = "too late";

static const struct postern_api *api;
static const struct postern_plugin *self;

static void tick(struct postern_worker *w, void *arg);

void jwks_use(const struct postern_api *a, const struct postern_plugin *plugin)
{
    api = a;
    self = plugin;
}

void *jwks_new(void *unused)
{
    struct jwks *jwks = calloc(1, sizeof(*jwks));

    (void)unused;
    if (jwks)
        atomic_init(&jwks->refs, 1);
    return jwks;
}

void jwks_unref(void *object)
{
    struct jwks *jwks = object;

    if (atomic_fetch_sub(&jwks->refs, 1) > 1)
        return;
    keyset_free(atomic_load(&jwks->keys));
    free(atomic_load(&jwks->hall));
    free(jwks);
}

const struct keyset *jwks_keys(struct jwks *jwks)
{
    return atomic_load_explicit(&jwks->keys, memory_order_acquire);
}

static struct hall *hall_new(struct jwks *jwks, unsigned count)
{
    struct hall *hall = calloc(1, sizeof(*hall) + count * sizeof(hall->seats[0]));

    for (unsigned i = 0; hall && i < count; i++) {
        hall->count = count;
        hall->seats[i].jwks = jwks;
        LIST_INIT(&hall->seats[i].users);
        TAILQ_INIT(&hall->seats[i].waiting);
    }
    return hall;
}

static struct jwks_seat *seat_of(struct jwks *jwks, struct postern_worker *w)
{
    struct hall *hall = atomic_load(&jwks->hall), *other = NULL;
    unsigned index = api->worker_index(w);

    if (!hall) {
        hall = hall_new(jwks, api->worker_count(w));
        if (hall && !atomic_compare_exchange_strong(&jwks->hall, &other, hall)) {
            free(hall);
            hall = other;
        }
    }
    return hall && index < hall->count ? &hall->seats[index] : NULL;
}

/* ---- the seat's timer: for the next fetch, and for requests that have waited enough ---- */

static void arm(struct jwks_seat *seat, struct postern_worker *w, uint64_t at_ns)
{
    uint64_t now = api->now_ns(), ms = at_ns > now ? (at_ns - now + MS - 1) / MS : 0;

    if (at_ns == UINT64_MAX || (seat->timer && seat->timer_ns <= at_ns))
        return;
    if (seat->timer)
        api->cancel(w, seat->timer);
    seat->timer_ns = at_ns;
    seat->timer = api->timer(w, ms > 3600000 ? 3600000 : (uint32_t)ms, tick, seat);
}

static void resume(struct jwks_waiter *waiter, const char *how)
{
    struct postern_token token = waiter->token;

    jwks_unwait(waiter);
    api->resume(token, (void *)how, NULL);
}

static void wake_all(struct jwks_seat *seat)
{
    struct jwks_waiter *waiter;

    while ((waiter = TAILQ_FIRST(&seat->waiting)))
        resume(waiter, jwks_woken);
}

static bool is_fetching(const struct jwks *jwks)
{
    uint64_t finished = atomic_load(&jwks->finished_ns);

    return atomic_load(&jwks->started_ns) != finished;
}

static void arm_for_fetch(struct jwks_seat *seat, struct postern_worker *w)
{
    if (!LIST_EMPTY(&seat->users) && !is_fetching(seat->jwks))
        arm(seat, w, atomic_load(&seat->jwks->due_ns));
}

/* ---- one fetch at a time ---- */

/* What there is to do for a worker when a fetch has ended. */
static void look_again(struct jwks *jwks, struct postern_worker *w)
{
    struct jwks_seat *seat = seat_of(jwks, w);

    if (!seat)
        return;
    if (jwks_keys(jwks))
        wake_all(seat);
    arm_for_fetch(seat, w);
}

static void on_news(struct postern_worker *w, void *arg)
{
    look_again(arg, w);
    jwks_unref(arg);
}

/* Every worker looks again: at the keys and at when the next fetch is due. The caller has a
 * reference. */
static void tell_all(struct jwks *jwks, struct postern_worker *w)
{
    unsigned count = atomic_load(&jwks->hall)->count, own = api->worker_index(w), failed = 0;

    atomic_fetch_add(&jwks->refs, count);
    for (unsigned i = 0; i < count; i++)
        if (i == own || !api->post(i, on_news, jwks))
            failed++; /* its requests wait until they are too late */
    look_again(jwks, w);
    atomic_fetch_sub(&jwks->refs, failed);
}

/* A fleet of gateways started together must not ask together for ever: up to an eighth less. */
static uint64_t spread(uint64_t ms)
{
    return ms - ms / 8 * (api->now_ns() >> 10 & 63) / 64;
}

static void end(struct fetch *fetch, struct postern_worker *w, uint64_t next_ms)
{
    struct jwks *jwks = fetch->jwks;

    atomic_store(&jwks->due_ns, api->now_ns() + spread(next_ms) * MS);
    atomic_store(&jwks->finished_ns, atomic_load(&jwks->started_ns));
    tell_all(jwks, w);
    free(fetch);
    jwks_unref(jwks);
}

static const struct jwks_plan *plan_of(const struct fetch *fetch)
{
    const struct jwks_user *user = LIST_FIRST(&fetch->seat->users);

    return user ? user->plan : NULL;
}

static void fail(struct fetch *fetch, struct postern_worker *w, const char *why)
{
    const struct jwks_plan *plan = plan_of(fetch);
    const struct keyset *keys = jwks_keys(fetch->jwks);
    unsigned failures = atomic_fetch_add(&fetch->jwks->failures, 1);
    uint64_t ms = (uint64_t)BACKOFF_MIN_MS << (failures < 8 ? failures : 8);

    if (ms > BACKOFF_MAX_MS)
        ms = BACKOFF_MAX_MS;
    if (plan)
        api->log(self, POSTERN_WARN, "keys from %s: %s; %s, next try in %u ms", plan->shown,
                 why, keys ? "the old ones stay in use" : "there are none yet", (unsigned)ms);
    end(fetch, w, plan ? ms : 0);
}

/* Takes `fresh`. False: no memory. */
static bool publish(struct jwks *jwks, const struct jwks_plan *plan, struct keyset *fresh,
                    struct keyset **ret)
{
    struct keyset *old = atomic_load(&jwks->keys), *merged;
    uint64_t now_ms = api->wall_ms();

    merged = keyset_merge(fresh, old, now_ms, now_ms + plan->grace_ms);
    keyset_free(fresh);
    if (!merged)
        return false;
    atomic_store_explicit(&jwks->keys, merged, memory_order_release);
    if (old)
        api->retire(old, keyset_free);
    *ret = merged;
    return true;
}

/* Digits at the start; more than nine of them are as good as for ever. */
static uint64_t read_seconds(struct postern_str s)
{
    uint64_t seconds = 0;

    for (size_t i = 0; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        seconds = i > 9 ? 1000000000 : seconds * 10 + (uint64_t)(s.p[i] - '0');
    return seconds;
}

static void read_directive(struct postern_str s, uint64_t *age)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (struct postern_str){s.p + 1, s.n - 1};
    if (s.n >= 8 &&
        (strncasecmp(s.p, "no-store", 8) == 0 || strncasecmp(s.p, "no-cache", 8) == 0))
        *age = 0;
    else if (s.n > 8 && strncasecmp(s.p, "max-age=", 8) == 0 && *age == UINT64_MAX)
        *age = read_seconds((struct postern_str){s.p + 8, s.n - 8}) * 1000;
}

/* For how long an answer may be used, in ms: 0 when Cache-Control says not at all, UINT64_MAX
 * when it says nothing. */
static uint64_t max_age_of(const struct postern_reply *reply)
{
    uint64_t age = UINT64_MAX;

    for (size_t i = 0; i < reply->header_count; i++) {
        struct postern_str value = reply->headers[i].value;

        if (!span_eq(reply->headers[i].name, SPAN("cache-control")))
            continue;
        for (size_t start = 0, at = 0; at <= value.n; at++) {
            if (at < value.n && value.p[at] != ',')
                continue;
            read_directive((struct postern_str){value.p + start, at - start}, &age);
            start = at + 1;
        }
    }
    return age;
}

static void take_keys(struct fetch *fetch, struct postern_worker *w,
                      const struct postern_reply *reply)
{
    const struct jwks_plan *plan = plan_of(fetch);
    struct jwks *jwks = fetch->jwks;
    uint64_t age = max_age_of(reply), next_ms = age / 10 * 9; /* before it expires */
    unsigned char digest[EVP_MAX_MD_SIZE];
    struct keyset *fresh, *merged;
    const char *wrong;
    size_t skipped = 0, fresh_count;

    if (next_ms > plan->refresh_ms)
        next_ms = plan->refresh_ms;
    if (next_ms < plan->floor_ms)
        next_ms = plan->floor_ms;
    if (EVP_Q_digest(NULL, "SHA256", NULL, reply->body.p, reply->body.n, digest, NULL) != 1) {
        fail(fetch, w, "there is no memory");
        return;
    }
    /* The same text again: the same keys, and tokens verified with them stay verified. */
    if (!jwks_keys(jwks) || memcmp(digest, jwks->digest, sizeof(jwks->digest)) != 0) {
        fresh = keyset_from_json(reply->body, true, &skipped, &wrong);
        if (!fresh) {
            fail(fetch, w, wrong);
            return;
        }
        fresh_count = fresh->count;
        if (!publish(jwks, plan, fresh, &merged)) {
            fail(fetch, w, "there is no memory");
            return;
        }
        memcpy(jwks->digest, digest, sizeof(jwks->digest));
        api->log(self, POSTERN_INFO, "keys from %s: %zu, %zu not usable, %zu older kept",
                 plan->shown, fresh_count, skipped, merged->count - fresh_count);
    } else if (atomic_load(&jwks->failures) > 0) {
        api->log(self, POSTERN_INFO, "keys from %s: the same as before", plan->shown);
    }
    atomic_store(&jwks->failures, 0);
    end(fetch, w, next_ms);
}

static void on_reply(struct postern_worker *w, const struct postern_reply *reply, void *arg);

static void ask(struct fetch *fetch, struct postern_worker *w)
{
    static const struct postern_header accept = {
        {"Accept", 6}, {"application/jwk-set+json, application/json", 42}};
    const struct jwks_plan *plan = plan_of(fetch);
    struct postern_call call = {
        .size = sizeof(call),
        .origin = fetch->discovered ? plan->origins[fetch->origin].origin : plan->origin,
        .method = SPAN("GET"),
        .target = span_of(fetch->discovered ? fetch->target : plan->target),
        .headers = &accept,
        .header_count = 1,
        .deadline_ms = plan->timeout_ms,
        .max_bytes = plan->max_bytes,
    };

    api->call(w, &call, on_reply, fetch);
}

/* What the discovery says (OpenID Connect Discovery 4.3): NULL, and fetch knows where the keys
 * are, or what is wrong. */
static const char *read_discovery(struct fetch *fetch, const struct jwks_plan *plan,
                                  const json_t *json)
{
    struct postern_str uri = bounded_string(json, "jwks_uri");
    struct web_url url;

    if (!json)
        return "the discovery is no JSON object";
    if (!span_eq(bounded_string(json, "issuer"), plan->issuer))
        return "the discovery is of another issuer";
    if (!uri.p || !web_url_split(uri, &url) || url.target.n == 0)
        return "the discovery's jwks_uri is no URL";
    for (size_t i = 0; i < plan->origin_count; i++) {
        if (web_url_same_origin(url.origin, plan->origins[i].name)) {
            memcpy(fetch->target, url.target.p, url.target.n);
            fetch->target[url.target.n] = '\0';
            fetch->origin = i;
            fetch->discovered = true;
            return NULL;
        }
    }
    return "the discovery's jwks_uri is neither at the issuer nor at one of jwks_origins";
}

static void take_discovery(struct fetch *fetch, struct postern_worker *w,
                           const struct postern_reply *reply)
{
    json_t *json = bounded_object(reply->body);
    const char *wrong = read_discovery(fetch, plan_of(fetch), json);

    json_decref(json);
    if (wrong)
        fail(fetch, w, wrong);
    else
        ask(fetch, w);
}

static void on_reply(struct postern_worker *w, const struct postern_reply *reply, void *arg)
{
    struct fetch *fetch = arg;
    const struct jwks_plan *plan = plan_of(fetch);
    char why[64];

    if (!plan) { /* nobody here uses them any more; another worker goes on at once */
        end(fetch, w, 0);
    } else if (reply->status == 0) {
        fail(fetch, w, reply->failure ? reply->failure : "the call failed");
    } else if (reply->status != 200) {
        snprintf(why, sizeof(why), "the answer has status %u", reply->status);
        fail(fetch, w, why);
    } else if (plan->issuer.p && !fetch->discovered) {
        take_discovery(fetch, w, reply);
    } else {
        take_keys(fetch, w, reply);
    }
}

/* Begins a fetch, unless somebody else is at it or the last one is too fresh. */
static bool begin(struct jwks_seat *seat, struct postern_worker *w, bool is_due, uint64_t now)
{
    struct jwks *jwks = seat->jwks;
    const struct jwks_user *user = LIST_FIRST(&seat->users);
    struct fetch *fetch;
    uint64_t last = atomic_load(&jwks->finished_ns);

    if (!user || (is_due ? now < atomic_load(&jwks->due_ns)
                         : last != 0 && now < last + user->plan->floor_ms * MS))
        return false;
    fetch = calloc(1, sizeof(*fetch));
    if (!fetch)
        return false;
    now += now == last; /* no two have the same name */
    if (!atomic_compare_exchange_strong(&jwks->started_ns, &last, now)) {
        free(fetch); /* one is under way, or has been since we looked */
        return false;
    }
    fetch->jwks = jwks;
    atomic_fetch_add(&jwks->refs, 1);
    fetch->seat = seat;
    ask(fetch, w);
    return true;
}

static void tick(struct postern_worker *w, void *arg)
{
    struct jwks_seat *seat = arg;
    struct jwks_waiter *waiter, *next;
    uint64_t now = api->now_ns(), soonest = UINT64_MAX, due = atomic_load(&seat->jwks->due_ns);

    seat->timer = 0;
    for (waiter = TAILQ_FIRST(&seat->waiting); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, next);
        if (waiter->deadline_ns <= now)
            resume(waiter, jwks_too_late);
        else if (waiter->deadline_ns < soonest)
            soonest = waiter->deadline_ns;
    }
    arm(seat, w, soonest);
    if (now < due || !begin(seat, w, true, now))
        arm_for_fetch(seat, w);
}

struct jwks_seat *jwks_join(struct jwks *jwks, struct postern_worker *w, struct jwks_user *user)
{
    struct jwks_seat *seat = seat_of(jwks, w);

    if (!seat)
        return NULL;
    LIST_INSERT_HEAD(&seat->users, user, next);
    arm_for_fetch(seat, w);
    return seat;
}

void jwks_leave(struct jwks_seat *seat, struct postern_worker *w, struct jwks_user *user)
{
    LIST_REMOVE(user, next);
    if (LIST_EMPTY(&seat->users) && seat->timer) {
        api->cancel(w, seat->timer);
        seat->timer = 0;
    }
}

enum jwks_advice jwks_miss(struct jwks_seat *seat, struct postern_worker *w)
{
    struct jwks *jwks = seat->jwks;
    const struct jwks_user *user = LIST_FIRST(&seat->users);

    if (!user || seat->waiting_count >= user->plan->max_waiting)
        return JWKS_BROKEN;
    if (is_fetching(jwks) || begin(seat, w, false, api->now_ns()) || is_fetching(jwks) ||
        !jwks_keys(jwks))
        return JWKS_WAIT;
    return atomic_load(&jwks->failures) > 0 ? JWKS_BROKEN : JWKS_LATER;
}

void jwks_wait(struct jwks_seat *seat, struct postern_worker *w, struct jwks_waiter *waiter,
               struct postern_token token, uint64_t deadline_ns)
{
    *waiter = (struct jwks_waiter){.seat = seat, .token = token, .deadline_ns = deadline_ns};
    TAILQ_INSERT_TAIL(&seat->waiting, waiter, next);
    seat->waiting_count++;
    arm(seat, w, waiter->deadline_ns);
}

void jwks_unwait(struct jwks_waiter *waiter)
{
    struct jwks_seat *seat = waiter->seat;

    if (!seat)
        return;
    TAILQ_REMOVE(&seat->waiting, waiter, next);
    seat->waiting_count--;
    waiter->seat = NULL;
}
