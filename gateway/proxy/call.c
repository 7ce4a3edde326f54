#include "proxy/call.h"

#include <errno.h>

#include "net/proxy_protocol.h"
#include "plugin/watchdog.h"
#include "proxy/attempt.h"
#include "proxy/shed.h"
#include "up/outlier.h"

struct call {
    struct call *next, **prev; /* of the worker's calls */
    struct context *cx;
    struct view *view; /* held as if by an exchange */
    const struct conf_upstream *upstream;
    struct cluster *cluster;
    struct fleet *fleet;
    struct tried tried;
    int server;
    unsigned retries; /* within the budget; the keep-alive race is none */
    bool admitted;    /* it counts in breaker.requests */
    bool at_server, reused, raced;
    uint64_t sent_at;
    struct pool_waiter waiter;
    struct leg *up;
    struct h1_client *client;
    struct deadline due, try_due;
    struct task fail; /* for what fails at once */
    const char *failure;
    struct arena arena;
    struct head head;
    struct str body;
    struct head *answer;
    char *bytes;
    size_t count, room, max;
    void (*done)(struct postern_worker *w, const struct postern_reply *reply, void *arg);
    void *arg;
    struct grave grave;
};

static void on_bury(struct grave *grave)
{
    struct call *call = (struct call *)((char *)grave - offsetof(struct call, grave));
    slab_give(&call->cx->calls, call);
}

/* ---- the end ---- */

static void leave_server(struct call *call)
{
    if (call->at_server)
        balance_end(call->cluster, (unsigned)call->server);
    call->at_server = false;
    call->up = NULL;
    call->client = NULL;
}

static void drop_up(struct call *call)
{
    struct leg *up = call->up;
    pool_cancel(&call->waiter);
    leave_server(call);
    if (up)
        up->ops->abort(up);
}

static void end(struct call *call, const struct postern_reply *reply)
{
    struct context *cx = call->cx;
    *call->prev = call->next;
    if (call->next)
        call->next->prev = call->prev;
    drop_up(call);
    if (call->admitted)
        breaker_end(&call->cluster->breaker);
    loop_cancel(cx->loop, &call->fail);
    deadline_end(&cx->loop->wheel, &call->due);
    deadline_end(&cx->loop->wheel, &call->try_due);
    uint64_t ticks = watchdog_ticks();
    call->done(cx->station, reply, call->arg);
    watchdog_behind_code((const void *)call->done, "end of a call", ticks);
    arena_done(&call->arena);
    if (call->view)
        context_exchange_ended(cx, call->view);
    if (cx->calls_over)
        slab_give(&cx->calls, call); /* no turn of the loop is under way */
    else
        loop_bury(cx->loop, &call->grave, on_bury);
}

static void fail(struct call *call, const char *why)
{
    end(call, &(struct postern_reply){.size = sizeof(struct postern_reply), .failure = why});
}

static void on_fail(struct task *task)
{
    struct call *call = (struct call *)((char *)task - offsetof(struct call, fail));
    fail(call, call->failure);
}

/* Told later in the turn: nobody is called back from inside call(). */
static void fail_later(struct call *call, const char *why)
{
    call->failure = why;
    loop_task(call->cx->loop, &call->fail);
}

static void on_due(struct deadline *deadline)
{
    struct call *call = (struct call *)((char *)deadline - offsetof(struct call, due));
    fail(call, "it took too long");
}

static void succeed(struct call *call)
{
    const struct head *head = call->answer;
    struct postern_header *headers =
        arena_alloc(&call->arena, (head->count + 1) * sizeof(*headers));
    for (uint32_t i = 0; headers && i < head->count; i++) {
        char *name = arena_alloc(&call->arena, head->fields[i].name.n + 1);
        if (!name) {
            headers = NULL;
            break;
        }
        for (size_t k = 0; k < head->fields[i].name.n; k++)
            name[k] = ascii_lower(head->fields[i].name.p[k]);
        headers[i] = (struct postern_header){{name, head->fields[i].name.n},
                                             str_to(head->fields[i].value)};
    }
    if (!headers) {
        fail(call, "out of memory");
        return;
    }
    end(call, &(struct postern_reply){.size = sizeof(struct postern_reply),
                                      .status = head->status,
                                      .headers = headers,
                                      .header_count = head->count,
                                      .body = {call->count ? call->bytes : "", call->count}});
}

