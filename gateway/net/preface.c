#include "net/preface.h"

#include <errno.h>

static void done(struct preface *preface, int err)
{
    preface_stop(preface);
    preface->on_done(preface, err);
}

/* Takes `n` bytes that were seen off the socket. */
static int take(struct preface *preface, size_t n)
{
    ssize_t got = recv(preface->fd, preface->bytes + preface->n, n, 0);
    if (got < 0)
        return -errno;
    preface->n += (uint32_t)got;
    return (size_t)got == n ? 0 : -EIO;
}

/* Looks before it takes: what stands behind the header is not ours. */
static int read_some(struct preface *preface)
{
    size_t room = sizeof(preface->bytes) - preface->n;
    ssize_t got = recv(preface->fd, preface->bytes + preface->n, room, MSG_PEEK);
    if (got < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (got == 0)
        return -ECONNRESET;
    long n = proxy_protocol_read(preface->bytes, preface->n + (size_t)got, &preface->header,
                                 &preface->offset);
    if (n < 0)
        return -EPROTO;
    int rc = take(preface, n ? (size_t)n - preface->n : (size_t)got);
    return rc < 0 ? rc : n ? 0 : -EAGAIN;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct preface *preface = arg;
    struct loop *loop = preface->loop;
    loop_enter(loop);
    int rc = read_some(preface);
    if (rc != -EAGAIN)
        done(preface, rc);
    loop_leave(loop);
}

static void on_due(struct deadline *deadline)
{
    done((struct preface *)((char *)deadline - offsetof(struct preface, due)), -ETIMEDOUT);
}

int preface_open(struct preface *preface, struct loop *loop, int fd, uint64_t ms,
                 void (*on_done)(struct preface *preface, int err))
{
    preface->loop = loop;
    preface->fd = fd;
    preface->on_done = on_done;
    preface->n = 0;
    preface->offset = 0;
    preface->header = (struct proxy_header){.is_local = false};
    deadline_init(&preface->due, on_due);
    event_assign(&preface->event, loop->base, fd, EV_READ | EV_PERSIST, on_readable, preface);
    if (event_add(&preface->event, NULL) < 0)
        return -ENOMEM;
    loop_deadline(loop, &preface->due, ms);
    return 0;
}

void preface_stop(struct preface *preface)
{
    event_del(&preface->event);
    deadline_end(&preface->loop->wheel, &preface->due);
}
