/* For the tests of codecs: an exchange that writes down what a leg tells it. */
#ifndef LEG_TEST_H
#define LEG_TEST_H

#include "net_test.h"

#include "http/leg.h"

/* One line for each event but on_room, pieces of body joined, so that it is the same however
 * the bytes came: "head GET /a", "head 200", "end [body]", "bad NAME", "gone NAME", "sent". */
struct recorder {
    char log[4096];
    char body[65536];
    size_t n;     /* of body */
    size_t total; /* of all bodies */
    unsigned rooms, pieces;
    struct leg_fault fault; /* the last one */
    struct arena arena;
    bool has_arena;
    struct leg *leg; /* while it may be used */
    /* What else to do; NULL: nothing. */
    void (*on_head)(struct recorder *r, struct head *head);
    void (*on_body)(struct recorder *r);
    void (*on_end)(struct recorder *r);
    void (*on_over)(struct recorder *r); /* behind sent and gone */
};

static inline void record(struct recorder *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static inline void record(struct recorder *r, const char *fmt, ...)
{
    size_t n = strlen(r->log);
    va_list args;
    va_start(args, fmt);
    n += (size_t)vsnprintf(r->log + n, sizeof(r->log) - n, fmt, args);
    va_end(args);
    assert_true(n + 2 < sizeof(r->log));
    strcpy(r->log + n, "\n");
}

static inline void recorder_free_arena(struct recorder *r)
{
    if (r->has_arena)
        arena_done(&r->arena);
    r->has_arena = false;
    r->leg = NULL;
}

static inline void rec_head(struct leg *leg, struct head *head)
{
    struct recorder *r = leg->owner;
    if (head->status)
        record(r, "head %u", head->status);
    else
        record(r, "head %.*s %.*s", (int)head->method_text.n, head->method_text.p,
               (int)head->target.n, head->target.p);
    if (r->on_head)
        r->on_head(r, head);
}

static inline void rec_body(struct leg *leg, struct slice slice)
{
    struct recorder *r = leg->owner;
    r->pieces++;
    r->total += slice.n;
    if (r->n + slice.n <= sizeof(r->body)) {
        memcpy(r->body + r->n, slice.p, slice.n);
        r->n += slice.n;
    }
    slice_drop(&slice);
    if (r->on_body)
        r->on_body(r);
}

static inline void rec_end(struct leg *leg, struct head *trailers)
{
    struct recorder *r = leg->owner;
    record(r, "end [%.*s]", r->n < 200 ? (int)r->n : 200, r->body);
    r->n = 0;
    for (uint32_t i = 0; trailers && i < trailers->count; i++)
        record(r, "trailer %.*s: %.*s", (int)trailers->fields[i].name.n,
               trailers->fields[i].name.p, (int)trailers->fields[i].value.n,
               trailers->fields[i].value.p);
    if (r->on_end)
        r->on_end(r);
}

static inline void rec_room(struct leg *leg)
{
    ((struct recorder *)leg->owner)->rooms++;
}

static inline void rec_sent(struct leg *leg)
{
    struct recorder *r = leg->owner;
    record(r, "sent");
    leg->ops->release(leg);
    recorder_free_arena(r);
    if (r->on_over)
        r->on_over(r);
}

static inline void rec_bad(struct leg *leg, const struct leg_fault *fault)
{
    struct recorder *r = leg->owner;
    r->fault = *fault;
    record(r, "bad %s", reason_texts[fault->reason].name);
    if (r->on_end)
        r->on_end(r);
}

static inline void rec_gone(struct leg *leg, const struct leg_fault *fault)
{
    struct recorder *r = leg->owner;
    r->fault = *fault;
    record(r, "gone %s", reason_texts[fault->reason].name);
    recorder_free_arena(r);
    if (r->on_over)
        r->on_over(r);
}

static const struct leg_events rec_events = {
    .on_head = rec_head,
    .on_body = rec_body,
    .on_end = rec_end,
    .on_room = rec_room,
    .on_sent = rec_sent,
    .on_bad = rec_bad,
    .on_gone = rec_gone,
};

static inline void recorder_listen(struct recorder *r, struct leg *leg)
{
    assert_false(r->has_arena); /* one exchange at a time on a connection */
    arena_init(&r->arena, &loop.chunks);
    r->has_arena = true;
    r->n = 0;
    r->leg = leg;
    leg->events = &rec_events;
    leg->owner = r;
    leg->arena = &r->arena;
}

static inline void recorder_abort(struct recorder *r)
{
    struct leg *leg = r->leg;
    recorder_free_arena(r);
    leg->ops->abort(leg);
}

static inline void send_text(struct leg *leg, const char *text)
{
    leg->ops->send_body(leg, (struct slice){NULL, text, strlen(text)});
}

static inline void send_status(struct leg *leg, unsigned status, enum framing framing,
                               uint64_t length)
{
    leg->ops->send_head(leg, &(struct head){.minor = 1,
                                            .keep_alive = true,
                                            .status = (uint16_t)status,
                                            .framing = framing,
                                            .has_length = framing == FRAMING_LENGTH,
                                            .length = length});
}

/* A whole answer with a Content-Length. */
static inline void send_answer(struct leg *leg, unsigned status, const char *body)
{
    send_status(leg, status, FRAMING_LENGTH, strlen(body));
    send_text(leg, body);
    leg->ops->send_end(leg, NULL);
}

#endif
