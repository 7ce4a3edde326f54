#include "http/h1_client.h"

#include <errno.h>
#include <unistd.h>

#include "http/h1_body.h"
#include "http/h1_write.h"

#define INTERIM_MAX 16 /* 1xx in front of one answer */
#define FIELD_SPARE 8

#ifndef PIPE_MIN              /* perf/ladder builds with others */
#define PIPE_MIN (64u * 1024) /* left of a body, from which on splice is the cheaper way */
#endif

/* What an upstream may send; more is R_UPSTREAM_PROTOCOL. */
static const struct h1_limits response_limits = {
    .header_bytes = 60 * 1024, .headers = 500, .target_bytes = 8 * 1024};

static void read_input(struct h1_client *client);

static struct h1_client *client_of(struct leg *leg)
{
    return (struct h1_client *)((char *)leg - offsetof(struct h1_client, leg));
}

static struct h1_client *client_of_stream(struct stream *stream)
{
    return (struct h1_client *)((char *)stream - offsetof(struct h1_client, stream));
}

static void on_buried(struct grave *grave)
{
    struct h1_client *client =
        (struct h1_client *)((char *)grave - offsetof(struct h1_client, grave));
    client->ops->bury(client);
}

static void close_now(struct h1_client *client, const struct leg_fault *fault)
{
    if (client->state == CLIENT_CLOSED)
        return;
    struct loop *loop = client->stream.loop;
    client->state = CLIENT_CLOSED;
    client->leg.events = NULL;
    deadline_end(&loop->wheel, &client->due);
    stream_close(&client->stream);
    client->ops->on_closed(client, fault);
    loop_bury(loop, &client->grave, on_buried);
}

/* The connection is over; whoever waits for it hears why. */
static void gone(struct h1_client *client, enum reason reason, int err, size_t offset)
{
    const struct leg_events *events = client->leg.events;
    struct leg_fault fault = {
        .reason = reason,
        .err = err,
        .why = stream_why(&client->stream),
        .offset = offset,
        .untouched = h1_client_is_untouched(client),
        .silent = client->stream.read_total == client->read_mark,
    };
    close_now(client, &fault);
    if (events)
        events->on_gone(&client->leg, &fault);
}

static void on_close(struct h1_client *client)
{
    gone(client, R_UPSTREAM_RESET, 0, 0);
}

static void touch(struct h1_client *client)
{
    loop_deadline(client->stream.loop, &client->due,
                  client->state == CLIENT_HEAD ? client->timeouts.response
                                               : client->timeouts.idle);
}

/* ---- the answer arrives ---- */

static void complete(struct h1_client *client, struct head *trailers)
{
    client->state = CLIENT_END;
    deadline_off(&client->due);
    client->leg.events->on_end(&client->leg, trailers);
}

/* Keep-Alive: timeout=N, as old as it is, is how servers say when they will hang up. */
static uint32_t keep_alive_timeout(const struct head *head)
{
    const struct field *field = head_find(head, F_KEEP_ALIVE);
    struct str rest = field ? field->value : (struct str){NULL, 0}, token;
    uint64_t seconds;
    while (str_next_token(&rest, &token))
        if (token.n > 8 && str_eq_nocase((struct str){token.p, 8}, STR("timeout=")) &&
            str_to_u64((struct str){token.p + 8, token.n - 8}, 86400, &seconds) == 0)
            return (uint32_t)seconds;
    return 0;
}

static bool take_final(struct h1_client *client, struct head *head)
{
    client->keep_alive = head->keep_alive;
    client->keep_alive_s = keep_alive_timeout(head);
    client->chunked_in = head->framing == FRAMING_CHUNKED;
    client->until_close = head->framing == FRAMING_CLOSE;
    client->body_left = head->framing == FRAMING_LENGTH ? head->length : 0;
    h1_chunk_init(&client->chunk);
    client->state = CLIENT_BODY;
    touch(client);
    client->leg.events->on_head(&client->leg, head);
    if (client->state == CLIENT_BODY && !client->chunked_in && !client->until_close &&
        !client->body_left)
        complete(client, NULL);
    return client->state == CLIENT_BODY;
}

