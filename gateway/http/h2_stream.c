/* One stream of a client's HTTP/2 connection: a request comes, its answer goes. */
#include "http/h2_server_parts.h"

#include <assert.h>

static struct h2_stream *stream_of(struct leg *leg)
{
    return (struct h2_stream *)((char *)leg - offsetof(struct h2_stream, leg));
}

/* ---- its life ---- */

static void on_bury(struct grave *grave)
{
    struct h2_stream *stream =
        (struct h2_stream *)((char *)grave - offsetof(struct h2_stream, grave));
    slab_give(&stream->kit->streams, stream); /* the connection may be gone already */
}

static void drop_queue(struct h2_stream *stream)
{
    struct loop *loop = stream->server->stream.loop;
    while (stream->first) {
        struct seg *seg = stream->first;
        stream->first = seg->next;
        block_unref(seg->block);
        slab_give(&loop->segs, seg);
    }
    stream->last = &stream->first;
    stream->server->queued -= stream->queued;
    stream->queued = 0;
    deadline_off(&stream->write_due);
}

/* Nobody needs it any more: nghttp2 has closed it, and its exchange has let go. */
static void end_if_over(struct h2_stream *stream)
{
    struct h2_server *server = stream->server;
    if (!stream->closed || stream->leg.events || stream->is_sent || !stream->prev)
        return;
    drop_queue(stream);
    deadline_end(&server->stream.loop->wheel, &stream->read_due);
    deadline_end(&server->stream.loop->wheel, &stream->write_due);
    *stream->prev = stream->next;
    if (stream->next)
        stream->next->prev = stream->prev;
    stream->prev = NULL;
    loop_bury(server->stream.loop, &stream->grave, on_bury);
    if (!server->streams)
        h2_server_idle(server);
}

static void put_sent(struct h2_stream *stream)
{
    struct h2_server *server = stream->server;
    if (stream->is_sent)
        return;
    stream->is_sent = true;
    stream->mark = stream->muted ? 0 : server->stream.written_total + server->stream.pending;
    stream->next_sent = NULL;
    *server->last_sent = stream;
    server->last_sent = &stream->next_sent;
    h2_server_flush(server);
}

static void cut_sent(struct h2_stream *stream)
{
    struct h2_server *server = stream->server;
    struct h2_stream **at = &server->sent;
    if (!stream->is_sent)
        return;
    while (*at != stream)
        at = &(*at)->next_sent;
    *at = stream->next_sent;
    if (!*at)
        server->last_sent = at;
    stream->is_sent = false;
}

/* Its exchange hears of it. */
static void gone(struct h2_stream *stream, enum reason reason, int err)
{
    const struct leg_events *events = stream->leg.events;
    stream->leg.events = NULL;
    stream->muted = true;
    stream->trailers = NULL;
    drop_queue(stream);
    deadline_off(&stream->read_due);
    cut_sent(stream);
    if (events)
        events->on_gone(&stream->leg, &(struct leg_fault){.reason = reason, .err = err});
    end_if_over(stream);
}

void h2_stream_cut(struct h2_stream *stream, enum reason reason, int err)
{
    stream->closed = true;
    gone(stream, stream->reason ? stream->reason : reason, err);
}

static enum reason close_reason(const struct h2_stream *stream, uint32_t error)
{
    if (stream->reason)
        return stream->reason;
    if (stream->reset_by_peer)
        return R_CLIENT_ABORT;
    return error == NGHTTP2_PROTOCOL_ERROR && stream->has_length && !stream->request_ended
               ? R_BAD_LENGTH
               : R_BAD_FRAMES;
}

void h2_stream_closed(struct h2_stream *stream, uint32_t error)
{
    stream->closed = true;
    /* What its exchange has sent to the end only waits for the kernel. */
    if (stream->is_sent || (stream->framed && !stream->ended))
        return;
    if (stream->leg.events)
        gone(stream, close_reason(stream, error), 0);
    else
        end_if_over(stream);
}

/* The stream ends before its time, and not by the client's doing. */
static void reset(struct h2_stream *stream, uint32_t error)
{
    stream->muted = stream->reset_by_us = true;
    if (!stream->closed)
        nghttp2_submit_rst_stream(stream->server->session, NGHTTP2_FLAG_NONE, stream->id,
                                  error);
    h2_server_flush(stream->server);
}

/* ---- how fast ---- */

