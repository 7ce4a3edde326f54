#include "app/follow.h"

#include "conf/tls_make.h"

#define LOOK_MS 1000

struct followed {
    uint64_t used;           /* the stamp of the files that are in force */
    uint64_t seen;           /* of the last look */
    uint64_t refused;        /* of those that could not be used; 0: none */
    struct tls_front *front; /* made of files that have changed; NULL: none */
};

static void warn(const char *kind, const char *name, struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        log_warn("%s:%d: %s; %s \"%s\" keeps the certificates it has",
                 faults->list[i].where.file, faults->list[i].where.line,
                 faults->list[i].message, kind, name);
    conf_faults_done(faults);
}

static void read_anew(struct follow *follow, size_t i, uint64_t stamp)
{
    struct followed *followed = &follow->list[i];
    const struct conf_listener *listener = &follow->snapshot->conf->listeners[i];
    struct tls_front *before = follow->snapshot->fronts[i];
    struct conf_faults faults = {0};
    struct tls_front *front = tls_make_front(listener, true, before, &faults);
    if (front)
        tls_check_dates(listener, front, before, time(NULL), &faults, &faults);
    if (faults.count) {
        followed->refused = stamp;
        tls_front_unref(front);
        warn("listener", listener->name, &faults);
        return;
    }
    log_info("listener \"%s\": the files of its certificates have changed and are in use",
             listener->name);
    followed->used = stamp;
    tls_front_unref(followed->front);
    followed->front = front;
    follow->changed = true;
}

/* Its cluster's context is renewed in place; connections that stand finish what they are at. */
static void renew(struct follow *follow, size_t i, struct followed *followed, uint64_t stamp)
{
    const struct conf_upstream *upstream = &follow->snapshot->conf->upstreams[i];
    struct conf_faults faults = {0};
    struct tls_back *back = tls_make_back(upstream, true, &faults);
    if (!back) {
        followed->refused = stamp;
        warn("upstream", upstream->name, &faults);
        return;
    }
    log_info("upstream \"%s\": the files of its tls have changed and are in use",
             upstream->name);
    followed->used = stamp;
    tls_back_renew(follow->snapshot->clusters[i]->tls, back);
    follow->ops->on_renewed(follow->owner, follow->snapshot->clusters[i]);
}

/* Between two looks they lay still: nobody is writing them. */
static bool is_new(struct followed *followed, uint64_t stamp)
{
    uint64_t before = followed->seen;
    followed->seen = stamp;
    return stamp == before && stamp != followed->used && stamp != followed->refused;
}

static void look_at_upstreams(struct follow *follow)
{
    const struct conf *conf = follow->snapshot->conf;
    for (size_t i = 0; i < conf->upstream_count; i++) {
        struct followed *followed = &follow->list[conf->listener_count + i];
        uint64_t stamp =
            conf->upstreams[i].tls ? tls_back_stamp(conf->upstreams[i].tls, false) : 0;
        if (stamp && is_new(followed, stamp))
            renew(follow, i, followed, stamp);
    }
}

static void on_due(struct deadline *deadline)
{
    struct follow *follow = (struct follow *)((char *)deadline - offsetof(struct follow, due));
    const struct snapshot *snapshot = follow->snapshot;
    for (size_t i = 0; i < snapshot->conf->listener_count; i++) {
        const struct conf_listener *listener = &snapshot->conf->listeners[i];
        struct followed *followed = &follow->list[i];
        if (!listener->tls)
            continue;
        uint64_t stamp = tls_stamp(listener->tls, false);
        tls_front_tick(snapshot->fronts[i], follow->loop->now);
        if (is_new(followed, stamp))
            read_anew(follow, i, stamp);
    }
    look_at_upstreams(follow);
    loop_deadline(follow->loop, &follow->due, LOOK_MS);
    if (follow->changed)
        follow->ops->on_changed(follow->owner);
}

static void forget(struct follow *follow)
{
    for (size_t i = 0; follow->list && i < follow->snapshot->conf->listener_count; i++)
        tls_front_unref(follow->list[i].front);
    mem_free(follow->list);
    follow->list = NULL;
    follow->changed = false;
}

void follow_init(struct follow *follow, struct loop *loop, const struct follow_ops *ops,
                 void *owner)
{
    *follow = (struct follow){.loop = loop, .ops = ops, .owner = owner};
    deadline_init(&follow->due, on_due);
}

void follow_switch(struct follow *follow, const struct snapshot *snapshot)
{
    const struct conf *conf = snapshot->conf;
    bool same = follow->snapshot && follow->snapshot->conf == conf, some = false;
    if (!same) {
        forget(follow);
        follow->list = mem_zalloc((conf->listener_count + conf->upstream_count + 1) *
                                  sizeof(*follow->list));
    }
    follow->snapshot = snapshot;
    for (size_t i = 0; !same && follow->list && i < conf->listener_count; i++)
        if (conf->listeners[i].tls)
            follow->list[i].used = follow->list[i].seen = conf->listeners[i].tls->stamp;
    for (size_t i = 0; i < conf->listener_count; i++)
        some |= conf->listeners[i].tls != NULL;
    for (size_t i = 0; i < conf->upstream_count; i++) {
        const struct conf_back *tls = conf->upstreams[i].tls;
        some |= tls != NULL;
        if (!tls || same || !follow->list)
            continue;
        struct followed *followed = &follow->list[conf->listener_count + i];
        followed->used = followed->seen = tls_back_stamp(tls, true);
    }
    if (!follow->list)
        log_error("out of memory: the files of certificates are not followed");
    loop_deadline(follow->loop, &follow->due, some && follow->list ? LOOK_MS : 0);
}

void follow_apply(struct follow *follow, struct snapshot *snapshot)
{
    follow->changed = false;
    for (size_t i = 0; follow->list && i < snapshot->conf->listener_count; i++)
        if (follow->list[i].front)
            snapshot_set_front(snapshot, i, follow->list[i].front);
}

void follow_done(struct follow *follow)
{
    if (follow->snapshot)
        forget(follow);
    deadline_end(&follow->loop->wheel, &follow->due);
}
