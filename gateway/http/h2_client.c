/* Trunks: HTTP/2 connections to a server, on nghttp2. What happens on one stream is h2_lane.c.
 */
#include "http/h2_client_parts.h"

#include <errno.h>
#include <unistd.h>

#include "base/count.h"

#define STREAM_WINDOW LEG_HIGH
#define CONN_WINDOW   (1024 * 1024)
#define SOCKET_HIGH   (128u * 1024)
#define EMPTY_MS      1000 /* that a connection stays without a lane */
#define WARY_NS       (2 * NS_PER_S)
#define LANES_MAX     256 /* of one trunk, however many its server allows */
#define LANES_ASSUMED 100 /* before it has said (RFC 9113 6.5.2 recommends at least that) */

static const struct h1_limits head_limits = {
    .header_bytes = 60 * 1024, .headers = 500, .target_bytes = 8 * 1024};

static struct h2_trunk *trunk_of_stream(struct stream *stream)
{
    return (struct h2_trunk *)((char *)stream - offsetof(struct h2_trunk, stream));
}

/* ---- counting ---- */

/* It stands and has so many lanes that are lent, which a moment ago were others. */
static void count_busy(const struct h2_trunk *trunk, uint32_t before, uint32_t now)
{
    const struct h2_trunks_counters *counters = &trunk->trunks->counters;
    if (!before == !now)
        return;
    count_add(counters->idle, now ? (uint64_t)-1 : 1);
    count_add(counters->active, now ? 1 : (uint64_t)-1);
}

/* ---- the end ---- */

static void on_buried(struct grave *grave)
{
    struct h2_trunk *trunk =
        (struct h2_trunk *)((char *)grave - offsetof(struct h2_trunk, grave));
    nghttp2_session_del(trunk->session);
    mem_free(trunk);
}

static bool is_wary(const struct h2_trunks *trunks)
{
    return trunks->wary_until > trunks->loop->now;
}

/* It ended without a word, and took requests along. */
static void note_break(struct h2_trunk *trunk)
{
    struct h2_trunks *trunks = trunk->trunks;
    if (!trunk->leaving && (trunk->busy > 1 || (trunk->busy && is_wary(trunks))))
        trunks->wary_until = trunks->loop->now + WARY_NS;
}

static void close_trunk(struct h2_trunk *trunk, const struct leg_fault *fault)
{
    if (trunk->state == TRUNK_CLOSED)
        return;
    struct loop *loop = trunk->stream.loop;
    bool stood = trunk->state == TRUNK_OPEN;
    trunk->state = TRUNK_CLOSED;
    note_break(trunk);
    *trunk->prev = trunk->next;
    if (trunk->next)
        trunk->next->prev = trunk->prev;
    deadline_end(&loop->wheel, &trunk->due);
    deadline_end(&loop->wheel, &trunk->pong_due);
    loop_cancel(loop, &trunk->flush);
    struct leg_fault told = *fault;
    told.why = stream_why(&trunk->stream);
    stream_close(&trunk->stream);
    while (trunk->lanes)
        h2_lane_lost(trunk->lanes, &told);
    if (stood)
        count_add(trunk->trunks->counters.idle, (uint64_t)-1);
    loop_bury(loop, &trunk->grave, on_buried);
}

static void end(struct h2_trunk *trunk, enum reason reason, int err)
{
    if (trunk->broken && reason == R_UPSTREAM_RESET)
        reason = R_UPSTREAM_PROTOCOL;
    close_trunk(trunk, &(struct leg_fault){.reason = reason, .err = err});
}

/* Its last lane has left, or it takes no more and waits for those under way. */
void h2_trunk_end_if_over(struct h2_trunk *trunk)
{
    if (trunk->lanes || trunk->state == TRUNK_CLOSED)
        return;
    if (trunk->state == TRUNK_CONNECTING) {
        end(trunk, R_UPSTREAM_RESET, 0);
        return;
    }
    /* The next lane may come at once; and a peer that takes nothing must not keep us. */
    loop_deadline(trunk->stream.loop, &trunk->due, EMPTY_MS);
    if (!trunk->leaving || trunk->parting)
        return;
    trunk->parting = true;
    nghttp2_session_terminate_session(trunk->session, NGHTTP2_NO_ERROR);
    h2_trunk_flush(trunk);
}

/* It takes no new requests: lanes without one leave. */
static void leave(struct h2_trunk *trunk)
{
    struct h2_lane *next;
    trunk->leaving = true;
    for (struct h2_lane *lane = trunk->lanes; lane; lane = next) {
        next = lane->next;
        if (lane->client.state == CLIENT_IDLE && !lane->lent)
            h1_client_close(&lane->client);
    }
    h2_trunk_end_if_over(trunk);
}

