/* What nghttp2 calls while it reads and writes frames of a client's connection. */
#include "http/h2_server_parts.h"

#define RESET_KNOWN_NS        (10 * NS_PER_S) /* by then the client has our last reset */
#define BOMB_SPARE            (64u * 1024)    /* of a section that is too large already */
#define TRAILERS_MAX          8192
#define STREAM_ID_LAST        (1 << 30) /* ids are not used up before the client has another */
#define FRAME_UNKNOWN         0x0a /* the first type that nobody has defined (RFC 9113 11.2) */
#define FRAME_PRIORITY_UPDATE 0x10

static const struct h1_limits trailer_limits = {
    .header_bytes = TRAILERS_MAX, .headers = 64, .target_bytes = TRAILERS_MAX};

static struct h2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return id > 0 ? nghttp2_session_get_stream_user_data(session, id) : NULL;
}

static void spend(struct h2_server *server, enum h2_flood kind)
{
    if (!h2_guard_spend(&server->guard, kind, server->stream.loop->now))
        h2_server_calm(server, kind);
}

static bool is_trailers(const nghttp2_frame *frame)
{
    return frame->headers.cat != NGHTTP2_HCAT_REQUEST;
}

/* ---- what arrives ---- */

void h2_server_violated(struct h2_server *server, uint32_t error)
{
    if (server->reason)
        return;
    server->reason = R_BAD_FRAMES;
    nghttp2_session_terminate_session(server->session, error);
    h2_server_flush(server);
}

static void note_reset(struct h2_server *server)
{
    server->reset_at = server->stream.loop->now;
}

/* nghttp2 forgets streams that are closed, and lets pass what comes for them. What we have
 * reset the client may not know of yet; what it has ended itself, it knows (RFC 9113 5.1). */
static void look_for_closed(struct h2_server *server, const nghttp2_frame_hd *hd)
{
    if (hd->stream_id > server->last_id || !(hd->stream_id & 1) ||
        nghttp2_session_find_stream(server->session, hd->stream_id) ||
        (server->reset_at && server->stream.loop->now - server->reset_at < RESET_KNOWN_NS))
        return;
    bool was_open = false;
    for (unsigned i = 0; i < H2_CLOSED_KEPT; i++)
        was_open |= server->closed[i] == hd->stream_id;
    h2_server_violated(server, was_open || hd->type == NGHTTP2_DATA ? NGHTTP2_STREAM_CLOSED
                                                                    : NGHTTP2_PROTOCOL_ERROR);
}

void h2_frames_begin(struct h2_server *server, const nghttp2_frame_hd *hd)
{
    bool ack = hd->flags & NGHTTP2_FLAG_ACK;
    if (hd->type == NGHTTP2_DATA || hd->type == NGHTTP2_HEADERS)
        look_for_closed(server, hd);
    switch (hd->type) {
    case NGHTTP2_DATA:
        if (hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM))
            spend(server, H2_FLOOD_EMPTY_DATA);
        break;
    case NGHTTP2_PING:
        if (!ack)
            spend(server, H2_FLOOD_PING);
        break;
    case NGHTTP2_SETTINGS:
        if (!ack)
            spend(server, H2_FLOOD_SETTINGS);
        break;
    case NGHTTP2_PRIORITY:
    case FRAME_PRIORITY_UPDATE:
        spend(server, H2_FLOOD_PRIORITY);
        break;
    case NGHTTP2_WINDOW_UPDATE:
        spend(server, H2_FLOOD_WINDOW_UPDATE);
        break;
    default:
        if (hd->type >= FRAME_UNKNOWN)
            spend(server, H2_FLOOD_UNKNOWN);
        break;
    }
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2_server *server = arg;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    if (!is_trailers(frame)) {
        server->last_id = frame->hd.stream_id;
        struct h2_stream *stream = h2_stream_new(server, frame->hd.stream_id);
        if (!stream)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    }
    return h2_server_head_begins(server) ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
                     void *arg)
{
    (void)session, (void)flags;
    struct h2_server *server = arg;
    if (frame->hd.type != NGHTTP2_HEADERS || !server->intake)
        return 0;
    const struct h1_limits *limits =
        is_trailers(frame) ? &trailer_limits : &server->ops->config(server)->limits;
    h2_section_add(&server->intake->section, (struct str){(const char *)name, name_n},
                   (struct str){(const char *)value, value_n}, limits);
    if (server->intake->section.bytes <= 2ull * limits->header_bytes + BOMB_SPARE)
        return 0;
    h2_server_calm(server, H2_FLOOD_HPACK);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* Bytes in it that must not be; other faults nghttp2 does not ask about. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_n, const uint8_t *value,
                             size_t value_n, uint8_t flags, void *arg)
{
    (void)session, (void)frame, (void)value, (void)value_n, (void)flags;
    struct h2_server *server = arg;
    if (server->intake)
        h2_section_refuse(&server->intake->section, (struct str){(const char *)name, name_n});
    return 0;
}

