/* Frames of a client against a whole server connection with an exchange that only pretends.
 * The first byte says how the exchange behaves, the rest comes behind the preface; bytes of
 * 0xff 0xff cut it into pieces that arrive one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/h2_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

enum { AT_HEAD = 1, LARGE = 2, ABORT = 4, PAUSE = 8, TRAILERS = 16, DRAIN = 32, NEVER = 64 };

struct fake {
    struct fake *next;
    struct leg *leg;
    struct arena arena;
    bool told, answered;
};

static struct loop loop;
static struct h2_kit kit;
static struct h2_server server;
static struct h1_server_config config = {
    .limits = {.header_bytes = 8192, .headers = 20, .target_bytes = 256},
    .http2 = true,
    .streams = 8,
};
static unsigned behaviour;
static struct fake *fakes;
static bool closed, buried;

static void forget(struct leg *leg)
{
    struct fake *fake = leg->owner, **at = &fakes;
    while (*at != fake)
        at = &(*at)->next;
    *at = fake->next;
    arena_done(&fake->arena);
    free(fake);
}

static void answer(struct leg *leg)
{
    struct fake *fake = leg->owner;
    if (fake->answered || behaviour & NEVER)
        return;
    fake->answered = true;
    struct head head = {.minor = 1, .status = 200, .framing = FRAMING_CHUNKED};
    leg->ops->send_head(leg, &head);
    for (unsigned i = 0; i < (behaviour & LARGE ? 8 : 1); i++) {
        struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
        REQUIRE(block);
        memset(block->data, 'x', BLOCK_SMALL);
        leg->ops->send_body(leg, (struct slice){block, block->data, BLOCK_SMALL});
    }
    if (behaviour & ABORT) {
        leg->ops->abort(leg);
        forget(leg);
        return;
    }
    struct head *trailers = NULL;
    if (behaviour & TRAILERS && (trailers = arena_alloc(&fake->arena, sizeof(*trailers)))) {
        *trailers = (struct head){.minor = 1};
        head_add(trailers, &fake->arena, STR("x-sum"), STR("1"));
    }
    leg->ops->send_end(leg, trailers);
}

/* What an HTTP/1 backend would get must be one message. */
static void check(const struct head *head)
{
    REQUIRE(head_is_token(head->method_text) && head_is_authority(head->authority));
    REQUIRE(head->target.n && (head->target.p[0] == '/' || head->target.p[0] == '*'));
    for (size_t i = 0; i < head->target.n; i++)
        REQUIRE(head->target.p[i] > ' ' && head->target.p[i] < 0x7f);
    unsigned hosts = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        const struct field *field = &head->fields[i];
        REQUIRE(head_is_token(field->name) && head_is_field_value(field->value));
        REQUIRE(field->id != F_CONTENT_LENGTH && field->id != F_TRANSFER_ENCODING &&
                field->id != F_CONNECTION && field->id != F_UPGRADE);
        hosts += field->id == F_HOST;
    }
    REQUIRE(hosts == 1);
}

static void on_head(struct leg *leg, struct head *head)
{
    check(head);
    if (behaviour & PAUSE)
        leg->ops->pause(leg);
    if (behaviour & AT_HEAD)
        answer(leg);
}

static void on_body(struct leg *leg, struct slice slice)
{
    (void)leg;
    slice_drop(&slice);
}

static void on_end(struct leg *leg, struct head *trailers)
{
    (void)trailers;
    REQUIRE(!((struct fake *)leg->owner)->told);
    ((struct fake *)leg->owner)->told = true;
    answer(leg);
}

static void on_room(struct leg *leg)
{
    (void)leg;
}

static void on_sent(struct leg *leg)
{
    leg->ops->release(leg);
    forget(leg);
}

static void on_bad(struct leg *leg, const struct leg_fault *fault)
{
    REQUIRE(fault->reason);
    behaviour &= ~(unsigned)NEVER;
    answer(leg);
}

static void on_gone(struct leg *leg, const struct leg_fault *fault)
{
    REQUIRE(fault->reason);
    forget(leg);
}

static const struct leg_events events = {on_head, on_body, on_end, on_room,
                                         on_sent, on_bad,  on_gone};

static const struct h1_server_config *on_config(struct h2_server *s)
{
    (void)s;
    return &config;
}

static bool on_begin(struct h2_server *s, struct leg *leg)
{
    (void)s;
    struct fake *fake = calloc(1, sizeof(*fake));
    REQUIRE(fake);
    fake->leg = leg;
    fake->next = fakes;
    fakes = fake;
    arena_init(&fake->arena, &loop.chunks);
    leg->events = &events;
    leg->owner = fake;
    leg->arena = &fake->arena;
    return true;
}

static void on_flood(struct h2_server *s, enum h2_flood kind)
{
    (void)s, (void)kind;
}

static void on_closed(struct h2_server *s)
{
    (void)s;
    closed = true;
}

static void on_bury(struct h2_server *s)
{
    (void)s;
    buried = true;
}

static const struct h2_server_ops ops = {on_config, on_begin, on_flood, on_closed, on_bury};
static const struct stream_ops none;

static void settle(int client)
{
    char sink[65536];
    for (int i = 0; i < 4; i++) {
        event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        while (loop.graves) {
            struct grave *grave = loop.graves;
            loop.graves = grave->next;
            grave->bury(grave);
        }
        while (recv(client, sink, sizeof(sink), MSG_DONTWAIT) > 0)
            ;
    }
}

static void in_loop(void (*call)(struct h2_server *))
{
    loop_enter(&loop);
    call(&server);
    loop_leave(&loop);
}

static void open_it(struct h2_server *s)
{
    h2_server_open(s, &kit, &ops, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = HTTP2_PREFACE;
    int fds[2];
    if (size < 2)
        return 0;
    REQUIRE(loop_init(&loop) == 0 && h2_kit_init(&kit, &loop) == 0);
    behaviour = data[0];
    closed = buried = false;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    REQUIRE(stream_open(&server.stream, &loop, fds[0], false, NULL, &none) == 0);
    server.stream.in = block_take(&loop.blocks, BLOCK_SMALL);
    in_loop(open_it);
    REQUIRE(send(fds[1], preface, sizeof(preface) - 1, 0) > 0);
    const uint8_t *p = data + 1, *end = data + size;
    while (p < end && !closed) {
        const uint8_t *cut = memmem(p, (size_t)(end - p), "\xff\xff", 2);
        size_t n = (size_t)((cut ? cut : end) - p);
        if (n && send(fds[1], p, n, MSG_NOSIGNAL) < 0)
            break;
        settle(fds[1]);
        p += n + (cut ? 2 : 0);
    }
    if (behaviour & DRAIN && !closed)
        in_loop(h2_server_drain);
    settle(fds[1]);
    if (!closed)
        in_loop(h2_server_close);
    settle(fds[1]);
    close(fds[1]);
    REQUIRE(closed && buried && !fakes);
    REQUIRE(!kit.streams.live && !kit.intakes.live && !loop.blocks.live && !loop.segs.live &&
            !loop.chunks.live);
    h2_kit_done(&kit); /* what free lists keep looks leaked, as it is poisoned */
    loop_done(&loop);
    return 0;
}
