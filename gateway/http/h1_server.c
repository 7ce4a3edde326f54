#include "http/h1_server_parts.h"

#include <errno.h>

#define LINGER_MAX      (16u * 1024 * 1024)
#define LINGER_MS       2000
#define PROBE_MS        300  /* from a client's FIN to asking whether it is still there */
#define LAST_CALL_MS    1000 /* for the first request of a connection that is to close */
#define PROBE_ANSWER_MS 200
#define TRAILERS_MAX    8192
#define FIELD_SPARE     16 /* fields that forwarding may add without asking for room */

static struct h1_server *server_of_stream(struct stream *stream)
{
    return (struct h1_server *)((char *)stream - offsetof(struct h1_server, stream));
}

static void on_buried(struct grave *grave)
{
    struct h1_server *server =
        (struct h1_server *)((char *)grave - offsetof(struct h1_server, grave));
    server->ops->bury(server);
}

void h1_server_close_now(struct h1_server *server, bool reset)
{
    if (server->state == SERVER_CLOSED)
        return;
    struct loop *loop = server->stream.loop;
    server->state = SERVER_CLOSED;
    server->leg.events = NULL;
    deadline_end(&loop->wheel, &server->read_due);
    deadline_end(&loop->wheel, &server->write_due);
    loop_cancel(loop, &server->turn);
    if (reset)
        stream_reset(&server->stream);
    else
        stream_close(&server->stream);
    server->ops->on_closed(server);
    loop_bury(loop, &server->grave, on_buried);
}

/* The connection is dead under a request: its exchange is told. */
static void end_gone(struct h1_server *server, enum reason reason, int err)
{
    const struct leg_events *events = server->leg.events;
    h1_server_close_now(server, server->until_close);
    if (events)
        events->on_gone(&server->leg, &(struct leg_fault){.reason = reason, .err = err});
}

/* Says goodbye so that the answer arrives: closing a socket with unread bytes in it sends a
 * reset, which may overtake the answer. */
void h1_server_linger(struct h1_server *server)
{
    bool nothing_to_come = server->stream.eof || server->state == SERVER_WAIT;
    if (nothing_to_come && !stream_unread(&server->stream).n && !server->stream.pending) {
        h1_server_close_now(server, false);
        return;
    }
    server->state = SERVER_LINGER;
    server->body_left = LINGER_MAX;
    stream_shutdown(&server->stream);
    loop_deadline(server->stream.loop, &server->read_due, LINGER_MS);
    stream_skip(&server->stream, stream_unread(&server->stream).n);
    stream_resume(&server->stream);
}

/* ---- how fast ---- */

static struct pace_limits in_limits(struct h1_server *server)
{
    const struct h1_server_config *config = server->ops->config(server);
    return (struct pace_limits){config->timeouts.body, config->timeouts.rate,
                                config->timeouts.rate_window};
}

/* ---- the request arrives ---- */

static bool begin(struct h1_server *server)
{
    server->answer = ANSWER_NONE;
    server->until_close = server->chunked_out = server->head_request = false;
    server->requests++;
    if (server->ops->on_begin(server, &server->leg))
        return true;
    static const char sorry[] =
        "HTTP/1.1 503 Service Unavailable\r\n"
        "Content-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
    stream_write(&server->stream, sorry, sizeof(sorry) - 1);
    server->keep_alive = false;
    server->state = SERVER_BAD;
    h1_server_linger(server);
    return false;
}

/* No more of this request can be read. It is answered, then the connection closes. */
static void bad(struct h1_server *server, const struct h1_fault *fault)
{
    bool begun = server->state == SERVER_BODY;
    struct leg_fault told = {.reason = fault->reason,
                             .offset = fault->offset,
                             .field = fault->field,
                             .limit = fault->limit,
                             .actual = fault->actual};
    if (!begun && !begin(server))
        return;
    struct str unread = stream_unread(&server->stream);
    if (unread.n)
        h1_glance(unread.p, unread.n, &told.method, &told.target, &told.accept);
    server->keep_alive = false;
    server->state = SERVER_BAD;
    deadline_off(&server->read_due);
    stream_pause(&server->stream);
    if (server->leg.events)
        server->leg.events->on_bad(&server->leg, &told);
}

