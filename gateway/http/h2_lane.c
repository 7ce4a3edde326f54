/* One request after another on a trunk: a leg upwards. */
#include "http/h2_client_parts.h"

#include <assert.h>

#include "http/websocket.h"

#define INTERIM_MAX 16

static struct h2_lane *lane_of(struct leg *leg)
{
    struct h1_client *client =
        (struct h1_client *)((char *)leg - offsetof(struct h1_client, leg));
    return (struct h2_lane *)client; /* it is the first member */
}

/* ---- its life ---- */

static void on_buried(struct grave *grave)
{
    struct h1_client *client =
        (struct h1_client *)((char *)grave - offsetof(struct h1_client, grave));
    client->ops->bury(client);
}

static void drop_queue(struct h2_lane *lane)
{
    while (lane->first) {
        struct seg *seg = lane->first;
        lane->first = seg->next;
        block_unref(seg->block);
        slab_give(&lane->client.stream.loop->segs, seg);
    }
    lane->last = &lane->first;
    lane->queued = 0;
}

/* The stream under way is nobody's any more; it is reset unless it has ended by itself. */
static void forget_stream(struct h2_lane *lane, bool reset)
{
    struct h2_trunk *trunk = lane->trunk;
    if (trunk->in_head == lane)
        trunk->in_head = NULL;
    if (lane->id && trunk->state == TRUNK_OPEN) {
        nghttp2_session_set_stream_user_data(trunk->session, lane->id, NULL);
        if (reset)
            nghttp2_submit_rst_stream(trunk->session, NGHTTP2_FLAG_NONE, lane->id,
                                      NGHTTP2_CANCEL);
        h2_trunk_flush(trunk);
    }
    loop_cancel(lane->client.stream.loop, &lane->later);
    lane->id = 0;
    lane->tunnel = LANE_PLAIN;
    lane->in_ended = false;
    lane->doom = R_NONE;
    lane->held = NULL;
    lane->trailers = NULL;
    lane->unconsumed = 0;
    lane->paused = lane->deferred = false;
    drop_queue(lane);
}

/* Both sides have said all, or will without us. */
static bool is_done(const struct h2_lane *lane)
{
    const struct h1_client *client = &lane->client;
    bool answered =
        client->state == CLIENT_END || (client->state == CLIENT_TUNNEL && lane->in_ended);
    return answered && client->request_ended && !lane->queued && !lane->trailers;
}

/* Nobody has it any more. */
static void take_back(struct h2_lane *lane)
{
    if (lane->lent)
        h2_trunk_ends(lane->trunk);
    lane->lent = false;
}

static void close_lane(struct h2_lane *lane, const struct leg_fault *fault)
{
    struct h1_client *client = &lane->client;
    struct loop *loop = client->stream.loop;
    struct h2_trunk *trunk = lane->trunk;
    if (client->state == CLIENT_CLOSED)
        return;
    forget_stream(lane, !is_done(lane));
    client->state = CLIENT_CLOSED;
    client->leg.events = NULL;
    deadline_end(&loop->wheel, &client->due);
    loop_cancel(loop, &lane->later);
    *lane->prev = lane->next;
    if (lane->next)
        lane->next->prev = lane->prev;
    trunk->lane_count--;
    take_back(lane);
    client->ops->on_closed(client, fault);
    loop_bury(loop, &client->grave, on_buried);
    h2_trunk_end_if_over(trunk);
}

static bool is_silent(const struct h1_client *client)
{
    return client->stream.read_total == client->read_mark;
}

/* It is over; whoever waits for it hears why. */
static void gone(struct h2_lane *lane, const struct leg_fault *fault)
{
    struct h1_client *client = &lane->client;
    const struct leg_events *events = client->leg.events;
    struct leg_fault told = *fault;
    told.untouched |= h1_client_is_untouched(client);
    told.silent = is_silent(client);
    close_lane(lane, &told);
    if (events)
        events->on_gone(&client->leg, &told);
}

static void fail(struct h2_lane *lane, enum reason reason)
{
    gone(lane, &(struct leg_fault){.reason = reason});
}

