#include "net/fdwatch.h"

#include <errno.h>

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    struct fdwatch *watch = arg;
    struct loop *loop = watch->loop;
    unsigned events =
        (what & EV_READ ? FDWATCH_READ : 0) | (what & EV_WRITE ? FDWATCH_WRITE : 0);
    loop_enter(loop);
    watch->on_ready(watch, events);
    loop_leave(loop);
}

int fdwatch_set(struct fdwatch *watch, int fd, unsigned wanted)
{
    if (wanted == watch->wanted)
        return 0;
    if (watch->wanted)
        event_del(&watch->event);
    watch->wanted = 0;
    if (!wanted)
        return 0;
    if (fd < 0)
        return -EBADF;
    short what = EV_PERSIST;
    what |= wanted & FDWATCH_READ ? EV_READ : 0;
    what |= wanted & FDWATCH_WRITE ? EV_WRITE : 0;
    if (event_assign(&watch->event, watch->loop->base, fd, what, on_event, watch) < 0 ||
        event_add(&watch->event, NULL) < 0)
        return -EINVAL;
    watch->wanted = wanted;
    return 0;
}