/* A tunnel only to what the request asked for (RFC 9110 7.8). */
static bool was_asked_for(const struct h1_client *client, struct str protocol)
{
    struct str rest = client->upgrade, asked;
    while (protocol.n && str_next_token(&rest, &asked))
        if (str_eq_nocase(asked, protocol))
            return true;
    return false;
}

static bool take_interim(struct h1_client *client, struct head *head)
{
    if (++client->interims > INTERIM_MAX ||
        (head->status == 101 &&
         (!client->request_ended || !was_asked_for(client, head->upgrade)))) {
        gone(client, R_UPSTREAM_PROTOCOL, 0, 0);
        return false;
    }
    touch(client);
    client->leg.events->on_head(&client->leg, head);
    return client->state == CLIENT_HEAD || client->state == CLIENT_TUNNEL;
}

/* Whatever does not even begin like a status line will never become one. */
static bool is_http1(struct str in)
{
    static const char begin[] = "HTTP/1.";
    size_t n = in.n < sizeof(begin) - 1 ? in.n : sizeof(begin) - 1;
    return memcmp(in.p, begin, n) == 0;
}

/* True: there may be more to do. */
static bool read_head(struct h1_client *client)
{
    struct str in = stream_unread(&client->stream);
    struct h1_fault fault = {0};
    if (!is_http1(in)) {
        gone(client, R_UPSTREAM_PROTOCOL, 0, 0);
        return false;
    }
    long n = h1_head_end(&client->scan, false, in.p, in.n, &response_limits, &fault);
    if (n == 0)
        return false;
    if (n < 0) {
        gone(client, R_UPSTREAM_PROTOCOL, 0, fault.offset);
        return false;
    }
    struct arena *arena = client->leg.arena;
    uint32_t cap = client->scan.lines + FIELD_SPARE;
    struct str text = arena_copy(arena, (struct str){in.p, (size_t)n});
    struct head *head = arena_alloc(arena, sizeof(*head));
    struct field *fields = arena_alloc(arena, cap * sizeof(*fields));
    if (!text.p || !head || !fields) {
        gone(client, R_NO_MEMORY, 0, 0);
        return false;
    }
    head->fields = fields;
    head->cap = cap;
    if (h1_parse_response(text.p, text.n, &response_limits, client->method, head, &fault) < 0) {
        gone(client, R_UPSTREAM_PROTOCOL, 0, fault.offset);
        return false;
    }
    stream_skip(&client->stream, (size_t)n);
    client->scan = (struct h1_scan){0};
    return head->status < 200 ? take_interim(client, head) : take_final(client, head);
}

static bool deliver(struct h1_client *client, size_t n)
{
    client->leg.events->on_body(&client->leg, stream_take(&client->stream, n));
    return client->state == CLIENT_BODY;
}

static void read_trailers(struct h1_client *client)
{
    struct str in = stream_unread(&client->stream);
    struct h1_fault fault = {0};
    long n = in.n >= 2 && in.p[0] == '\r' && in.p[1] == '\n' ? 2 : 0;
    if (!n)
        n = h1_head_end(&client->scan, false, in.p, in.n, &response_limits, &fault);
    if (n == 0)
        return;
    struct head *trailers = NULL;
    if (n > 2) {
        struct arena *arena = client->leg.arena;
        uint32_t cap = client->scan.lines;
        struct str text = arena_copy(arena, (struct str){in.p, (size_t)n});
        trailers = arena_alloc(arena, sizeof(*trailers));
        struct field *fields = arena_alloc(arena, cap * sizeof(*fields));
        if (trailers && fields)
            *trailers = (struct head){.fields = fields, .cap = cap};
        if (!text.p || !trailers || !fields ||
            h1_parse_trailers(text.p, text.n, false, &response_limits, trailers, &fault) < 0)
            n = -1;
    }
    if (n < 0) {
        gone(client, R_UPSTREAM_PROTOCOL, 0, client->chunk.taken + fault.offset);
        return;
    }
    stream_skip(&client->stream, (size_t)n);
    complete(client, trailers);
}

