#include "proxy/shed.h"

#define LOOK_MS 1000

static const char *const limit_names[FAULT_LIMITS] = {
    [LIMIT_NONE] = "?",
    [LIMIT_PENDING] = "breaker.pending",
    [LIMIT_REQUESTS] = "breaker.requests",
    [LIMIT_CONNECTIONS] = "pool.connections",
};

bool shed_admit(struct exchange *ex)
{
    struct breaker *breaker = &ex->cluster->breaker;
    uint32_t count;
    if (!breaker->limits.requests)
        return true;
    ex->admitted = breaker_begin(breaker, &count);
    if (!ex->admitted)
        exchange_fail(ex, &(struct leg_fault){.reason = R_UPSTREAM_OVERFLOW,
                                              .which = LIMIT_REQUESTS,
                                              .limit = breaker->limits.requests,
                                              .actual = count});
    return ex->admitted;
}

void shed_leave(struct exchange *ex)
{
    if (ex->admitted)
        breaker_end(&ex->cluster->breaker);
    ex->admitted = false;
}

static bool tell_if_over(struct fleet *fleet, uint64_t now, bool force)
{
    uint64_t refused, ns;
    if (!breaker_is_over(&fleet->cluster->breaker, now, force, &refused, &ns))
        return false;
    log_info("upstream \"%s\" refuses no requests any more: %llu were refused in %llu ms",
             fleet->cluster->name, (unsigned long long)refused,
             (unsigned long long)(ns / NS_PER_MS));
    return true;
}

static void on_calm_due(struct deadline *deadline)
{
    struct fleet *fleet = (struct fleet *)((char *)deadline - offsetof(struct fleet, calm_due));
    if (!tell_if_over(fleet, fleet->loop->now, false))
        loop_deadline(fleet->loop, deadline, LOOK_MS);
}

void shed_note(struct context *cx, struct fleet *fleet, const struct leg_fault *fault)
{
    unsigned labels[4] = {fleet->cluster->metric_name, fault->which};
    series_add(metrics_series(cx->metrics, METRIC_UPSTREAM_OVERFLOWS, labels), 1);
    if (!breaker_refused(&fleet->cluster->breaker, cx->loop->now))
        return;
    log_warn("upstream \"%s\" refuses requests: %s is %llu, and this would be %llu",
             fleet->cluster->name, limit_names[fault->which], (unsigned long long)fault->limit,
             (unsigned long long)fault->actual);
    fleet->loop = cx->loop;
    fleet->calm_due.on_due = on_calm_due;
    loop_deadline(fleet->loop, &fleet->calm_due, LOOK_MS);
}

void shed_done(struct context *cx, struct fleet *fleet)
{
    if (deadline_is_on(&fleet->calm_due))
        tell_if_over(fleet, cx->loop->now, true);
    deadline_end(&cx->loop->wheel, &fleet->calm_due);
}
