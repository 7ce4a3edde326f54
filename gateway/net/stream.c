#include "net/stream.h"

#include <assert.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "net/io.h"
#include "net/stream_parts.h"

#define READ_ROOM  2048 /* less room than this in a block is not worth a read */
#define COPY_MAX   1024 /* pieces up to this size are copied rather than listed */
#define WRITE_SEGS 64

/* ---- reading ---- */

static void drop_in(struct stream *s)
{
    block_unref(s->in);
    s->in = NULL;
    s->r = s->w = 0;
}

/* An idle connection holds no block. */
void stream_drop_in_if_empty(struct stream *s)
{
    if (s->in && s->r == s->w)
        drop_in(s);
}

/* Room behind the unread bytes, which stay in one piece. */
bool stream_make_room(struct stream *s)
{
    uint32_t unread = s->w - s->r;
    if (s->in) {
        if (!unread && s->in->refs == 1 && (s->in->cap == BLOCK_LARGE) == s->grow) {
            s->r = s->w = 0;
            return true;
        }
        /* Bytes behind `w` are in nobody's slice. */
        if (s->in->cap - s->w >= READ_ROOM && (unread || s->in->refs > 1))
            return true;
        if (unread && s->in->refs == 1 && s->r >= READ_ROOM) {
            memmove(s->in->data, s->in->data + s->r, unread);
            s->r = 0;
            s->w = unread;
            return true;
        }
    }
    bool large = s->grow || unread > BLOCK_SMALL - READ_ROOM;
    struct block *block = block_take(&s->loop->blocks, large ? BLOCK_LARGE : BLOCK_SMALL);
    if (!block)
        return false;
    assert(s->in || !unread);
    if (unread)
        memcpy(block->data, s->in->data + s->r, unread);
    block_unref(s->in);
    s->in = block;
    s->r = 0;
    s->w = unread;
    return block->cap > unread;
}

void stream_stop_reading(struct stream *s)
{
    if (s->read_armed)
        event_del(&s->ev_read);
    s->read_armed = false;
}

static void on_writable(evutil_socket_t fd, short what, void *arg);

/* The event is there only while it is waited for: an idle connection needs none. */
bool stream_watch_write(struct stream *s)
{
    if (s->ev_write)
        return true;
    struct event *event = slab_take(&s->loop->events);
    if (!event)
        return false;
    event_assign(event, s->loop->base, s->fd, EV_WRITE | EV_PERSIST, on_writable, s);
    if (event_add(event, NULL) < 0) {
        slab_give(&s->loop->events, event);
        return false;
    }
    s->ev_write = event;
    return true;
}

void stream_unwatch_write(struct stream *s)
{
    if (!s->ev_write)
        return;
    event_del(s->ev_write);
    slab_give(&s->loop->events, s->ev_write);
    s->ev_write = NULL;
}

void stream_fail(struct stream *s, int err)
{
    s->err = err;
    stream_stop_reading(s);
    stream_unwatch_write(s);
    s->ops->on_error(s, err);
}

void stream_fail_room(struct stream *s)
{
    stream_fail(s, s->in && s->w - s->r == BLOCK_LARGE ? EMSGSIZE : ENOMEM);
}

/* One read. True: there may be more at once. */
static bool read_once(struct stream *s)
{
    if (!stream_make_room(s)) {
        stream_fail_room(s);
        return false;
    }
    uint32_t room = s->in->cap - s->w;
    ssize_t n = io_recv(s->fd, s->in->data + s->w, room);
    if (n < 0) {
        if (errno != EAGAIN)
            stream_fail(s, errno);
        return false;
    }
    if (n == 0) {
        s->eof = true;
        stream_stop_reading(s);
        s->ops->on_eof(s);
        return false;
    }
    s->w += (uint32_t)n;
    s->read_total += (uint64_t)n;
    s->grow = s->in->cap == BLOCK_LARGE ? (uint32_t)n >= BLOCK_SMALL : (uint32_t)n == room;
    s->ops->on_read(s);
    return (uint32_t)n == room;
}

