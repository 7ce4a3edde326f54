/* The answer's side of an HTTP/1 server connection: heads and bodies go out, and behind an
 * answer the connection goes on or ends. The request's side is h1_server.c. */
#include "http/h1_server_parts.h"

#include <assert.h>

#include "http/h1_body.h"
#include "http/h1_write.h"

#define DRAIN_MAX (64u * 1024) /* of an unwanted body that is read to keep the connection */

static struct h1_server *h1_server_of(struct leg *leg)
{
    return (struct h1_server *)((char *)leg - offsetof(struct h1_server, leg));
}

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
    struct h1_server *server = h1_server_of(leg);
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
    struct h1_server *server = h1_server_of(leg);
    if (!slice.n || server->head_request) {
        slice_drop(&slice);
        return;
    }
    h1_body_write(&server->stream, slice, server->chunked_out);
}

static void send_end(struct leg *leg, const struct head *trailers)
{
    struct h1_server *server = h1_server_of(leg);
    if (server->state == SERVER_TUNNEL) {
        stream_shutdown(&server->stream);
        return;
    }
    if (server->chunked_out && !server->head_request)
        h1_body_end_chunks(&server->stream, trailers);
    server->answer = ANSWER_ENDED;
    loop_task(server->stream.loop, &server->turn);
}

/* The answer is with the kernel: the exchange may end, the next request may begin. */
void h1_server_on_turn(struct task *task)
{
    struct h1_server *server =
        (struct h1_server *)((char *)task - offsetof(struct h1_server, turn));
    if (server->state == SERVER_CLOSED || server->stream.pending || server->stream.err)
        return;
    if (server->answer == ANSWER_ABORTED) {
        h1_server_close_now(server, server->until_close);
        return;
    }
    if (server->answer != ANSWER_ENDED)
        return;
    if (server->leg.events)
        server->leg.events->on_sent(&server->leg);
    server->leg.events = NULL;
    if (server->state == SERVER_BODY && server->keep_alive) {
        server->state = SERVER_DRAIN;
        h1_server_await_body(server);
        stream_resume(&server->stream);
        h1_server_read_drain(server);
    } else if (server->state != SERVER_CLOSED) {
        h1_server_go_on(server);
    }
}

/* Behind an answer: the next request, or the end. */
void h1_server_go_on(struct h1_server *server)
{
    server->answer = ANSWER_NONE;
    if (!server->keep_alive || server->closing || server->stream.eof) {
        h1_server_linger(server);
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
    struct h1_server *server = h1_server_of(leg);
    stream_pause(&server->stream);
    if (server->state == SERVER_BODY)
        deadline_off(&server->read_due);
}

static void leg_resume(struct leg *leg)
{
    struct h1_server *server = h1_server_of(leg);
    if (server->state == SERVER_BODY)
        h1_server_await_body(server);
    /* With the request complete there is still its client's end to be seen. */
    if (server->state >= SERVER_BODY && server->state <= SERVER_TUNNEL)
        stream_resume(&server->stream);
}

static void leg_tunnel(struct leg *leg)
{
    struct h1_server *server = h1_server_of(leg);
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
    struct h1_server *server = h1_server_of(leg);
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

/* Framed by its length, the body passes as it is. */
static bool leg_takes_pipes(const struct leg *leg)
{
    const struct h1_server *server =
        (const struct h1_server *)((const char *)leg - offsetof(struct h1_server, leg));
    return !server->stream.tls && !server->chunked_out && !server->head_request;
}

static void leg_release(struct leg *leg)
{
    struct h1_server *server = h1_server_of(leg);
    leg->events = NULL;
    if (server->state != SERVER_TUNNEL)
        return; /* the turn goes on behind on_sent */
    server->answer = ANSWER_ENDED;
    loop_task(server->stream.loop, &server->turn);
}

const struct leg_ops h1_server_leg_ops = {
    .send_head = send_head,
    .send_body = send_body,
    .send_end = send_end,
    .pause = leg_pause,
    .resume = leg_resume,
    .tunnel = leg_tunnel,
    .abort = leg_abort,
    .pending = leg_pending,
    .takes_pipes = leg_takes_pipes,
    .release = leg_release,
};