void h2_lane_lost(struct h2_lane *lane, const struct leg_fault *fault)
{
    gone(lane, fault);
}

static void on_close(struct h1_client *client)
{
    fail((struct h2_lane *)client, R_UPSTREAM_RESET);
}

void h2_lane_cut(struct h2_lane *lane, uint32_t error)
{
    /* RFC 9113 8.7: what is refused has not been looked at, and may be sent again. */
    struct leg_fault fault = {.reason = R_UPSTREAM_RESET,
                              .untouched = error == NGHTTP2_REFUSED_STREAM};
    if (error == NGHTTP2_PROTOCOL_ERROR)
        fault.reason = R_UPSTREAM_PROTOCOL;
    if (error == NGHTTP2_NO_ERROR && lane->client.state == CLIENT_END)
        return;
    lane->id = 0;
    if (error == NGHTTP2_NO_ERROR && is_done(lane))
        return; /* of a tunnel, whose exchange finds that out by itself */
    gone(lane, &fault);
}

static void become_idle(struct h2_lane *lane)
{
    struct h1_client *client = &lane->client;
    client->state = CLIENT_IDLE;
    client->idle_at = client->stream.loop->now;
    deadline_off(&client->due);
}

void h2_lane_ready(struct h2_lane *lane)
{
    if (lane->client.state != CLIENT_CONNECTING)
        return;
    become_idle(lane);
    lane->client.ops->on_connected(&lane->client);
}

static void on_later(struct task *task)
{
    struct h2_lane *lane = (struct h2_lane *)((char *)task - offsetof(struct h2_lane, later));
    if (lane->doom)
        fail(lane, lane->doom);
    else
        h2_lane_ready(lane);
}

static void touch(struct h1_client *client)
{
    loop_deadline(client->stream.loop, &client->due,
                  client->state == CLIENT_HEAD ? client->timeouts.response
                                               : client->timeouts.idle);
}

static void on_due(struct deadline *deadline)
{
    struct h1_client *client =
        (struct h1_client *)((char *)deadline - offsetof(struct h1_client, due));
    struct h2_lane *lane = (struct h2_lane *)client;
    if (client->state == CLIENT_IDLE) {
        client->on_idle_due(client);
    } else if (client->state == CLIENT_HEAD && !client->request_ended && !lane->queued) {
        touch(client); /* it is the client who takes its time */
    } else {
        h2_trunk_doubt(lane->trunk, lane->heard, true);
        fail(lane, client->state == CLIENT_HEAD ? R_UPSTREAM_TIMEOUT_RESPONSE
                                                : R_UPSTREAM_TIMEOUT_IDLE);
    }
}

/* ---- the answer ---- */

/* There is something to send, or an end of it. */
static void wake(struct h2_lane *lane)
{
    if (lane->deferred && lane->id) {
        lane->deferred = false;
        nghttp2_session_resume_data(lane->trunk->session, lane->id);
    }
    h2_trunk_flush(lane->trunk);
}

void h2_lane_end(struct h2_lane *lane, struct head *trailers)
{
    struct h1_client *client = &lane->client;
    if (client->state == CLIENT_TUNNEL && client->leg.events && !lane->in_ended) {
        lane->in_ended = true;
        client->leg.events->on_end(&client->leg, NULL);
        return;
    }
    if (client->state != CLIENT_BODY || !client->leg.events)
        return;
    client->state = CLIENT_END;
    deadline_off(&client->due);
    client->leg.events->on_end(&client->leg, trailers);
}

static void take_trailers(struct h2_lane *lane, struct h2_section *section)
{
    struct head *trailers = h2_section_trailers(section, lane->client.leg.arena);
    if (!trailers)
        fail(lane, R_UPSTREAM_PROTOCOL);
    else
        h2_lane_end(lane, trailers->count ? trailers : NULL);
}

/* RFC 8441 5: a 2xx opens the tunnel, and is what a 101 is on HTTP/1; anything else is an
 * answer as to any request. */
