#include "net/shake.h"

#include <errno.h>

#define TURN_NS (NS_PER_MS / 2) /* for handshakes in one turn of the loop */

static void dequeue(struct shake *shake)
{
    if (!shake->queued)
        return;
    shake->queued = false;
    *shake->prev = shake->next;
    if (shake->next)
        shake->next->prev = shake->prev;
    else
        shake->shakes->last = shake->prev;
}

static void watch(struct event *event, bool wanted, bool *armed)
{
    if (wanted && !*armed)
        *armed = event_add(event, NULL) == 0;
    else if (!wanted && *armed) {
        event_del(event);
        *armed = false;
    }
}

static void unwatch(struct shake *shake)
{
    watch(&shake->ev_read, false, &shake->read_armed);
    watch(&shake->ev_write, false, &shake->write_armed);
}

/* The socket is still watched: whoever watches it now costs no call of the kernel's. */
static void done(struct shake *shake, int err)
{
    dequeue(shake);
    deadline_end(&shake->shakes->loop->wheel, &shake->due);
    shake->on_done(shake, err);
}

#define TLS_HANDSHAKE 22 /* the first byte of every TLS connection (RFC 8446 5.1) */

/* Whether what comes first is TLS: 0, -EAGAIN, or -errno. */
static int look(struct shake *shake)
{
    char byte;
    ssize_t n = recv(shake->fd, &byte, 1, MSG_PEEK);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    shake->begun = n > 0;
    return n == 0 ? -ECONNRESET : byte == TLS_HANDSHAKE ? 0 : -ENOMSG;
}

static void step(struct shake *shake)
{
    int err = shake->begun ? 0 : look(shake);
    if (err == 0) {
        tls_wake(shake->tls);
        err = tls_handshake(shake->tls);
    }
    if (err != -EAGAIN && err != -EINPROGRESS) {
        done(shake, err);
        return;
    }
    watch(&shake->ev_read, err == -EAGAIN, &shake->read_armed);
    watch(&shake->ev_write, err == -EINPROGRESS, &shake->write_armed);
    if (!shake->read_armed && !shake->write_armed)
        done(shake, -ENOMEM);
}

/* Comes in the loop's next turn, behind what is ready by then. */
static void set_turn(struct shakes *shakes)
{
    static const struct timeval now = {0, 0};
    if (!shakes->turn_set)
        shakes->turn_set = event_add(&shakes->turn, &now) == 0;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct shakes *shakes = arg;
    struct loop *loop = shakes->loop;
    shakes->turn_set = false;
    loop_enter(loop);
    uint64_t end = loop->now + TURN_NS;
    do {
        struct shake *shake = shakes->first;
        if (!shake)
            break;
        dequeue(shake);
        step(shake);
        loop_leave(loop);
        loop_enter(loop);
    } while (loop->now < end);
    if (shakes->first)
        set_turn(shakes);
    loop_leave(loop);
}

/* A turn of the loop ends: what it may spend on those that come to it is for the next one. */
static void on_over(struct task *task)
{
    ((struct shakes *)((char *)task - offsetof(struct shakes, over)))->turn_end = 0;
}

/* Whether nobody waits, and this turn has time left. */
static bool is_free(struct shakes *shakes)
{
    if (shakes->first)
        return false;
    if (!shakes->turn_end) {
        shakes->turn_end = shakes->loop->now + TURN_NS;
        loop_late(shakes->loop, &shakes->over);
    }
    return shakes->loop->now < shakes->turn_end;
}

static void enqueue(struct shake *shake)
{
    struct shakes *shakes = shake->shakes;
    if (shake->queued)
        return;
    unwatch(shake); /* it stays ready, and is not to be told again before its turn */
    shake->queued = true;
    shake->next = NULL;
    shake->prev = shakes->last;
    *shakes->last = shake;
    shakes->last = &shake->next;
    set_turn(shakes);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct shake *shake = arg;
    struct loop *loop = shake->shakes->loop;
    loop_enter(loop);
    if (is_free(shake->shakes))
        step(shake);
    else
        enqueue(shake);
    loop_leave(loop);
}

static void on_due(struct deadline *deadline)
{
    done((struct shake *)((char *)deadline - offsetof(struct shake, due)), -ETIMEDOUT);
}

void shakes_init(struct shakes *shakes, struct loop *loop)
{
    *shakes = (struct shakes){.loop = loop, .last = &shakes->first, .over.run = on_over};
    event_assign(&shakes->turn, loop->base, -1, 0, on_turn, shakes);
}

void shakes_done(struct shakes *shakes)
{
    if (shakes->turn_set)
        event_del(&shakes->turn);
    shakes->turn_set = false;
    loop_cancel(shakes->loop, &shakes->over);
}

int shake_open(struct shake *shake, struct shakes *shakes, struct tls *tls, int fd, uint64_t ms,
               void (*on_done)(struct shake *shake, int err))
{
    struct loop *loop = shakes->loop;
    *shake = (struct shake){.shakes = shakes, .tls = tls, .fd = fd, .on_done = on_done};
    deadline_init(&shake->due, on_due);
    event_assign(&shake->ev_read, loop->base, fd, EV_READ | EV_PERSIST, on_ready, shake);
    event_assign(&shake->ev_write, loop->base, fd, EV_WRITE | EV_PERSIST, on_ready, shake);
    watch(&shake->ev_read, true, &shake->read_armed);
    if (!shake->read_armed) {
        tls_free(tls);
        return -ENOMEM;
    }
    loop_deadline(loop, &shake->due, ms);
    return 0;
}

void shake_leave(struct shake *shake)
{
    unwatch(shake);
}

void shake_stop(struct shake *shake)
{
    dequeue(shake);
    unwatch(shake);
    deadline_end(&shake->shakes->loop->wheel, &shake->due);
    tls_free(shake->tls);
    shake->tls = NULL;
}