static void read_chunked(struct h1_client *client)
{
    while (client->state == CLIENT_BODY && !client->stream.paused) {
        if (client->chunk.state == CHUNK_TRAILERS) {
            read_trailers(client);
            return;
        }
        struct str in = stream_unread(&client->stream), data;
        size_t offset;
        long n = h1_chunk_read(&client->chunk, in.p, in.n, &data, &offset);
        if (n < 0) {
            gone(client, R_UPSTREAM_PROTOCOL, 0, offset);
            return;
        }
        if (n == 0)
            return;
        if (client->chunk.state == CHUNK_TRAILERS)
            client->scan = (struct h1_scan){.lines = 1}; /* no first line among trailers */
        stream_skip(&client->stream, (size_t)n - data.n);
        if (data.n && !deliver(client, data.n))
            return;
    }
}

/* What is left of a large body need not come to user space, where nobody looks at it. */
static void pipe_rest(struct h1_client *client)
{
    bool large = client->leg.pipes && !client->until_close && client->body_left >= PIPE_MIN;
    uint64_t left = client->body_left < UINT32_MAX ? client->body_left : UINT32_MAX;
    stream_pipe(&client->stream, large ? (uint32_t)left : 0);
}

static void read_plain(struct h1_client *client)
{
    size_t n = stream_unread(&client->stream).n;
    if (!client->until_close && n > client->body_left)
        n = (size_t)client->body_left;
    if (!client->until_close)
        client->body_left -= n;
    if (n && !deliver(client, n))
        return;
    if (n && !client->until_close && !client->body_left)
        complete(client, NULL);
    else
        pipe_rest(client);
}

static void on_piped(struct stream *stream, struct slice slice)
{
    struct h1_client *client = client_of_stream(stream);
    if (client->state != CLIENT_BODY) { /* nobody asks for it any more */
        slice_drop(&slice);
        return;
    }
    touch(client);
    client->body_left -= slice.n;
    client->leg.events->on_body(&client->leg, slice);
    if (client->state != CLIENT_BODY)
        return;
    if (!client->body_left)
        complete(client, NULL);
    else if (!stream->piped)
        pipe_rest(client);
}

static void read_body(struct h1_client *client)
{
    if (stream_unread(&client->stream).n)
        touch(client);
    if (client->chunked_in)
        read_chunked(client);
    else
        read_plain(client);
}

static void read_input(struct h1_client *client)
{
    if (client->state == CLIENT_IDLE) {
        close_now(client, NULL); /* nobody asked for this */
        return;
    }
    while (client->state == CLIENT_HEAD && stream_unread(&client->stream).n)
        if (!read_head(client))
            return;
    if (client->state == CLIENT_BODY) {
        read_body(client);
    } else if (client->state == CLIENT_TUNNEL) {
        size_t n = stream_unread(&client->stream).n;
        if (n)
            client->leg.events->on_body(&client->leg, stream_take(&client->stream, n));
    }
    /* END: what comes behind an answer is found at release, and ends the connection. */
}

/* ---- what the stream tells ---- */

static void become_idle(struct h1_client *client)
{
    client->state = CLIENT_IDLE;
    client->idle_at = client->stream.loop->now;
    deadline_off(&client->due);
}

static void on_connected(struct stream *stream)
{
    struct h1_client *client = client_of_stream(stream);
    become_idle(client);
    client->ops->on_connected(client);
}

static void on_read(struct stream *stream)
{
    read_input(client_of_stream(stream));
}