static void request_complete(struct h1_server *server, struct head *trailers)
{
    server->state = SERVER_WAIT;
    deadline_off(&server->read_due);
    if (server->leg.events)
        server->leg.events->on_end(&server->leg, trailers);
}

/* A copy of the unread bytes that are a head, and room to read it into. NULL: no memory. */
static struct head *keep_head(struct h1_server *server, size_t n, uint32_t cap,
                              struct str *ret_text)
{
    struct arena *arena = server->leg.arena;
    struct head *head = arena_alloc(arena, sizeof(*head));
    struct field *fields = arena_alloc(arena, cap * sizeof(*fields));
    *ret_text = arena_copy(arena, (struct str){stream_unread(&server->stream).p, n});
    if (!head || !fields || !ret_text->p)
        return NULL;
    head->fields = fields;
    head->cap = cap;
    return head;
}

/* A whole head waits at the front of what is unread. */
static void take_head(struct h1_server *server, size_t n)
{
    const struct h1_server_config *config = server->ops->config(server);
    if (!begin(server))
        return;
    struct h1_fault fault = {.reason = R_NO_MEMORY};
    struct str text;
    struct head *head = keep_head(server, n, server->scan.lines + FIELD_SPARE, &text);
    server->state = SERVER_BODY; /* from here on `bad` knows that the turn has begun */
    if (!head || h1_parse_request(text.p, text.n, &config->limits, head, &fault) < 0) {
        bad(server, &fault);
        return;
    }
    stream_skip(&server->stream, n);
    server->keep_alive = head->keep_alive && !server->closing &&
                         (!config->requests || server->requests < config->requests);
    server->head_request = head->method == M_HEAD;
    server->old_client = head->minor == 0;
    server->expects = head->expect_continue;
    server->chunked_in = head->framing == FRAMING_CHUNKED;
    server->body_left = head->framing == FRAMING_LENGTH ? head->length : 0;
    h1_chunk_init(&server->chunk);
    h1_server_await_body(server);
    server->leg.events->on_head(&server->leg, head);
    if (server->state == SERVER_BODY && !server->chunked_in && !server->body_left)
        request_complete(server, NULL);
}

/* Whether the connection begins as HTTP/2 does, as far as it has come (RFC 9113 3.4); with
 * TLS its handshake has settled that. */
static bool is_http2(const struct h1_server *server, struct str in)
{
    static const struct str preface = STR(HTTP2_PREFACE);
    size_t n = in.n < preface.n ? in.n : preface.n;
    if (server->requests || !n)
        return false;
    if (server->stream.tls)
        return str_eq(stream_protocol(&server->stream), STR("h2"));
    return memcmp(in.p, preface.p, n) == 0;
}

static void await_head(struct h1_server *server, const struct h1_server_config *config)
{
    if (server->state != SERVER_IDLE)
        return;
    server->state = SERVER_HEAD;
    server->scan = (struct h1_scan){0};
    loop_deadline(server->stream.loop, &server->read_due, config->timeouts.header);
}

/* Another codec takes the stream over, as it is. */
static void hand_over(struct h1_server *server)
{
    deadline_end(&server->stream.loop->wheel, &server->read_due);
    deadline_end(&server->stream.loop->wheel, &server->write_due);
    loop_cancel(server->stream.loop, &server->turn);
    server->ops->on_http2(server);
}

