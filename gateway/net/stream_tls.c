/* A stream over TLS: between the segments and blocks of net/stream and the records of net/tls.
 * `pending` counts what waits in segments and what is sealed and not yet taken by the kernel;
 * `written_total` what the kernel has taken, records and all, as the socket counts it too. */
#include <errno.h>

#include "net/stream_parts.h"

#define GATHER 4096 /* small pieces are sealed together up to so many bytes */

/* Whatever OpenSSL was asked, it may have sealed something. */
static void account(struct stream *s)
{
    size_t waiting = tls_waiting(s->tls);
    s->pending += waiting;
    s->pending -= s->sealed;
    s->sealed = (uint32_t)waiting;
}

/* ---- reading ---- */

/* Fills the room as far as there is something. The last result of tls_read. */
static ssize_t fill(struct stream *s, uint32_t room, uint32_t *ret_total)
{
    uint32_t total = 0;
    ssize_t n;
    do {
        n = tls_read(s->tls, s->in->data + s->w + total, room - total);
        if (n > 0)
            total += (uint32_t)n;
    } while (n > 0 && total < room && tls_holds(s->tls));
    *ret_total = total;
    account(s);
    return n;
}

/* True: there is more at once. */
static bool read_once(struct stream *s)
{
    uint32_t total;
    if (!stream_make_room(s)) {
        stream_fail_room(s);
        return false;
    }
    uint32_t room = s->in->cap - s->w;
    ssize_t n = fill(s, room, &total);
    if (total) {
        s->w += total;
        s->read_total += total;
        s->grow = s->in->cap == BLOCK_LARGE ? total >= BLOCK_SMALL : total == room;
        s->ops->on_read(s);
        return s->fd >= 0 && tls_holds(s->tls);
    }
    if (n == -EAGAIN)
        return false;
    if (n == 0) {
        s->eof = true;
        stream_stop_reading(s);
        s->ops->on_eof(s);
        return false;
    }
    s->eof = n == -ECONNRESET; /* as far as that it hung up */
    stream_fail(s, (int)-n);
    return false;
}

void stream_tls_read_more(struct stream *s)
{
    /* Bounded: tls_read asks the socket a few times only, and holds little. */
    while (s->fd >= 0 && !s->paused && !s->err && !s->eof && read_once(s))
        loop_leave(s->loop);
    if (s->fd < 0)
        return;
    stream_drop_in_if_empty(s);
    if (s->sealed && !s->err && !s->ev_write)
        loop_task(s->loop, &s->flush); /* an answer of OpenSSL's own */
}

void stream_tls_salvage(struct stream *s)
{
    tls_wake(s->tls);
    while (s->fd >= 0 && !s->paused && !s->eof && stream_make_room(s)) {
        uint32_t total;
        ssize_t n = fill(s, s->in->cap - s->w, &total);
        if (!total)
            return;
        s->w += total;
        s->read_total += total;
        s->ops->on_read(s);
        if (n <= 0)
            return;
    }
}

/* ---- writing ---- */

/* Seals one record of what waits in segments. 0: no room before more is sent; or -errno. */
static ssize_t seal_some(struct stream *s, size_t plain)
{
    char together[GATHER];
    const char *p = s->first->p;
    size_t n = s->first->n;
    if (n < GATHER && s->first->next) {
        n = 0;
        for (struct seg *seg = s->first; seg && n < GATHER; seg = seg->next) {
            size_t part = seg->n < GATHER - n ? seg->n : GATHER - n;
            memcpy(together + n, seg->p, part);
            n += part;
        }
        p = together;
    }
    ssize_t sealed = tls_seal(s->tls, p, n, plain);
    if (sealed > 0)
        stream_taken(s, (size_t)sealed);
    account(s);
    return sealed;
}

static int seal_all(struct stream *s)
{
    while (s->first) {
        ssize_t n = seal_some(s, s->pending - s->sealed);
        if (n <= 0)
            return (int)n;
    }
    if (s->shut_wanted && !s->shut) {
        tls_seal_end(s->tls);
        account(s);
    }
    return 0;
}

/* 0: the kernel takes no more for now; 1: it may take more; or -errno. */
static int send_some(struct stream *s)
{
    size_t waiting = s->sealed;
    ssize_t n = tls_flush(s->tls);
    if (n > 0)
        s->written_total += (uint64_t)n;
    account(s);
    return n < 0 ? (n == -EAGAIN ? 0 : (int)n) : (size_t)n == waiting;
}

void stream_tls_write_more(struct stream *s)
{
    size_t before = s->pending;
    int rc;
    do {
        rc = seal_all(s);
        if (rc == 0 && s->sealed)
            rc = send_some(s);
        else if (rc == 0)
            break;
    } while (rc > 0 && s->pending);
    if (rc < 0) {
        stream_drop_out(s);
        stream_fail(s, -rc);
    } else if (s->pending) {
        stream_wait_writable(s);
    } else {
        stream_written_all(s, before > 0);
    }
}

/* ---- beginning and end ---- */

void stream_tls_shake(struct stream *s)
{
    tls_wake(s->tls);
    int rc = tls_handshake(s->tls);
    account(s);
    if (rc == -EAGAIN || rc == -EINPROGRESS) {
        bool watched = rc == -EAGAIN || stream_watch_write(s);
        if (rc == -EAGAIN)
            stream_unwatch_write(s);
        if (!s->read_armed)
            s->read_armed = event_add(&s->ev_read, NULL) == 0;
        if (!s->read_armed || !watched)
            stream_fail(s, ENOMEM);
    } else if (rc < 0) {
        stream_fail(s, -rc);
    } else {
        s->shaking = false;
        stream_connected(s);
        if (s->fd >= 0 && tls_holds(s->tls))
            loop_task(s->loop, &s->deliver);
    }
}

void stream_tls_close(struct stream *s)
{
    if (s->err || s->connecting || s->first)
        tls_free(s->tls); /* what was cut off must not look complete */
    else
        tls_close(s->tls);
    s->tls = NULL;
    s->sealed = 0;
}

struct str stream_protocol(const struct stream *s)
{
    return s->tls ? tls_protocol(s->tls) : (struct str){NULL, 0};
}

bool stream_is_outdated(const struct stream *s)
{
    return s->tls && tls_is_outdated(s->tls);
}

bool stream_is_early(const struct stream *s)
{
    return s->tls && tls_is_early(s->tls);
}

const char *stream_why(const struct stream *s)
{
    return s->tls ? tls_why(s->tls) : NULL;
}