static void on_eof(struct stream *stream)
{
    struct h1_client *client = client_of_stream(stream);
    switch (client->state) {
    case CLIENT_IDLE:
        close_now(client, NULL);
        break;
    case CLIENT_CONNECTING:
        gone(client, R_UPSTREAM_CONNECT, ECONNRESET, 0);
        break;
    case CLIENT_BODY:
        if (client->until_close)
            complete(client, NULL);
        else
            gone(client, R_UPSTREAM_RESET, 0, 0);
        break;
    case CLIENT_HEAD:
        gone(client, R_UPSTREAM_RESET, 0, 0);
        break;
    case CLIENT_TUNNEL:
        client->leg.events->on_end(&client->leg, NULL);
        break;
    case CLIENT_END:
    case CLIENT_CLOSED:
        break;
    }
}

static void on_error(struct stream *stream, int err)
{
    struct h1_client *client = client_of_stream(stream);
    /* A server that refuses an upload answers and closes; our writing fails, and its answer
     * waits to be read, perhaps behind a client who reads it slowly. */
    if ((client->state == CLIENT_HEAD || client->state == CLIENT_BODY) &&
        stream_salvage(stream))
        return;
    if (client->state == CLIENT_END || client->state == CLIENT_CLOSED)
        return;
    if (client->state == CLIENT_CONNECTING)
        gone(client, R_UPSTREAM_CONNECT, err, 0);
    else
        gone(client, err == ENOMEM ? R_NO_MEMORY : R_UPSTREAM_RESET, err, 0);
}

static void on_pending(struct stream *stream)
{
    struct h1_client *client = client_of_stream(stream);
    if (client->state == CLIENT_HEAD)
        touch(client); /* the answer's time runs from the request's last byte on */
    if (stream->pending < LEG_LOW && client->leg.events)
        client->leg.events->on_room(&client->leg);
}

static void on_drained(struct stream *stream)
{
    struct h1_client *client = client_of_stream(stream);
    if (client->state == CLIENT_HEAD)
        touch(client);
    if (client->leg.events && (!client->request_ended || client->state == CLIENT_TUNNEL))
        client->leg.events->on_room(&client->leg);
}

static const struct stream_ops stream_ops = {
    .on_connected = on_connected,
    .on_read = on_read,
    .on_piped = on_piped,
    .on_eof = on_eof,
    .on_drained = on_drained,
    .on_pending = on_pending,
    .on_error = on_error,
};

static void on_due(struct deadline *deadline)
{
    struct h1_client *client =
        (struct h1_client *)((char *)deadline - offsetof(struct h1_client, due));
    switch (client->state) {
    case CLIENT_CONNECTING:
        gone(client, R_UPSTREAM_TIMEOUT_CONNECT, ETIMEDOUT, 0);
        break;
    case CLIENT_HEAD:
        if (client->request_ended || client->stream.pending)
            gone(client, R_UPSTREAM_TIMEOUT_RESPONSE, ETIMEDOUT, 0);
        else
            touch(client); /* the server waits for us, and we for who sends the request */
        break;
    case CLIENT_BODY:
        if (!client->stream.paused) /* else it is we who make it wait */
            gone(client, R_UPSTREAM_TIMEOUT_IDLE, ETIMEDOUT, 0);
        break;
    case CLIENT_IDLE:
        client->on_idle_due(client);
        break;
    case CLIENT_TUNNEL:
    case CLIENT_END:
    case CLIENT_CLOSED:
        break;
    }
}

/* ---- the request goes out ---- */

static void send_head(struct leg *leg, const struct head *head)
{
    struct h1_client *client = client_of(leg);
    client->method = head->method;
    client->upgrade = head->upgrade;
    client->chunked_out = head->framing == FRAMING_CHUNKED;
    char *out = stream_reserve(&client->stream, h1_write_bound(head));
    if (!out)
        return;
    size_t n = h1_write_request(out, head,
                                client->upgrade.p ? H1_PERSIST_UPGRADE : H1_PERSIST_DEFAULT);
    if (n)
        stream_commit(&client->stream, n);
    touch(client);
}