static struct pace_limits limits_of(const struct h2_stream *stream, bool in)
{
    const struct h1_server_config *config = stream->server->ops->config(stream->server);
    return (struct pace_limits){in ? config->timeouts.body : config->timeouts.write,
                                config->timeouts.rate, config->timeouts.rate_window};
}

static void await_body(struct h2_stream *stream)
{
    struct loop *loop = stream->server->stream.loop;
    struct pace_limits limits = limits_of(stream, true);
    if (stream->request_ended || stream->paused || stream->upgrade)
        return;
    loop_deadline(loop, &stream->read_due,
                  pace_begin(&stream->in, loop->now, stream->in_bytes, &limits));
}

static void on_read_due(struct deadline *deadline)
{
    struct h2_stream *stream =
        (struct h2_stream *)((char *)deadline - offsetof(struct h2_stream, read_due));
    struct loop *loop = stream->server->stream.loop;
    struct pace_limits limits = limits_of(stream, true);
    int64_t wait = pace_check(&stream->in, loop->now, stream->in_bytes, &limits);
    if (wait >= 0)
        loop_deadline(loop, &stream->read_due, (uint64_t)wait);
    else
        h2_stream_bad(stream, &(struct leg_fault){.reason = R_CLIENT_TIMEOUT_BODY});
}

/* Whether it is the client that holds the answer back, and not our choice of streams. */
static bool is_window_shut(const struct h2_stream *stream)
{
    nghttp2_session *session = stream->server->session;
    return nghttp2_session_get_stream_remote_window_size(session, stream->id) <= 0 ||
           nghttp2_session_get_remote_window_size(session) <= 0;
}

static void on_write_due(struct deadline *deadline)
{
    struct h2_stream *stream =
        (struct h2_stream *)((char *)deadline - offsetof(struct h2_stream, write_due));
    struct loop *loop = stream->server->stream.loop;
    struct pace_limits limits = limits_of(stream, false);
    int64_t wait = pace_check(&stream->out, loop->now, stream->out_bytes, &limits);
    if (wait < 0 && is_window_shut(stream)) {
        reset(stream, NGHTTP2_CANCEL);
        gone(stream, R_CLIENT_TIMEOUT_WRITE, 0);
        return;
    }
    if (wait < 0)
        wait = (int64_t)pace_begin(&stream->out, loop->now, stream->out_bytes, &limits);
    loop_deadline(loop, &stream->write_due, (uint64_t)wait);
}

/* ---- the request ---- */

static const struct leg_ops leg_ops;

struct h2_stream *h2_stream_new(struct h2_server *server, int32_t id)
{
    struct h2_stream *stream = slab_take(&server->kit->streams);
    if (!stream)
        return NULL;
    *stream = (struct h2_stream){.leg.ops = &leg_ops,
                                 .server = server,
                                 .kit = server->kit,
                                 .id = id,
                                 .last = &stream->first};
    deadline_init(&stream->read_due, on_read_due);
    deadline_init(&stream->write_due, on_write_due);
    stream->next = server->streams;
    if (stream->next)
        stream->next->prev = &stream->next;
    stream->prev = &server->streams;
    server->streams = stream;
    return stream;
}

bool h2_stream_begin(struct h2_stream *stream, struct head *head, bool ended,
                     const struct leg_fault *fault)
{
    struct h2_server *server = stream->server;
    stream->begun = true;
    stream->request_ended = ended;
    server->requests++;
    if (!server->ops->on_begin(server, &stream->leg)) {
        stream->reset_by_us = stream->muted = true;
        return false;
    }
    *stream->leg.arena = server->intake->arena; /* what was put there moves with it */
    arena_init(&server->intake->arena, &server->stream.loop->chunks);
    if (!head) {
        stream->leg.events->on_bad(&stream->leg, fault);
        return true;
    }
    stream->head_request = head->method == M_HEAD;
    stream->upgrade = head->upgrade.p != NULL;
    stream->has_length = head->has_length;
    await_body(stream);
    stream->leg.events->on_head(&stream->leg, head);
    if ((ended || stream->upgrade) && stream->leg.events)
        stream->leg.events->on_end(&stream->leg, NULL);
    return true;
}

void h2_stream_bad(struct h2_stream *stream, const struct leg_fault *fault)
{
    deadline_off(&stream->read_due);
    stream->reason = fault->reason;
    if (stream->leg.events)
        stream->leg.events->on_bad(&stream->leg, fault);
}

static void consume(struct h2_stream *stream, size_t n)
{
    if (n && !stream->closed)
        nghttp2_session_consume_stream(stream->server->session, stream->id, n);
}

