#include "net/loop.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/stream.h"

static void arm_timer(struct loop *loop)
{
    uint64_t at = wheel_next(&loop->wheel);
    if (at == loop->timer_at)
        return;
    loop->timer_at = at;
    if (at == UINT64_MAX) {
        event_del(&loop->timer);
        return;
    }
    uint64_t ns = at > loop->now ? at - loop->now : 0;
    struct timeval tv = {.tv_sec = (time_t)(ns / NS_PER_S),
                         .tv_usec = (suseconds_t)(ns % NS_PER_S / 1000 + 1)};
    event_add(&loop->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop *loop = arg;
    loop_enter(loop);
    loop->timer_at = 0;
    wheel_advance(&loop->wheel, loop->now);
    arm_timer(loop);
    loop_leave(loop);
}

static struct message *take_mail(struct loop *loop)
{
    pthread_mutex_lock(&loop->mail_lock);
    struct message *list = loop->first_mail;
    loop->first_mail = NULL;
    loop->last_mail = &loop->first_mail;
    pthread_mutex_unlock(&loop->mail_lock);
    return list;
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct loop *loop = arg;
    uint64_t count;
    loop_enter(loop);
    if (read(fd, &count, sizeof(count)) < 0)
        count = 0; /* nothing rang; the list is looked at all the same */
    struct message *list = take_mail(loop);
    while (list) {
        struct message *message = list;
        list = message->next;
        message->run(message);
    }
    loop_leave(loop);
}

void loop_discard(struct loop *loop, void (*drop)(struct message *))
{
    struct message *list = take_mail(loop);
    while (list) {
        struct message *message = list;
        list = message->next;
        (message->drop ? message->drop : drop)(message);
    }
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop *loop = arg;
    loop_enter(loop);
    while (loop->first_late) {
        struct task *task = loop->first_late;
        loop->first_late = task->next;
        if (!loop->first_late)
            loop->last_late = &loop->first_late;
        task->queued = task->late = false;
        task->run(task);
    }
    loop_leave(loop);
}

int loop_init(struct loop *loop)
{
    *loop = (struct loop){.mail_fd = -1};
    struct event_config *config = event_config_new();
    if (!config)
        return -ENOMEM;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    loop->base = event_base_new_with_config(config);
    event_config_free(config);
    if (!loop->base)
        return -ENOMEM;
    loop->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->mail_fd < 0) {
        int err = -errno;
        event_base_free(loop->base);
        return err;
    }
    loop->now = clock_ns();
    block_pool_init(&loop->blocks);
    pipe_pool_init(&loop->pipes, &loop->blocks);
    slab_init(&loop->chunks, ARENA_CHUNK, 256);
    slab_init(&loop->segs, sizeof(struct seg), 1024);
    slab_init(&loop->events, sizeof(struct event), 256);
    wheel_init(&loop->wheel, loop->now);
    loop->timer_at = UINT64_MAX;
    loop->last_task = &loop->first_task;
    loop->last_late = &loop->first_late;
    loop->last_mail = &loop->first_mail;
    pthread_mutex_init(&loop->mail_lock, NULL);
    evtimer_assign(&loop->timer, loop->base, on_timer, loop);
    event_assign(&loop->late, loop->base, -1, 0, on_late, loop);
    event_assign(&loop->mail, loop->base, loop->mail_fd, EV_READ | EV_PERSIST, on_mail, loop);
    event_add(&loop->mail, NULL);
    return 0;
}

static void bury_all(struct loop *loop)
{
    while (loop->graves) {
        struct grave *grave = loop->graves;
        loop->graves = grave->next;
        grave->bury(grave);
    }
}

void loop_done(struct loop *loop)
{
    bury_all(loop);
    event_del(&loop->timer);
    event_del(&loop->late);
    event_del(&loop->mail);
    close(loop->mail_fd);
    event_base_free(loop->base);
    pthread_mutex_destroy(&loop->mail_lock);
    slab_done(&loop->segs);
    slab_done(&loop->events);
    slab_done(&loop->chunks);
    block_pool_done(&loop->blocks);
    pipe_pool_done(&loop->pipes);
}

void loop_run(struct loop *loop)
{
    loop->stop = false;
    while (!loop->stop) {
        event_base_loop(loop->base, EVLOOP_ONCE);
        bury_all(loop);
    }
}

void loop_stop(struct loop *loop)
{
    loop->stop = true;
    event_base_loopbreak(loop->base);
}

void loop_enter(struct loop *loop)
{
    loop->now = clock_ns();
}

void loop_leave(struct loop *loop)
{
    if (loop->in_tasks)
        return;
    loop->in_tasks = true;
    while (loop->first_task) {
        struct task *task = loop->first_task;
        loop->first_task = task->next;
        if (!loop->first_task)
            loop->last_task = &loop->first_task;
        task->queued = false;
        task->run(task);
    }
    loop->in_tasks = false;
}

void loop_task(struct loop *loop, struct task *task)
{
    if (task->queued)
        return;
    task->queued = true;
    task->next = NULL;
    *loop->last_task = task;
    loop->last_task = &task->next;
}

void loop_late(struct loop *loop, struct task *task)
{
    if (task->queued)
        return;
    if (!loop->first_late) /* libevent calls it behind what is active already */
        event_active(&loop->late, EV_TIMEOUT, 0);
    task->queued = task->late = true;
    task->next = NULL;
    *loop->last_late = task;
    loop->last_late = &task->next;
}

void loop_cancel(struct loop *loop, struct task *task)
{
    if (!task->queued)
        return;
    struct task **at = task->late ? &loop->first_late : &loop->first_task;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    if (!*at && task->late)
        loop->last_late = at;
    else if (!*at)
        loop->last_task = at;
    task->queued = task->late = false;
}

void loop_bury(struct loop *loop, struct grave *grave, void (*bury)(struct grave *))
{
    grave->bury = bury;
    grave->next = loop->graves;
    loop->graves = grave;
}

void loop_post(struct loop *loop, struct message *message)
{
    static const uint64_t one = 1;
    message->next = NULL;
    pthread_mutex_lock(&loop->mail_lock);
    *loop->last_mail = message;
    loop->last_mail = &message->next;
    pthread_mutex_unlock(&loop->mail_lock);
    /* A full counter (EAGAIN) means that the loop is going to look anyway. */
    if (write(loop->mail_fd, &one, sizeof(one)) < 0)
        return;
}

void loop_deadline(struct loop *loop, struct deadline *deadline, uint64_t ms)
{
    if (!ms) {
        deadline_off(deadline);
        return;
    }
    if (wheel_set(&loop->wheel, deadline, loop->now + ms * NS_PER_MS))
        arm_timer(loop);
}