static bool read_head(struct h1_server *server)
{
    struct str in = stream_unread(&server->stream);
    const struct h1_server_config *config = server->ops->config(server);
    if (config->http2 && is_http2(server, in)) {
        await_head(server, config);
        if (in.n >= sizeof(HTTP2_PREFACE) - 1 || server->stream.tls)
            hand_over(server);
        return false;
    }
    size_t empty = h1_skip_empty(in.p, in.n);
    if (server->state == SERVER_IDLE && empty) {
        stream_skip(&server->stream, empty);
        in = stream_unread(&server->stream);
        /* One empty line is a courtesy to old clients (RFC 9112 2.2), more are abuse. */
        if (empty > 2 || server->lf_seen) {
            bad(server, &(struct h1_fault){.reason = R_BAD_REQUEST_LINE});
            return false;
        }
        server->lf_seen = true;
    }
    if (!in.n || (server->state == SERVER_IDLE && in.n == 1 && in.p[0] == '\r'))
        return false;
    await_head(server, config);
    struct h1_fault fault = {0};
    long n = h1_head_end(&server->scan, true, in.p, in.n, &config->limits, &fault);
    if (n < 0)
        bad(server, &fault);
    else if (n > 0)
        take_head(server, (size_t)n);
    return n > 0;
}

/* The body or a piece of it goes up; false: nothing more can be done now. */
static bool deliver_body(struct h1_server *server, size_t n)
{
    struct slice slice = stream_take(&server->stream, n);
    if (server->leg.events)
        server->leg.events->on_body(&server->leg, slice);
    else
        slice_drop(&slice);
    return server->state == SERVER_BODY;
}

void h1_server_await_body(struct h1_server *server)
{
    struct loop *loop = server->stream.loop;
    struct pace_limits limits = in_limits(server);
    loop_deadline(loop, &server->read_due,
                  pace_begin(&server->in, loop->now, server->stream.read_total, &limits));
}

static void read_trailers(struct h1_server *server)
{
    struct str in = stream_unread(&server->stream);
    static const struct h1_limits limits = {
        .header_bytes = TRAILERS_MAX, .headers = 64, .target_bytes = TRAILERS_MAX};
    struct h1_fault fault = {.reason = R_NO_MEMORY};
    long n = in.n >= 2 && in.p[0] == '\r' && in.p[1] == '\n' ? 2 : 0;
    if (!n)
        n = h1_head_end(&server->scan, true, in.p, in.n, &limits, &fault);
    if (n == 0)
        return;
    struct head *trailers = NULL;
    if (n > 2) {
        struct str text;
        trailers = keep_head(server, (size_t)n, server->scan.lines, &text);
        if (!trailers || h1_parse_trailers(text.p, text.n, true, &limits, trailers, &fault) < 0)
            n = -1;
    } else if (n < 0 && fault.reason != R_CLIENT_HEADERS_TOO_LARGE) {
        fault.reason = R_BAD_TRAILER;
    }
    if (n < 0) {
        fault.offset += server->chunk.taken;
        bad(server, &fault);
        return;
    }
    stream_skip(&server->stream, (size_t)n);
    request_complete(server, trailers);
}

static void read_chunked(struct h1_server *server)
{
    while (server->state == SERVER_BODY && !server->stream.paused) {
        if (server->chunk.state == CHUNK_TRAILERS) {
            read_trailers(server);
            return;
        }
        struct str in = stream_unread(&server->stream), data;
        size_t offset;
        long n = h1_chunk_read(&server->chunk, in.p, in.n, &data, &offset);
        if (n < 0) {
            bad(server, &(struct h1_fault){.reason = R_BAD_CHUNK, .offset = offset});
            return;
        }
        if (n == 0)
            return;
        if (server->chunk.state == CHUNK_TRAILERS)
            server->scan = (struct h1_scan){.lines = 1}; /* no first line among trailers */
        stream_skip(&server->stream, (size_t)n - data.n);
        server->in.moved_at = pace_ms(server->stream.loop->now);
        if (data.n && !deliver_body(server, data.n))
            return;
    }
}

static void read_length(struct h1_server *server)
{
    size_t n = stream_unread(&server->stream).n;
    if (!n)
        return;
    if (n > server->body_left)
        n = (size_t)server->body_left;
    server->body_left -= n;
    server->in.moved_at = pace_ms(server->stream.loop->now);
    if (deliver_body(server, n) && !server->body_left)
        request_complete(server, NULL);
}