void h2_stream_body(struct h2_stream *stream, struct slice slice)
{
    size_t n = slice.n;
    stream->in_bytes += n;
    stream->in.moved_at = pace_ms(stream->server->stream.loop->now);
    if (stream->upgrade && !stream->tunnel) {
        /* RFC 8441 5.1: there is nobody to send it to before the 200. */
        slice_drop(&slice);
        stream->reason = R_BAD_UPGRADE;
        nghttp2_submit_rst_stream(stream->server->session, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    stream->leg.events->on_body(&stream->leg, slice);
    if (stream->paused)
        stream->unconsumed += (uint32_t)n;
    else
        consume(stream, n);
}

void h2_stream_end(struct h2_stream *stream, struct head *trailers)
{
    stream->request_ended = true;
    deadline_off(&stream->read_due);
    if (stream->leg.events && !stream->muted && (!stream->upgrade || stream->tunnel))
        stream->leg.events->on_end(&stream->leg, trailers);
}

/* ---- the answer ---- */

void h2_stream_on_framed(struct h2_stream *stream)
{
    stream->framed = true;
    if (stream->ended && stream->leg.events)
        put_sent(stream);
    if (stream->request_ended || stream->closed)
        return;
    /* RFC 9113 8.1: the rest of the request is not wanted. */
    stream->reset_by_us = true;
    nghttp2_submit_rst_stream(stream->server->session, NGHTTP2_FLAG_NONE, stream->id,
                              NGHTTP2_NO_ERROR);
}

void h2_stream_on_sent(struct h2_stream *stream)
{
    if (stream->leg.events)
        stream->leg.events->on_sent(&stream->leg);
    stream->leg.events = NULL;
    end_if_over(stream);
}

static ssize_t on_data_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
                            uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    (void)buf, (void)arg;
    struct h2_stream *stream = source->ptr;
    if (stream->muted || (!stream->queued && !stream->ended)) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t n = stream->queued < length ? stream->queued : length;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (!stream->ended || n < stream->queued)
        return (ssize_t)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream->trailers && stream->trailers->count) {
        nghttp2_nv usual[H2_NV_USUAL];
        struct h2_nv nv;
        if (h2_put_trailers(&nv, usual, stream->leg.arena, stream->trailers) == 0 &&
            nghttp2_submit_trailer(session, id, nv.list, nv.count) == 0)
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    return (ssize_t)n;
}

static void tell_room_later(struct h2_stream *stream)
{
    struct h2_server *server = stream->server;
    if (stream->is_roomy)
        return;
    stream->is_roomy = true;
    stream->next_roomy = server->roomy;
    server->roomy = stream;
}

int h2_stream_send(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
                   size_t length, nghttp2_data_source *source, void *arg)
{
    (void)session, (void)frame;
    struct h2_server *server = arg;
    struct h2_stream *stream = source->ptr;
    struct loop *loop = server->stream.loop;
    stream_write(&server->stream, (const char *)header, 9);
    stream->queued -= length;
    server->queued -= length;
    stream->out_bytes += length;
    stream->out.moved_at = pace_ms(loop->now);
    while (length) {
        struct seg *seg = stream->first;
        assert(seg);
        size_t n = seg->n < length ? seg->n : length;
        length -= n;
        if (!seg->block) { /* it may go with its exchange before the kernel has it */
            stream_write(&server->stream, seg->p, n);
        } else {
            struct slice slice = {block_ref(seg->block), seg->p, n};
            stream_write_slice(&server->stream, slice);
        }
        seg->p += n;
        seg->n -= n;
        if (seg->n)
            break;
        stream->first = seg->next;
        if (!stream->first)
            stream->last = &stream->first;
        block_unref(seg->block);
        slab_give(&loop->segs, seg);
    }
    if (!stream->queued)
        deadline_off(&stream->write_due);
    if (stream->queued < LEG_LOW)
        tell_room_later(stream);
    return 0;
}

static int submit_head(struct h2_stream *stream, const struct head *head)
{
    nghttp2_session *session = stream->server->session;
    nghttp2_nv usual[H2_NV_USUAL];
    struct h2_nv nv;
    if (h2_put_response(&nv, usual, stream->leg.arena, head) < 0)
        return NGHTTP2_ERR_NOMEM;
    if (head->status < 200)
        return nghttp2_submit_headers(session, NGHTTP2_FLAG_NONE, stream->id, NULL, nv.list,
                                      nv.count, NULL);
    nghttp2_data_provider data = {.source.ptr = stream, .read_callback = on_data_read};
    return nghttp2_submit_response(session, stream->id, nv.list, nv.count,
                                   stream->has_body ? &data : NULL);
}

static void send_head(struct leg *leg, const struct head *head)
{
    struct h2_stream *stream = stream_of(leg);
    struct head out = *head;
    if (stream->muted || stream->closed)
        return;
    if (out.status == 101) { /* RFC 8441 5: what a websocket's 101 is here */
        out.status = 200;
        out.framing = FRAMING_CLOSE;
        head_remove_name(&out, STR("sec-websocket-accept"));
    }
    if (out.status >= 200)
        stream->has_body = out.framing != FRAMING_NONE && !stream->head_request &&
                           (out.framing != FRAMING_LENGTH || out.length);
    if (submit_head(stream, &out) != 0) {
        stream->reason = R_NO_MEMORY;
        reset(stream, NGHTTP2_INTERNAL_ERROR);
    }
    h2_server_flush(stream->server);
}

/* There is something to send, or an end of it. */
static void wake(struct h2_stream *stream)
{
    if (stream->deferred && !stream->closed) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->server->session, stream->id);
    }
    h2_server_flush(stream->server);
}