/* ---- the connection ---- */

static void ask(struct call *call, int server);

static bool may_repeat(const struct call *call, bool untouched)
{
    return untouched || method_is_idempotent(call->head.method);
}

static int pick(struct call *call)
{
    return attempt_pick(call->cx, call->fleet, &call->tried, 0);
}

/* Another server to go to, if the upstream's `retry` and its budget allow it, or -1. Whom
 * nobody can connect to is not asked twice: a plugin that waits had better hear of it soon. */
static int elsewhere(struct call *call, unsigned kind, bool untouched)
{
    if (!(call->cluster->retry_on & kind) || call->retries >= call->cluster->retry_attempts ||
        !may_repeat(call, untouched) || !attempt_may_retry(call->fleet, call->cx->loop->now))
        return -1;
    tried_add(&call->tried, (unsigned)call->server);
    int server = pick(call);
    if (server >= 0 || kind == RETRY_CONNECT)
        return server;
    call->tried = (struct tried){.regardless = 0}; /* all were tried: start over */
    return pick(call);
}

static void go_elsewhere(struct call *call, int server)
{
    call->retries++;
    call->fleet->retried[0]++;
    series_add(call->fleet->retries, 1);
    ask(call, server);
}

/* The keep-alive race: the server closed an idle connection as the request went out. */
static bool is_race(const struct call *call, const struct leg_fault *fault)
{
    return fault->reason == R_UPSTREAM_RESET && call->reused && fault->silent && !call->raced;
}

/* True: it is asked once more. */
static bool retry(struct call *call, const struct leg_fault *fault)
{
    if (call->answer)
        return false;
    if (is_race(call, fault) && may_repeat(call, fault->untouched)) {
        call->raced = true;
        series_add(call->fleet->retries, 1);
        ask(call, call->server);
        return true;
    }
    int server = elsewhere(call, attempt_kind(fault->reason), fault->untouched);
    if (server >= 0)
        go_elsewhere(call, server);
    return server >= 0;
}

static void note_failure(const struct call *call, enum reason reason)
{
    attempt_note(call->cluster, (unsigned)call->server, reason, call->cx->loop->now);
}

static void retry_or_fail(struct call *call, const struct leg_fault *fault)
{
    if (fault->reason == R_UPSTREAM_OVERFLOW)
        shed_note(call->cx, call->fleet, fault);
    if (!retry(call, fault))
        fail(call, reason_texts[fault->reason].title);
}

/* This try has had its time; the call may have more. */
static void on_try_due(struct deadline *deadline)
{
    struct call *call = (struct call *)((char *)deadline - offsetof(struct call, try_due));
    struct leg_fault fault = {.reason = R_UPSTREAM_TIMEOUT_CONNECT,
                              .err = ETIMEDOUT,
                              .untouched = true,
                              .silent = true};
    if (call->client) {
        fault.reason = R_UPSTREAM_TIMEOUT_RESPONSE;
        fault.untouched = h1_client_is_untouched(call->client);
    }
    note_failure(call, fault.reason);
    drop_up(call);
    retry_or_fail(call, &fault);
}

/* A status that counts as a failure is noted at once; that all went well, only at the end. */
static unsigned bad_status(const struct call *call, unsigned status)
{
    return outlier_status(status) & call->cluster->watch.outlier.counts;
}

