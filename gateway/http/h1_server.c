#include "http/h1_server.h"

#include <assert.h>
#include <errno.h>

#include "http/h1_write.h"

#define DRAIN_MAX       (64u * 1024) /* of an unwanted body that is read to keep the connection */
#define LINGER_MAX      (1024u * 1024)
#define LINGER_MS       2000
#define PROBE_MS        300 /* from a client's FIN to asking whether it is still there */
#define PROBE_ANSWER_MS 200
#define TRAILERS_MAX    8192
#define FIELD_SPARE     16 /* fields that forwarding may add without asking for room */

static void go_on(struct h1_server *server);

static struct h1_server *server_of(struct leg *leg)
{
    return (struct h1_server *)((char *)leg - offsetof(struct h1_server, leg));
}

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

static void close_now(struct h1_server *server, bool reset)
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

/* The connection is dead under a request. */
static void gone(struct h1_server *server, enum reason reason, int err)
{
    const struct leg_events *events = server->leg.events;
    close_now(server, server->until_close);
    if (events)
        events->on_gone(&server->leg, &(struct leg_fault){.reason = reason, .err = err});
}

/* Says goodbye so that the answer arrives: closing a socket with unread bytes in it sends a
 * reset, which may overtake the answer. */
static void linger(struct h1_server *server)
{
    bool nothing_to_come = server->stream.eof || server->state == SERVER_WAIT;
    if (nothing_to_come && !stream_unread(&server->stream).n && !server->stream.pending) {
        close_now(server, false);
        return;
    }
    server->state = SERVER_LINGER;
    server->body_left = LINGER_MAX;
    stream_shutdown(&server->stream);
    loop_deadline(server->stream.loop, &server->read_due, LINGER_MS);
    stream_skip(&server->stream, stream_unread(&server->stream).n);
    stream_resume(&server->stream);
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
    linger(server);
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
    loop_deadline(server->stream.loop, &server->read_due, config->timeouts.body);
    server->leg.events->on_head(&server->leg, head);
    if (server->state == SERVER_BODY && !server->chunked_in && !server->body_left)
        request_complete(server, NULL);
}

