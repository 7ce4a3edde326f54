#include "proxy/exchange.h"

#include <assert.h>

#include "proxy/forward.h"
#include "proxy/plugins.h"
#include "proxy/reply.h"
#include "proxy/shed.h"
#include "proxy/spare.h"

#define TO(s) (1u << (s))
/* The whole life of an exchange. A move that is not in this table is a bug. */
static const uint16_t allowed[EX_STATES] = {
    [EX_NEW] = TO(EX_PLUGINS) | TO(EX_CONNECT) | TO(EX_REPLY) | TO(EX_DONE),
    [EX_PLUGINS] = TO(EX_CONNECT) | TO(EX_REPLY) | TO(EX_DONE),
    [EX_CONNECT] = TO(EX_CONNECT) | TO(EX_SEND) | TO(EX_RELAY) | TO(EX_REPLY) | TO(EX_DONE),
    [EX_SEND] = TO(EX_CONNECT) | TO(EX_RELAY) | TO(EX_TUNNEL) | TO(EX_REPLY) | TO(EX_DONE),
    [EX_RELAY] = TO(EX_FLUSH) | TO(EX_DONE),
    [EX_TUNNEL] = TO(EX_DONE),
    [EX_REPLY] = TO(EX_DONE),
    [EX_FLUSH] = TO(EX_DONE),
};

void exchange_to(struct exchange *ex, enum ex_state state)
{
    assert(allowed[ex->state] & TO(state));
    (void)allowed; /* release builds do not look */
    ex->state = state;
}

const struct conf *exchange_conf(const struct exchange *ex)
{
    return ex->view->snapshot->conf;
}

const struct conf_listener *exchange_listener(const struct exchange *ex)
{
    return &exchange_conf(ex)->listeners[ex->listener];
}

/* ---- the end ---- */

static void on_bury(struct grave *grave)
{
    struct exchange *ex = (struct exchange *)((char *)grave - offsetof(struct exchange, grave));
    slab_give(&ex->cx->exchanges, ex);
}

void exchange_finish(struct exchange *ex)
{
    if (ex->plugged)
        plugins_cancel(ex);
    exchange_to(ex, EX_DONE);
    exchange_drop_up(ex);
    spare_drop(ex);
    shed_leave(ex);
    if (ex->plugged)
        plugins_log(ex);
    record_exchange(ex);
    flow_drop(&ex->request);
    deadline_end(&ex->cx->loop->wheel, &ex->total);
    deadline_end(&ex->cx->loop->wheel, &ex->try_due);
    deadline_end(&ex->cx->loop->wheel, &ex->hop_due);
    if (ex->down)
        ex->down->ops->release(ex->down);
    arena_done(&ex->arena);
    context_exchange_ended(ex->cx, ex->view);
    loop_bury(ex->cx->loop, &ex->grave, on_bury);
}

/* The client must be able to tell that its answer is not complete. */
static void cut_off(struct exchange *ex)
{
    exchange_drop_up(ex);
    if (ex->down)
        ex->down->ops->abort(ex->down);
    ex->down = NULL;
    exchange_finish(ex);
}

/* A server's own answer says more than that the next one did not answer either. */
static bool has_better(struct exchange *ex, enum reason reason)
{
    bool upstream = strncmp(reason_texts[reason].name, "upstream.", 9) == 0;
    return upstream && spare_use(ex, reason == R_UPSTREAM_TIMEOUT_TOTAL);
}

void exchange_fail(struct exchange *ex, const struct leg_fault *fault)
{
    switch (ex->state) {
    case EX_NEW:
    case EX_PLUGINS:
    case EX_CONNECT:
    case EX_SEND:
        if (ex->spare && has_better(ex, fault->reason))
            break;
        if (ex->plugged)
            plugins_cancel(ex);
        ex->reason = fault->reason;
        ex->fault = *fault;
        exchange_drop_up(ex);
        if (fault->reason == R_UPSTREAM_OVERFLOW)
            shed_note(ex->cx, ex->fleet, fault);
        exchange_to(ex, EX_REPLY);
        reply_error(ex, fault);
        break;
    case EX_RELAY:
    case EX_TUNNEL:
    case EX_FLUSH:
        ex->reason = fault->reason;
        ex->fault = *fault;
        cut_off(ex);
        break;
    case EX_REPLY: /* the answer is on its way already */
    case EX_DONE:
    case EX_STATES:
        break;
    }
}

