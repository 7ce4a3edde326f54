/* For the tests of HTTP/2 to servers: lanes on one end, and nghttp2 as the server behind a
 * listening socket on the other. */
#ifndef H2_CLIENT_TEST_H
#define H2_CLIENT_TEST_H

#include "leg_test.h"

#include "http/h2_client.h"

#include <netinet/tcp.h>
#include <stdatomic.h>

#define LANES 6

struct one {
    struct h2_lane lane; /* first: it is found by its client */
    struct recorder rec;
    unsigned connected, idle, closed, buried;
    struct leg_fault fault; /* of its closing */
};

static struct h2_trunks trunks;
static _Atomic uint64_t opened, idle, active;
static struct one ones[LANES];
static struct h1_client_timeouts timeouts;

static inline struct one *one_of(struct h1_client *client)
{
    return (struct one *)client;
}

static inline void on_connected(struct h1_client *client)
{
    one_of(client)->connected++;
}

static inline void on_idle(struct h1_client *client)
{
    one_of(client)->idle++;
}

static inline void on_closed(struct h1_client *client, const struct leg_fault *fault)
{
    struct one *one = one_of(client);
    one->closed++;
    if (fault)
        one->fault = *fault;
}

static inline void on_bury(struct h1_client *client)
{
    one_of(client)->buried++;
}

static const struct h1_client_ops ops = {
    .on_connected = on_connected, .on_idle = on_idle, .on_closed = on_closed, .bury = on_bury};

/* ---- the server ---- */

#define CONNS 4

static struct addr addr;
static int listening;
static struct peer {
    int fd;
    nghttp2_session *session;
    int32_t last; /* stream that a request has come on */
    unsigned requests;
    bool eof;
} peers[CONNS];
static size_t accepted;
static char heard[4096]; /* what the servers were told */
static size_t body_n;
static nghttp2_settings_entry settings[2];
static size_t settings_n;
static bool keeps_windows_shut;

static inline void hear(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void hear(const char *fmt, ...)
{
    size_t n = strlen(heard);
    va_list args;
    va_start(args, fmt);
    vsnprintf(heard + n, sizeof(heard) - n, fmt, args);
    va_end(args);
}

static inline int hear_header(nghttp2_session *s, const nghttp2_frame *frame,
                              const uint8_t *name, size_t name_n, const uint8_t *value,
                              size_t value_n, uint8_t flags, void *arg)
{
    (void)s, (void)frame, (void)flags, (void)arg;
    hear("%.*s=%.*s ", (int)name_n, (const char *)name, (int)value_n, (const char *)value);
    return 0;
}

static inline int hear_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p,
                            size_t n, void *arg)
{
    (void)s, (void)flags, (void)id, (void)arg;
    body_n += n;
    if (n < 20)
        hear("[%.*s] ", (int)n, (const char *)p);
    return 0;
}

static inline int hear_frame(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct peer *peer = arg;
    (void)s;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        peer->last = frame->hd.stream_id;
        peer->requests++;
    }
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        hear("reset:%u ", frame->rst_stream.error_code);
    if (frame->hd.type == NGHTTP2_GOAWAY)
        hear("goodbye:%u ", frame->goaway.error_code);
    if (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
        hear("ping ");
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        hear("end ");
    return 0;
}

static inline void accept_one(int fd)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    assert_true(accepted < CONNS);
    struct peer *peer = &peers[accepted++];
    *peer = (struct peer){.fd = fd};
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)), 0);
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_auto_window_update(option, keeps_windows_shut);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, hear_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, hear_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, hear_frame);
    assert_int_equal(nghttp2_session_server_new2(&peer->session, callbacks, peer, option), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    nghttp2_submit_settings(peer->session, NGHTTP2_FLAG_NONE, settings, settings_n);
}

static inline bool talk_with(struct peer *peer)
{
    const uint8_t *p;
    ssize_t n;
    char in[65536];
    bool some = false;
    while (!peer->eof && (n = nghttp2_session_mem_send(peer->session, &p)) > 0) {
        peer->eof = send(peer->fd, p, (size_t)n, MSG_NOSIGNAL) != n;
        some = true;
    }
    settle();
    while ((n = recv(peer->fd, in, sizeof(in), 0)) > 0) {
        nghttp2_session_mem_recv(peer->session, (const uint8_t *)in, (size_t)n);
        some = true;
    }
    peer->eof = peer->eof || n == 0;
    return some;
}

/* Both sides say what they have to say. */
static inline void talk(void)
{
    for (int quiet = 0; quiet < 3; quiet++) {
        int fd;
        settle();
        while ((fd = accept_next(listening)) >= 0)
            accept_one(fd);
        for (size_t i = 0; i < accepted; i++)
            if (talk_with(&peers[i]))
                quiet = 0;
    }
}

static inline nghttp2_nv pair(const char *name, const char *value)
{
    nghttp2_nv nv = {.namelen = strlen(name), .valuelen = strlen(value)};
    memcpy(&nv.name, &name, sizeof(name));
    memcpy(&nv.value, &value, sizeof(value));
    return nv;
}

static inline ssize_t read_body(nghttp2_session *s, int32_t id, uint8_t *buf, size_t n,
                                uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    (void)s, (void)id, (void)arg, (void)n;
    const char *text = source->ptr;
    memcpy(buf, text, strlen(text));
    *flags = NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)strlen(text);
}

