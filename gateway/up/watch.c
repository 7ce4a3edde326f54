#include "up/watch.h"

#include <errno.h>

#include "base/mem.h"

static char *copy(const char *text, bool *ok)
{
    size_t n = text ? strlen(text) + 1 : 0;
    char *out = text ? mem_alloc(n) : NULL;
    if (out)
        memcpy(out, text, n);
    *ok &= out || !text;
    return out;
}

int watch_copy(struct watch *ret, const struct watch *watch)
{
    bool ok = true;
    *ret = *watch;
    ret->health.path = copy(watch->health.path, &ok);
    ret->health.host = copy(watch->health.host, &ok);
    ret->health.body = copy(watch->health.body, &ok);
    ret->health.service = copy(watch->health.service, &ok);
    if (ok)
        return 0;
    watch_done(ret);
    return -ENOMEM;
}

void watch_done(struct watch *watch)
{
    mem_free(watch->health.path);
    mem_free(watch->health.host);
    mem_free(watch->health.body);
    mem_free(watch->health.service);
    watch->health.path = watch->health.host = NULL;
    watch->health.body = watch->health.service = NULL;
}

static bool text_eq(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool health_policy_eq(const struct health_policy *a, const struct health_policy *b)
{
    if (a->type != b->type || a->status_count != b->status_count)
        return false;
    for (uint32_t i = 0; i < a->status_count; i++)
        if (a->status[i].low != b->status[i].low || a->status[i].high != b->status[i].high)
            return false;
    return text_eq(a->path, b->path) && text_eq(a->host, b->host) &&
           text_eq(a->body, b->body) && text_eq(a->service, b->service) &&
           a->interval == b->interval && a->timeout == b->timeout && a->rise == b->rise &&
           a->fall == b->fall;
}

static bool outlier_eq(const struct outlier_policy *a, const struct outlier_policy *b)
{
    return a->on == b->on && a->failures == b->failures &&
           a->share_permille == b->share_permille && a->requests == b->requests &&
           a->window == b->window && a->eject == b->eject && a->max_eject == b->max_eject &&
           a->max_ejected_permille == b->max_ejected_permille && a->counts == b->counts;
}

bool watch_eq(const struct watch *a, const struct watch *b)
{
    return health_policy_eq(&a->health, &b->health) && outlier_eq(&a->outlier, &b->outlier) &&
           a->panic == b->panic && a->slow_start == b->slow_start;
}

bool status_is_in(const struct health_policy *policy, unsigned status)
{
    for (uint32_t i = 0; i < policy->status_count; i++)
        if (status >= policy->status[i].low && status <= policy->status[i].high)
            return true;
    return false;
}
