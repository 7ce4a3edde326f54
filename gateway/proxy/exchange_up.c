/* The upstream side of an exchange: choose a server, get a connection, send, answer or retry.
 */
#include "proxy/exchange.h"

#include <errno.h>

#include "proxy/attempt.h"
#include "proxy/forward.h"
#include "proxy/plugins.h"
#include "proxy/spare.h"
#include "proxy/sticky.h"
#include "up/outlier.h"

#define HOP_MS 250 /* RFC 8305 5: the delay between two addresses of a name */
#define STALE_AFTER                                                                            \
    (1 * NS_PER_S) /* idle so long, a connection is looked at before a                         \
                      request that cannot be repeated goes out on it */

static void ask(struct exchange *ex, int server);

/* ---- choosing ---- */

static int pick(struct exchange *ex)
{
    return attempt_pick(ex->cx, ex->fleet, &ex->tried, ex->hash);
}

/* Whether somebody who likes this server best had better go elsewhere. */
static bool is_out(const struct exchange *ex, int server)
{
    return (vitals_word(ex->cluster->servers[server].vitals) & VITAL_OUT) ||
           pool_is_down(ex->fleet->pools[server]);
}

void exchange_choose(struct exchange *ex)
{
    if (ex->cluster->balance == BALANCE_HASH)
        ex->hash = forward_hash(ex, ex->upstream->hash_on, ex->upstream->hash_name);
    attempt_begun(ex->fleet, ex->cx->loop->now);
    int server = sticky_server(ex);
    ex->stays = server >= 0 && !is_out(ex, server);
    if (!ex->stays)
        server = pick(ex);
    if (server < 0) {
        exchange_fail(ex, &(struct leg_fault){.reason = R_UPSTREAM_NONE});
        return;
    }
    ask(ex, server);
}

/* ---- what speaks against a server ---- */

static void note(const struct exchange *ex, unsigned what)
{
    outlier_note(ex->cluster, (unsigned)ex->server, what, ex->cx->loop->now);
}

static void note_failure(const struct exchange *ex, enum reason reason)
{
    attempt_note(ex->cluster, (unsigned)ex->server, reason, ex->cx->loop->now);
}

void exchange_out_of_time(const struct exchange *ex)
{
    /* while the request is still being sent it is the client who takes the time */
    if (ex->state == EX_SEND && ex->request.ended)
        note_failure(ex, R_UPSTREAM_TIMEOUT_TOTAL);
}

/* A status that counts as a failure is noted at once; that all went well, only at the end. */
static bool is_bad_status(const struct exchange *ex)
{
    return outlier_status(ex->upstream_status) & ex->cluster->watch.outlier.counts;
}

/* ---- the connection ---- */

static void leave_server(struct exchange *ex)
{
    if (ex->at_server)
        balance_end(ex->cluster, (unsigned)ex->server);
    ex->at_server = false;
    ex->up = NULL;
    ex->client = NULL;
    flow_disconnect(&ex->request);
}

void exchange_drop_up(struct exchange *ex)
{
    struct leg *up = ex->up;
    pool_cancel(&ex->waiter);
    leave_server(ex);
    if (up)
        up->ops->abort(up);
}

/* A connection is ours: the request goes out on it. */
static void take(struct exchange *ex, struct h1_client *client)
{
    ex->client = client;
    ex->up = &client->leg;
    ex->up->events = &exchange_up_events;
    ex->up->owner = ex;
    ex->up->arena = &ex->arena;
    h1_client_lend(client);
    ex->reused = pool_is_reused(client);
    ex->sent_at = ex->cx->loop->now;
    ex->waited += ex->sent_at - ex->wait_from;
    exchange_to(ex, EX_SEND);
    deadline_off(&ex->hop_due);
    if (!ex->request_edited) {
        enum reason reason = forward_request(ex);
        ex->request_edited = true;
        if (reason) {
            exchange_fail(ex, &(struct leg_fault){.reason = reason});
            return;
        }
        if (ex->head->expect_continue && !ex->request.bytes && !ex->request.ended)
            ex->down->ops->send_head(ex->down, &(struct head){.status = 100, .minor = 1});
    } else {
        forward_again(ex);
    }
    if (ex->cluster->proxy_protocol)
        forward_preface(ex);
    ex->up->ops->send_head(ex->up, ex->head);
    flow_init(&ex->response, ex->up, false);
    flow_connect(&ex->request, ex->up);
    flow_connect(&ex->response, ex->down);
}

