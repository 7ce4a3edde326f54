#include "proxy/flow.h"

struct held {
    struct held *next;
    struct slice slice;
};

void flow_init(struct flow *flow, struct leg *from, bool hold)
{
    *flow = (struct flow){
        .from = from, .holds = hold, .last = &flow->first, .hold_max = FLOW_HOLD_BYTES};
}

static void pause_source(struct flow *flow)
{
    if (flow->paused || flow->ended)
        return;
    flow->paused = true;
    flow->from->ops->pause(flow->from);
}

/* True: the slice is remembered, with a reference of its own. */
static bool remember(struct flow *flow, const struct slice *slice)
{
    struct held *held = arena_alloc(flow->from->arena, sizeof(*held));
    if (!held)
        return false;
    *held = (struct held){NULL, *slice};
    if (slice->block)
        block_ref(slice->block);
    *flow->last = held;
    flow->last = &held->next;
    flow->held_bytes += (uint32_t)slice->n;
    flow->held_slices++;
    return true;
}

static bool is_much(const struct flow *flow, size_t more)
{
    uint32_t slices = flow->hold_max / FLOW_SLICE_BYTES;
    if (slices < FLOW_HOLD_SLICES)
        slices = FLOW_HOLD_SLICES;
    return flow->held_bytes + more > flow->hold_max || flow->held_slices >= slices;
}

void flow_body(struct flow *flow, struct slice slice)
{
    flow->bytes += slice.n;
    if (!flow->to) {
        if (!remember(flow, &slice))
            flow->lost = true;
        slice_drop(&slice);
        if (is_much(flow, 0))
            pause_source(flow);
        return;
    }
    if (flow->holds && (is_much(flow, slice.n) || !remember(flow, &slice)))
        flow_drop(flow);
    flow->to->ops->send_body(flow->to, slice);
    if (leg_is_full(flow->to))
        pause_source(flow);
}

void flow_end(struct flow *flow, struct head *trailers)
{
    flow->ended = true;
    flow->trailers = trailers;
    if (flow->to)
        flow->to->ops->send_end(flow->to, trailers);
}

void flow_room(struct flow *flow)
{
    if (!flow->paused || (flow->to && leg_is_full(flow->to)))
        return;
    flow->paused = false;
    flow->from->ops->resume(flow->from);
}

void flow_connect(struct flow *flow, struct leg *to)
{
    flow->to = to;
    for (struct held *held = flow->first; held; held = held->next) {
        struct slice slice = held->slice;
        if (slice.block)
            block_ref(slice.block);
        to->ops->send_body(to, slice);
    }
    if (!flow->holds || is_much(flow, 0))
        flow_drop(flow);
    if (flow->ended)
        to->ops->send_end(to, flow->trailers);
    else
        flow_room(flow);
}

void flow_move(struct flow *to, const struct flow *from)
{
    *to = *from;
    if (!to->first)
        to->last = &to->first;
}

void flow_disconnect(struct flow *flow)
{
    flow->to = NULL;
}

void flow_refeed(struct flow *flow, void (*feed)(void *arg, struct slice slice), void *arg)
{
    struct held *held = flow->first;
    flow->first = NULL;
    flow->last = &flow->first;
    flow->held_bytes = flow->held_slices = 0;
    for (; held; held = held->next)
        feed(arg, held->slice);
}

void flow_drop(struct flow *flow)
{
    for (struct held *held = flow->first; held; held = held->next)
        slice_drop(&held->slice);
    flow->first = NULL;
    flow->last = &flow->first;
    flow->held_bytes = flow->held_slices = 0;
    flow->holds = false;
}
