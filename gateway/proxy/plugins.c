#include "proxy/plugins.h"

#include <assert.h>

#include "plugin/watchdog.h"
#include "proxy/call.h"
#include "proxy/forward.h"
#include "proxy/reply.h"

void plugins_init(void)
{
    host_fill();
    watchdog_init();
    station_fill(&host_api);
    call_fill(&host_api);
    plugin_body_fill(&host_api);
    plugin_request_fill(&host_api);
}

/* ---- a request ---- */

static void on_due(struct deadline *deadline);

static struct postern_request *begin(struct exchange *ex, const struct phases *phases)
{
    const size_t first = offsetof(struct postern_request, phase);
    struct postern_request *r =
        arena_alloc(&ex->arena, sizeof(*r) + phases->count * sizeof(*r->slots));
    if (!r)
        return NULL;
    r->ex = ex;
    r->phases = phases;
    r->route = ex->match.route;
    r->last_kept = &r->kept;
    memset((char *)r + first, 0, offsetof(struct postern_request, in) - first);
    if (phases->of[PHASE_REQUEST_BODY].count + phases->of[PHASE_RESPONSE_BODY].count > 0)
        r->in = r->out = (struct pieces){0};
    ex->plugged = r;
    return r;
}

static void refuse(struct postern_request *r, enum reason reason)
{
    const struct instance *instance = r->phases->instances[r->at];
    exchange_fail(r->ex, &(struct leg_fault){.reason = reason,
                                             .field = str_of(instance->plugin->def.name)});
}

static void reply(struct postern_request *r)
{
    struct exchange *ex = r->ex;
    struct leg_fault fault = {.reason = r->reason, .limit = r->limit, .actual = r->actual};
    /* A gRPC client reads no bodies: it gets a status, whatever a plugin would have said. */
    if (r->reason && (!r->body.p || forward_is_grpc(ex))) {
        exchange_fail(ex, &fault);
        return;
    }
    ex->reason = r->reason;
    ex->fault = fault;
    exchange_to(ex, EX_REPLY);
    reply_plain(ex, r->status, r->type, r->body);
}

static void leave(struct postern_request *r)
{
    if (r->waiting)
        station_leave(r->ex->cx->station, r->token);
    r->waiting = false;
}

/* True: on to the next hook. */
static bool heed(struct postern_request *r, enum postern_verdict verdict)
{
    const struct instance *instance = r->phases->instances[r->at];
    if (verdict == POSTERN_WAIT && r->waiting && !r->answered) {
        if (!r->has_due)
            deadline_init(&r->due, on_due);
        r->has_due = true;
        if (!r->timed)
            loop_deadline(r->ex->cx->loop, &r->due, instance->deadline);
        r->timed = true;
        return false;
    }
    leave(r);
    if (r->has_due)
        deadline_off(&r->due);
    r->timed = false;
    r->eventful = false;
    if (r->answered) {
        reply(r);
        return false;
    }
    if (verdict == POSTERN_GO_ON || instance->fail_open)
        return true;
    refuse(r, R_PLUGIN_FAILED);
    return false;
}

static void run(struct postern_request *r)
{
    const struct hook *hooks = r->phases->of[PHASE_REQUEST].hooks;
    unsigned count = r->phases->of[PHASE_REQUEST].count;
    uint64_t ticks = watchdog_ticks();
    for (unsigned i = r->begun; i < count; i++) {
        r->at = hooks[i].at;
        r->begun = i + 1;
        enum postern_verdict verdict = hooks[i].decide(hooks[i].self, r);
        ticks = watchdog_behind(hooks[i].instance, "on_request", ticks);
        if ((verdict != POSTERN_GO_ON || r->eventful) && !heed(r, verdict))
            return;
    }
    exchange_go(r->ex);
}

void plugins_resume(void *waiter, void *result)
{
    struct postern_request *r = waiter;
    const struct instance *instance = r->phases->instances[r->at];
    enum postern_verdict (*hook)(void *, struct postern_request *, void *) =
        instance->plugin->def.on_resume;
    uint64_t ticks = watchdog_ticks();
    r->waiting = false;
    enum postern_verdict verdict = hook ? hook(instance->self, r, result) : POSTERN_GO_ON;
    watchdog_behind(instance, "on_resume", ticks);
    if (heed(r, verdict))
        run(r);
}

/* Who is waited for hears once that nobody waits any more. */
static void cancel(struct postern_request *r)
{
    const struct instance *instance = r->phases->instances[r->at];
    leave(r);
    if (!instance->plugin->def.on_cancel)
        return;
    uint64_t ticks = watchdog_ticks();
    instance->plugin->def.on_cancel(instance->self, r);
    watchdog_behind(instance, "on_cancel", ticks);
}

static void on_due(struct deadline *deadline)
{
    struct postern_request *r =
        (struct postern_request *)((char *)deadline - offsetof(struct postern_request, due));
    r->timed = r->eventful = false;
    cancel(r);
    if (!r->phases->instances[r->at]->fail_open) {
        refuse(r, R_PLUGIN_TIMEOUT);
        return;
    }
    run(r);
}