static int on_request(struct h2_server *server, const nghttp2_frame *frame)
{
    if (!server->intake)
        return 0;
    struct h2_stream *stream = stream_of(server->session, frame->hd.stream_id);
    const struct h1_server_config *config = server->ops->config(server);
    bool ended = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct head *head = h2_section_request(&server->intake->section, ended, &config->limits);
    struct leg_fault fault = server->intake->section.fault; /* the intake may go meanwhile */
    if (stream && !h2_stream_begin(stream, head, ended, &fault))
        nghttp2_submit_rst_stream(server->session, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_REFUSED_STREAM);
    h2_server_head_ends(server);
    if ((config->requests && server->requests >= config->requests) ||
        frame->hd.stream_id >= STREAM_ID_LAST)
        h2_server_drain(server);
    return 0;
}

static int on_trailers(struct h2_server *server, const nghttp2_frame *frame)
{
    struct h2_stream *stream = stream_of(server->session, frame->hd.stream_id);
    if (stream && stream->leg.events && server->intake) {
        struct head *trailers =
            h2_section_trailers(&server->intake->section, stream->leg.arena);
        struct leg_fault fault = server->intake->section.fault;
        if (fault.reason)
            h2_stream_bad(stream, &fault);
        else
            h2_stream_end(stream, trailers->count ? trailers : NULL);
    }
    h2_server_head_ends(server);
    return 0;
}

static void on_reset(struct h2_server *server, const nghttp2_frame *frame)
{
    struct h2_stream *stream = stream_of(server->session, frame->hd.stream_id);
    if (!stream)
        return; /* its answer was complete: some clients end every stream like this */
    stream->reset_by_peer = true;
    if (!stream->framed)
        spend(server, H2_FLOOD_RESET);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2_server *server = arg;
    struct h2_stream *stream = stream_of(session, frame->hd.stream_id);
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        return is_trailers(frame) ? on_trailers(server, frame) : on_request(server, frame);
    case NGHTTP2_DATA:
        if (frame->hd.length > frame->data.padlen)
            h2_guard_earn(&server->guard);
        else if (frame->hd.length && !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
            spend(server, H2_FLOOD_EMPTY_DATA);
        if (stream && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
            h2_stream_end(stream, NULL);
        break;
    case NGHTTP2_RST_STREAM:
        on_reset(server, frame);
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK && server->draining)
            h2_server_goaway(server);
        break;
    default:
        break;
    }
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error,
                            void *arg)
{
    struct h2_server *server = arg;
    struct h2_stream *stream = stream_of(session, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_HEADERS && server->intake) {
        if (stream && !stream->leg.events && !is_trailers(frame)) {
            struct leg_fault fault = server->intake->section.fault;
            if (!fault.reason)
                fault.reason = R_BAD_FIELDS;
            stream->muted = true; /* nghttp2 resets it */
            h2_stream_begin(stream, NULL, false, &fault);
        }
        h2_server_head_ends(server);
    }
    note_reset(server);
    if (!stream) /* else it is counted when the stream is closed */
        spend(server, error == NGHTTP2_ERR_REFUSED_STREAM ? H2_FLOOD_REFUSED : H2_FLOOD_FAULT);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *arg)
{
    (void)flags;
    struct h2_server *server = arg;
    struct h2_stream *stream = stream_of(session, id);
    /* One stream's receiver may be slow; the connection is not held up for it. */
    nghttp2_session_consume_connection(session, n);
    if (stream && stream->leg.events && !stream->muted) {
        struct slice slice = {block_ref(server->stream.in), (const char *)p, n};
        h2_stream_body(stream, slice);
    } else {
        nghttp2_session_consume_stream(session, id, n);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
    struct h2_server *server = arg;
    struct h2_stream *stream = stream_of(session, id);
    if (!stream)
        return 0;
    server->closed[server->closed_count++ % H2_CLOSED_KEPT] = id;
    if (error != NGHTTP2_NO_ERROR && !stream->reset_by_peer && !stream->reset_by_us)
        spend(server, H2_FLOOD_FAULT);
    h2_stream_closed(stream, error);
    return 0;
}

/* ---- what is sent ---- */

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2_server *server = arg;
    bool is_data = frame->hd.type == NGHTTP2_DATA;
    if (is_data && frame->hd.length)
        h2_guard_earn(&server->guard);
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        note_reset(server);
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code && !server->reason)
        server->reason = R_BAD_FRAMES; /* nghttp2 has found a fault */
    if ((is_data || frame->hd.type == NGHTTP2_HEADERS) &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        struct h2_stream *stream = stream_of(session, frame->hd.stream_id);
        if (stream)
            h2_stream_on_framed(stream);
    }
    return 0;
}

void h2_frames_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, h2_stream_send);
}