void h2_trunk_begins(struct h2_trunk *trunk)
{
    uint32_t limit = trunk->trunks->requests;
    count_busy(trunk, trunk->busy, trunk->busy + 1);
    trunk->busy++;
    trunk->requests++;
    if (!trunk->leaving && limit && trunk->requests >= h1_client_limit(limit, trunk->spread))
        leave(trunk);
}

void h2_trunk_ends(struct h2_trunk *trunk)
{
    count_busy(trunk, trunk->busy, trunk->busy - 1);
    trunk->busy--;
}

void h2_trunks_renew(struct h2_trunks *trunks)
{
    struct h2_trunk *next;
    for (struct h2_trunk *trunk = trunks->first; trunk; trunk = next) {
        next = trunk->next;
        if (!trunk->leaving && stream_is_outdated(&trunk->stream))
            leave(trunk);
    }
}

void h2_trunk_doubt(struct h2_trunk *trunk, uint64_t heard, bool for_long)
{
    if (trunk->state != TRUNK_OPEN || trunk->leaving || trunk->stream.read_total != heard)
        return;
    if (for_long) {
        leave(trunk);
    } else if (!deadline_is_on(&trunk->pong_due) &&
               nghttp2_submit_ping(trunk->session, NGHTTP2_FLAG_NONE, NULL) == 0) {
        loop_deadline(trunk->stream.loop, &trunk->pong_due,
                      trunk->patience ? trunk->patience : EMPTY_MS);
        h2_trunk_flush(trunk);
    }
}

static void on_pong_due(struct deadline *deadline)
{
    struct h2_trunk *trunk =
        (struct h2_trunk *)((char *)deadline - offsetof(struct h2_trunk, pong_due));
    deadline_off(deadline);
    leave(trunk);
}

/* ---- what nghttp2 calls ---- */

static void on_flush(struct task *task);

static struct h2_lane *lane_of(nghttp2_session *session, int32_t id)
{
    return id > 0 ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2_trunk *trunk = arg;
    struct h2_lane *lane = lane_of(session, frame->hd.stream_id);
    trunk->in_head = lane && lane->client.leg.events ? lane : NULL;
    if (trunk->in_head)
        h2_section_begin(&trunk->section, lane->client.leg.arena);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
                     void *arg)
{
    (void)session, (void)frame, (void)flags;
    struct h2_trunk *trunk = arg;
    if (trunk->in_head)
        h2_section_add(&trunk->section, (struct str){(const char *)name, name_n},
                       (struct str){(const char *)value, value_n}, &head_limits);
    return 0;
}

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_n, const uint8_t *value,
                             size_t value_n, uint8_t flags, void *arg)
{
    (void)session, (void)frame, (void)value, (void)value_n, (void)flags;
    struct h2_trunk *trunk = arg;
    if (trunk->in_head)
        h2_section_refuse(&trunk->section, (struct str){(const char *)name, name_n});
    return 0;
}

static void on_settings(struct h2_trunk *trunk)
{
    uint32_t max = nghttp2_session_get_remote_settings(trunk->session,
                                                       NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    trunk->max_lanes = max < LANES_MAX ? max : LANES_MAX;
    trunk->trunks->said = trunk->max_lanes;
    for (struct h2_lane *lane = trunk->lanes; lane && !trunk->settled; lane = lane->next)
        h2_lane_settled(lane);
    trunk->settled = true;
    struct h2_lane *next;
    for (struct h2_lane *lane = trunk->lanes; lane && trunk->lane_count > trunk->max_lanes;
         lane = next) {
        next = lane->next;
        if (lane->client.state == CLIENT_IDLE && !lane->lent)
            h1_client_close(&lane->client);
    }
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2_trunk *trunk = arg;
    struct h2_lane *lane = lane_of(session, frame->hd.stream_id);
    bool ended = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (trunk->in_head && trunk->in_head == lane)
            h2_lane_head(lane, &trunk->section, ended);
        trunk->in_head = NULL;
        break;
    case NGHTTP2_DATA:
        if (lane && ended)
            h2_lane_end(lane, NULL);
        break;
    case NGHTTP2_SETTINGS:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
            on_settings(trunk);
        break;
    case NGHTTP2_GOAWAY:
        leave(trunk);
        break;
    default:
        break;
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *arg)
{
    (void)flags;
    struct h2_trunk *trunk = arg;
    struct h2_lane *lane = lane_of(session, id);
    nghttp2_session_consume_connection(session, n);
    if (lane && lane->client.leg.events)
        h2_lane_body(lane, (struct slice){block_ref(trunk->stream.in), (const char *)p, n});
    else
        nghttp2_session_consume_stream(session, id, n);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
    (void)arg;
    struct h2_lane *lane = lane_of(session, id);
    if (lane)
        h2_lane_cut(lane, error);
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2_trunk *trunk = arg;
    struct h2_lane *lane = lane_of(session, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code)
        trunk->broken = true;
    if (lane && frame->hd.type == NGHTTP2_HEADERS)
        lane->client.stream.written_total++; /* the server may have seen it */
    return 0;
}

/* Without a lane. Now or never: nobody will be there later in the turn. */
static void say_goodbye(struct h2_trunk *trunk)
{
    if (trunk->state == TRUNK_OPEN) {
        nghttp2_session_terminate_session(trunk->session, NGHTTP2_NO_ERROR);
        on_flush(&trunk->flush);
        stream_flush(&trunk->stream);
    }
    end(trunk, R_UPSTREAM_RESET, 0);
}

void h2_trunks_init(struct h2_trunks *trunks, struct loop *loop,
                    const struct h2_trunks_counters *counters)
{
    *trunks = (struct h2_trunks){.loop = loop, .counters = *counters};
}

void h2_trunks_done(struct h2_trunks *trunks)
{
    while (trunks->first)
        say_goodbye(trunks->first);
    nghttp2_session_callbacks_del(trunks->callbacks);
    nghttp2_option_del(trunks->option);
}

static int prepare(struct h2_trunks *trunks)
{
    nghttp2_session_callbacks *callbacks;
    if (trunks->callbacks)
        return 0;
    if (!trunks->option && nghttp2_option_new(&trunks->option) != 0)
        return -ENOMEM;
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return -ENOMEM;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, h2_lane_send);
    nghttp2_option_set_no_auto_window_update(trunks->option, 1);
    trunks->callbacks = callbacks;
    return 0;
}

