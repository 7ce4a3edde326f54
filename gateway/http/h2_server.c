#include "http/h2_server_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#define STREAM_WINDOW   LEG_HIGH /* of a request's body that nobody has taken yet */
#define CONN_WINDOW     (1024 * 1024)
#define SOCKET_HIGH     (128u * 1024) /* framed and not with the kernel: no more is framed */
#define MAX_ACKS        600           /* that the client asks for and does not read */
#define MAX_SETTINGS    32
#define DRAIN_NOTICE_MS 1000 /* for the notice of a GOAWAY to have arrived */
#define LINGER_MS       2000

/* ---- what a worker's connections share ---- */

static void *on_malloc(size_t n, void *arg)
{
    (void)arg;
    return mem_alloc(n);
}

static void on_free(void *p, void *arg)
{
    (void)arg;
    mem_free(p);
}

static void *on_calloc(size_t count, size_t n, void *arg)
{
    (void)arg;
    return n && count > SIZE_MAX / n ? NULL : mem_zalloc(count * n);
}

/* nghttp2 1.52 holds a frame twice when its queue cannot grow, and would free it twice: such a
 * session is given up with its memory. That cannot be tried by mem_fail_at, which would have
 * every test leak. */
static void *on_realloc(void *p, size_t n, void *arg)
{
    struct h2_server *server = arg;
    void *grown = realloc(p, n);
    server->lost |= !grown;
    return grown;
}

int h2_kit_init(struct h2_kit *kit, struct loop *loop)
{
    *kit = (struct h2_kit){.loop = loop};
    slab_init(&kit->streams, sizeof(struct h2_stream), 1024);
    slab_init(&kit->intakes, sizeof(struct h2_intake), 64);
    if (nghttp2_session_callbacks_new(&kit->callbacks) != 0 ||
        nghttp2_option_new(&kit->option) != 0) {
        h2_kit_done(kit);
        return -ENOMEM;
    }
    h2_frames_callbacks(kit->callbacks);
    nghttp2_option_set_no_auto_window_update(kit->option, 1);
    nghttp2_option_set_no_closed_streams(kit->option, 1);
    nghttp2_option_set_max_outbound_ack(kit->option, MAX_ACKS);
    nghttp2_option_set_max_settings(kit->option, MAX_SETTINGS);
    nghttp2_option_set_builtin_recv_extension_type(kit->option, NGHTTP2_PRIORITY_UPDATE);
    /* It counts resets behind a whole answer too, which are honest: h2_guard counts others. */
    nghttp2_option_set_stream_reset_rate_limit(kit->option, UINT64_MAX, UINT64_MAX);
    return 0;
}

void h2_kit_done(struct h2_kit *kit)
{
    nghttp2_session_callbacks_del(kit->callbacks);
    nghttp2_option_del(kit->option);
    slab_done(&kit->streams);
    slab_done(&kit->intakes);
}

static void drop_intake(struct h2_server *server)
{
    if (!server->intake)
        return;
    arena_done(&server->intake->arena); /* what became a request has moved */
    slab_give(&server->kit->intakes, server->intake);
    server->intake = NULL;
}

/* ---- the end ---- */

static struct h2_server *server_of_stream(struct stream *stream)
{
    return (struct h2_server *)((char *)stream - offsetof(struct h2_server, stream));
}

static void on_buried(struct grave *grave)
{
    struct h2_server *server =
        (struct h2_server *)((char *)grave - offsetof(struct h2_server, grave));
    if (!server->lost)
        nghttp2_session_del(server->session);
    server->ops->bury(server);
}

static void cut_streams(struct h2_server *server, enum reason reason, int err)
{
    while (server->streams)
        h2_stream_cut(server->streams, reason, err);
    drop_intake(server);
}