static bool settle_tunnel(struct h2_lane *lane, struct head *head)
{
    struct arena *arena = lane->client.leg.arena;
    lane->tunnel = head->status < 300 ? LANE_TUNNEL : LANE_PLAIN;
    if (lane->tunnel == LANE_PLAIN) {
        wake(lane); /* to say that nothing follows */
        return true;
    }
    char *accept = arena_alloc(arena, WEBSOCKET_ACCEPT);
    if (!accept || !websocket_accept(accept, lane->key))
        return false;
    head->status = 101;
    head->framing = FRAMING_NONE;
    head->has_length = false;
    head->upgrade = STR("websocket");
    return head_set(head, arena, STR("Sec-WebSocket-Accept"),
                    (struct str){accept, WEBSOCKET_ACCEPT}) == 0;
}

void h2_lane_head(struct h2_lane *lane, struct h2_section *section, bool ended)
{
    struct h1_client *client = &lane->client;
    client->stream.read_total++;
    lane->heard = lane->trunk->stream.read_total;
    if (client->state == CLIENT_BODY) {
        take_trailers(lane, section);
        return;
    }
    if (client->state == CLIENT_TUNNEL && ended)
        h2_lane_end(lane, NULL);
    if (client->state != CLIENT_HEAD)
        return;
    struct head *head = h2_section_response(section, ended, client->method);
    if (!head || (head->status < 200 && ++client->interims > INTERIM_MAX)) {
        fail(lane,
             head || section->fault.reason != R_NO_MEMORY ? R_UPSTREAM_PROTOCOL : R_NO_MEMORY);
        return;
    }
    if (lane->tunnel == LANE_ASKS && head->status >= 200 && !settle_tunnel(lane, head)) {
        fail(lane, R_NO_MEMORY);
        return;
    }
    if (head->status >= 200)
        client->state = CLIENT_BODY;
    if (!lane->paused)
        touch(client);
    client->leg.events->on_head(&client->leg, head);
    if (ended)
        h2_lane_end(lane, NULL);
}

static void consume(struct h2_lane *lane, size_t n)
{
    if (n && lane->id)
        nghttp2_session_consume_stream(lane->trunk->session, lane->id, n);
}

void h2_lane_body(struct h2_lane *lane, struct slice slice)
{
    struct h1_client *client = &lane->client;
    size_t n = slice.n;
    if (client->state != CLIENT_BODY && client->state != CLIENT_TUNNEL) {
        slice_drop(&slice);
        consume(lane, n);
        return;
    }
    lane->heard = lane->trunk->stream.read_total;
    if (!lane->paused && client->state == CLIENT_BODY)
        touch(client);
    client->leg.events->on_body(&client->leg, slice);
    if (lane->paused)
        lane->unconsumed += (uint32_t)n;
    else
        consume(lane, n);
}

/* ---- the request ---- */

static ssize_t on_data_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
                            uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    (void)buf, (void)source, (void)arg;
    struct h2_lane *lane = nghttp2_session_get_stream_user_data(session, id);
    if (!lane) { /* it has let go, and all but the end was sent */
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        return 0;
    }
    bool ended = lane->client.request_ended && lane->tunnel != LANE_ASKS;
    if (!lane->queued && !ended) {
        lane->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t n = lane->queued < length ? lane->queued : length;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (!ended || n < lane->queued)
        return (ssize_t)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (lane->trailers && lane->trailers->count) {
        nghttp2_nv usual[H2_NV_USUAL];
        struct h2_nv nv;
        if (h2_put_trailers(&nv, usual, lane->client.leg.arena, lane->trailers) == 0 &&
            nghttp2_submit_trailer(session, id, nv.list, nv.count) == 0)
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    lane->trailers = NULL;
    return (ssize_t)n;
}

int h2_lane_send(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
                 size_t length, nghttp2_data_source *source, void *arg)
{
    (void)source;
    struct h2_trunk *trunk = arg;
    struct h2_lane *lane = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!lane)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    stream_write(&trunk->stream, (const char *)header, 9);
    lane->queued -= length;
    trunk->has_room = true;
    if (lane->client.state == CLIENT_HEAD)
        touch(&lane->client); /* the answer's time runs from the request's last byte on */
    while (length) {
        struct seg *seg = lane->first;
        assert(seg);
        size_t n = seg->n < length ? seg->n : length;
        length -= n;
        if (!seg->block)
            stream_write(&trunk->stream, seg->p, n);
        else
            stream_write_slice(&trunk->stream,
                               (struct slice){block_ref(seg->block), seg->p, n});
        seg->p += n;
        seg->n -= n;
        if (seg->n)
            break;
        lane->first = seg->next;
        if (!lane->first)
            lane->last = &lane->first;
        block_unref(seg->block);
        slab_give(&trunk->stream.loop->segs, seg);
    }
    return 0;
}