/* One read that does not look. True: there may be more at once. */
static bool pipe_once(struct stream *s)
{
    struct slice slice;
    uint32_t wanted = s->piped;
    ssize_t n = pipe_fill(&s->loop->pipes, &s->loop->blocks, s->fd, wanted, &slice);
    if (n < 0 && errno == ENOBUFS) {
        s->piped = 0;
        return true;
    }
    if (n < 0) {
        if (errno != EAGAIN)
            stream_fail(s, errno);
        return false;
    }
    if (n == 0) {
        s->eof = true;
        stream_stop_reading(s);
        s->ops->on_eof(s);
        return false;
    }
    s->piped -= (uint32_t)n;
    s->read_total += (uint64_t)n;
    s->ops->on_piped(s, slice);
    return (uint32_t)n == wanted || (size_t)n >= PIPE_BYTES / 2;
}

static void read_more(struct stream *s)
{
    for (int round = 0; round < READ_ROUNDS; round++) {
        if (s->fd < 0 || s->paused || s->err || s->eof)
            break;
        if (!(s->piped && s->r == s->w ? pipe_once(s) : read_once(s)))
            break;
        if (round + 1 < READ_ROUNDS)
            loop_leave(s->loop); /* pass it on while it is in the cache */
    }
    if (s->fd >= 0)
        stream_drop_in_if_empty(s);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct stream *s = arg;
    loop_enter(s->loop);
    if (s->shaking) {
        stream_tls_shake(s);
    } else if (s->paused) {
        stream_stop_reading(s); /* only now: most pauses end before anything arrives */
    } else if (s->tls) {
        tls_wake(s->tls);
        stream_tls_read_more(s);
    } else {
        read_more(s);
    }
    loop_leave(s->loop);
}

/* What was held back by a pause. */
static void deliver(struct task *task)
{
    struct stream *s = (struct stream *)((char *)task - offsetof(struct stream, deliver));
    if (s->fd < 0 || s->paused)
        return;
    if (s->w > s->r)
        s->ops->on_read(s);
    if (s->fd < 0)
        return;
    if (s->late && !s->paused) {
        s->late = false;
        s->ops->on_error(s, s->err);
        return;
    }
    if (s->tls && tls_holds(s->tls))
        stream_tls_read_more(s);
    else
        stream_drop_in_if_empty(s);
}

void stream_skip(struct stream *s, size_t n)
{
    assert(n <= s->w - s->r);
    s->r += (uint32_t)n;
}

struct slice stream_take(struct stream *s, size_t n)
{
    struct slice slice = {block_ref(s->in), s->in->data + s->r, n};
    stream_skip(s, n);
    return slice;
}

void stream_pause(struct stream *s)
{
    s->paused = true;
}

void stream_resume(struct stream *s)
{
    if (!s->paused || s->fd < 0)
        return;
    s->paused = false;
    if (s->late || s->w > s->r || (s->tls && tls_holds(s->tls)))
        loop_task(s->loop, &s->deliver);
    if (!s->read_armed && !s->eof && !s->err && !s->connecting)
        s->read_armed = event_add(&s->ev_read, NULL) == 0;
}

/* ---- writing ---- */

void stream_drop_out(struct stream *s)
{
    while (s->first) {
        struct seg *seg = s->first;
        s->first = seg->next;
        block_unref(seg->block);
        slab_give(&s->loop->segs, seg);
    }
    s->last = &s->first;
    s->pending = 0;
    block_unref(s->tail);
    s->tail = NULL;
}

static void ask_flush(struct stream *s)
{
    if (!s->ev_write)
        loop_task(s->loop, &s->flush);
}

static struct seg *add_seg(struct stream *s, struct block *block, const char *p, size_t n)
{
    struct seg *seg = slab_take(&s->loop->segs);
    if (!seg)
        return NULL;
    *seg = (struct seg){NULL, block, p, n};
    assert(s->last);
    *s->last = seg;
    s->last = &seg->next;
    return seg;
}

static struct seg *last_seg(struct stream *s)
{
    if (s->last == &s->first)
        return NULL;
    return (struct seg *)((char *)s->last - offsetof(struct seg, next));
}

/* Told from the flush, not from inside the call that wanted to write. */
static void out_of_memory(struct stream *s)
{
    s->no_memory = true;
    loop_task(s->loop, &s->flush);
}

char *stream_reserve(struct stream *s, size_t n)
{
    if (s->fd < 0 || s->err || s->no_memory)
        return NULL;
    if (n > BLOCK_LARGE) {
        out_of_memory(s);
        return NULL;
    }
    if (!s->tail || s->tail->cap - s->tail_used < n) {
        struct block *block =
            block_take(&s->loop->blocks, n <= BLOCK_SMALL ? BLOCK_SMALL : BLOCK_LARGE);
        if (!block) {
            out_of_memory(s);
            return NULL;
        }
        block_unref(s->tail);
        s->tail = block;
        s->tail_used = 0;
    }
    return s->tail->data + s->tail_used;
}