static void close_now(struct h2_server *server, enum reason reason, int err)
{
    if (server->state == H2_CLOSED)
        return;
    struct loop *loop = server->stream.loop;
    server->state = H2_CLOSED;
    deadline_end(&loop->wheel, &server->due);
    deadline_end(&loop->wheel, &server->write_due);
    deadline_end(&loop->wheel, &server->drain_due);
    loop_cancel(loop, &server->flush);
    stream_close(&server->stream);
    cut_streams(server, reason, err);
    loop_cancel(loop, &server->flush); /* what was cut may have asked for it */
    server->ops->on_closed(server);
    loop_bury(loop, &server->grave, on_buried);
}

void h2_server_close(struct h2_server *server)
{
    close_now(server, R_CLIENT_ABORT, 0);
}

/* The last frames are on their way: goodbye, so that they arrive (see h1_server). */
static void linger(struct h2_server *server)
{
    server->state = H2_LINGER;
    cut_streams(server, server->reason ? server->reason : R_CLIENT_ABORT, 0);
    deadline_off(&server->drain_due);
    if (server->stream.eof && !server->stream.pending) {
        close_now(server, R_CLIENT_ABORT, 0);
        return;
    }
    stream_shutdown(&server->stream);
    stream_skip(&server->stream, stream_unread(&server->stream).n);
    loop_deadline(server->stream.loop, &server->due, LINGER_MS);
}

static void end_if_over(struct h2_server *server)
{
    if (server->state == H2_OPEN && !nghttp2_session_want_read(server->session) &&
        !nghttp2_session_want_write(server->session) && (!server->sent || server->reason))
        linger(server);
}

/* ---- writing ---- */

void h2_server_flush(struct h2_server *server)
{
    if (server->state == H2_OPEN)
        loop_late(server->stream.loop, &server->flush);
}

/* Answers whose end the kernel has. */
static void tell_sent(struct h2_server *server)
{
    while (server->sent && server->sent->mark <= server->stream.written_total) {
        struct h2_stream *stream = server->sent;
        server->sent = stream->next_sent;
        if (!server->sent)
            server->last_sent = &server->sent;
        stream->is_sent = false;
        h2_stream_on_sent(stream);
    }
}

static void tell_room(struct h2_server *server)
{
    while (server->roomy) {
        struct h2_stream *stream = server->roomy;
        server->roomy = stream->next_roomy;
        stream->is_roomy = false;
        if (stream->leg.events)
            stream->leg.events->on_room(&stream->leg);
    }
    if (!server->crowded || server->queued >= H2_QUEUE_LOW)
        return;
    server->crowded = false;
    struct h2_stream *next;
    for (struct h2_stream *stream = server->streams; stream; stream = next) {
        next = stream->next;
        if (stream->leg.events)
            stream->leg.events->on_room(&stream->leg);
    }
}

static void on_flush(struct task *task)
{
    struct h2_server *server =
        (struct h2_server *)((char *)task - offsetof(struct h2_server, flush));
    if (server->state != H2_OPEN) /* it has ended in this turn: its last words are written */
        return;
    while (server->stream.pending < SOCKET_HIGH && !server->stream.err) {
        const uint8_t *p;
        ssize_t n = nghttp2_session_mem_send(server->session, &p);
        if (n < 0) {
            close_now(server, R_NO_MEMORY, ENOMEM);
            return;
        }
        if (n == 0)
            break;
        stream_write(&server->stream, (const char *)p, (size_t)n);
    }
    tell_room(server);
    tell_sent(server);
    end_if_over(server);
}

static uint64_t taken_by_peer(const struct stream *stream)
{
    return stream->written_total - stream_unacked(stream);
}

static struct pace_limits write_limits(struct h2_server *server)
{
    const struct h1_server_config *config = server->ops->config(server);
    return (struct pace_limits){config->timeouts.write, config->timeouts.rate,
                                config->timeouts.rate_window};
}

/* A kernel that holds much says for long that it takes no more, while the peer reads. */
static uint64_t write_look_ms(struct pace_limits limits)
{
    if (limits.still)
        limits.still = limits.still / 4 + 1;
    return pace_wait(&limits, 0, 0);
}