/* Told later in the turn: nothing may be told from inside send_*. */
static void fail_soon(struct h2_lane *lane, enum reason reason)
{
    lane->doom = reason;
    loop_task(lane->client.stream.loop, &lane->later);
}

static void submit(struct h2_lane *lane, const struct head *head)
{
    struct h2_trunk *trunk = lane->trunk;
    struct arena *arena = lane->client.leg.arena;
    nghttp2_nv usual[H2_NV_USUAL];
    struct h2_nv nv;
    nghttp2_data_provider data = {.source.ptr = lane, .read_callback = on_data_read};
    struct str scheme = trunk->stream.tls ? STR("https") : STR("http");
    int rc = lane->tunnel ? h2_put_connect(&nv, usual, arena, head, scheme)
                          : h2_put_request(&nv, usual, arena, head, scheme);
    int32_t id = -1;
    if (rc == 0)
        id = nghttp2_submit_request(trunk->session, NULL, nv.list, nv.count,
                                    lane->has_body ? &data : NULL, lane);
    lane->id = id > 0 ? id : 0;
    if (id < 0)
        fail_soon(lane, R_NO_MEMORY);
    h2_trunk_flush(trunk);
}

/* RFC 8441 3: only servers that said so take what `held` asks for. */
static void ask_for_tunnel(struct h2_lane *lane)
{
    const struct head *head = lane->held;
    bool taken = nghttp2_session_get_remote_settings(lane->trunk->session,
                                                     NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL);
    lane->held = NULL;
    if (taken)
        submit(lane, head);
    else
        fail_soon(lane, R_UPSTREAM_WEBSOCKET);
}

void h2_lane_settled(struct h2_lane *lane)
{
    if (lane->held)
        ask_for_tunnel(lane);
}

/* What else is asked for by Upgrade is not known on HTTP/2; the request goes without it. */
static void send_head(struct leg *leg, const struct head *head)
{
    struct h2_lane *lane = lane_of(leg);
    lane->client.method = head->method;
    lane->heard = lane->trunk->stream.read_total;
    lane->has_body = head->framing == FRAMING_CHUNKED ||
                     (head->framing == FRAMING_LENGTH && head->length > 0);
    touch(&lane->client);
    if (!websocket_is_asked_for(head)) {
        submit(lane, head);
        return;
    }
    const struct field *key = head_find_name(head, STR("sec-websocket-key"));
    if (!key) {
        fail_soon(lane, R_BAD_UPGRADE);
        return;
    }
    lane->key = key->value;
    lane->tunnel = LANE_ASKS;
    lane->has_body = true;
    lane->held = head;
    if (lane->trunk->settled)
        ask_for_tunnel(lane);
}

static void send_body(struct leg *leg, struct slice slice)
{
    struct h2_lane *lane = lane_of(leg);
    struct seg *seg = NULL;
    if (slice.n && lane->has_body && lane->id)
        seg = slab_take(&lane->client.stream.loop->segs);
    if (!seg) {
        if (slice.n && lane->has_body && lane->id)
            fail_soon(lane, R_NO_MEMORY);
        slice_drop(&slice);
        return;
    }
    *seg = (struct seg){NULL, slice.block, slice.p, slice.n};
    *lane->last = seg;
    lane->last = &seg->next;
    lane->queued += slice.n;
    wake(lane);
}