static void send_body(struct leg *leg, struct slice slice)
{
    struct h2_stream *stream = stream_of(leg);
    struct loop *loop = stream->server->stream.loop;
    if (!slice.n || stream->muted || stream->closed || !stream->has_body) {
        slice_drop(&slice);
        return;
    }
    struct seg *seg = slab_take(&loop->segs);
    if (!seg) {
        slice_drop(&slice);
        stream->reason = R_NO_MEMORY;
        reset(stream, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    *seg = (struct seg){NULL, slice.block, slice.p, slice.n};
    *stream->last = seg;
    stream->last = &seg->next;
    stream->queued += slice.n;
    stream->server->queued += slice.n;
    if (!deadline_is_on(&stream->write_due)) {
        struct pace_limits limits = limits_of(stream, false);
        loop_deadline(loop, &stream->write_due,
                      pace_begin(&stream->out, loop->now, stream->out_bytes, &limits));
    }
    wake(stream);
}

static void send_end(struct leg *leg, const struct head *trailers)
{
    struct h2_stream *stream = stream_of(leg);
    stream->ended = true;
    stream->trailers = trailers;
    if (stream->framed || (stream->muted && !stream->reset_by_us))
        put_sent(stream);
    else
        wake(stream);
}

static void leg_pause(struct leg *leg)
{
    struct h2_stream *stream = stream_of(leg);
    stream->paused = true;
    deadline_off(&stream->read_due);
}

static void leg_resume(struct leg *leg)
{
    struct h2_stream *stream = stream_of(leg);
    if (!stream->paused)
        return;
    stream->paused = false;
    consume(stream, stream->unconsumed);
    stream->unconsumed = 0;
    await_body(stream);
    h2_server_flush(stream->server);
}

static void leg_tunnel(struct leg *leg)
{
    struct h2_stream *stream = stream_of(leg);
    stream->tunnel = true;
    if (stream->request_ended)
        leg->events->on_end(leg, NULL);
}

static void leg_abort(struct leg *leg)
{
    struct h2_stream *stream = stream_of(leg);
    leg->events = NULL;
    stream->trailers = NULL;
    drop_queue(stream);
    deadline_off(&stream->read_due);
    cut_sent(stream);
    reset(stream, NGHTTP2_INTERNAL_ERROR);
    end_if_over(stream);
}

static size_t leg_pending(const struct leg *leg)
{
    const struct h2_stream *stream =
        (const struct h2_stream *)((const char *)leg - offsetof(struct h2_stream, leg));
    struct h2_server *server = stream->server;
    if (server->queued >= H2_QUEUE_HIGH && stream->queued >= H2_QUEUE_FEW) {
        server->crowded = true;
        return stream->queued > LEG_HIGH ? stream->queued : LEG_HIGH;
    }
    return stream->queued;
}

static void leg_release(struct leg *leg)
{
    struct h2_stream *stream = stream_of(leg);
    leg->events = NULL;
    if (stream->tunnel && !stream->ended)
        reset(stream, NGHTTP2_CANCEL);
    end_if_over(stream);
}

static const struct leg_ops leg_ops = {
    .send_head = send_head,
    .send_body = send_body,
    .send_end = send_end,
    .pause = leg_pause,
    .resume = leg_resume,
    .tunnel = leg_tunnel,
    .abort = leg_abort,
    .pending = leg_pending,
    .release = leg_release,
};