/* ---- the way to a route ---- */

static void refuse(struct exchange *ex, enum reason reason)
{
    exchange_fail(ex, &(struct leg_fault){.reason = reason});
}

static void on_total_due(struct deadline *deadline)
{
    struct exchange *ex =
        (struct exchange *)((char *)deadline - offsetof(struct exchange, total));
    exchange_out_of_time(ex);
    refuse(ex, ex->state == EX_TUNNEL ? R_UPSTREAM_TIMEOUT_IDLE : R_UPSTREAM_TIMEOUT_TOTAL);
}

/* What a tunnel has instead of a total. */
void exchange_tunnel_moves(struct exchange *ex)
{
    loop_deadline(ex->cx->loop, &ex->total, ex->cluster->limits.between);
}

static uint64_t body_limit(const struct exchange *ex)
{
    const struct conf_route *route = ex->match.route;
    return route && route->body_bytes != UINT64_MAX ? route->body_bytes
                                                    : exchange_listener(ex)->limits.body_bytes;
}

static bool is_too_large(struct exchange *ex, uint64_t bytes)
{
    uint64_t limit = body_limit(ex);
    if (!limit || bytes <= limit)
        return false;
    exchange_fail(ex, &(struct leg_fault){
                          .reason = R_CLIENT_BODY_TOO_LARGE, .limit = limit, .actual = bytes});
    return true;
}

/* RFC 9110 7.6.2: a TRACE or an OPTIONS that no more may pass on is for us. We tell nobody what
 * we got: there are credentials in it. */
static bool may_go_on(struct exchange *ex)
{
    switch (forward_hops(ex)) {
    case HOPS_ON:
        return true;
    case HOPS_BAD:
        exchange_fail(
            ex, &(struct leg_fault){.reason = R_BAD_FIELD_VALUE, .field = STR("Max-Forwards")});
        return false;
    case HOPS_NO_MEMORY:
        refuse(ex, R_NO_MEMORY);
        return false;
    case HOPS_HERE:
        break;
    }
    if (ex->head->method == M_OPTIONS) {
        exchange_to(ex, EX_REPLY);
        reply_plain(ex, 200, STR(""), STR(""));
    } else {
        memcpy(ex->match.allow, "OPTIONS", sizeof("OPTIONS"));
        refuse(ex, R_ROUTE_METHOD);
    }
    return false;
}

static void go_upstream(struct exchange *ex, size_t upstream)
{
    const struct conf_route *route = ex->match.route;
    if ((ex->head->method == M_OPTIONS || ex->head->method == M_TRACE) && !may_go_on(ex))
        return;
    if (ex->plugged) {
        plugins_frame_request(ex);
        if (!plugins_refeed(ex))
            return;
    }
    ex->upstream = &exchange_conf(ex)->upstreams[upstream];
    ex->cluster = ex->view->snapshot->clusters[upstream];
    ex->fleet = context_fleet(ex->cx, ex->cluster);
    ex->request.hold_max = ex->upstream->retry.body_bytes;
    uint32_t total = ex->cluster->limits.total;
    if (route->timeout && (!total || route->timeout < total))
        total = route->timeout;
    uint64_t left;
    if (forward_deadline(ex, &left) && (!total || left < total)) {
        total = (uint32_t)left;
        if (!total) { /* nobody waits for it any more */
            refuse(ex, R_UPSTREAM_TIMEOUT_TOTAL);
            return;
        }
    }
    if (total)
        loop_deadline(ex->cx->loop, &ex->total, total);
    if (shed_admit(ex))
        exchange_choose(ex);
}

static size_t split_upstream(const struct exchange *ex, const struct conf_route *route)
{
    uint64_t hash = forward_hash(ex, route->split.sticky, route->split.sticky_name);
    uint32_t share = split_pick(ex->view->snapshot->splits[route->split.index], hash);
    return route->split.shares[share].upstream_index;
}