static void on_pending(struct stream *stream)
{
    struct h2_server *server = server_of_stream(stream);
    if (!deadline_is_on(&server->write_due)) {
        struct pace_limits limits = write_limits(server);
        uint64_t taken = taken_by_peer(stream);
        pace_begin(&server->out, stream->loop->now, taken, &limits);
        server->taken = (uint32_t)taken;
        loop_deadline(stream->loop, &server->write_due, write_look_ms(limits));
    }
    h2_server_flush(server);
}

static void on_drained(struct stream *stream)
{
    struct h2_server *server = server_of_stream(stream);
    deadline_off(&server->write_due);
    h2_server_flush(server);
}

static void on_write_due(struct deadline *deadline)
{
    struct h2_server *server =
        (struct h2_server *)((char *)deadline - offsetof(struct h2_server, write_due));
    struct pace_limits limits = write_limits(server);
    struct loop *loop = server->stream.loop;
    uint64_t taken = taken_by_peer(&server->stream);
    if ((uint32_t)taken != server->taken)
        server->out.moved_at = pace_ms(loop->now);
    server->taken = (uint32_t)taken;
    if (pace_check(&server->out, loop->now, taken, &limits) >= 0)
        loop_deadline(loop, &server->write_due, write_look_ms(limits));
    else
        close_now(server, R_CLIENT_TIMEOUT_WRITE, 0);
}

/* ---- reading ---- */

static void note_flood(struct h2_server *server, enum h2_flood kind)
{
    if (server->reason != R_CLIENT_FLOOD)
        server->ops->on_flood(server, kind);
    server->reason = R_CLIENT_FLOOD;
}

void h2_server_calm(struct h2_server *server, enum h2_flood kind)
{
    if (server->reason)
        return;
    note_flood(server, kind);
    nghttp2_session_terminate_session(server->session, NGHTTP2_ENHANCE_YOUR_CALM);
    h2_server_flush(server);
}

/* RFC 9113 6.8, by hand. */
static void write_goaway(struct h2_server *server, uint32_t code)
{
    uint32_t last = htonl((uint32_t)server->last_id), error = htonl(code);
    char frame[17] = {0, 0, 8, NGHTTP2_GOAWAY};
    memcpy(frame + 9, &last, 4);
    memcpy(frame + 13, &error, 4);
    stream_write(&server->stream, frame, sizeof(frame));
}

/* nghttp2 has given up; nothing but its end may be asked of it any more. */
static void on_broken(struct h2_server *server, ssize_t error)
{
    uint32_t code = NGHTTP2_ENHANCE_YOUR_CALM;
    if (error == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS) {
        note_flood(server, H2_FLOOD_CONTINUATION);
    } else if (error == NGHTTP2_ERR_FLOODED) {
        note_flood(server, H2_FLOOD_ACK);
    } else if (error == NGHTTP2_ERR_NOMEM) {
        server->reason = R_NO_MEMORY;
        code = NGHTTP2_INTERNAL_ERROR;
    } else if (!server->reason) { /* else a callback of ours has said why */
        server->reason = R_BAD_FRAMES;
        code = NGHTTP2_PROTOCOL_ERROR;
    }
    write_goaway(server, code);
    linger(server);
}

#define FRAME_HEAD    9
#define PRIORITY_HEAD (FRAME_HEAD + 4) /* with the stream that it depends on */

static uint32_t get_u32(const char *p)
{
    uint32_t n;
    memcpy(&n, p, sizeof(n));
    return ntohl(n);
}

/* The frame that begins there is looked at before nghttp2 does. False: more bytes are needed.
 */
