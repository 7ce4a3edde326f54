#include "up/health.h"

#include <errno.h>

#include "up/outlier.h"

#define PROBES_MAX  256 /* at a time; more wait for their turn */
#define WARM_MAX_MS 3000
#define WARM_TICK   10 /* ms between looks whether workers are warm */
#define EASE_MIN    (EASE_FULL / 10)

/* What is known of one server on this side. */
struct target {
    struct target *next, **prev;
    struct health *health;
    struct vitals *vitals;
    struct cluster *cluster; /* in force; of a fresh one: being prepared */
    uint32_t server;
    struct cluster *next_cluster; /* being prepared; NULL: it is not in that */
    uint32_t next_server;
    struct health_counts counts;
    bool fresh; /* not in force yet */
    bool first; /* its first probe is waited for */

    bool known;      /* a probe has ended: from now on rise and fall count */
    uint32_t streak; /* probes in a row that speak against its state */
    struct probe *probe;
    uint64_t probed_at;
    struct deadline probe_due;
    bool queued;
    struct target *next_queued;
    char why_down[PROBE_WHY];

    unsigned times; /* ejections that still count */
    bool serving;   /* it is ejected, and its time runs */
    uint32_t sentence;
    uint64_t returned_at;
    struct deadline return_due;
    char why_ejected[PROBE_WHY];

    bool warming, easing;
    uint64_t since; /* that it warms, or eases in */
    struct deadline ease_due;
};

struct health {
    struct loop *loop;
    const struct health_ops *ops;
    void *owner;
    struct target *targets;
    uint32_t pending; /* first probes that are waited for */
    uint32_t in_flight;
    struct target *queue, **last_queued;
    struct task prepared;
    uint64_t random;
};

static const struct health_policy *policy_of(const struct target *target)
{
    return &target->cluster->watch.health;
}

static void tell(struct target *target, enum health_event event, uint32_t ms, const char *why)
{
    struct health_change change = {
        .event = event, .cluster = target->cluster, .server = target->server, .ms = ms};
    for (uint32_t i = 0; i < target->cluster->count; i++)
        change.left += !(vitals_word(target->cluster->servers[i].vitals) & VITAL_OUT);
    snprintf(change.why, sizeof(change.why), "%s", why);
    target->health->ops->on_change(target->health->owner, &change);
}

/* What clients are told who find nobody: when it may be back at the earliest, if all goes well
 * from now on. Whoever drained it did not say. */
static void foretell(struct target *target)
{
    uint32_t word = vitals_word(target->vitals);
    const struct health_policy *policy = policy_of(target);
    uint64_t at = 0;
    if (word & VITAL_DOWN)
        at = target->health->loop->now +
             (uint64_t)(policy->rise - target->streak) * policy->interval * NS_PER_MS;
    if (target->serving && target->return_due.at > at)
        at = target->return_due.at;
    atomic_store_explicit(&target->vitals->back_at, word & VITAL_DRAINING ? 0 : at,
                          memory_order_relaxed);
}

/* ---- coming back ---- */

/* How far, after `ms` of `slow_start`: from a tenth to all of its weight. */
static uint32_t eased(uint64_t ms, uint32_t slow_start)
{
    if (ms >= slow_start)
        return EASE_FULL;
    return EASE_MIN + (uint32_t)(ms * (EASE_FULL - EASE_MIN) / slow_start);
}

static void ease_on(struct target *target)
{
    struct loop *loop = target->health->loop;
    uint32_t slow_start = target->cluster->watch.slow_start;
    uint32_t ease = eased((loop->now - target->since) / NS_PER_MS, slow_start);
    vitals_ease(target->vitals, ease);
    target->easing = ease < EASE_FULL;
    if (target->easing)
        loop_deadline(loop, &target->ease_due, slow_start / 100 + WARM_TICK);
}

static void ease_in(struct target *target)
{
    target->warming = false;
    target->since = target->health->loop->now;
    ease_on(target);
}