void stream_commit(struct stream *s, size_t n)
{
    const char *at = s->tail->data + s->tail_used;
    struct seg *seg = last_seg(s);
    if (!seg || seg->block != s->tail || seg->p + seg->n != at) {
        seg = add_seg(s, s->tail, at, 0);
        if (!seg) {
            out_of_memory(s);
            return;
        }
        block_ref(s->tail);
    }
    seg->n += n;
    s->tail_used += (uint32_t)n;
    s->pending += n;
    ask_flush(s);
}

void stream_write(struct stream *s, const char *p, size_t n)
{
    while (n) {
        size_t part = n < BLOCK_SMALL ? n : BLOCK_SMALL;
        char *to = stream_reserve(s, part);
        if (!to)
            return;
        memcpy(to, p, part);
        stream_commit(s, part);
        p += part;
        n -= part;
    }
}

void stream_write_slice(struct stream *s, struct slice slice)
{
    if (slice.n <= COPY_MAX && !pipe_is(slice.block)) {
        stream_write(s, slice.p, slice.n);
        slice_drop(&slice);
    } else if (s->fd < 0 || s->err || s->no_memory) {
        slice_drop(&slice);
    } else if (!add_seg(s, slice.block, slice.p, slice.n)) {
        slice_drop(&slice);
        out_of_memory(s);
    } else {
        s->pending += slice.n;
        ask_flush(s);
    }
}

void stream_taken(struct stream *s, size_t n)
{
    s->pending -= n;
    while (n) {
        struct seg *seg = s->first;
        assert(seg);
        if (n < seg->n) {
            seg->p += n;
            seg->n -= n;
            return;
        }
        n -= seg->n;
        s->first = seg->next;
        if (!s->first)
            s->last = &s->first;
        block_unref(seg->block);
        slab_give(&s->loop->segs, seg);
    }
}

static void do_shutdown(struct stream *s)
{
    if (!s->shut_wanted || s->shut)
        return;
    s->shut = true;
    shutdown(s->fd, SHUT_WR);
}

void stream_wait_writable(struct stream *s)
{
    if (stream_watch_write(s)) {
        s->ops->on_pending(s);
    } else {
        stream_drop_out(s);
        stream_fail(s, ENOMEM);
    }
}

/* `some`: there was something to write at all. */
void stream_written_all(struct stream *s, bool some)
{
    stream_unwatch_write(s);
    block_unref(s->tail);
    s->tail = NULL;
    do_shutdown(s);
    if (some)
        s->ops->on_drained(s);
}

/* As write, of the first segments that can go together: *ret_bytes is what they hold. */
static ssize_t write_once(struct stream *s, size_t *ret_bytes)
{
    struct seg *seg = s->first;
    assert(seg); /* what is pending stands in segments */
    if (pipe_is(seg->block)) {
        *ret_bytes = seg->n;
        return pipe_drain(seg->block, s->fd, seg->n, seg->next != NULL);
    }
    struct iovec iov[WRITE_SEGS];
    size_t count = 0;
    for (; seg && count < WRITE_SEGS && !pipe_is(seg->block); seg = seg->next) {
        /* sendmsg only reads, but its iovec is also recvmsg's and not const. */
        memcpy(&iov[count].iov_base, &seg->p, sizeof(seg->p));
        iov[count++].iov_len = seg->n;
        *ret_bytes += seg->n;
    }
    return io_send(s->fd, iov, count, seg != NULL);
}

static void write_more(struct stream *s)
{
    if (s->tls) {
        stream_tls_write_more(s);
        return;
    }
    size_t before = s->pending;
    while (s->pending) {
        size_t bytes = 0;
        ssize_t n = write_once(s, &bytes);
        if (n < 0 && errno != EAGAIN) {
            int err = errno;
            stream_drop_out(s);
            stream_fail(s, err);
            return;
        }
        if (n > 0) {
            stream_taken(s, (size_t)n);
            s->written_total += (uint64_t)n;
        }
        if (n < (ssize_t)bytes)
            break;
    }
    if (s->pending)
        stream_wait_writable(s);
    else
        stream_written_all(s, before > 0);
}

