/* Frames of a server against a whole client connection, with up to four exchanges that only
 * pretend. The first byte says how they behave, the rest is what the server sends; bytes of
 * 0xff 0xff cut it into pieces that arrive one after the other, and between two pieces the
 * exchanges act. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/h2_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

enum {
    BODY = 1,      /* requests have one ... */
    UNENDED = 2,   /* ... that does not end */
    PAUSE = 4,     /* answers are taken in pieces */
    ABORT = 8,     /* one after the other is given up */
    AGAIN = 16,    /* who has an answer asks once more */
    FIRST = 32,    /* the server speaks before the requests do */
    IMPATIENT = 64 /* time passes */
};

#define LANES 4

struct one {
    struct h2_lane lane;
    struct arena arena;
    bool used, busy, headed, ended, closed;
    unsigned asked;
};

static struct loop loop;
static struct h2_trunks trunks;
static struct one ones[LANES];
static unsigned behaviour, buried;

static struct one *one_of(struct h1_client *client)
{
    return (struct one *)client; /* the lane is first in it, and the client in that */
}

static void let_go(struct one *one)
{
    one->busy = false;
    arena_done(&one->arena);
}

static void ask(struct one *one);

/* What an HTTP/1 client would get must be one message. */
static void check(const struct head *head)
{
    REQUIRE(head->status >= 100 && head->status <= 999 && head->status != 101);
    unsigned lengths = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        const struct field *field = &head->fields[i];
        REQUIRE(head_is_token(field->name) && head_is_field_value(field->value));
        REQUIRE(field->id != F_TRANSFER_ENCODING && field->id != F_CONNECTION &&
                field->id != F_UPGRADE);
        lengths += field->id == F_CONTENT_LENGTH;
    }
    REQUIRE(lengths <= 1);
}

static void on_head(struct leg *leg, struct head *head)
{
    struct one *one = leg->owner;
    REQUIRE(one->busy && !one->headed && !one->ended);
    check(head);
    one->headed = head->status >= 200;
    if (behaviour & PAUSE)
        leg->ops->pause(leg);
}

static void on_body(struct leg *leg, struct slice slice)
{
    struct one *one = leg->owner;
    REQUIRE(one->busy && one->headed && !one->ended && slice.n);
    slice_drop(&slice);
    if (behaviour & PAUSE)
        leg->ops->pause(leg);
}

static void on_end(struct leg *leg, struct head *trailers)
{
    struct one *one = leg->owner;
    REQUIRE(one->busy && one->headed && !one->ended);
    for (uint32_t i = 0; trailers && i < trailers->count; i++)
        REQUIRE(head_is_token(trailers->fields[i].name) &&
                head_is_field_value(trailers->fields[i].value));
    one->ended = true;
    let_go(one);
    leg->ops->release(leg);
}

static void on_room(struct leg *leg)
{
    REQUIRE(((struct one *)leg->owner)->busy);
}

static void on_gone(struct leg *leg, const struct leg_fault *fault)
{
    struct one *one = leg->owner;
    REQUIRE(one->busy && fault->reason);
    let_go(one);
}

static const struct leg_events events = {.on_head = on_head,
                                         .on_body = on_body,
                                         .on_end = on_end,
                                         .on_room = on_room,
                                         .on_gone = on_gone};

static void ask(struct one *one)
{
    struct h1_client *client = &one->lane.client;
    struct field fields[4];
    struct head head = {.fields = fields,
                        .cap = 4,
                        .minor = 1,
                        .method = M_POST,
                        .method_text = STR("POST"),
                        .target = STR("/"),
                        .framing = behaviour & BODY ? FRAMING_CHUNKED : FRAMING_NONE};
    arena_init(&one->arena, &loop.chunks);
    head_add_id(&head, &one->arena, F_HOST, STR("test"));
    one->busy = true;
    one->headed = one->ended = false;
    one->asked++;
    client->leg.events = &events;
    client->leg.owner = one;
    client->leg.arena = &one->arena;
    h1_client_lend(client);
    client->leg.ops->send_head(&client->leg, &head);
    for (int i = 0; behaviour & BODY && i < 2; i++) {
        struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
        REQUIRE(block);
        memset(block->data, 'x', BLOCK_SMALL);
        client->leg.ops->send_body(&client->leg,
                                   (struct slice){block, block->data, BLOCK_SMALL});
    }
    if (!(behaviour & UNENDED))
        client->leg.ops->send_end(&client->leg, NULL);
}