static void on_ease_due(struct deadline *deadline)
{
    struct target *target =
        (struct target *)((char *)deadline - offsetof(struct target, ease_due));
    struct loop *loop = target->health->loop;
    if (target->easing) {
        ease_on(target);
        return;
    }
    bool is_cold = vitals_word(target->vitals) & VITAL_WARMING;
    if (is_cold && loop->now - target->since < WARM_MAX_MS * NS_PER_MS) {
        loop_deadline(loop, &target->ease_due, WARM_TICK);
        return;
    }
    vitals_change(target->vitals, VITAL_WARMING, 0);
    ease_in(target);
}

/* It is out (again): whatever was under way to bring it back ends. */
static void stay_out(struct target *target)
{
    target->warming = target->easing = false;
    deadline_off(&target->ease_due);
    vitals_change(target->vitals, VITAL_WARMING, 0);
    vitals_ease(target->vitals, EASE_FULL);
}

/* One reason to be out is over. If it was the last, workers open connections first; in between
 * there is no moment at which it looks well. */
static void come_back(struct target *target, uint32_t reason)
{
    struct vitals *vitals = target->vitals;
    struct health *health = target->health;
    vitals_change(vitals, 0, VITAL_WARMING);
    if (reason == VITAL_EJECTED)
        outlier_return(vitals);
    else
        vitals_change(vitals, reason, 0);
    if (vitals_word(vitals) & VITAL_OUT & ~(unsigned)VITAL_WARMING) {
        vitals_change(vitals, VITAL_WARMING, 0);
        return;
    }
    if (target->cluster->watch.slow_start)
        vitals_ease(vitals, EASE_MIN);
    target->warming = true;
    target->easing = false;
    target->since = health->loop->now;
    loop_deadline(health->loop, &target->ease_due, WARM_TICK);
    health->ops->warm(health->owner, target->cluster, target->server);
}

/* ---- probes ---- */

static void probe_now(struct target *target);

static uint64_t random_of(struct health *health)
{
    health->random ^= health->random << 13;
    health->random ^= health->random >> 7;
    health->random ^= health->random << 17;
    return health->random;
}

/* An interval after the last one began, give or take a tenth: probes of many servers, and of
 * many gateways, do not come in step. */
static void probe_later(struct target *target)
{
    struct loop *loop = target->health->loop;
    uint64_t interval = policy_of(target)->interval * NS_PER_MS;
    uint64_t at =
        target->probed_at + interval * 9 / 10 + random_of(target->health) % (interval / 5 + 1);
    uint64_t ms = at > loop->now ? (at - loop->now) / NS_PER_MS : 0;
    loop_deadline(loop, &target->probe_due, ms + 1);
}

static void queue_put(struct target *target)
{
    struct health *health = target->health;
    target->queued = true;
    target->next_queued = NULL;
    *health->last_queued = target;
    health->last_queued = &target->next_queued;
}

static void queue_cut(struct target *target)
{
    struct health *health = target->health;
    struct target **at = &health->queue;
    while (*at != target)
        at = &(*at)->next_queued;
    *at = target->next_queued;
    if (!*at)
        health->last_queued = at;
    target->queued = false;
}

static void probe_ended(struct target *target)
{
    struct health *health = target->health;
    target->probe = NULL;
    health->in_flight--;
    while (health->queue && health->in_flight < PROBES_MAX) {
        struct target *next = health->queue;
        queue_cut(next);
        probe_now(next);
    }
}

static void end_first(struct target *target)
{
    struct health *health = target->health;
    if (!target->first)
        return;
    target->first = false;
    if (--health->pending == 0)
        loop_task(health->loop, &health->prepared);
}

static void go_down(struct target *target, const char *last)
{
    uint32_t fall = policy_of(target)->fall;
    if (!target->known)
        snprintf(target->why_down, sizeof(target->why_down), "its first probe failed: %.120s",
                 last);
    else if (fall > 1)
        snprintf(target->why_down, sizeof(target->why_down),
                 "%u probes in a row failed, the last: %.110s", fall, last);
    else
        snprintf(target->why_down, sizeof(target->why_down), "its probe failed: %.120s", last);
    vitals_change(target->vitals, 0, VITAL_DOWN);
    stay_out(target);
    tell(target, HEALTH_WENT_DOWN, 0, target->why_down);
}