static inline void answer(struct peer *peer, int32_t stream, const char *status, char *body)
{
    nghttp2_nv nv[] = {pair(":status", status)};
    nghttp2_data_provider data = {.source.ptr = body, .read_callback = read_body};
    assert_int_equal(nghttp2_submit_response(peer->session, stream, nv, 1, body ? &data : NULL),
                     0);
    talk();
}

static unsigned pieces_left;

static inline ssize_t read_piece(nghttp2_session *s, int32_t id, uint8_t *buf, size_t n,
                                 uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    if (!pieces_left)
        return NGHTTP2_ERR_DEFERRED;
    pieces_left--;
    ssize_t rc = read_body(s, id, buf, n, flags, source, arg);
    *flags = NGHTTP2_DATA_FLAG_NONE;
    return rc;
}

/* So many times `body`, and no end of it. */
static inline void answer_in_pieces(struct peer *peer, char *body, unsigned count)
{
    nghttp2_nv nv[] = {pair(":status", "200")};
    nghttp2_data_provider data = {.source.ptr = body, .read_callback = read_piece};
    pieces_left = count;
    assert_int_equal(nghttp2_submit_response(peer->session, peer->last, nv, 1, &data), 0);
    talk();
}

/* ---- the lanes ---- */

static inline struct one *open_lane(size_t i)
{
    struct one *one = &ones[i];
    int rc;
    IN_LOOP(rc = h2_lane_open(&one->lane, &trunks, &addr, NULL, &timeouts, 0, &ops, NULL));
    assert_int_equal(rc, 0);
    return one;
}

static inline struct one *ready_lane(size_t i)
{
    struct one *one = open_lane(i);
    talk();
    assert_int_equal(one->connected, 1);
    assert_int_equal(one->lane.client.state, CLIENT_IDLE);
    return one;
}

static inline void lend(struct one *one)
{
    h2_lane_lend(&one->lane);
    recorder_listen(&one->rec, &one->lane.client.leg);
    h1_client_lend(&one->lane.client);
}

/* False: no memory for it. */
static inline bool send_request(struct one *one, const char *method, enum framing framing,
                                const char *upgrade)
{
    struct field fields[6];
    struct head head = {.fields = fields,
                        .cap = 6,
                        .minor = 1,
                        .method = upgrade || strcmp(method, "GET") == 0 ? M_GET : M_POST,
                        .method_text = str_of(method),
                        .target = STR("/p"),
                        .framing = framing};
    lend(one);
    head_add_id(&head, &one->rec.arena, F_HOST, STR("a"));
    struct head *kept = arena_alloc(&one->rec.arena, sizeof(head) + sizeof(fields));
    if (!kept) {
        recorder_abort(&one->rec);
        return false;
    }
    if (upgrade) { /* lives until the answer comes */
        head.upgrade = str_of(upgrade);
        head_set(&head, &one->rec.arena, STR("Sec-WebSocket-Key"),
                 STR("AAAAAAAAAAAAAAAAAAAAAA=="));
    }
    *kept = head;
    kept->fields = memcpy(kept + 1, fields, sizeof(fields));
    one->lane.client.leg.ops->send_head(&one->lane.client.leg, kept);
    return true;
}

static inline void get(struct one *one)
{
    IN_LOOP(send_request(one, "GET", FRAMING_NONE, NULL);
            one->lane.client.leg.ops->send_end(&one->lane.client.leg, NULL));
    talk();
}

static inline void release_it(struct recorder *r)
{
    struct leg *leg = r->leg;
    recorder_free_arena(r);
    leg->ops->release(leg);
}

static inline void get_and_answer(struct one *one, struct peer *peer)
{
    one->rec.on_end = release_it;
    get(one);
    answer(peer, peer->last, "200", NULL);
}

/* ---- each test's world ---- */

static inline int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    memset(ones, 0, sizeof(ones));
    opened = idle = active = 0;
    h2_trunks_init(&trunks, &loop, &(struct h2_trunks_counters){&opened, &idle, &active});
    timeouts = (struct h1_client_timeouts){5000, 60000, 60000};
    listening = listen_any(&addr);
    accepted = 0;
    heard[0] = '\0';
    body_n = 0;
    settings_n = 0;
    keeps_windows_shut = false;
    return 0;
}

static inline int tear_down(void **state)
{
    for (size_t i = 0; i < LANES; i++) {
        struct one *one = &ones[i];
        if (one->rec.leg && !one->closed)
            IN_LOOP(recorder_abort(&one->rec));
        if (one->lane.client.ops && !one->closed)
            IN_LOOP(h1_client_close(&one->lane.client));
        recorder_free_arena(&one->rec);
        settle();
        assert_int_equal(one->closed, one->lane.client.ops != NULL);
        assert_int_equal(one->buried, one->closed);
    }
    IN_LOOP(h2_trunks_done(&trunks));
    settle();
    assert_int_equal(idle, 0);
    assert_int_equal(active, 0);
    for (size_t i = 0; i < accepted; i++) {
        nghttp2_session_del(peers[i].session);
        close(peers[i].fd);
    }
    close(listening);
    return tear_down_loop(state);
}

#endif