/* ---- the connection ---- */

void h2_trunk_flush(struct h2_trunk *trunk)
{
    if (trunk->state == TRUNK_OPEN)
        loop_late(trunk->stream.loop, &trunk->flush);
}

static void on_flush(struct task *task)
{
    struct h2_trunk *trunk =
        (struct h2_trunk *)((char *)task - offsetof(struct h2_trunk, flush));
    while (trunk->stream.pending < SOCKET_HIGH && !trunk->stream.err) {
        const uint8_t *p;
        ssize_t n = nghttp2_session_mem_send(trunk->session, &p);
        if (n < 0) {
            end(trunk, R_UPSTREAM_RESET, ENOMEM);
            return;
        }
        if (n == 0)
            break;
        stream_write(&trunk->stream, (const char *)p, (size_t)n);
    }
    struct h2_lane *next;
    for (struct h2_lane *lane = trunk->lanes; lane && trunk->has_room; lane = next) {
        next = lane->next;
        bool lives = lane->id || lane->client.state == CLIENT_TUNNEL;
        if (lives && lane->client.leg.events && lane->queued < LEG_LOW)
            lane->client.leg.events->on_room(&lane->client.leg);
    }
    trunk->has_room = false;
    if (!nghttp2_session_want_read(trunk->session) &&
        !nghttp2_session_want_write(trunk->session) && !trunk->stream.pending)
        end(trunk, R_UPSTREAM_RESET, 0);
}

/* Whoever it was opened for comes first: the others find a connection that is there. */
static void ready_all(struct h2_trunk *trunk)
{
    struct h2_lane *opener = trunk->lanes, *next;
    while (opener && opener->client.joined)
        opener = opener->next;
    if (opener)
        h2_lane_ready(opener);
    for (struct h2_lane *lane = trunk->lanes; lane; lane = next) {
        next = lane->next;
        h2_lane_ready(lane);
    }
}

static void on_connected(struct stream *stream)
{
    struct h2_trunk *trunk = trunk_of_stream(stream);
    if (stream->tls && !str_eq(stream_protocol(stream), STR("h2"))) {
        end(trunk, R_UPSTREAM_CONNECT, EPROTONOSUPPORT);
        return;
    }
    deadline_off(&trunk->due);
    trunk->state = TRUNK_OPEN;
    count_add(trunk->trunks->counters.idle, 1);
    h2_trunk_flush(trunk);
    ready_all(trunk);
}

static void on_read(struct stream *stream)
{
    struct h2_trunk *trunk = trunk_of_stream(stream);
    struct str in = stream_unread(stream);
    deadline_off(&trunk->pong_due); /* whatever it says: it is there */
    ssize_t n = nghttp2_session_mem_recv(trunk->session, (const uint8_t *)in.p, in.n);
    stream_skip(stream, in.n);
    if (n < 0)
        end(trunk, n == NGHTTP2_ERR_NOMEM ? R_UPSTREAM_RESET : R_UPSTREAM_PROTOCOL, 0);
    else
        h2_trunk_flush(trunk);
}

static void on_eof(struct stream *stream)
{
    end(trunk_of_stream(stream), R_UPSTREAM_RESET, 0);
}