static void come_up(struct target *target)
{
    char why[PROBE_WHY];
    uint32_t rise = policy_of(target)->rise;
    snprintf(why, sizeof(why), "%u probe%s went well", rise, rise == 1 ? "" : "s in a row");
    come_back(target, VITAL_DOWN);
    tell(target, HEALTH_CAME_UP, 0, why);
}

static void take_result(struct target *target, const struct probe_result *result)
{
    bool is_down = vitals_word(target->vitals) & VITAL_DOWN;
    bool ok = result->end == PROBE_OK;
    target->streak = ok == is_down ? target->streak + 1 : 0;
    uint32_t enough = !target->known ? 1
                      : is_down      ? policy_of(target)->rise
                                     : policy_of(target)->fall;
    if (target->streak >= enough) {
        target->streak = 0;
        if (is_down)
            come_up(target);
        else
            go_down(target, result->why);
    }
    target->known = true;
    foretell(target);
}

static void on_probed(void *arg, const struct probe_result *result)
{
    struct target *target = arg;
    probe_ended(target);
    target->counts.probes[result->end]++;
    if (result->end != PROBE_SELF)
        take_result(target, result);
    probe_later(target);
    end_first(target);
}

static void probe_now(struct target *target)
{
    struct health *health = target->health;
    if (health->in_flight >= PROBES_MAX) {
        queue_put(target);
        return;
    }
    target->probed_at = health->loop->now;
    target->probe =
        probe_start(health->loop, target->cluster, target->server, on_probed, target);
    if (target->probe) {
        health->in_flight++;
        return;
    }
    probe_later(target);
    end_first(target);
}

static void on_probe_due(struct deadline *deadline)
{
    probe_now((struct target *)((char *)deadline - offsetof(struct target, probe_due)));
}

static void stop_probes(struct target *target)
{
    deadline_off(&target->probe_due);
    if (target->queued)
        queue_cut(target);
    if (target->probe) {
        probe_cancel(target->probe);
        probe_ended(target);
    }
}

/* Its probes are others from now on; what the old ones found stays until they say otherwise. */
static void restart_probes(struct target *target)
{
    stop_probes(target);
    target->streak = 0;
    if (policy_of(target)->type != HEALTH_OFF) {
        probe_now(target);
        return;
    }
    target->known = false;
    if (vitals_word(target->vitals) & VITAL_DOWN) {
        come_back(target, VITAL_DOWN);
        tell(target, HEALTH_CAME_UP, 0, "it is not probed any more");
    }
}

/* ---- ejections ---- */

static void put_verdict(const struct verdict *verdict, char out[PROBE_WHY])
{
    static const char *const last[] = {"no connection",       "the connection was closed",
                                       "no answer in time",   "an answer that is not HTTP",
                                       "status 500",          "status 502",
                                       "status 503",          "status 504",
                                       "a status from 500 on"};
    const char *text = last[__builtin_ctz(verdict->what)];
    if (verdict->requests)
        snprintf(out, PROBE_WHY, "%u of %u requests failed, the last: %s", verdict->failures,
                 verdict->requests, text);
    else
        snprintf(out, PROBE_WHY, "%u failure%s in a row, the last: %s", verdict->failures,
                 verdict->failures == 1 ? "" : "s", text);
}

/* It returns when its time is over, but not into what its probes will say in a moment. */
static void on_return_due(struct deadline *deadline)
{
    struct target *target =
        (struct target *)((char *)deadline - offsetof(struct target, return_due));
    uint32_t word = vitals_word(target->vitals);
    if (target->streak && !(word & VITAL_DOWN)) { /* its last probe failed too */
        loop_deadline(target->health->loop, deadline, policy_of(target)->interval);
        foretell(target);
        return;
    }
    target->serving = false;
    target->returned_at = target->health->loop->now;
    come_back(target, VITAL_EJECTED);
    foretell(target);
    tell(target, HEALTH_RETURNED, 0, "its time is over");
}