static void on_head(struct leg *leg, struct head *head)
{
    struct call *call = leg->owner;
    if (head->status < 200)
        return;
    unsigned labels[4] = {call->cluster->metric_name,
                          call->cluster->servers[call->server].metric_name, head->status};
    series_add(metrics_series(call->cx->metrics, METRIC_UPSTREAM_REQUESTS, labels), 1);
    unsigned kind = attempt_status_kind(head->status), bad = bad_status(call, head->status);
    if (bad)
        outlier_note(call->cluster, (unsigned)call->server, bad, call->cx->loop->now);
    int server = kind ? elsewhere(call, kind, false) : -1;
    if (server >= 0) {
        drop_up(call);
        go_elsewhere(call, server);
        return;
    }
    deadline_off(&call->try_due);
    call->answer = head;
    if (head->has_length && head->framing == FRAMING_LENGTH && head->length > call->max)
        fail(call, "its answer is larger than it may be");
}

static bool grow(struct call *call, size_t n)
{
    size_t room = call->room ? call->room * 2 : 1024;
    if (call->answer->framing == FRAMING_LENGTH && !call->room)
        room = (size_t)call->answer->length;
    while (room < call->count + n)
        room = room * 2 + 1;
    char *bytes = arena_alloc(&call->arena, room);
    if (!bytes)
        return false;
    if (call->count)
        memcpy(bytes, call->bytes, call->count);
    call->bytes = bytes;
    call->room = room;
    return true;
}

static void on_body(struct leg *leg, struct slice slice)
{
    struct call *call = leg->owner;
    const char *why = NULL;
    if (slice.n > call->max - call->count)
        why = "its answer is larger than it may be";
    else if (slice.n > call->room - call->count && !grow(call, slice.n))
        why = "out of memory";
    if (!why) {
        memcpy(call->bytes + call->count, slice.p, slice.n);
        call->count += slice.n;
    }
    slice_drop(&slice);
    if (why)
        fail(call, why);
}

static void on_end(struct leg *leg, struct head *trailers)
{
    (void)trailers;
    struct call *call = leg->owner;
    uint64_t now = call->cx->loop->now;
    if (!bad_status(call, call->answer->status))
        outlier_note(call->cluster, (unsigned)call->server, 0, now);
    histogram_add(call->fleet->duration, now - call->sent_at);
    leave_server(call);
    leg->ops->release(leg);
    succeed(call);
}

static void on_room(struct leg *leg)
{
    (void)leg; /* what is sent is at hand */
}

static void on_gone(struct leg *leg, const struct leg_fault *fault)
{
    struct call *call = leg->owner;
    leave_server(call);
    if (call->answer || !is_race(call, fault))
        note_failure(call, fault->reason);
    retry_or_fail(call, fault);
}

static const struct leg_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_room = on_room,
    .on_gone = on_gone,
};

/* In blocks, which live as long as somebody writes them. */
static bool send_body(struct call *call)
{
    struct str rest = call->body;
    while (rest.n) {
        struct block *block = block_take(&call->cx->loop->blocks, BLOCK_SMALL);
        size_t n = rest.n < BLOCK_SMALL ? rest.n : BLOCK_SMALL;
        if (!block)
            return false;
        memcpy(block->data, rest.p, n);
        call->up->ops->send_body(call->up, (struct slice){block, block->data, n});
        rest = (struct str){rest.p + n, rest.n - n};
    }
    return true;
}

/* The name that the server knows itself by. */
static struct str host_of(const struct call *call)
{
    const struct conf_upstream *upstream = call->upstream;
    const struct server *server = &call->cluster->servers[call->server];
    if (upstream->implicit) /* "http://HOST[:PORT]" */
        return str_of(strstr(upstream->name, "://") + 3);
    if (upstream->host == HOST_NAME)
        return str_of(upstream->host_name);
    return server->addr.sa.sa_family == AF_UNIX
               ? STR("localhost")
               : str_of(conf_server_name(&upstream->servers[server->from]));
}