static void on_connected(struct h1_client *client)
{
    REQUIRE(client->state == CLIENT_IDLE);
    if (!(behaviour & FIRST))
        ask(one_of(client));
}

static void on_idle(struct h1_client *client)
{
    REQUIRE(client->state == CLIENT_IDLE && !one_of(client)->busy);
}

static void on_closed(struct h1_client *client, const struct leg_fault *fault)
{
    (void)fault;
    REQUIRE(!one_of(client)->closed);
    one_of(client)->closed = true;
}

static void bury(struct h1_client *client)
{
    REQUIRE(one_of(client)->closed);
    one_of(client)->used = false;
    buried++;
}

static const struct h1_client_ops ops = {
    .on_connected = on_connected, .on_idle = on_idle, .on_closed = on_closed, .bury = bury};

static void settle(int server)
{
    char sink[65536];
    for (int i = 0; i < 4; i++) {
        event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        while (loop.graves) {
            struct grave *grave = loop.graves;
            loop.graves = grave->next;
            grave->bury(grave);
        }
        while (recv(server, sink, sizeof(sink), MSG_DONTWAIT) > 0)
            ;
    }
}

/* Between two pieces, as exchanges act. */
static void act(unsigned turn)
{
    loop_enter(&loop);
    for (unsigned i = 0; i < LANES; i++) {
        struct one *one = &ones[i];
        struct h1_client *client = &one->lane.client;
        if (!one->used || one->closed)
            continue;
        if (one->busy && behaviour & PAUSE)
            client->leg.ops->resume(&client->leg);
        if (one->busy && behaviour & ABORT && turn % LANES == i) {
            let_go(one);
            client->leg.ops->abort(&client->leg);
        } else if (client->state == CLIENT_IDLE && one->asked < (behaviour & AGAIN ? 3u : 1u)) {
            ask(one);
        }
    }
    if (behaviour & IMPATIENT) {
        loop.now += 400 * NS_PER_MS;
        wheel_advance(&loop.wheel, loop.now);
    }
    loop_leave(&loop);
}

/* Where the client connects to; kept for all inputs. */
static int listening(struct addr *ret)
{
    static int fd = -1;
    static struct addr addr;
    if (fd < 0) {
        struct sockaddr_in any = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        addr.len = sizeof(addr.in4);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
        REQUIRE(listen(fd, 16) == 0 && getsockname(fd, &addr.sa, &addr.len) == 0);
    }
    *ret = addr;
    return fd;
}

static void open_lanes(const struct addr *addr)
{
    static const struct h1_client_timeouts timeouts = {1000, 1000, 1000};
    loop_enter(&loop);
    for (unsigned i = 0; i < LANES; i++) {
        ones[i] = (struct one){.used = true};
        REQUIRE(h2_lane_open(&ones[i].lane, &trunks, addr, NULL, &timeouts, 0, &ops, NULL) ==
                0);
    }
    loop_leave(&loop);
}

static void close_all(int server)
{
    loop_enter(&loop);
    for (unsigned i = 0; i < LANES; i++)
        if (ones[i].used && !ones[i].closed)
            h1_client_close(&ones[i].lane.client);
    loop_leave(&loop);
    settle(server);
    loop_enter(&loop);
    h2_trunks_done(&trunks);
    loop_leave(&loop);
    settle(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Atomic uint64_t opened, idle, active;
    struct addr addr;
    int listener = listening(&addr);
    if (size < 2)
        return 0;
    REQUIRE(loop_init(&loop) == 0);
    behaviour = data[0];
    buried = 0;
    opened = idle = active = 0;
    h2_trunks_init(&trunks, &loop, &(struct h2_trunks_counters){&opened, &idle, &active});
    open_lanes(&addr);
    int server = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    REQUIRE(server >= 0);
    settle(server);
    const uint8_t *p = data + 1, *end = data + size;
    for (unsigned turn = 0; p < end && trunks.first; turn++) {
        const uint8_t *cut = memmem(p, (size_t)(end - p), "\xff\xff", 2);
        size_t n = (size_t)((cut ? cut : end) - p);
        if (n && send(server, p, n, MSG_NOSIGNAL) < 0)
            break;
        settle(server);
        act(turn);
        settle(server);
        p += n + (cut ? 2 : 0);
    }
    close_all(server);
    close(server);
    REQUIRE(buried == LANES && !trunks.first);
    for (unsigned i = 0; i < LANES; i++)
        REQUIRE(!ones[i].busy);
    REQUIRE(!loop.blocks.live && !loop.segs.live && !loop.chunks.live);
    loop_done(&loop);
    return 0;
}