static void on_ready(struct pool_waiter *waiter, struct h1_client *client)
{
    take((struct exchange *)((char *)waiter - offsetof(struct exchange, waiter)), client);
}

/* A request that must not be sent twice is not sent on a connection that may be dead. */
static bool is_risky(const struct exchange *ex, const struct h1_client *client)
{
    return !method_is_idempotent(ex->head->method) &&
           ex->cx->loop->now - client->idle_at > STALE_AFTER && h1_client_is_stale(client);
}

static bool may_move(const struct pool_waiter *waiter, const struct pool *to)
{
    const struct exchange *ex =
        (const struct exchange *)((const char *)waiter - offsetof(struct exchange, waiter));
    return attempt_moves_to(ex->fleet, &ex->tried, to) >= 0;
}

static void on_moved(struct pool_waiter *waiter, const struct pool *to)
{
    struct exchange *ex =
        (struct exchange *)((char *)waiter - offsetof(struct exchange, waiter));
    balance_end(ex->cluster, (unsigned)ex->server);
    ex->server = pool_server(to, ex->cluster);
    balance_begin(ex->cluster, (unsigned)ex->server);
}

static bool retry(struct exchange *ex, const struct leg_fault *fault);

static void on_failed(struct pool_waiter *waiter, const struct leg_fault *fault)
{
    struct exchange *ex =
        (struct exchange *)((char *)waiter - offsetof(struct exchange, waiter));
    leave_server(ex);
    note_failure(ex, fault->reason);
    if (!retry(ex, fault))
        exchange_fail(ex, fault);
}

static void ask(struct exchange *ex, int server)
{
    struct pool *pool = ex->fleet->pools[server];
    exchange_to(ex, EX_CONNECT);
    ex->server = server;
    ex->attempts++;
    ex->wait_from = ex->cx->loop->now;
    ex->at_server = true;
    balance_begin(ex->cluster, (unsigned)server);
    if (ex->upstream->retry.try_timeout)
        loop_deadline(ex->cx->loop, &ex->try_due, ex->upstream->retry.try_timeout);
    ex->waiter.on_ready = on_ready;
    ex->waiter.on_failed = on_failed;
    ex->waiter.may_move = ex->stays || ex->hash || ex->raced ? NULL : may_move;
    ex->waiter.on_moved = on_moved;
    struct h1_client *client = pool_take(pool, ex->raced, &ex->waiter);
    while (client && is_risky(ex, client)) {
        h1_client_close(client);
        client = pool_take(pool, ex->raced, &ex->waiter);
    }
    if (client)
        take(ex, client);
    else if (ex->cluster->servers[server].siblings)
        loop_deadline(ex->cx->loop, &ex->hop_due, HOP_MS);
}

/* Another address of the same name, not tried and not known to be out; -1: there is none. */
static int sibling_of(const struct exchange *ex, int server)
{
    const struct server *servers = ex->cluster->servers;
    for (uint32_t i = 0; i < ex->cluster->count; i++)
        if ((int)i != server && servers[i].from == servers[server].from &&
            servers[i].backup == servers[server].backup && !tried_has(&ex->tried, i) &&
            !is_out(ex, (int)i))
            return (int)i;
    return -1;
}

/* Connecting takes long: one family of a name's addresses may be dead, and another alive. The
 * connection that is on its way may still be somebody's, or its failure a lesson. */
void exchange_hop_due(struct deadline *deadline)
{
    struct exchange *ex =
        (struct exchange *)((char *)deadline - offsetof(struct exchange, hop_due));
    if (ex->state != EX_CONNECT || pool_is_busy(ex->fleet->pools[ex->server]))
        return;
    tried_add(&ex->tried, (unsigned)ex->server);
    int server = sibling_of(ex, ex->server);
    if (server < 0)
        return;
    exchange_drop_up(ex);
    ex->waited += ex->cx->loop->now - ex->wait_from;
    ask(ex, server);
}