static void on_drained(struct stream *stream)
{
    h2_trunk_flush(trunk_of_stream(stream));
}

static void on_error(struct stream *stream, int err)
{
    struct h2_trunk *trunk = trunk_of_stream(stream);
    end(trunk, trunk->state == TRUNK_CONNECTING ? R_UPSTREAM_CONNECT : R_UPSTREAM_RESET, err);
}

static const struct stream_ops stream_ops = {
    .on_connected = on_connected,
    .on_read = on_read,
    .on_eof = on_eof,
    .on_drained = on_drained,
    .on_pending = on_drained,
    .on_error = on_error,
};

static void on_due(struct deadline *deadline)
{
    struct h2_trunk *trunk =
        (struct h2_trunk *)((char *)deadline - offsetof(struct h2_trunk, due));
    if (trunk->state == TRUNK_CONNECTING) {
        end(trunk, R_UPSTREAM_TIMEOUT_CONNECT, ETIMEDOUT);
    } else if (trunk->parting) {
        end(trunk, R_UPSTREAM_RESET, 0);
    } else if (!trunk->lanes) {
        trunk->leaving = true;
        h2_trunk_end_if_over(trunk);
    }
}

static int open_session(struct h2_trunk *trunk)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 60 * 1024},
    };
    if (nghttp2_session_client_new2(&trunk->session, trunk->trunks->callbacks, trunk,
                                    trunk->trunks->option) != 0) {
        trunk->session = NULL;
        return -ENOMEM;
    }
    if (nghttp2_submit_settings(trunk->session, NGHTTP2_FLAG_NONE, settings,
                                sizeof(settings) / sizeof(*settings)) != 0 ||
        nghttp2_session_set_local_window_size(trunk->session, NGHTTP2_FLAG_NONE, 0,
                                              CONN_WINDOW) != 0)
        return -ENOMEM;
    return 0;
}

/* 0 or -errno: it has failed at once. */
static int open_trunk(struct h2_trunks *trunks, const struct addr *addr, struct tls_peer *peer,
                      uint32_t connect, uint16_t spread, struct h2_trunk **ret)
{
    int fd, rc = prepare(trunks);
    if (rc == 0)
        rc = sock_connect(addr, &fd);
    if (rc < 0)
        return rc;
    struct tls *tls = peer ? tls_connect(peer, trunks->loop, fd) : NULL;
    struct h2_trunk *trunk = mem_zalloc(sizeof(*trunk));
    if (trunk)
        trunk->trunks = trunks;
    if (!trunk || (peer && !tls) || open_session(trunk) < 0) {
        if (trunk)
            nghttp2_session_del(trunk->session);
        mem_free(trunk);
        tls_free(tls);
        close(fd);
        return -ENOMEM;
    }
    trunk->flush.run = on_flush;
    trunk->max_lanes = trunks->said ? trunks->said : LANES_ASSUMED;
    trunk->opened_at = trunks->loop->now;
    trunk->spread = spread;
    trunk->patience = connect;
    deadline_init(&trunk->due, on_due);
    deadline_init(&trunk->pong_due, on_pong_due);
    rc = stream_open(&trunk->stream, trunks->loop, fd, true, tls, &stream_ops);
    if (rc < 0) {
        nghttp2_session_del(trunk->session);
        mem_free(trunk);
        return rc;
    }
    loop_deadline(trunks->loop, &trunk->due, connect);
    trunk->next = trunks->first;
    if (trunk->next)
        trunk->next->prev = &trunk->next;
    trunk->prev = &trunks->first;
    trunks->first = trunk;
    count_add(trunks->counters.opened, 1);
    *ret = trunk;
    return 0;
}

static bool is_old(const struct h2_trunk *trunk)
{
    uint64_t lifetime = trunk->trunks->lifetime * NS_PER_MS;
    return lifetime && trunk->trunks->loop->now - trunk->opened_at >=
                           h1_client_limit(lifetime, trunk->spread);
}

int h2_trunk_for(struct h2_trunks *trunks, const struct addr *addr, struct tls_peer *peer,
                 uint32_t connect, uint16_t spread, struct h2_trunk **ret)
{
    struct h2_trunk *next;
    bool alone = is_wary(trunks);
    for (struct h2_trunk *trunk = trunks->first; trunk; trunk = next) {
        next = trunk->next;
        if (!trunk->leaving && (is_old(trunk) || stream_is_outdated(&trunk->stream)))
            leave(trunk);
        if (!trunk->leaving && trunk->lane_count < (alone ? 1 : trunk->max_lanes) &&
            addr_eq(&trunk->addr, addr)) {
            *ret = trunk;
            return 0;
        }
    }
    int rc = open_trunk(trunks, addr, peer, connect, spread, ret);
    if (rc == 0)
        (*ret)->addr = *addr;
    return rc;
}