static bool begin_frame(struct h2_server *server, struct str in)
{
    if (in.n < FRAME_HEAD)
        return false;
    nghttp2_frame_hd hd = {.length = get_u32(in.p) >> 8,
                           .stream_id = (int32_t)(get_u32(in.p + 5) & INT32_MAX),
                           .type = (uint8_t)in.p[3],
                           .flags = (uint8_t)in.p[4]};
    if (hd.type == NGHTTP2_PRIORITY && hd.length >= 4) {
        if (in.n < PRIORITY_HEAD)
            return false;
        /* nghttp2 does not look into these when the priorities are those of RFC 9218. */
        if ((int32_t)(get_u32(in.p + FRAME_HEAD) & INT32_MAX) == hd.stream_id)
            h2_server_violated(server, NGHTTP2_PROTOCOL_ERROR);
    }
    if (hd.type == NGHTTP2_PRIORITY && hd.stream_id == 0)
        h2_server_violated(server, NGHTTP2_PROTOCOL_ERROR);
    h2_frames_begin(server, &hd);
    server->frame_left = FRAME_HEAD + (uint32_t)hd.length;
    server->frame_ends_head = (hd.type == NGHTTP2_HEADERS || hd.type == NGHTTP2_CONTINUATION) &&
                              hd.flags & NGHTTP2_FLAG_END_HEADERS;
    return true;
}

/* Frame by frame, so that what one has done is known when the next is looked at. */
static void on_read(struct stream *stream)
{
    struct h2_server *server = server_of_stream(stream);
    for (;;) {
        struct str in = stream_unread(stream);
        if (server->state != H2_OPEN || server->reason) {
            stream_skip(stream, in.n);
            break;
        }
        if (!in.n || (!server->frame_left && !begin_frame(server, in)))
            break;
        size_t n = in.n < server->frame_left ? in.n : server->frame_left;
        /* The bytes stay where they are meanwhile: slices of bodies point to them. */
        ssize_t read = nghttp2_session_mem_recv(server->session, (const uint8_t *)in.p, n);
        stream_skip(stream, n);
        server->frame_left -= (uint32_t)n;
        if (read < 0)
            on_broken(server, read);
        else if (!server->frame_left && server->frame_ends_head)
            h2_server_head_ends(server); /* nghttp2 tells of many that it drops, not of all */
    }
    if (server->state == H2_OPEN)
        h2_server_flush(server);
}

static void on_eof(struct stream *stream)
{
    close_now(server_of_stream(stream), R_CLIENT_ABORT, 0);
}

static void on_error(struct stream *stream, int err)
{
    close_now(server_of_stream(stream), err == ENOMEM ? R_NO_MEMORY : R_CLIENT_ABORT, err);
}

static const struct stream_ops stream_ops = {
    .on_connected = NULL, /* it was accepted */
    .on_read = on_read,
    .on_eof = on_eof,
    .on_drained = on_drained,
    .on_pending = on_pending,
    .on_error = on_error,
};

/* ---- how long it waits ---- */

void h2_server_idle(struct h2_server *server)
{
    if (server->state == H2_OPEN && !server->intake)
        loop_deadline(server->stream.loop, &server->due,
                      server->ops->config(server)->timeouts.idle);
    h2_server_flush(server); /* it may have been the last one */
}

bool h2_server_head_begins(struct h2_server *server)
{
    const struct h1_server_config *config = server->ops->config(server);
    struct h2_intake *intake = slab_take(&server->kit->intakes);
    if (!intake)
        return false;
    server->intake = intake;
    arena_init(&intake->arena, &server->stream.loop->chunks);
    h2_section_begin(&intake->section, &intake->arena);
    loop_deadline(server->stream.loop, &server->due, config->timeouts.header);
    return true;
}

void h2_server_head_ends(struct h2_server *server)
{
    if (!server->intake)
        return;
    drop_intake(server);
    deadline_off(&server->due);
    if (!server->streams)
        h2_server_idle(server);
}

