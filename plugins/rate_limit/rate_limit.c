#include "rate_limit/rate_limit.h"

#include <stdio.h>
#include <string.h>

#include "rate_limit/rate_redis.h"

const struct postern_api *rate_api;

static struct postern_str text(const char *s)
{
    return (struct postern_str){s, strlen(s)};
}

static void set(struct postern_request *r, const char *name, const char *value, size_t n)
{
    rate_api->set(r, POSTERN_ANSWER_HEADER, text(name), (struct postern_str){value, n});
}

static void set_number(struct postern_request *r, const char *name, uint64_t n)
{
    char digits[20];
    set(r, name, digits, rate_number(n, digits));
}

static void tell(const struct rate_limit *l, struct postern_request *r,
                 const struct gcra_verdict *v)
{
    if (l->headers == RATE_DRAFT || l->headers == RATE_BOTH) {
        char state[RATE_STATE_MAX];
        set(r, "RateLimit-Policy", l->fields.policy, l->fields.policy_n);
        set(r, "RateLimit", state, rate_state(&l->fields, &l->gcra, v, state));
    }
    if (l->headers == RATE_LEGACY || l->headers == RATE_BOTH) {
        unsigned i = rate_tightest(&l->gcra, v);
        const struct gcra_window *w = &l->gcra.windows[i];
        set_number(r, "X-RateLimit-Limit", w->number);
        set_number(r, "X-RateLimit-Remaining", gcra_left(w, v->ahead[i]));
        set_number(r, "X-RateLimit-Reset", gcra_seconds(v->ahead[i]));
    }
}

static enum postern_verdict refuse(const struct rate_limit *l, struct postern_request *r,
                                   const struct gcra_verdict *v)
{
    const struct gcra_window *w = &l->gcra.windows[v->met];
    uint64_t left = gcra_left(w, v->ahead[v->met]);
    char name[RATE_NAME_MAX], seconds[20], detail[160];
    size_t name_n = rate_name(w, name), seconds_n = rate_number(gcra_seconds(v->wait), seconds);
    int n =
        snprintf(detail, sizeof(detail),
                 "The limit of %.*s requests is used up; another one is possible in %.*s s.",
                 (int)name_n, name, (int)seconds_n, seconds);
    struct postern_header after = {text("Retry-After"), {seconds, seconds_n}};
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = 429,
        .reason = "limit.rate",
        .detail = {detail, (size_t)n},
        .limit = w->number,
        .actual = w->number - (left < w->number ? left : w->number) + l->gcra.cost,
        .headers = &after,
        .header_count = 1,
    };
    rate_api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static enum postern_verdict act(const struct rate_limit *l, struct postern_request *r,
                                const struct gcra_verdict *v)
{
    if (l->dry_run) {
        if (!v->allowed)
            rate_api->count(rate_api->worker(r), l->would_refuse, 1);
        return POSTERN_GO_ON;
    }
    tell(l, r, v);
    if (v->allowed)
        return POSTERN_GO_ON;
    rate_api->count(rate_api->worker(r), l->refused, 1);
    return refuse(l, r, v);
}

static enum postern_verdict act_here(const struct rate_limit *l, struct postern_request *r,
                                     uint64_t hash)
{
    struct gcra_verdict v;
    uint64_t now = gcra_time(rate_api->now_ns());
    if (rate_table_take(l->table, &l->gcra, hash, now, &v) == SLOTS_DISPLACED)
        rate_api->count(rate_api->worker(r), l->displaced, 1);
    return act(l, r, &v);
}

static enum postern_verdict close_door(struct postern_request *r)
{
    struct postern_header after = {text("Retry-After"), text("1")};
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = 503,
        .reason = "limit.unavailable",
        .detail = text("How often you may ask cannot be found out just now."),
        .headers = &after,
        .header_count = 1,
    };
    rate_api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static enum postern_verdict act_without_redis(const struct rate_limit *l,
                                              struct postern_request *r)
{
    rate_api->count(rate_api->worker(r), l->without_redis, 1);
    if (l->down == RATE_OPEN || (l->down == RATE_CLOSED && l->dry_run))
        return POSTERN_GO_ON;
    if (l->down == RATE_CLOSED)
        return close_door(r);
    return act_here(l, r, limit_by_hash(&l->by, rate_api, r));
}

static enum postern_verdict heed(const struct rate_limit *l, struct postern_request *r,
                                 enum rate_redis_says says, const struct gcra_verdict *v)
{
    switch (says) {
    case RATE_REDIS_SAID:
        return act(l, r, v);
    case RATE_REDIS_WAITS:
        return POSTERN_WAIT;
    case RATE_REDIS_AWAY:
        return act_without_redis(l, r);
    case RATE_REDIS_FAILED:
        break;
    }
    return POSTERN_FAILED;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    const struct rate_limit *l = instance;
    struct gcra_verdict v;
    uint64_t hash = limit_by_hash(&l->by, rate_api, r);
    if (!l->redis)
        return act_here(l, r, hash);
    enum rate_redis_says says = rate_redis_take(l->redis, r, hash, &v);
    return heed(l, r, says, &v);
}

static enum postern_verdict on_resume(void *instance, struct postern_request *r, void *result)
{
    struct gcra_verdict v;
    enum rate_redis_says says = rate_redis_result(result, &v);
    return heed(instance, r, says, &v);
}

static void on_cancel(void *instance, struct postern_request *r)
{
    (void)instance;
    rate_redis_cancel(r);
}

static void start(void *instance, struct postern_worker *w)
{
    const struct rate_limit *l = instance;
    if (l->redis)
        rate_redis_start(l->redis, w);
}

static void stop(void *instance, struct postern_worker *w)
{
    const struct rate_limit *l = instance;
    if (l->redis)
        rate_redis_stop(l->redis, w);
}

static bool load(const struct postern_api *api)
{
    rate_api = api;
    return true;
}

static const struct postern_reason reasons[] = {
    {"limit.rate", "Too many requests"},
    {"limit.unavailable", "Limits cannot be checked"},
};

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "rate_limit",
    .version = POSTERN_VERSION,
    .summary = "How often the same client may ask, in one or several spans of time.",
    .options = rate_options,
    .option_size = sizeof(struct postern_option),
    .option_count = RATE_OPTIONS,
    .reasons = reasons,
    .reason_count = sizeof(reasons) / sizeof(reasons[0]),
    .order = POSTERN_ORDER_LIMIT,
    .load = load,
    .configure = rate_configure,
    .discard = rate_discard,
    .start = start,
    .stop = stop,
    .on_request = on_request,
    .on_resume = on_resume,
    .on_cancel = on_cancel,
};