/* ---- once more ---- */

/* Whether the request may go out again as far as the request is concerned: all of it is at
 * hand, and either nobody has seen it or seeing it twice does no harm. */
static bool is_repeatable(const struct exchange *ex, bool untouched)
{
    enum conf_retry allowed = ex->match.route->retry;
    return ex->request.holds && !ex->request.lost &&
           (untouched || allowed == ROUTE_RETRY_ANY ||
            (allowed == ROUTE_RETRY_IDEMPOTENT && method_is_idempotent(ex->head->method)));
}

static void again(struct exchange *ex, int server)
{
    series_add(ex->fleet->retries, 1);
    ask(ex, server);
}

/* Another server to go to, if the configuration and the budget allow it, or -1. */
static int elsewhere(struct exchange *ex, unsigned kind, bool untouched)
{
    if (!(ex->cluster->retry_on & kind) || ex->retries >= ex->cluster->retry_attempts ||
        ex->match.route->retry == ROUTE_RETRY_NEVER || !is_repeatable(ex, untouched))
        return -1;
    if (!attempt_may_retry(ex->fleet, ex->cx->loop->now))
        return -1;
    tried_add(&ex->tried, (unsigned)ex->server);
    int server = pick(ex);
    if (server >= 0)
        return server;
    ex->tried = (struct tried){.regardless = 0}; /* all were tried: start over */
    return pick(ex);
}

static void go_elsewhere(struct exchange *ex, int server)
{
    ex->retries++;
    ex->stays = false;
    ex->fleet->retried[0]++;
    again(ex, server);
}

/* The keep-alive race: the server closed an idle connection as the request went out. */
static bool is_race(const struct exchange *ex, const struct leg_fault *fault)
{
    return fault->reason == R_UPSTREAM_RESET && ex->reused && fault->silent && !ex->raced;
}

static bool retry(struct exchange *ex, const struct leg_fault *fault)
{
    if (is_race(ex, fault) && is_repeatable(ex, fault->untouched)) {
        ex->raced = true;
        again(ex, ex->server);
        return true;
    }
    int server = elsewhere(ex, attempt_kind(fault->reason), fault->untouched);
    if (server < 0)
        return false;
    go_elsewhere(ex, server);
    return true;
}

/* This try has had its time; the request may have more. */
void exchange_try_due(struct deadline *deadline)
{
    struct exchange *ex =
        (struct exchange *)((char *)deadline - offsetof(struct exchange, try_due));
    struct leg_fault fault = {.reason = R_UPSTREAM_TIMEOUT_CONNECT,
                              .err = ETIMEDOUT,
                              .untouched = true,
                              .silent = true};
    if (ex->state != EX_CONNECT && ex->state != EX_SEND)
        return;
    if (ex->state == EX_SEND && !ex->request.ended) { /* it is the client who takes its time */
        loop_deadline(ex->cx->loop, deadline, ex->upstream->retry.try_timeout);
        return;
    }
    if (ex->state == EX_SEND) {
        fault.reason = R_UPSTREAM_TIMEOUT_RESPONSE;
        fault.untouched = h1_client_is_untouched(ex->client);
        note_failure(ex, fault.reason);
    }
    exchange_drop_up(ex);
    if (!retry(ex, &fault))
        exchange_fail(ex, &fault);
}

/* ---- what the upstream's side tells ---- */

static void on_tunnel(struct exchange *ex, struct head *head)
{
    exchange_to(ex, EX_TUNNEL);
    exchange_tunnel_moves(ex);
    deadline_off(&ex->try_due);
    ex->down->ops->send_head(ex->down, head);
    flow_drop(&ex->request);
    ex->request.ended = false;
    ex->up->ops->tunnel(ex->up);
    ex->down->ops->tunnel(ex->down);
}

static void count_answer(struct exchange *ex)
{
    unsigned labels[4] = {ex->cluster->metric_name,
                          ex->cluster->servers[ex->server].metric_name, ex->upstream_status};
    series_add(metrics_series(ex->cx->metrics, METRIC_UPSTREAM_REQUESTS, labels), 1);
}