/* Whether a request came over TLS as its listener has it, and to the host that its connection
 * was made for: one that stands for several names is no way to any other (RFC 9110 7.4). Who
 * asked for no name, or says the same again, has its answer whatever the certificate says: that
 * is for the client to judge. A trusted proxy's host is its clients'. */
static bool is_for_us(const struct exchange *ex, enum reason *ret_reason)
{
    const struct tls_facts *tls = ex->peer->tls;
    *ret_reason = tls ? R_CLIENT_MISDIRECTED : R_BAD_PLAIN;
    return tls && (!tls->sni.p || str_eq(tls->sni, ex->host) || ex->trusted ||
                   tls_covers(tls, ex->host));
}

/* Who asks for https in a target must have come by it (RFC 9110 7.4); of a trusted proxy it may
 * be the client who has. */
static bool is_plain_for_us(const struct exchange *ex)
{
    return !ex->head->secure || ex->trusted;
}

/* RFC 8470: what somebody may have recorded and sent again goes to the server with a mark, and
 * only when it does no harm (RFC 9110 9.2.1). Plugins count and decide, so they do not see it.
 */
static bool take_early(struct exchange *ex, const struct phases *phases)
{
    enum method method = ex->head->method;
    bool safe = method == M_GET || method == M_HEAD || method == M_OPTIONS;
    if (!safe || phases || ex->head->upgrade.p)
        refuse(ex, R_CLIENT_TOO_EARLY);
    else if (head_set(ex->head, &ex->arena, STR("Early-Data"), STR("1")) < 0)
        refuse(ex, R_NO_MEMORY);
    else
        return true;
    return false;
}

void exchange_route(struct exchange *ex)
{
    size_t offset = 0;
    enum reason reason = forward_identify(ex, &offset);
    if (reason) {
        exchange_fail(ex, &(struct leg_fault){.reason = reason, .offset = offset});
        return;
    }
    if (exchange_listener(ex)->tls ? !is_for_us(ex, &reason) : !is_plain_for_us(ex)) {
        refuse(ex, reason ? reason : R_CLIENT_MISDIRECTED);
        return;
    }
    router_find(ex->view->snapshot->router, (size_t)ex->listener, ex->host, ex->path,
                ex->head->method_text, ex->head, &ex->match);
    const struct phases *phases =
        conf_phases(exchange_conf(ex), exchange_listener(ex), ex->match.route);
    if (stream_is_early(ex->peer->stream) && !take_early(ex, phases))
        return;
    if (exchange_conf(ex)->phases && !ex->match.route && plugins_preflight(ex))
        return;
    if (phases)
        plugins_request(ex, phases);
    else
        exchange_go(ex);
}

void exchange_go(struct exchange *ex)
{
    const struct conf_route *route = ex->match.route;
    if (!route) {
        refuse(ex, ex->match.wrong_method ? R_ROUTE_METHOD : R_ROUTE_NONE);
        return;
    }
    if (ex->head->framing == FRAMING_LENGTH && is_too_large(ex, ex->head->length))
        return;
    switch (route->action) {
    case ACTION_UPSTREAM:
        go_upstream(ex, route->upstream_index);
        break;
    case ACTION_SPLIT:
        go_upstream(ex, split_upstream(ex, route));
        break;
    case ACTION_RESPOND:
        exchange_to(ex, EX_REPLY);
        reply_respond(ex);
        break;
    case ACTION_REDIRECT:
        exchange_to(ex, EX_REPLY);
        reply_redirect(ex);
        break;
    }
}

/* ---- what the client's side tells ---- */

static void on_head(struct leg *leg, struct head *head)
{
    struct exchange *ex = leg->owner;
    ex->head = head;
    exchange_route(ex);
}

/* Whether what comes goes through plugins; while they are asked it only waits. */
static bool filters_request(const struct exchange *ex)
{
    return ex->plugged && ex->plugged->filters_request && ex->state != EX_PLUGINS &&
           ex->state != EX_TUNNEL;
}