static void on_due(struct deadline *deadline)
{
    struct h2_server *server =
        (struct h2_server *)((char *)deadline - offsetof(struct h2_server, due));
    if (server->state == H2_LINGER) {
        close_now(server, R_CLIENT_ABORT, 0);
        return;
    }
    if (server->intake) {
        server->reason = R_CLIENT_TIMEOUT_HEAD;
        struct h2_stream *stream = server->streams; /* the newest is the one */
        if (stream && !stream->begun) {
            stream->muted = true;
            h2_stream_begin(stream, NULL, false,
                            &(struct leg_fault){.reason = R_CLIENT_TIMEOUT_HEAD});
        }
    }
    nghttp2_session_terminate_session(server->session, NGHTTP2_NO_ERROR);
    h2_server_flush(server);
}

/* ---- the last request ---- */

void h2_server_goaway(struct h2_server *server)
{
    if (server->goaway || server->state != H2_OPEN)
        return;
    server->goaway = true;
    nghttp2_submit_goaway(server->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(server->session),
                          NGHTTP2_NO_ERROR, NULL, 0);
    h2_server_flush(server);
}

static void on_drain_due(struct deadline *deadline)
{
    h2_server_goaway(
        (struct h2_server *)((char *)deadline - offsetof(struct h2_server, drain_due)));
}

/* First the client is told to ask no more, then, when it knows (it answers a PING behind it),
 * which of its requests was the last. */
void h2_server_drain(struct h2_server *server)
{
    if (server->draining || server->state != H2_OPEN)
        return;
    server->draining = true;
    nghttp2_submit_shutdown_notice(server->session);
    nghttp2_submit_ping(server->session, NGHTTP2_FLAG_NONE, NULL);
    loop_deadline(server->stream.loop, &server->drain_due, DRAIN_NOTICE_MS);
    h2_server_flush(server);
}

void h2_server_each(struct h2_server *server, void (*call)(struct leg *leg))
{
    struct h2_stream *next;
    for (struct h2_stream *stream = server->streams; stream; stream = next) {
        next = stream->next;
        if (stream->leg.events)
            call(&stream->leg);
    }
}

/* ---- opening ---- */

static int open_session(struct h2_server *server)
{
    const struct h1_server_config *config = server->ops->config(server);
    nghttp2_mem mem = {server, on_malloc, on_free, on_calloc, on_realloc};
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, config->limits.header_bytes},
        {NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1}, /* RFC 9218 takes their place */
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, config->streams},
    };
    size_t count = sizeof(settings) / sizeof(*settings) - (config->streams == 0);
    if (nghttp2_session_server_new3(&server->session, server->kit->callbacks, server,
                                    server->kit->option, &mem) != 0) {
        server->session = NULL;
        return -ENOMEM;
    }
    if (nghttp2_submit_settings(server->session, NGHTTP2_FLAG_NONE, settings, count) != 0 ||
        nghttp2_session_set_local_window_size(server->session, NGHTTP2_FLAG_NONE, 0,
                                              CONN_WINDOW) != 0)
        return -ENOMEM;
    return 0;
}

void h2_server_open(struct h2_server *server, struct h2_kit *kit,
                    const struct h2_server_ops *ops, void *owner)
{
    memset((char *)server + sizeof(server->stream), 0,
           sizeof(*server) - sizeof(server->stream));
    server->kit = kit;
    server->ops = ops;
    server->owner = owner;
    server->last_sent = &server->sent;
    server->stream.ops = &stream_ops;
    server->flush.run = on_flush;
    deadline_init(&server->due, on_due);
    deadline_init(&server->write_due, on_write_due);
    deadline_init(&server->drain_due, on_drain_due);
    h2_guard_init(&server->guard, ops->config(server)->streams, server->stream.loop->now);
    if (open_session(server) < 0) {
        close_now(server, R_NO_MEMORY, ENOMEM);
        return;
    }
    h2_server_idle(server);
    server->frame_left = sizeof(HTTP2_PREFACE) - 1;
    on_read(&server->stream);
}