static void on_ejected(struct target *target)
{
    const struct outlier_policy *policy = &target->cluster->watch.outlier;
    struct loop *loop = target->health->loop;
    if (!policy->on) { /* switched off meanwhile */
        come_back(target, VITAL_EJECTED);
        return;
    }
    target->times = outlier_decay(target->times, target->sentence,
                                  (loop->now - target->returned_at) / NS_PER_MS);
    target->counts.ejections++;
    target->sentence = outlier_sentence(policy, target->times++);
    target->serving = true;
    loop_deadline(loop, &target->return_due, target->sentence);
    stay_out(target);
    foretell(target);
    put_verdict(&target->vitals->verdict, target->why_ejected);
    tell(target, HEALTH_WAS_EJECTED, target->sentence, target->why_ejected);
}

/* Only from here on its place among the ejected may be given back: the letter is free again. */
static void on_news(struct message *message)
{
    struct vitals *vitals = (struct vitals *)((char *)message - offsetof(struct vitals, news));
    if (vitals->target)
        on_ejected(vitals->target);
    else
        outlier_return(vitals);
    vitals_unref(vitals);
}

void health_tell(struct vitals *vitals)
{
    struct health *health = vitals->ward->health;
    if (!health)
        return;
    vitals->news.run = on_news;
    loop_post(health->loop, &vitals_ref(vitals)->news);
}

bool health_drop(struct message *message)
{
    if (message->run != on_news)
        return false;
    vitals_unref((struct vitals *)((char *)message - offsetof(struct vitals, news)));
    return true;
}

/* ---- operators ---- */

void health_drain(struct health *health, struct vitals *vitals, bool drain)
{
    struct target *target = vitals->target;
    bool drains = vitals_word(vitals) & VITAL_DRAINING;
    if (!target || drains == drain)
        return;
    if (drain) {
        vitals_change(vitals, 0, VITAL_DRAINING);
        stay_out(target);
        foretell(target);
        health->ops->drain(health->owner, target->cluster, target->server);
        tell(target, HEALTH_DRAINS, 0, "");
    } else {
        come_back(target, VITAL_DRAINING);
        foretell(target);
        tell(target, HEALTH_IS_READY, 0, "");
    }
}

const char *health_why(const struct vitals *vitals)
{
    uint32_t word = vitals_word(vitals);
    const struct target *target = vitals->target;
    if (word & VITAL_DRAINING)
        return "drained by an operator";
    if (target && (word & VITAL_DOWN))
        return target->why_down;
    return target && (word & VITAL_EJECTED) ? target->why_ejected : "";
}

const struct health_counts *health_counts(const struct vitals *vitals)
{
    return vitals->target ? &vitals->target->counts : NULL;
}

/* ---- configurations ---- */

static void drop(struct target *target)
{
    struct health *health = target->health;
    struct vitals *vitals = target->vitals;
    *target->prev = target->next;
    if (target->next)
        target->next->prev = target->prev;
    stop_probes(target);
    deadline_end(&health->loop->wheel, &target->probe_due);
    deadline_end(&health->loop->wheel, &target->return_due);
    deadline_end(&health->loop->wheel, &target->ease_due);
    vitals->target = NULL;
    vitals_change(vitals, VITAL_WARMING, VITAL_GONE);
    if (target->serving)
        outlier_return(vitals);
    cluster_unref(target->cluster);
    cluster_unref(target->next_cluster);
    vitals_unref(vitals);
    mem_free(target);
}