/* Answered already: read on to where the next request begins, if that is near. */
void h1_server_read_drain(struct h1_server *server)
{
    size_t n = stream_unread(&server->stream).n;
    if (n > server->body_left)
        n = (size_t)server->body_left;
    stream_skip(&server->stream, n);
    server->body_left -= n;
    if (!server->body_left)
        h1_server_go_on(server);
}

static void read_linger(struct h1_server *server)
{
    size_t n = stream_unread(&server->stream).n;
    stream_skip(&server->stream, n);
    if (n >= server->body_left) {
        h1_server_close_now(server, false);
        return;
    }
    server->body_left -= n;
}

static void read_input(struct h1_server *server)
{
    for (;;) {
        switch (server->state) {
        case SERVER_IDLE:
        case SERVER_HEAD:
            if (!read_head(server) || server->stream.paused)
                return;
            break;
        case SERVER_BODY:
            if (server->chunked_in)
                read_chunked(server);
            else
                read_length(server);
            return;
        case SERVER_WAIT:
            /* The next request waits its turn, unread. */
            if (stream_unread(&server->stream).n)
                stream_pause(&server->stream);
            return;
        case SERVER_TUNNEL: {
            size_t n = stream_unread(&server->stream).n;
            if (n && server->leg.events)
                server->leg.events->on_body(&server->leg, stream_take(&server->stream, n));
            return;
        }
        case SERVER_DRAIN:
            h1_server_read_drain(server);
            return;
        case SERVER_LINGER:
            read_linger(server);
            return;
        case SERVER_BAD:
        case SERVER_CLOSED:
            return;
        }
    }
}

/* ---- what the stream tells ---- */

static void on_read(struct stream *stream)
{
    read_input(server_of_stream(stream));
}

static void on_eof(struct stream *stream)
{
    struct h1_server *server = server_of_stream(stream);
    switch (server->state) {
    case SERVER_IDLE:
    case SERVER_HEAD:
    case SERVER_DRAIN:
    case SERVER_LINGER:
        h1_server_close_now(server, false);
        break;
    case SERVER_BODY:
        end_gone(server, R_CLIENT_ABORT, 0);
        break;
    case SERVER_WAIT:
        /* It may only have stopped sending, or be gone: see on_read_due. */
        server->keep_alive = false;
        if (server->answer == ANSWER_NONE && !server->old_client)
            loop_deadline(stream->loop, &server->read_due, PROBE_MS);
        break;
    case SERVER_TUNNEL:
        if (server->leg.events)
            server->leg.events->on_end(&server->leg, NULL);
        break;
    case SERVER_BAD:
    case SERVER_CLOSED:
        break;
    }
}

static void on_error(struct stream *stream, int err)
{
    struct h1_server *server = server_of_stream(stream);
    end_gone(server, err == ENOMEM ? R_NO_MEMORY : R_CLIENT_ABORT, err);
}

/* What the peer has taken: more than the kernel has from us less what it still holds. */
static uint64_t taken_by_peer(const struct stream *stream)
{
    return stream->written_total - stream_unacked(stream);
}

static struct pace_limits out_limits(struct h1_server *server)
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
    struct h1_server *server = server_of_stream(stream);
    if (!deadline_is_on(&server->write_due)) {
        uint64_t taken = taken_by_peer(stream);
        struct pace_limits limits = out_limits(server);
        pace_begin(&server->out, stream->loop->now, taken, &limits);
        server->taken = (uint32_t)taken;
        loop_deadline(stream->loop, &server->write_due, write_look_ms(limits));
    }
    if (stream->pending < LEG_LOW && server->leg.events)
        server->leg.events->on_room(&server->leg);
}

static void on_drained(struct stream *stream)
{
    struct h1_server *server = server_of_stream(stream);
    deadline_off(&server->write_due);
    if (server->answer == ANSWER_ENDED || server->answer == ANSWER_ABORTED)
        loop_task(stream->loop, &server->turn);
    else if (server->leg.events)
        server->leg.events->on_room(&server->leg);
}

