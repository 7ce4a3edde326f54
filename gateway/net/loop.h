/* One event loop: a libevent base, its timers, its memory, its mailbox. One for each worker,
 * and one for the main thread.
 *
 * A turn is: wait, run the callbacks, and after each of them the tasks it left behind (flush
 * what was written, deliver what was held back); then the late tasks; at the end bury what
 * died. Objects are never freed inside a callback of their own: loop_bury keeps them until the
 * turn is over. Everything but loop_post is for the loop's own thread. */
#ifndef POSTERN_NET_LOOP_H
#define POSTERN_NET_LOOP_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>

#include "base/block.h"
#include "base/clock.h"
#include "net/deadline.h"
#include "net/pipe.h"

struct loop;

/* Something to do before the loop waits again. Zeroed memory is a task that is not queued. */
struct task {
    struct task *next;
    void (*run)(struct task *task);
    bool queued, late;
};

/* What waits to be freed. */
struct grave {
    struct grave *next;
    void (*bury)(struct grave *grave);
};

/* A letter from any thread; `run` is called on the loop's thread and owns it. */
struct message {
    struct message *next;
    void (*run)(struct message *message);
    void (*drop)(struct message *message); /* when nobody reads it; NULL: as the loop's owner
                                              does with its letters */
};

struct seg; /* net/stream */

struct loop {
    struct event_base *base;
    uint64_t now; /* ns, monotonic; refreshed at every callback */
    struct block_pool blocks;
    struct pipe_pool pipes;
    struct slab chunks; /* ARENA_CHUNK bytes each */
    struct slab segs;   /* net/stream's, with the next */
    struct slab events;
    struct wheel wheel;
    struct event timer;
    uint64_t timer_at;
    struct task *first_task, **last_task;
    struct task *first_late, **last_late;
    struct event late; /* active while there are late tasks */
    struct grave *graves;
    bool stop, in_tasks;

    int mail_fd;
    struct event mail;
    pthread_mutex_t mail_lock;
    struct message *first_mail, **last_mail;
};

int loop_init(struct loop *loop); /* 0 or -errno */
/* Buries what is left and gives back all memory; everything that used the loop is closed. */
void loop_done(struct loop *loop);
void loop_run(struct loop *loop); /* until loop_stop */
void loop_stop(struct loop *loop);

/* Around every callback that libevent calls: take the time; run the tasks. */
void loop_enter(struct loop *loop);
void loop_leave(struct loop *loop);

void loop_task(struct loop *loop, struct task *task); /* once, however often it is asked */
/* As loop_task, but only behind all callbacks of this turn: what many of them add to goes out
 * at once. */
void loop_late(struct loop *loop, struct task *task);
void loop_cancel(struct loop *loop, struct task *task);
void loop_bury(struct loop *loop, struct grave *grave, void (*bury)(struct grave *));
void loop_post(struct loop *loop, struct message *message); /* any thread */
/* Hands letters that will not be run to their own drop, else to this one: before loop_done. */
void loop_discard(struct loop *loop, void (*drop)(struct message *));

/* In `ms` milliseconds from now; 0 switches it off (INTERFACE: no limit). */
void loop_deadline(struct loop *loop, struct deadline *deadline, uint64_t ms);

#endif