static struct target *add(struct health *health, struct cluster *cluster, uint32_t server)
{
    struct target *target = mem_zalloc(sizeof(*target));
    if (!target)
        return NULL;
    target->health = health;
    target->vitals = vitals_ref(cluster->servers[server].vitals);
    target->vitals->target = target;
    target->cluster = cluster_ref(cluster);
    target->server = server;
    target->fresh = true;
    if (target->vitals->joined && cluster->watch.slow_start)
        vitals_ease(target->vitals, EASE_MIN);
    deadline_init(&target->probe_due, on_probe_due);
    deadline_init(&target->return_due, on_return_due);
    deadline_init(&target->ease_due, on_ease_due);
    target->next = health->targets;
    if (target->next)
        target->next->prev = &target->next;
    target->prev = &health->targets;
    health->targets = target;
    return target;
}

static int prepare_server(struct health *health, struct cluster *cluster, uint32_t server)
{
    struct vitals *vitals = cluster->servers[server].vitals;
    if (!vitals->ward->health) /* else workers may be reading it */
        vitals->ward->health = health;
    if (!vitals->target && !add(health, cluster, server))
        return -ENOMEM;
    vitals->target->next_cluster = cluster_ref(cluster);
    vitals->target->next_server = server;
    return 0;
}

int health_prepare(struct health *health, struct cluster *const *clusters, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < clusters[i]->count; k++)
            if (prepare_server(health, clusters[i], k) < 0) {
                health_forget(health);
                return -ENOMEM;
            }
    for (struct target *target = health->targets; target; target = target->next)
        if (target->fresh && policy_of(target)->type != HEALTH_OFF) {
            target->first = true;
            health->pending++;
        }
    bool waits = health->pending;
    for (struct target *target = health->targets; target; target = target->next)
        if (target->first)
            probe_now(target);
    return waits;
}

static void switch_one(struct target *target)
{
    struct cluster *before = target->cluster;
    bool same = health_policy_eq(&before->watch.health, &target->next_cluster->watch.health);
    target->cluster = target->next_cluster;
    target->server = target->next_server;
    target->next_cluster = NULL;
    target->first = false;
    if (!same) {
        restart_probes(target);
        foretell(target);
    }
    if (target->serving && !target->cluster->watch.outlier.on) {
        target->serving = false;
        deadline_off(&target->return_due);
        come_back(target, VITAL_EJECTED);
        foretell(target);
        tell(target, HEALTH_RETURNED, 0, "outlier detection is switched off");
    }
    /* who joins others that are at work already begins with less */
    if (target->fresh && target->vitals->joined && !(vitals_word(target->vitals) & VITAL_OUT))
        ease_in(target);
    target->fresh = false;
    cluster_unref(before);
}

void health_switch(struct health *health)
{
    struct target *next;
    health->pending = 0;
    loop_cancel(health->loop, &health->prepared);
    for (struct target *target = health->targets; target; target = next) {
        next = target->next;
        if (target->next_cluster)
            switch_one(target);
        else
            drop(target);
    }
}

void health_forget(struct health *health)
{
    struct target *next;
    health->pending = 0;
    loop_cancel(health->loop, &health->prepared);
    for (struct target *target = health->targets; target; target = next) {
        next = target->next;
        if (target->fresh) {
            target->first = false;
            drop(target);
            continue;
        }
        cluster_unref(target->next_cluster);
        target->next_cluster = NULL;
    }
}

static void on_prepared(struct task *task)
{
    struct health *health = (struct health *)((char *)task - offsetof(struct health, prepared));
    health->ops->on_prepared(health->owner);
}

struct health *health_new(struct loop *loop, const struct health_ops *ops, void *owner)
{
    struct health *health = mem_zalloc(sizeof(*health));
    if (!health)
        return NULL;
    health->loop = loop;
    health->ops = ops;
    health->owner = owner;
    health->last_queued = &health->queue;
    health->prepared.run = on_prepared;
    health->random = clock_ns() | 1;
    return health;
}

void health_free(struct health *health)
{
    if (!health)
        return;
    loop_cancel(health->loop, &health->prepared);
    while (health->targets) {
        health->targets->first = false;
        drop(health->targets);
    }
    mem_free(health);
}