static void take(struct call *call, struct h1_client *client)
{
    struct str host = host_of(call);
    call->client = client;
    call->up = &client->leg;
    call->up->events = &events;
    call->up->owner = call;
    call->up->arena = &call->arena;
    h1_client_lend(client);
    call->reused = pool_is_reused(client);
    call->sent_at = call->cx->loop->now;
    if (call->cluster->proxy_protocol) { /* we speak for nobody, as a probe does */
        char bytes[PROXY_PROTOCOL_WRITE];
        stream_write(&client->stream, bytes,
                     proxy_protocol_write(bytes, call->cluster->proxy_protocol, NULL, NULL));
    }
    bool ok = head_set(&call->head, &call->arena, field_names[F_HOST], host) == 0;
    if (ok)
        call->up->ops->send_head(call->up, &call->head);
    if (!ok || !send_body(call)) {
        drop_up(call);
        fail_later(call, "out of memory");
        return;
    }
    call->up->ops->send_end(call->up, NULL);
}

static struct call *of_waiter(struct pool_waiter *waiter)
{
    return (struct call *)((char *)waiter - offsetof(struct call, waiter));
}

static void on_ready(struct pool_waiter *waiter, struct h1_client *client)
{
    take(of_waiter(waiter), client);
}

static bool may_move(const struct pool_waiter *waiter, const struct pool *to)
{
    const struct call *call =
        (const struct call *)((const char *)waiter - offsetof(struct call, waiter));
    return attempt_moves_to(call->fleet, &call->tried, to) >= 0;
}

static void on_moved(struct pool_waiter *waiter, const struct pool *to)
{
    struct call *call = of_waiter(waiter);
    balance_end(call->cluster, (unsigned)call->server);
    call->server = pool_server(to, call->cluster);
    balance_begin(call->cluster, (unsigned)call->server);
}

static void on_failed(struct pool_waiter *waiter, const struct leg_fault *fault)
{
    struct call *call = of_waiter(waiter);
    leave_server(call);
    note_failure(call, fault->reason);
    retry_or_fail(call, fault);
}

static void ask(struct call *call, int server)
{
    call->server = server;
    call->at_server = true;
    balance_begin(call->cluster, (unsigned)server);
    if (call->upstream->retry.try_timeout)
        loop_deadline(call->cx->loop, &call->try_due, call->upstream->retry.try_timeout);
    call->waiter.on_ready = on_ready;
    call->waiter.on_failed = on_failed;
    call->waiter.may_move = call->raced ? NULL : may_move;
    call->waiter.on_moved = on_moved;
    struct h1_client *client =
        pool_take(call->fleet->pools[server], call->raced, &call->waiter);
    if (client)
        take(call, client);
}

/* ---- the beginning ---- */

/* The snapshot here whose configuration that origin is of, or NULL. */
static struct view *view_of(const struct context *cx, const struct postern_origin *origin)
{
    struct view *view = cx->view;
    if (view && view->snapshot->conf == origin->conf)
        return view;
    for (view = cx->retired; view && view->snapshot->conf != origin->conf;)
        view = view->older;
    return view;
}

/* What no plugin may say of a request of its own: we do. */
static bool is_ours(enum field_id id)
{
    return id == F_HOST || id == F_EXPECT || head_is_codecs(id);
}

static bool is_target(struct str target)
{
    if (!target.n || target.p[0] != '/')
        return false;
    for (size_t i = 0; i < target.n; i++)
        if (target.p[i] <= ' ' || target.p[i] > '~')
            return false;
    return true;
}

/* NULL, or what is wrong with it. */
static const char *make_head(struct call *call, const struct postern_call *what)
{
    struct arena *arena = &call->arena;
    struct head *head = &call->head;
    struct str method = str_from(what->method), target = str_from(what->target);
    if (!head_is_token(method) || method_of(method) == M_CONNECT || !is_target(target))
        return "its method or target is none";
    head->method_text = arena_copy(arena, method);
    head->method = method_of(method);
    head->target = arena_copy(arena, target);
    head->minor = 1;
    head->keep_alive = true;
    bool body = what->body.n || head->method == M_POST || head->method == M_PUT ||
                head->method == M_PATCH;
    head->framing = body ? FRAMING_LENGTH : FRAMING_NONE;
    head->has_length = body;
    head->length = what->body.n;
    call->body = arena_copy(arena, str_from(what->body));
    bool ok = head->method_text.p && head->target.p && call->body.p;
    for (size_t i = 0; ok && i < what->header_count; i++) {
        struct str name = str_from(what->headers[i].name);
        struct str value = str_from(what->headers[i].value);
        if (!head_is_token(name) || !head_is_field_value(value) || is_ours(field_id_of(name)))
            return "one of its headers is none";
        name = arena_copy(arena, name);
        value = arena_copy(arena, value);
        ok = name.p && value.p && head_add(head, arena, name, value) == 0;
    }
    return ok ? NULL : "out of memory";
}