static void send_body(struct leg *leg, struct slice slice)
{
    struct h1_client *client = client_of(leg);
    if (!slice.n) {
        slice_drop(&slice);
        return;
    }
    h1_body_write(&client->stream, slice, client->chunked_out);
}

static void send_end(struct leg *leg, const struct head *trailers)
{
    struct h1_client *client = client_of(leg);
    if (client->state == CLIENT_TUNNEL) {
        stream_shutdown(&client->stream);
        return;
    }
    client->request_ended = true;
    if (client->state == CLIENT_HEAD)
        touch(client);
    if (client->chunked_out)
        h1_body_end_chunks(&client->stream, trailers);
}

/* ---- what else an exchange asks ---- */

static void leg_pause(struct leg *leg)
{
    struct h1_client *client = client_of(leg);
    stream_pause(&client->stream);
    deadline_off(&client->due);
}

static void leg_resume(struct leg *leg)
{
    struct h1_client *client = client_of(leg);
    if (client->state == CLIENT_BODY || client->state == CLIENT_HEAD)
        touch(client);
    stream_resume(&client->stream);
}

static void leg_tunnel(struct leg *leg)
{
    struct h1_client *client = client_of(leg);
    client->state = CLIENT_TUNNEL;
    client->chunked_out = false;
    client->keep_alive = false;
    deadline_off(&client->due);
}

static void leg_abort(struct leg *leg)
{
    close_now(client_of(leg), NULL);
}

static size_t leg_pending(const struct leg *leg)
{
    return ((const struct h1_client *)((const char *)leg - offsetof(struct h1_client, leg)))
        ->stream.pending;
}

static void leg_release(struct leg *leg)
{
    struct h1_client *client = client_of(leg);
    struct stream *stream = &client->stream;
    bool clean = client->state == CLIENT_END && client->request_ended && client->keep_alive &&
                 !client->until_close && !stream->pending && !stream->eof && !stream->err &&
                 !stream_unread(stream).n;
    leg->events = NULL;
    if (!clean) {
        close_now(client, NULL);
        return;
    }
    stream_resume(stream);
    become_idle(client);
    client->ops->on_idle(client);
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

int h1_client_open(struct h1_client *client, struct loop *loop, const struct addr *addr,
                   struct tls_peer *peer, const struct h1_client_timeouts *timeouts,
                   const struct h1_client_ops *ops, void *owner)
{
    int fd;
    int rc = sock_connect(addr, &fd);
    if (rc < 0)
        return rc;
    struct tls *tls = peer ? tls_connect(peer, loop, fd) : NULL;
    if (peer && !tls) {
        close(fd);
        return -ENOMEM;
    }
    *client = (struct h1_client){.ops = ops,
                                 .owner = owner,
                                 .timeouts = *timeouts,
                                 .leg.ops = &leg_ops,
                                 .close = on_close,
                                 .opened_at = loop->now};
    deadline_init(&client->due, on_due);
    /* A socket that is connected already is writable at once and told like any other. */
    rc = stream_open(&client->stream, loop, fd, true, tls, &stream_ops);
    if (rc == 0)
        loop_deadline(loop, &client->due, timeouts->connect);
    return rc;
}

void h1_client_lend(struct h1_client *client)
{
    client->state = CLIENT_HEAD;
    client->request_ended = client->keep_alive = client->until_close = false;
    client->leg.pipes = false;
    client->interims = 0;
    client->scan = (struct h1_scan){0};
    client->read_mark = client->stream.read_total;
    client->written_mark = client->stream.written_total;
    client->requests++;
}

bool h1_client_is_stale(const struct h1_client *client)
{
    return !client->shared && stream_has_news(&client->stream);
}

void h1_client_close(struct h1_client *client)
{
    client->close(client);
}