/* Another server may do better than this answer. */
static bool retry_status(struct exchange *ex, struct head *head)
{
    unsigned kind = attempt_status_kind(head->status);
    int server = kind ? elsewhere(ex, kind, false) : -1;
    if (server < 0)
        return false;
    spare_keep(ex, head);
    go_elsewhere(ex, server);
    return true;
}

/* Whether nobody between the two sockets needs to see the answer's body. */
static bool takes_pipes(const struct exchange *ex)
{
    const struct leg *down = ex->down;
    return down->ops->takes_pipes && down->ops->takes_pipes(down) &&
           !(ex->plugged && ex->plugged->filters_response);
}

void exchange_answer(struct exchange *ex, struct head *head)
{
    enum reason reason = forward_response(ex, head);
    if (reason) {
        exchange_fail(ex, &(struct leg_fault){.reason = reason});
        return;
    }
    ex->status = head->status;
    exchange_to(ex, EX_RELAY);
    flow_drop(&ex->request);
    deadline_off(&ex->try_due);
    ex->down->ops->send_head(ex->down, head);
    if (ex->up)
        ex->up->pipes = takes_pipes(ex);
}

static void on_head(struct leg *leg, struct head *head)
{
    struct exchange *ex = leg->owner;
    if (head->status == 100)
        return; /* we answer Expect ourselves */
    if (head->status >= 200) {
        ex->upstream_status = head->status;
        ex->head_at = ex->cx->loop->now;
        count_answer(ex);
        if (is_bad_status(ex))
            note(ex, outlier_status(head->status));
        if (retry_status(ex, head))
            return;
        spare_drop(ex);
        exchange_answer(ex, head);
        return;
    }
    enum reason reason = forward_response(ex, head);
    if (reason) {
        exchange_fail(ex, &(struct leg_fault){.reason = reason});
        return;
    }
    if (head->status == 101) {
        ex->status = ex->upstream_status = 101;
        ex->head_at = ex->cx->loop->now;
        count_answer(ex);
        spare_drop(ex);
        note(ex, 0);
        on_tunnel(ex, head);
        return;
    }
    ex->down->ops->send_head(ex->down, head);
}

static void on_body(struct leg *leg, struct slice slice)
{
    struct exchange *ex = leg->owner;
    if (ex->state == EX_TUNNEL)
        exchange_tunnel_moves(ex);
    if (ex->plugged && ex->plugged->filters_response && ex->state != EX_TUNNEL)
        plugins_body(ex, &ex->response, slice);
    else
        flow_body(&ex->response, slice);
}

static void on_end(struct leg *leg, struct head *trailers)
{
    struct exchange *ex = leg->owner;
    ex->up_ended_at = ex->cx->loop->now;
    if (ex->state == EX_TUNNEL) {
        flow_end(&ex->response, trailers);
        if (ex->request.ended && !leg->ops->pending(leg))
            exchange_finish(ex);
        return;
    }
    if (ex->plugged && ex->plugged->filters_response && !plugins_body_last(ex, &ex->response))
        return;
    exchange_to(ex, EX_FLUSH);
    if (!is_bad_status(ex))
        note(ex, 0);
    histogram_add(ex->fleet->duration, ex->up_ended_at - ex->sent_at);
    leave_server(ex);
    leg->ops->release(leg);
    flow_end(&ex->response, trailers);
}

static void on_room(struct leg *leg)
{
    struct exchange *ex = leg->owner;
    flow_room(&ex->request);
    if (ex->state == EX_TUNNEL && ex->request.ended && ex->response.ended &&
        !leg->ops->pending(leg))
        exchange_finish(ex);
}

static void on_gone(struct leg *leg, const struct leg_fault *fault)
{
    struct exchange *ex = leg->owner;
    leave_server(ex);
    if (ex->state == EX_RELAY || (ex->state == EX_SEND && !is_race(ex, fault)))
        note_failure(ex, fault->reason);
    if (ex->state == EX_SEND && retry(ex, fault))
        return;
    exchange_fail(ex, fault);
}

const struct leg_events exchange_up_events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_room = on_room,
    .on_gone = on_gone,
};