static void send_end(struct leg *leg, const struct head *trailers)
{
    struct h2_lane *lane = lane_of(leg);
    lane->client.request_ended = true;
    lane->trailers = lane->has_body ? trailers : NULL;
    if (lane->client.state == CLIENT_HEAD)
        touch(&lane->client);
    wake(lane);
}

static void leg_pause(struct leg *leg)
{
    struct h2_lane *lane = lane_of(leg);
    lane->paused = true;
    deadline_off(&lane->client.due);
}

static void leg_resume(struct leg *leg)
{
    struct h2_lane *lane = lane_of(leg);
    if (!lane->paused)
        return;
    lane->paused = false;
    if (lane->client.state == CLIENT_BODY || lane->client.state == CLIENT_HEAD)
        touch(&lane->client);
    consume(lane, lane->unconsumed);
    lane->unconsumed = 0;
    h2_trunk_flush(lane->trunk);
}

static void leg_tunnel(struct leg *leg)
{
    struct h2_lane *lane = lane_of(leg);
    assert(lane->tunnel == LANE_TUNNEL);
    lane->client.state = CLIENT_TUNNEL;
    lane->client.request_ended = false;
    deadline_off(&lane->client.due);
}

static size_t leg_pending(const struct leg *leg)
{
    return ((const struct h2_lane *)(const void *)((const char *)leg -
                                                   offsetof(struct h1_client, leg)))
        ->queued;
}

/* Only the stream ends: the lane is as good as before. */
static void let_go(struct h2_lane *lane, bool reset)
{
    struct h1_client *client = &lane->client;
    client->leg.events = NULL;
    forget_stream(lane, reset);
    if (lane->trunk->leaving || lane->trunk->lane_count > lane->trunk->max_lanes) {
        close_lane(lane, NULL);
        return;
    }
    take_back(lane);
    become_idle(lane);
    client->ops->on_idle(client);
}

/* Whoever has enough of waiting may be right. */
static void leg_abort(struct leg *leg)
{
    struct h2_lane *lane = lane_of(leg);
    if (lane->id && lane->client.state == CLIENT_HEAD)
        h2_trunk_doubt(lane->trunk, lane->heard, false);
    let_go(lane, !is_done(lane));
}

static void leg_release(struct leg *leg)
{
    struct h2_lane *lane = lane_of(leg);
    let_go(lane, !is_done(lane));
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

int h2_lane_open(struct h2_lane *lane, struct h2_trunks *trunks, const struct addr *addr,
                 struct tls_peer *peer, const struct h1_client_timeouts *timeouts,
                 uint16_t spread, const struct h1_client_ops *ops, void *owner)
{
    struct h2_trunk *trunk;
    int rc = h2_trunk_for(trunks, addr, peer, timeouts->connect, spread, &trunk);
    if (rc < 0)
        return rc;
    *lane = (struct h2_lane){.client = {.ops = ops,
                                        .owner = owner,
                                        .timeouts = *timeouts,
                                        .leg.ops = &leg_ops,
                                        .stream = {.loop = trunks->loop, .fd = -1},
                                        .shared = true,
                                        .joined = trunk->state == TRUNK_OPEN || trunk->lanes,
                                        .close = on_close,
                                        .opened_at = trunk->opened_at,
                                        .spread = trunk->spread},
                             .trunk = trunk,
                             .last = &lane->first,
                             .later.run = on_later};
    deadline_init(&lane->client.due, on_due);
    lane->next = trunk->lanes;
    if (lane->next)
        lane->next->prev = &lane->next;
    lane->prev = &trunk->lanes;
    trunk->lanes = lane;
    trunk->lane_count++;
    if (trunk->state == TRUNK_OPEN)
        loop_task(trunks->loop, &lane->later);
    return 0;
}

void h2_lane_lend(struct h2_lane *lane)
{
    lane->lent = true;
    h2_trunk_begins(lane->trunk);
}

bool h2_lane_is_over(const struct h2_lane *lane)
{
    return lane->trunk->leaving || stream_is_outdated(&lane->trunk->stream);
}