static const struct stream_ops stream_ops = {
    .on_connected = NULL, /* accepted sockets are connected */
    .on_read = on_read,
    .on_eof = on_eof,
    .on_drained = on_drained,
    .on_pending = on_pending,
    .on_error = on_error,
};

/* A client that sent its FIN may have closed, or may only send no more and wait for its
 * answer; TCP does not tell. An interim response, which every HTTP/1.1 client must be able to
 * take unasked (RFC 9110 15.2), makes the kernel of one that has closed send a reset; the
 * next look at the socket finds it. */
static void probe(struct h1_server *server)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (server->answer != ANSWER_NONE)
        return;
    if (server->probed) {
        int err = stream_pending_error(&server->stream);
        if (err)
            end_gone(server, R_CLIENT_ABORT, err);
        return;
    }
    server->probed = true;
    stream_write(&server->stream, text, sizeof(text) - 1);
    loop_deadline(server->stream.loop, &server->read_due, PROBE_ANSWER_MS);
}

static void look_at_body(struct h1_server *server)
{
    struct pace_limits limits = in_limits(server);
    int64_t wait =
        pace_check(&server->in, server->stream.loop->now, server->stream.read_total, &limits);
    if (wait >= 0)
        loop_deadline(server->stream.loop, &server->read_due, (uint64_t)wait);
    else
        bad(server, &(struct h1_fault){.reason = R_CLIENT_TIMEOUT_BODY});
}

static void on_read_due(struct deadline *deadline)
{
    struct h1_server *server =
        (struct h1_server *)((char *)deadline - offsetof(struct h1_server, read_due));
    if (server->state == SERVER_HEAD)
        bad(server, &(struct h1_fault){.reason = R_CLIENT_TIMEOUT_HEAD});
    else if (server->state == SERVER_WAIT)
        probe(server);
    else if (server->state != SERVER_BODY)
        h1_server_close_now(server, false);
    else if (!server->stream.paused) /* else it is we who make it wait */
        look_at_body(server);
}

static void on_write_due(struct deadline *deadline)
{
    struct h1_server *server =
        (struct h1_server *)((char *)deadline - offsetof(struct h1_server, write_due));
    struct pace_limits limits = out_limits(server);
    struct loop *loop = server->stream.loop;
    uint64_t taken = taken_by_peer(&server->stream);
    if ((uint32_t)taken != server->taken)
        server->out.moved_at = pace_ms(loop->now);
    server->taken = (uint32_t)taken;
    if (pace_check(&server->out, loop->now, taken, &limits) >= 0)
        loop_deadline(loop, &server->write_due, write_look_ms(limits));
    else
        end_gone(server, R_CLIENT_TIMEOUT_WRITE, 0);
}

int h1_server_open(struct h1_server *server, struct loop *loop, int fd, struct tls *tls,
                   const struct h1_server_ops *ops, void *owner)
{
    *server = (struct h1_server){.ops = ops, .owner = owner, .leg.ops = &h1_server_leg_ops};
    server->turn.run = h1_server_on_turn;
    deadline_init(&server->read_due, on_read_due);
    deadline_init(&server->write_due, on_write_due);
    int rc = stream_open(&server->stream, loop, fd, false, tls, &stream_ops);
    if (rc < 0)
        return rc;
    loop_deadline(loop, &server->read_due, ops->config(server)->timeouts.idle);
    return 0;
}

void h1_server_drain(struct h1_server *server)
{
    server->closing = true;
    if (server->state != SERVER_IDLE)
        return;
    /* A request may be on its way that nobody has read yet: who has just connected is given a
     * moment, and what has arrived is served. */
    if (server->requests == 0 || stream_has_news(&server->stream))
        loop_deadline(server->stream.loop, &server->read_due, LAST_CALL_MS);
    else
        h1_server_close_now(server, false);
}

void h1_server_close(struct h1_server *server)
{
    end_gone(server, R_CLIENT_ABORT, 0);
}
