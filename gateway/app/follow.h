/* Certificates that change while the gateway runs: their files are looked at every second, and
 * when they have changed and lie still, the listener or upstream gets what they hold now. What
 * cannot be used is warned of, and the old certificates stay. Main thread. */
#ifndef POSTERN_APP_FOLLOW_H
#define POSTERN_APP_FOLLOW_H

#include "conf/snapshot.h"
#include "net/loop.h"

struct followed;

struct follow_ops {
    /* A snapshot with what follow_apply puts into it is wanted. */
    void (*on_changed)(void *owner);
    /* The context of that upstream's TLS is another one from now on. */
    void (*on_renewed)(void *owner, struct cluster *cluster);
};

struct follow {
    struct loop *loop;
    const struct snapshot *snapshot; /* in force */
    struct followed *list;           /* as its listeners, and behind them its upstreams */
    bool changed;                    /* follow_apply has something to do */
    struct deadline due;
    const struct follow_ops *ops;
    void *owner;
};

void follow_init(struct follow *follow, struct loop *loop, const struct follow_ops *ops,
                 void *owner);
/* That snapshot is in force now; it lives until the next one is, or follow_done. */
void follow_switch(struct follow *follow, const struct snapshot *snapshot);
/* New certificates into a snapshot of the same configuration. */
void follow_apply(struct follow *follow, struct snapshot *snapshot);
void follow_done(struct follow *follow);

#endif