static void on_body(struct leg *leg, struct slice slice)
{
    struct exchange *ex = leg->owner;
    bool wanted = ex->state == EX_PLUGINS || ex->state == EX_CONNECT || ex->state == EX_SEND ||
                  ex->state == EX_RELAY || ex->state == EX_TUNNEL;
    if (!wanted || (ex->state != EX_TUNNEL && is_too_large(ex, ex->request.bytes + slice.n))) {
        slice_drop(&slice);
        return;
    }
    if (ex->state == EX_TUNNEL)
        exchange_tunnel_moves(ex);
    if (filters_request(ex))
        plugins_body(ex, &ex->request, slice);
    else
        flow_body(&ex->request, slice);
    if (ex->request.lost)
        refuse(ex, R_NO_MEMORY);
}

static void end_tunnel_if_over(struct exchange *ex)
{
    if (ex->request.ended && ex->response.ended && !ex->up->ops->pending(ex->up))
        exchange_finish(ex);
}

static void on_end(struct leg *leg, struct head *trailers)
{
    struct exchange *ex = leg->owner;
    if (ex->state == EX_REPLY || ex->state == EX_FLUSH || ex->state == EX_NEW) {
        ex->request.ended = true;
        return;
    }
    if (filters_request(ex) && !plugins_body_last(ex, &ex->request))
        return;
    flow_end(&ex->request, trailers);
    if (deadline_is_on(&ex->try_due)) /* the server's time begins when it has the request */
        loop_deadline(ex->cx->loop, &ex->try_due, ex->upstream->retry.try_timeout);
    if (ex->state == EX_TUNNEL)
        end_tunnel_if_over(ex);
}

static void on_room(struct leg *leg)
{
    struct exchange *ex = leg->owner;
    if (ex->up)
        flow_room(&ex->response);
}

static void on_sent(struct leg *leg)
{
    struct exchange *ex = leg->owner;
    exchange_finish(ex);
}

#define GLANCE_MAX 2048 /* of a target that is logged although nothing came of it */

/* What the log says of a request whose head could not be read. */
static void keep_glance(struct exchange *ex, struct str method, struct str target)
{
    if (method.n)
        ex->log_method = arena_copy(&ex->arena, method);
    if (!target.n)
        return;
    target.n = target.n < GLANCE_MAX ? target.n : GLANCE_MAX;
    target = arena_copy(&ex->arena, target);
    const char *mark = target.n ? memchr(target.p, '?', target.n) : NULL;
    size_t path = mark ? (size_t)(mark - target.p) : target.n;
    ex->log_target_path = (struct str){target.p, path};
    if (mark)
        ex->log_query = (struct str){mark + 1, target.n - path - 1};
}

static void on_bad(struct leg *leg, const struct leg_fault *fault)
{
    struct exchange *ex = leg->owner;
    if (!ex->head)
        keep_glance(ex, fault->method, fault->target);
    exchange_fail(ex, fault);
}

static void on_gone(struct leg *leg, const struct leg_fault *fault)
{
    struct exchange *ex = leg->owner;
    ex->down = NULL;
    if (!ex->reason) {
        ex->reason = fault->reason;
        ex->fault = *fault;
    }
    if (ex->state != EX_RELAY && ex->state != EX_FLUSH && ex->state != EX_TUNNEL)
        ex->status = 499;
    exchange_finish(ex);
}

static const struct leg_events down_events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_room = on_room,
    .on_sent = on_sent,
    .on_bad = on_bad,
    .on_gone = on_gone,
};

bool exchange_begin(struct context *cx, struct view *view, struct leg *leg,
                    const struct peer *peer, int listener)
{
    struct exchange *ex = slab_take(&cx->exchanges);
    if (!ex)
        return false;
    memset(ex, 0, offsetof(struct exchange, match.captures));
    ex->cx = cx;
    ex->view = view;
    view->exchanges++;
    ex->peer = peer;
    ex->listener = listener;
    ex->server = -1;
    ex->client_ip = (struct str){peer->ip, peer->ip_len};
    ex->started_at = cx->loop->now;
    ex->down = leg;
    arena_init(&ex->arena, &cx->loop->chunks);
    flow_init(&ex->request, leg, true);
    ex->total.on_due = on_total_due;
    ex->try_due.on_due = exchange_try_due;
    ex->hop_due.on_due = exchange_hop_due;
    leg->events = &down_events;
    leg->owner = ex;
    leg->arena = &ex->arena;
    return true;
}