__attribute__((noinline, cold)) static void fail_memory(struct exchange *ex)
{
    exchange_fail(ex, &(struct leg_fault){.reason = R_NO_MEMORY});
}

void plugins_request(struct exchange *ex, const struct phases *phases)
{
    struct postern_request *r = begin(ex, phases);
    if (!r) {
        fail_memory(ex);
        return;
    }
    exchange_to(ex, EX_PLUGINS);
    run(r);
}

/* The method that a preflight asks about (Fetch, CORS preflight); .p NULL: it is none. */
static struct str preflight_method(const struct exchange *ex)
{
    if (ex->head->method != M_OPTIONS || !head_find_name(ex->head, STR("origin")))
        return (struct str){NULL, 0};
    const struct field *method = head_find_name(ex->head, STR("access-control-request-method"));
    return method ? method->value : (struct str){NULL, 0};
}

bool plugins_preflight(struct exchange *ex)
{
    struct str method = preflight_method(ex);
    struct route_match match = {0};
    if (!method.p)
        return false;
    router_find(ex->view->snapshot->router, (size_t)ex->listener, ex->host, ex->path, method,
                ex->head, &match);
    const struct phases *phases =
        conf_phases(exchange_conf(ex), exchange_listener(ex), match.route);
    struct postern_request *r =
        phases && phases->of[PHASE_PREFLIGHT].count ? begin(ex, phases) : NULL;
    if (!r)
        return false;
    exchange_to(ex, EX_PLUGINS);
    r->route = match.route;
    r->phase = PHASE_PREFLIGHT;
    r->is_preflight = true;
    uint64_t ticks = watchdog_ticks();
    for (unsigned i = 0; i < phases->of[PHASE_PREFLIGHT].count && !r->answered; i++) {
        const struct hook *hook = &phases->of[PHASE_PREFLIGHT].hooks[i];
        r->at = hook->at;
        r->begun = i + 1;
        hook->decide(hook->self, r);
        ticks = watchdog_behind(hook->instance, "on_preflight", ticks);
    }
    if (r->answered) {
        ex->match = match; /* what the log and the metrics say */
        reply(r);
    } else {
        exchange_go(ex);
    }
    return true;
}

void plugins_cancel(struct exchange *ex)
{
    struct postern_request *r = ex->plugged;
    if (r->waiting)
        cancel(r);
    if (r->has_due)
        deadline_end(&ex->cx->loop->wheel, &r->due);
}

/* ---- the answer ---- */

/* Tells those instances that know of this request: their request hook was called, or they have
 * none. */
static void tell(struct postern_request *r, enum phase phase, const char *name)
{
    const struct hook *hook = r->phases->of[phase].hooks;
    const struct hook *end = hook + r->phases->of[phase].count;
    bool is_preflight = r->is_preflight;
    unsigned begun = r->begun;
    r->phase = phase;
    uint64_t ticks = watchdog_ticks();
    for (; hook < end; hook++) {
        if (hook->need[is_preflight] > begun)
            continue;
        r->at = hook->at;
        hook->hear(hook->self, r);
        ticks = watchdog_behind(hook->instance, name, ticks);
    }
}

bool plugins_response(struct exchange *ex, struct head *head)
{
    struct postern_request *r = ex->plugged;
    if (r->responded)
        return true;
    r->responded = true;
    for (const struct kept_header *kept = r->kept; kept; kept = kept->next) {
        int rc = kept->set ? head_set(head, &ex->arena, kept->name, kept->value)
                           : head_add(head, &ex->arena, kept->name, kept->value);
        if (rc < 0)
            return false;
    }
    if (!r->phases->of[PHASE_RESPONSE].count)
        return true;
    r->head = head;
    tell(r, PHASE_RESPONSE, "on_response");
    r->head = NULL;
    return true;
}

void plugins_log(struct exchange *ex)
{
    struct postern_request *r = ex->plugged;
    if (r->phases->of[PHASE_LOG].count)
        tell(r, PHASE_LOG, "on_log");
}

/* ---- configurations ---- */

static void each(struct postern_worker *worker, const struct conf_plugins *plugins, bool start)
{
    for (size_t i = 0; i < plugins->count; i++) {
        const struct instance *instance = plugins->list[i].instance;
        if (!instance)
            continue;
        const struct postern_plugin *def = &instance->plugin->def;
        postern_turn *hook = start ? def->start : def->stop;
        if (!hook)
            continue;
        uint64_t ticks = watchdog_ticks();
        hook(instance->self, worker);
        watchdog_behind(instance, start ? "start" : "stop", ticks);
    }
}

static void all(struct postern_worker *worker, const struct conf *conf, bool start)
{
    if (!conf->phases)
        return;
    each(worker, &conf->plugins, start);
    for (size_t i = 0; i < conf->listener_count; i++)
        each(worker, &conf->listeners[i].plugins, start);
    for (size_t i = 0; i < conf->route_count; i++)
        each(worker, &conf->routes[i].plugins, start);
}

void plugins_start(struct postern_worker *worker, const struct conf *conf)
{
    all(worker, conf, true);
}

void plugins_stop(struct postern_worker *worker, const struct conf *conf)
{
    all(worker, conf, false);
}
