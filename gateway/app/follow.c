#include "app/follow.h"

#include "conf/tls_make.h"

#define LOOK_MS 1000

struct followed {
    uint64_t used;           /* the stamp of the files that are in force */
    uint64_t seen;           /* of the last look */
    uint64_t refused;        /* of those that could not be used; 0: none */
    struct tls_front *front; /* made of files that have changed; NULL: none */
};

static void warn(const struct conf_listener *listener, struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        log_warn("%s:%d: %s; listener \"%s\" keeps the certificates it has",
                 faults->list[i].where.file, faults->list[i].where.line,
                 faults->list[i].message, listener->name);
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
        warn(listener, &faults);
        return;
    }
    log_info("listener \"%s\": the files of its certificates have changed and are in use",
             listener->name);
    followed->used = stamp;
    tls_front_unref(followed->front);
    followed->front = front;
    follow->changed = true;
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
        uint64_t stamp = tls_stamp(listener->tls, false), before = followed->seen;
        followed->seen = stamp;
        tls_front_tick(snapshot->fronts[i], follow->loop->now);
        /* Between two looks they lay still: nobody is writing them. */
        if (stamp == before && stamp != followed->used && stamp != followed->refused)
            read_anew(follow, i, stamp);
    }
    loop_deadline(follow->loop, &follow->due, LOOK_MS);
    if (follow->changed)
        follow->on_changed(follow->owner);
}

static void forget(struct follow *follow)
{
    for (size_t i = 0; follow->list && i < follow->snapshot->conf->listener_count; i++)
        tls_front_unref(follow->list[i].front);
    mem_free(follow->list);
    follow->list = NULL;
    follow->changed = false;
}

void follow_init(struct follow *follow, struct loop *loop, void (*on_changed)(void *owner),
                 void *owner)
{
    *follow = (struct follow){.loop = loop, .on_changed = on_changed, .owner = owner};
    deadline_init(&follow->due, on_due);
}

void follow_switch(struct follow *follow, const struct snapshot *snapshot)
{
    const struct conf *conf = snapshot->conf;
    bool same = follow->snapshot && follow->snapshot->conf == conf, some = false;
    if (!same) {
        forget(follow);
        follow->list = mem_zalloc((conf->listener_count + 1) * sizeof(*follow->list));
    }
    follow->snapshot = snapshot;
    for (size_t i = 0; !same && follow->list && i < conf->listener_count; i++)
        if (conf->listeners[i].tls)
            follow->list[i].used = follow->list[i].seen = conf->listeners[i].tls->stamp;
    for (size_t i = 0; i < conf->listener_count; i++)
        some |= conf->listeners[i].tls != NULL;
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