static bool read_head(struct h1_server *server)
{
    struct str in = stream_unread(&server->stream);
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
    const struct h1_server_config *config = server->ops->config(server);
    if (server->state == SERVER_IDLE) {
        server->state = SERVER_HEAD;
        server->scan = (struct h1_scan){0};
        loop_deadline(server->stream.loop, &server->read_due, config->timeouts.header);
    }
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

static void touch_body(struct h1_server *server)
{
    loop_deadline(server->stream.loop, &server->read_due,
                  server->ops->config(server)->timeouts.body);
}

static void read_trailers(struct h1_server *server)
{
    struct str in = stream_unread(&server->stream);
    static const struct h1_limits limits = {
        .header_bytes = TRAILERS_MAX, .headers = 64, .target_bytes = TRAILERS_MAX};
    struct h1_fault fault = {.reason = R_NO_MEMORY};
    long n = in.n >= 2 && in.p[0] == '\r' && in.p[1] == '\n' ? 2 : 0;
    if (!n)
        n = h1_head_end(&server->scan, false, in.p, in.n, &limits, &fault);
    if (n == 0)
        return;
    if (n < 0) {
        fault.reason = R_BAD_TRAILER;
        bad(server, &fault);
        return;
    }
    struct head *trailers = NULL;
    if (n > 2) {
        struct str text;
        trailers = keep_head(server, (size_t)n, server->scan.lines, &text);
        if (!trailers ||
            h1_parse_trailers(text.p, text.n, true, &limits, trailers, &fault) < 0) {
            bad(server, &fault);
            return;
        }
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
        touch_body(server);
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
    touch_body(server);
    if (deliver_body(server, n) && !server->body_left)
        request_complete(server, NULL);
}

/* Answered already: read on to where the next request begins, if that is near. */
static void read_drain(struct h1_server *server)
{
    size_t n = stream_unread(&server->stream).n;
    if (n > server->body_left)
        n = (size_t)server->body_left;
    stream_skip(&server->stream, n);
    server->body_left -= n;
    if (!server->body_left)
        go_on(server);
}

static void read_linger(struct h1_server *server)
{
    size_t n = stream_unread(&server->stream).n;
    stream_skip(&server->stream, n);
    if (n >= server->body_left) {
        close_now(server, false);
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
            read_drain(server);
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
        close_now(server, false);
        break;
    case SERVER_BODY:
        gone(server, R_CLIENT_ABORT, 0);
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
    gone(server, err == ENOMEM ? R_NO_MEMORY : R_CLIENT_ABORT, err);
}

static void on_pending(struct stream *stream)
{
    struct h1_server *server = server_of_stream(stream);
    if (!deadline_is_on(&server->write_due) || server->written_mark != stream->written_total)
        loop_deadline(stream->loop, &server->write_due,
                      server->ops->config(server)->timeouts.write);
    server->written_mark = stream->written_total;
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
            gone(server, R_CLIENT_ABORT, err);
        return;
    }
    server->probed = true;
    stream_write(&server->stream, text, sizeof(text) - 1);
    loop_deadline(server->stream.loop, &server->read_due, PROBE_ANSWER_MS);
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
        close_now(server, false);
    else if (!server->stream.paused) /* else it is we who make it wait */
        bad(server, &(struct h1_fault){.reason = R_CLIENT_TIMEOUT_BODY});
}

static void on_write_due(struct deadline *deadline)
{
    struct h1_server *server =
        (struct h1_server *)((char *)deadline - offsetof(struct h1_server, write_due));
    gone(server, R_CLIENT_TIMEOUT_WRITE, 0);
}

/* ---- the answer goes out ---- */

/* Whether what is left of the request can be read away behind the answer. */
static bool can_drain(const struct h1_server *server)
{
    if (server->state == SERVER_WAIT)
        return true;
    return server->state == SERVER_BODY && !server->chunked_in && !server->expects &&
           server->body_left <= DRAIN_MAX;
}

static void write_head(struct h1_server *server, const struct head *head,
                       enum h1_persist persist)
{
    char *out = stream_reserve(&server->stream, h1_write_bound(head));
    if (!out)
        return;
    size_t n = h1_write_response(out, head, persist);
    assert(n); /* both the parser and the configuration check every value */
    stream_commit(&server->stream, n);
}

static void send_head(struct leg *leg, const struct head *head)
{
    struct h1_server *server = server_of(leg);
    if (head->status < 200 && head->status != 101) {
        if (head->status == 100)
            server->expects = false;
        if (!server->old_client)
            write_head(server, head, H1_PERSIST_DEFAULT);
        return;
    }
    struct head out = *head;
    server->answer = ANSWER_HEAD;
    if (out.status == 101) {
        write_head(server, &out, H1_PERSIST_UPGRADE);
        return;
    }
    if (!head->keep_alive || server->closing || !can_drain(server))
        server->keep_alive = false;
    if (out.framing == FRAMING_CHUNKED || out.framing == FRAMING_CLOSE) {
        server->until_close = server->old_client;
        server->chunked_out = !server->old_client;
        out.framing = server->old_client ? FRAMING_CLOSE : FRAMING_CHUNKED;
        if (server->old_client)
            server->keep_alive = false;
    }
    enum h1_persist persist = !server->keep_alive  ? H1_PERSIST_CLOSE
                              : server->old_client ? H1_PERSIST_KEEP
                                                   : H1_PERSIST_DEFAULT;
    write_head(server, &out, persist);
}

static void send_body(struct leg *leg, struct slice slice)
{
    struct h1_server *server = server_of(leg);
    if (!slice.n || server->head_request) {
        slice_drop(&slice);
        return;
    }
    if (server->chunked_out) {
        char line[H1_CHUNK_LINE_MAX];
        stream_write(&server->stream, line, h1_write_chunk_line(line, slice.n));
    }
    stream_write_slice(&server->stream, slice);
    if (server->chunked_out)
        stream_write(&server->stream, "\r\n", 2);
}

static void write_last_chunk(struct h1_server *server, const struct head *trailers)
{
    if (!trailers || !trailers->count) {
        stream_write(&server->stream, "0\r\n\r\n", 5);
        return;
    }
    stream_write(&server->stream, "0\r\n", 3);
    char *out = stream_reserve(&server->stream, h1_write_bound(trailers));
    if (out)
        stream_commit(&server->stream, h1_write_trailers(out, trailers));
}

static void send_end(struct leg *leg, const struct head *trailers)
{
    struct h1_server *server = server_of(leg);
    if (server->state == SERVER_TUNNEL) {
        stream_shutdown(&server->stream);
        return;
    }
    if (server->chunked_out && !server->head_request)
        write_last_chunk(server, trailers);
    server->answer = ANSWER_ENDED;
    loop_task(server->stream.loop, &server->turn);
}

/* The answer is with the kernel: the exchange may end, the next request may begin. */
static void on_turn(struct task *task)
{
    struct h1_server *server =
        (struct h1_server *)((char *)task - offsetof(struct h1_server, turn));
    if (server->state == SERVER_CLOSED || server->stream.pending || server->stream.err)
        return;
    if (server->answer == ANSWER_ABORTED) {
        close_now(server, server->until_close);
        return;
    }
    if (server->answer != ANSWER_ENDED)
        return;
    if (server->leg.events)
        server->leg.events->on_sent(&server->leg);
    server->leg.events = NULL;
    if (server->state == SERVER_BODY && server->keep_alive) {
        server->state = SERVER_DRAIN;
        touch_body(server);
        stream_resume(&server->stream);
        read_drain(server);
    } else if (server->state != SERVER_CLOSED) {
        go_on(server);
    }
}

/* Behind an answer: the next request, or the end. */
static void go_on(struct h1_server *server)
{
    server->answer = ANSWER_NONE;
    if (!server->keep_alive || server->closing || server->stream.eof) {
        linger(server);
        return;
    }
    server->state = SERVER_IDLE;
    server->lf_seen = false;
    loop_deadline(server->stream.loop, &server->read_due,
                  server->ops->config(server)->timeouts.idle);
    if (server->stream.paused)
        stream_resume(&server->stream);
    else if (stream_unread(&server->stream).n)
        loop_task(server->stream.loop, &server->stream.deliver);
}

/* ---- what else an exchange asks ---- */

static void leg_pause(struct leg *leg)
{
    struct h1_server *server = server_of(leg);
    stream_pause(&server->stream);
    if (server->state == SERVER_BODY)
        deadline_off(&server->read_due);
}

static void leg_resume(struct leg *leg)
{
    struct h1_server *server = server_of(leg);
    if (server->state == SERVER_BODY)
        touch_body(server);
    /* With the request complete there is still its client's end to be seen. */
    if (server->state >= SERVER_BODY && server->state <= SERVER_TUNNEL)
        stream_resume(&server->stream);
}

static void leg_tunnel(struct leg *leg)
{
    struct h1_server *server = server_of(leg);
    server->state = SERVER_TUNNEL;
    server->chunked_out = false;
    server->keep_alive = false;
    deadline_off(&server->read_due);
    stream_resume(&server->stream);
    if (server->stream.eof)
        leg->events->on_end(leg, NULL);
    else if (stream_unread(&server->stream).n)
        loop_task(server->stream.loop, &server->stream.deliver);
}

static void leg_abort(struct leg *leg)
{
    struct h1_server *server = server_of(leg);
    leg->events = NULL;
    if (server->state == SERVER_CLOSED)
        return;
    server->keep_alive = false;
    server->answer = ANSWER_ABORTED;
    stream_pause(&server->stream);
    loop_task(server->stream.loop, &server->turn);
}

static size_t leg_pending(const struct leg *leg)
{
    return ((const struct h1_server *)((const char *)leg - offsetof(struct h1_server, leg)))
        ->stream.pending;
}

static void leg_release(struct leg *leg)
{
    struct h1_server *server = server_of(leg);
    leg->events = NULL;
    if (server->state != SERVER_TUNNEL)
        return; /* the turn goes on behind on_sent */
    server->answer = ANSWER_ENDED;
    loop_task(server->stream.loop, &server->turn);
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

int h1_server_open(struct h1_server *server, struct loop *loop, int fd,
                   const struct h1_server_ops *ops, void *owner)
{
    *server = (struct h1_server){.ops = ops, .owner = owner, .leg.ops = &leg_ops};
    server->turn.run = on_turn;
    deadline_init(&server->read_due, on_read_due);
    deadline_init(&server->write_due, on_write_due);
    int rc = stream_open(&server->stream, loop, fd, false, &stream_ops);
    if (rc < 0)
        return rc;
    loop_deadline(loop, &server->read_due, ops->config(server)->timeouts.idle);
    return 0;
}

void h1_server_drain(struct h1_server *server)
{
    server->closing = true;
    if (server->state == SERVER_IDLE)
        close_now(server, false);
}

void h1_server_close(struct h1_server *server)
{
    gone(server, R_CLIENT_ABORT, 0);
}
