#include "proxy/spare.h"

struct spare {
    struct leg *leg; /* NULL: it has come to its end, or broken off */
    struct h1_client *client;
    struct head *head;
    struct flow body;
    int server;
    bool broken, reused;
};

static void on_body(struct leg *leg, struct slice slice)
{
    struct spare *spare = leg->owner;
    flow_body(&spare->body, slice);
}

static void on_end(struct leg *leg, struct head *trailers)
{
    struct spare *spare = leg->owner;
    spare->leg = NULL;
    flow_end(&spare->body, trailers);
    leg->ops->release(leg);
}

static void on_room(struct leg *leg)
{
    (void)leg; /* nothing more of the request goes there */
}

static void on_gone(struct leg *leg, const struct leg_fault *fault)
{
    (void)fault;
    struct spare *spare = leg->owner;
    spare->leg = NULL;
    spare->broken = true;
}

/* Its head is here, so no other comes. */
static const struct leg_events spare_events = {
    .on_body = on_body, .on_end = on_end, .on_room = on_room, .on_gone = on_gone};

void spare_keep(struct exchange *ex, struct head *head)
{
    spare_drop(ex);
    struct spare *spare = arena_alloc(&ex->arena, sizeof(*spare));
    if (!spare) {
        exchange_drop_up(ex);
        return;
    }
    *spare = (struct spare){.leg = ex->up,
                            .client = ex->client,
                            .head = head,
                            .server = ex->server,
                            .reused = ex->reused};
    flow_init(&spare->body, spare->leg, true);
    spare->leg->events = &spare_events;
    spare->leg->owner = spare;
    ex->spare = spare;
    ex->up = NULL; /* it is the spare's: dropping the upstream side leaves it alone */
    exchange_drop_up(ex);
}

void spare_drop(struct exchange *ex)
{
    struct spare *spare = ex->spare;
    if (!spare)
        return;
    ex->spare = NULL;
    flow_drop(&spare->body);
    if (spare->leg)
        spare->leg->ops->abort(spare->leg);
}

bool spare_use(struct exchange *ex, bool whole)
{
    struct spare *spare = ex->spare;
    if (!spare || spare->broken || spare->body.lost || (whole && !spare->body.ended))
        return false;
    ex->spare = NULL;
    exchange_drop_up(ex);
    ex->server = spare->server;
    ex->reused = spare->reused;
    ex->upstream_status = spare->head->status;
    flow_move(&ex->response, &spare->body);
    ex->response.holds = false; /* it is sent once */
    if (spare->leg) {
        ex->up = spare->leg;
        ex->client = spare->client;
        ex->up->events = &exchange_up_events;
        ex->up->owner = ex;
    }
    exchange_answer(ex, spare->head);
    if (ex->state != EX_RELAY) { /* no memory for its head: another answer is on its way */
        flow_drop(&ex->response);
        return true;
    }
    if (ex->response.ended)
        exchange_to(ex, EX_FLUSH);
    flow_connect(&ex->response, ex->down);
    return true;
}