/* False: the breaker is full. */
static bool admit(struct call *call)
{
    struct breaker *breaker = &call->cluster->breaker;
    uint32_t count;
    if (!breaker->limits.requests)
        return true;
    call->admitted = breaker_begin(breaker, &count);
    if (!call->admitted)
        shed_note(call->cx, call->fleet,
                  &(struct leg_fault){.reason = R_UPSTREAM_OVERFLOW,
                                      .which = LIMIT_REQUESTS,
                                      .limit = breaker->limits.requests,
                                      .actual = count});
    return call->admitted;
}

/* Its own, or that of everything that goes there. */
static uint32_t deadline_of(const struct call *call, const struct postern_call *what)
{
    uint32_t total = call->cluster->limits.total;
    return total && total < what->deadline_ms ? total : what->deadline_ms;
}

static void begin(struct call *call, const struct postern_call *what)
{
    struct context *cx = call->cx;
    struct view *view = view_of(cx, what->origin);
    const char *why = make_head(call, what);
    if (!why && (!view || !what->deadline_ms))
        why = view ? "it has no deadline" : "its configuration is not in force";
    if (why) {
        fail_later(call, why);
        return;
    }
    size_t index = what->origin->upstream_index;
    call->view = view;
    view->exchanges++;
    call->upstream = &view->snapshot->conf->upstreams[index];
    call->cluster = view->snapshot->clusters[index];
    call->fleet = context_fleet(cx, call->cluster);
    call->max = what->max_bytes;
    deadline_init(&call->due, on_due);
    deadline_init(&call->try_due, on_try_due);
    loop_deadline(cx->loop, &call->due, deadline_of(call, what));
    if (!admit(call)) {
        fail_later(call, reason_texts[R_UPSTREAM_OVERFLOW].title);
        return;
    }
    attempt_begun(call->fleet, cx->loop->now);
    int server = pick(call);
    if (server >= 0)
        ask(call, server);
    else
        fail_later(call, reason_texts[R_UPSTREAM_NONE].title);
}

static void api_call(struct postern_worker *w, const struct postern_call *what,
                     void (*done)(struct postern_worker *w, const struct postern_reply *reply,
                                  void *arg),
                     void *arg)
{
    struct context *cx = w->owner;
    struct call *call = cx->calls_over ? NULL : slab_take(&cx->calls);
    if (!call) {
        done(w,
             &(struct postern_reply){.size = sizeof(struct postern_reply),
                                     .failure = "the worker ends, or is out of memory"},
             arg);
        return;
    }
    memset(call, 0, sizeof(*call));
    call->cx = cx;
    call->server = -1;
    call->done = done;
    call->arg = arg;
    call->fail.run = on_fail;
    arena_init(&call->arena, &cx->loop->chunks);
    call->next = cx->calling;
    if (call->next)
        call->next->prev = &call->next;
    call->prev = &cx->calling;
    cx->calling = call;
    begin(call, what);
}

void calls_begin(struct context *cx)
{
    slab_init(&cx->calls, sizeof(struct call), 64);
}

void call_fill(struct postern_api *api)
{
    api->call = api_call;
}

void calls_end(struct context *cx)
{
    cx->calls_over = true;
    while (cx->calling)
        fail(cx->calling, "the worker ends");
    slab_done(&cx->calls);
}
