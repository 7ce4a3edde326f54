/* Bodies on their way through plugins that want to see them. */
#include "plugin/watchdog.h"
#include "proxy/plugins.h"

/* ---- pieces ---- */

static bool pieces_add(struct arena *arena, struct pieces *pieces, struct slice slice)
{
    if (pieces->count == pieces->cap) {
        unsigned cap = pieces->cap ? pieces->cap * 2 : 8;
        struct slice *list = arena_alloc(arena, cap * sizeof(*list));
        if (!list)
            return false;
        if (pieces->count)
            memcpy(list, pieces->list, pieces->count * sizeof(*list));
        pieces->list = list;
        pieces->cap = cap;
    }
    pieces->list[pieces->count++] = slice;
    return true;
}

static void pieces_drop(struct pieces *pieces)
{
    for (unsigned i = 0; i < pieces->count; i++)
        slice_drop(&pieces->list[i]);
    pieces->count = 0;
}

/* Copied into blocks, which live as long as somebody writes them. */
static bool api_body(struct postern_request *r, struct postern_str bytes)
{
    if (r->phase != PHASE_REQUEST_BODY && r->phase != PHASE_RESPONSE_BODY)
        return false;
    while (bytes.n) {
        size_t n = bytes.n < BLOCK_SMALL ? bytes.n : BLOCK_SMALL;
        struct block *block = block_take(&r->ex->cx->loop->blocks, BLOCK_SMALL);
        if (!block)
            return false;
        memcpy(block->data, bytes.p, n);
        if (!pieces_add(&r->ex->arena, &r->out, (struct slice){block, block->data, n})) {
            block_unref(block);
            return false;
        }
        bytes = (struct postern_str){bytes.p + n, bytes.n - n};
    }
    return true;
}

void plugin_body_fill(struct postern_api *api)
{
    api->body = api_body;
}

/* ---- hooks ---- */

static bool call(struct postern_request *r, const struct hook *hook, struct postern_str piece,
                 bool last)
{
    bool request = r->phase == PHASE_REQUEST_BODY;
    uint64_t ticks = watchdog_ticks();
    bool ok = hook->pass(hook->self, r, piece, last);
    watchdog_behind(hook->instance, request ? "on_request_body" : "on_response_body", ticks);
    return ok;
}

/* What comes out of one hook goes into the next. */
static bool filter(struct postern_request *r, bool last)
{
    for (unsigned i = 0; i < r->phases->of[r->phase].count; i++) {
        const struct hook *hook = &r->phases->of[r->phase].hooks[i];
        r->at = hook->at;
        for (unsigned k = 0; k < r->in.count; k++)
            if (!call(r, hook, (struct postern_str){r->in.list[k].p, r->in.list[k].n}, false))
                return false;
        if (last && !call(r, hook, (struct postern_str){"", 0}, true))
            return false;
        struct pieces used = r->in;
        r->in = r->out;
        r->out = used;
        pieces_drop(&r->out);
    }
    return true;
}

static void refuse(struct postern_request *r)
{
    const struct instance *instance = r->phases->instances[r->at];
    exchange_fail(r->ex, &(struct leg_fault){.reason = R_PLUGIN_FAILED,
                                             .field = str_of(instance->plugin->def.name)});
}

/* False: it failed. `bytes`: how many have arrived by now. */
static bool pass_on(struct postern_request *r, struct flow *flow, uint64_t bytes, bool last)
{
    bool ok = filter(r, last);
    for (unsigned i = 0; ok && i < r->in.count; i++) {
        flow_body(flow, r->in.list[i]);
        r->in.list[i] = (struct slice){0};
    }
    pieces_drop(&r->in);
    pieces_drop(&r->out);
    flow->bytes = bytes;
    if (!ok)
        refuse(r);
    return ok;
}

void plugins_body(struct exchange *ex, struct flow *flow, struct slice slice)
{
    struct postern_request *r = ex->plugged;
    uint64_t bytes = flow->bytes + slice.n;
    r->phase = flow == &ex->request ? PHASE_REQUEST_BODY : PHASE_RESPONSE_BODY;
    if (!pieces_add(&ex->arena, &r->in, slice)) {
        slice_drop(&slice);
        exchange_fail(ex, &(struct leg_fault){.reason = R_NO_MEMORY});
        return;
    }
    pass_on(r, flow, bytes, false);
}

bool plugins_body_last(struct exchange *ex, struct flow *flow)
{
    struct postern_request *r = ex->plugged;
    r->phase = flow == &ex->request ? PHASE_REQUEST_BODY : PHASE_RESPONSE_BODY;
    return pass_on(r, flow, flow->bytes, true);
}

/* ---- framing ---- */

/* Who changes a body does not know its length beforehand. */
static bool reframe(struct head *head)
{
    bool some = head->framing != FRAMING_NONE;
    if (some)
        head->framing = FRAMING_CHUNKED;
    head->has_length = false;
    return some;
}

void plugins_frame_request(struct exchange *ex)
{
    struct postern_request *r = ex->plugged;
    if (!r->phases->of[PHASE_REQUEST_BODY].count)
        return;
    r->filters_request = reframe(ex->head);
}

void plugins_frame_response(struct exchange *ex, struct head *head)
{
    struct postern_request *r = ex->plugged;
    if (r->phases->of[PHASE_RESPONSE_BODY].count && head->status >= 200)
        r->filters_response = reframe(head);
}

static void refeed(void *arg, struct slice slice)
{
    struct exchange *ex = arg;
    if (ex->state == EX_PLUGINS)
        plugins_body(ex, &ex->request, slice);
    else
        slice_drop(&slice); /* it failed at an earlier piece */
}

/* What came while plugins were asked has not been looked at. False: that failed. */
bool plugins_refeed(struct exchange *ex)
{
    struct flow *flow = &ex->request;
    if (!ex->plugged->filters_request)
        return true;
    bool ended = flow->ended;
    struct head *trailers = flow->trailers;
    flow->ended = false;
    flow->bytes = 0;
    flow_refeed(flow, refeed, ex);
    if (ex->state != EX_PLUGINS || (ended && !plugins_body_last(ex, flow)))
        return false;
    if (ended)
        flow_end(flow, trailers);
    return true;
}