static void flush(struct task *task)
{
    struct stream *s = (struct stream *)((char *)task - offsetof(struct stream, flush));
    if (s->fd < 0 || s->err)
        return;
    if (s->no_memory)
        stream_fail(s, ENOMEM);
    else if (!s->connecting && !s->ev_write)
        write_more(s);
}

void stream_flush(struct stream *s)
{
    loop_cancel(s->loop, &s->flush);
    flush(&s->flush);
}

static void salvage(struct stream *s)
{
    while (s->fd >= 0 && !s->paused && !s->eof && stream_make_room(s)) {
        ssize_t n = io_recv(s->fd, s->in->data + s->w, s->in->cap - s->w);
        if (n <= 0) /* after a reset the kernel says 0 as after a FIN: it is none */
            return;
        s->w += (uint32_t)n;
        s->read_total += (uint64_t)n;
        s->ops->on_read(s);
    }
}

bool stream_salvage(struct stream *s)
{
    if (s->tls)
        stream_tls_salvage(s);
    else
        salvage(s);
    s->late = s->fd >= 0 && s->paused;
    return s->late;
}

bool stream_has_news(const struct stream *s)
{
    char byte;
    if (s->tls && tls_holds(s->tls))
        return true;
    ssize_t n = recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

size_t stream_unacked(const struct stream *s)
{
    int n = 0;
    return s->fd >= 0 && ioctl(s->fd, SIOCOUTQ, &n) == 0 && n > 0 ? (size_t)n : 0;
}

int stream_pending_error(struct stream *s)
{
    return s->fd < 0 ? 0 : -sock_error(s->fd);
}

void stream_shutdown(struct stream *s)
{
    s->shut_wanted = true;
    ask_flush(s);
}

void stream_connected(struct stream *s)
{
    s->connecting = false;
    stream_unwatch_write(s);
    if (!s->paused && !s->read_armed)
        s->read_armed = event_add(&s->ev_read, NULL) == 0;
    if (s->pending || s->shut_wanted)
        ask_flush(s);
    s->ops->on_connected(s);
}

static void end_connecting(struct stream *s)
{
    int err = -sock_error(s->fd);
    if (err) {
        stream_fail(s, err);
    } else if (s->tls) {
        s->shaking = true;
        stream_tls_shake(s);
    } else {
        stream_connected(s);
    }
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct stream *s = arg;
    loop_enter(s->loop);
    if (s->shaking)
        stream_tls_shake(s);
    else if (s->connecting)
        end_connecting(s);
    else
        write_more(s);
    loop_leave(s->loop);
}

/* ---- opening and closing ---- */

int stream_open(struct stream *s, struct loop *loop, int fd, bool connecting, struct tls *tls,
                const struct stream_ops *ops)
{
    *s = (struct stream){.loop = loop,
                         .ops = ops,
                         .fd = fd,
                         .connecting = connecting,
                         .tls = tls,
                         .last = &s->first,
                         .flush.run = flush,
                         .deliver.run = deliver};
    event_assign(&s->ev_read, loop->base, fd, EV_READ | EV_PERSIST, on_readable, s);
    if (!connecting)
        s->read_armed = event_add(&s->ev_read, NULL) == 0;
    if (connecting ? stream_watch_write(s) : s->read_armed) {
        if (tls && !connecting) {
            s->sealed = (uint32_t)tls_waiting(tls);
            s->pending = s->sealed;
            if (s->pending)
                ask_flush(s);
            if (tls_holds(tls)) /* it was read with the end of the handshake */
                loop_task(loop, &s->deliver);
        }
        return 0;
    }
    tls_free(tls);
    s->tls = NULL;
    close(fd);
    s->fd = -1;
    return -ENOMEM;
}

void stream_close(struct stream *s)
{
    if (s->fd < 0)
        return;
    stream_stop_reading(s);
    stream_unwatch_write(s);
    loop_cancel(s->loop, &s->flush);
    loop_cancel(s->loop, &s->deliver);
    if (s->tls)
        stream_tls_close(s);
    stream_drop_out(s);
    drop_in(s);
    close(s->fd);
    s->fd = -1;
}

void stream_reset(struct stream *s)
{
    if (s->fd < 0)
        return;
    sock_reset_on_close(s->fd);
    tls_free(s->tls); /* without the word that would make it look complete */
    s->tls = NULL;
    stream_close(s);
}
