#include "leg_test.h"

#include "http/h2_server.h"

/* The server on one end of a pair of sockets, nghttp2's client on the other. */
static struct h2_kit kit;
static struct h2_server server;
static struct h1_server_config config;
static struct recorder rec;
static unsigned closed, buried, floods;
static bool refuse;
static int client;
static nghttp2_session *session;
static char heard[4096]; /* what the client was told, a word each */
static size_t body_n;

static const struct h1_server_config *on_config(struct h2_server *s)
{
    (void)s;
    return &config;
}

static bool on_begin(struct h2_server *s, struct leg *leg)
{
    (void)s;
    if (refuse)
        return false;
    recorder_listen(&rec, leg);
    return true;
}

static void on_flood(struct h2_server *s, enum h2_flood kind)
{
    (void)s, (void)kind;
    floods++;
}

static void on_closed(struct h2_server *s)
{
    (void)s;
    closed++;
}

static void on_bury(struct h2_server *s)
{
    buried++;
    memset(s, 0xee, sizeof(*s)); /* whoever still uses it fails */
}

static const struct h2_server_ops ops = {.config = on_config,
                                         .on_begin = on_begin,
                                         .on_flood = on_flood,
                                         .on_closed = on_closed,
                                         .bury = on_bury};

/* ---- the client ---- */

static void hear(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void hear(const char *fmt, ...)
{
    size_t n = strlen(heard);
    va_list args;
    va_start(args, fmt);
    vsnprintf(heard + n, sizeof(heard) - n, fmt, args);
    va_end(args);
}

static int hear_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
                       void *arg)
{
    (void)s, (void)frame, (void)flags, (void)arg;
    hear("%.*s=%.*s ", (int)name_n, (const char *)name, (int)value_n, (const char *)value);
    return 0;
}

static int hear_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                     void *arg)
{
    (void)s, (void)flags, (void)id, (void)arg;
    body_n += n;
    if (n < 20)
        hear("[%.*s] ", (int)n, (const char *)p);
    return 0;
}

static int hear_close(nghttp2_session *s, int32_t id, uint32_t error, void *arg)
{
    (void)s, (void)id, (void)arg;
    hear("closed:%u ", error);
    return 0;
}

static void open_client(void)
{
    nghttp2_session_callbacks *callbacks;
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, hear_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, hear_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, hear_close);
    assert_int_equal(nghttp2_session_client_new(&session, callbacks, NULL), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0);
}

/* Both sides say what they have to say. */
static void talk(void)
{
    for (int quiet = 0; quiet < 3; quiet++) {
        const uint8_t *p;
        ssize_t n;
        char in[65536];
        while ((n = nghttp2_session_mem_send(session, &p)) > 0) {
            if (!closed && send(client, p, (size_t)n, MSG_NOSIGNAL) != n)
                break;
            quiet = 0;
        }
        settle();
        while ((n = recv(client, in, sizeof(in), 0)) > 0) {
            nghttp2_session_mem_recv(session, (const uint8_t *)in, (size_t)n);
            quiet = 0;
        }
    }
}

static nghttp2_nv field(const char *name, const char *value)
{
    nghttp2_nv nv = {.namelen = strlen(name), .valuelen = strlen(value)};
    memcpy(&nv.name, &name, sizeof(name));
    memcpy(&nv.value, &value, sizeof(value));
    return nv;
}

static ssize_t read_ten(nghttp2_session *s, int32_t id, uint8_t *buf, size_t n, uint32_t *flags,
                        nghttp2_data_source *source, void *arg)
{
    (void)s, (void)id, (void)source, (void)arg, (void)n;
    memcpy(buf, "0123456789", 10);
    *flags = NGHTTP2_DATA_FLAG_EOF;
    return 10;
}

static int32_t ask(const char *method, bool body)
{
    nghttp2_nv nv[] = {field(":method", method), field(":scheme", "http"),
                       field(":authority", "a"), field(":path", "/p")};
    nghttp2_data_provider data = {.read_callback = read_ten};
    int32_t id = nghttp2_submit_request(session, NULL, nv, 4, body ? &data : NULL, NULL);
    talk();
    return id;
}

/* ---- each test's world ---- */

static void answer_ok(struct recorder *r)
{
    send_answer(r->leg, 200, "ok");
}

static const struct stream_ops none; /* what begins as an HTTP/1 server's */

static void open_server(void)
{
    int fds[2];
    make_pair(fds);
    client = fds[1];
    closed = buried = floods = 0;
    body_n = 0;
    heard[0] = rec.log[0] = '\0';
    assert_int_equal(stream_open(&server.stream, &loop, fds[0], false, NULL, &none), 0);
    IN_LOOP(server.stream.in = block_take(&loop.blocks, BLOCK_SMALL);
            h2_server_open(&server, &kit, &ops, NULL));
}

static int set_up(void **state)
{
    if (set_up_loop(state) || h2_kit_init(&kit, &loop) < 0)
        return -1;
    memset(&rec, 0, sizeof(rec));
    rec.on_end = answer_ok;
    refuse = false;
    config = (struct h1_server_config){
        .limits = {.header_bytes = 4096, .headers = 16, .target_bytes = 256}, .streams = 10};
    open_client();
    open_server();
    return 0;
}

static int tear_down(void **state)
{
    if (!closed)
        IN_LOOP(h2_server_close(&server));
    settle();
    assert_int_equal(closed, 1);
    assert_int_equal(buried, 1);
    close(client);
    recorder_free_arena(&rec);
    nghttp2_session_del(session);
    h2_kit_done(&kit);
    return tear_down_loop(state);
}

/* ---- tests ---- */

static void requests_are_answered(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        ask(i % 2 ? "POST" : "GET", i % 2);
    assert_string_equal(rec.log, "head GET /p\nend []\nsent\n"
                                 "head POST /p\nend [0123456789]\nsent\n"
                                 "head GET /p\nend []\nsent\n");
    assert_string_equal(heard, ":status=200 content-length=2 [ok] closed:0 "
                               ":status=200 content-length=2 [ok] closed:0 "
                               ":status=200 content-length=2 [ok] closed:0 ");
    assert_int_equal(loop.blocks.live, 0); /* an idle connection holds no block */
    assert_null(server.streams);
}

static void answer_much(struct recorder *r)
{
    struct leg *leg = r->leg;
    send_status(leg, 200, FRAMING_CHUNKED, 0);
    for (int i = 0; i < 20; i++) {
        struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
        memset(block->data, 'x', BLOCK_SMALL);
        leg->ops->send_body(leg, (struct slice){block, block->data, BLOCK_SMALL});
    }
    assert_true(leg_is_full(leg));
}

static void what_the_window_has_no_room_for_waits(void **state)
{
    (void)state;
    rec.on_end = answer_much;
    nghttp2_nv nv[] = {field(":method", "GET"), field(":scheme", "http"),
                       field(":authority", "a"), field(":path", "/p")};
    nghttp2_submit_request(session, NULL, nv, 4, NULL, NULL);
    talk(); /* nghttp2's client opens its windows again as it reads */
    assert_int_equal(body_n, 20 * BLOCK_SMALL);
    assert_false(leg_is_full(rec.leg));
    assert_true(rec.rooms > 0);
    IN_LOOP(rec.leg->ops->send_end(rec.leg, NULL));
    talk();
    assert_string_equal(rec.log, "head GET /p\nend []\nsent\n");
}

static void a_cut_answer_is_reset(void **state)
{
    (void)state;
    rec.on_end = NULL;
    ask("GET", false);
    IN_LOOP(send_status(rec.leg, 200, FRAMING_LENGTH, 10); send_text(rec.leg, "abc"));
    talk();
    IN_LOOP(recorder_abort(&rec));
    talk();
    assert_string_equal(heard, ":status=200 content-length=10 [abc] closed:2 ");
    assert_null(server.streams);
}

static void the_client_leaves(void **state)
{
    (void)state;
    rec.on_end = NULL;
    int32_t id = ask("GET", false);
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    talk();
    assert_string_equal(rec.log, "head GET /p\nend []\ngone client.abort\n");
    rec.log[0] = '\0';
    ask("GET", false);
    IN_LOOP(h2_server_close(&server));
    settle();
    assert_string_equal(rec.log, "head GET /p\nend []\ngone client.abort\n");
}

static void no_memory_for_an_exchange_refuses_the_stream(void **state)
{
    (void)state;
    refuse = true;
    ask("GET", false);
    assert_string_equal(heard, "closed:7 ");
    refuse = false;
    ask("GET", false);
    assert_string_equal(rec.log, "head GET /p\nend []\nsent\n");
}

static void a_drain_serves_what_has_begun(void **state)
{
    (void)state;
    rec.on_end = NULL;
    ask("GET", false);
    IN_LOOP(h2_server_drain(&server));
    talk();
    assert_int_equal(closed, 0);
    assert_true(server.goaway); /* the client has answered the notice */
    IN_LOOP(answer_ok(&rec));
    talk();
    assert_string_equal(heard, ":status=200 content-length=2 [ok] closed:0 ");
    close(client);
    client = dup(0);
    UNTIL(closed);
}

static void malformed_requests_are_told_and_reset(void **state)
{
    (void)state;
    nghttp2_nv nv[] = {field(":method", "GET"), field(":scheme", "http"), field(":path", "/p"),
                       field(":authority", "a"), field("connection", "close")};
    nghttp2_submit_request(session, NULL, nv, 5, NULL, NULL);
    rec.on_end = answer_ok;
    talk();
    assert_string_equal(rec.log, "bad bad_request.fields\nsent\n");
    assert_string_equal(heard, "closed:1 ");
}

static void a_flood_ends_the_connection(void **state)
{
    (void)state;
    for (int i = 0; i < 1000 && !floods; i++) {
        nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, NULL);
        if (i % 50 == 0)
            talk();
    }
    talk();
    assert_int_equal(floods, 1);
    assert_false(nghttp2_session_want_read(session)); /* it has got a GOAWAY */
}

/* A request asks for a flush; in the same read the session breaks (too many CONTINUATIONs). Its
 * last words are written then, and nothing may be asked of it behind them. */
static void a_session_that_breaks_before_its_flush_lingers(void **state)
{
    (void)state;
    static const char request[] = "\0\0\x09\1\5\0\0\0\1\x82\x86\x84\x41\4test";
    static const char begun[] = "\0\0\4\1\1\0\0\0\3\x82\x86\x84\xbe";
    static const char more[] = "\0\0\0\x09\0\0\0\0\3";
    char all[256];
    size_t n = 0;
    talk();
    memcpy(all, request, sizeof(request) - 1);
    n += sizeof(request) - 1;
    memcpy(all + n, begun, sizeof(begun) - 1);
    n += sizeof(begun) - 1;
    for (int i = 0; i < 20; i++, n += sizeof(more) - 1)
        memcpy(all + n, more, sizeof(more) - 1);
    assert_int_equal(send(client, all, n, MSG_NOSIGNAL), n);
    settle();
    assert_int_equal(floods, 1);
    assert_int_equal(closed, 0);
    assert_int_equal(server.state, H2_LINGER);
}

/* Of a field section whose stream is closed while it comes nghttp2 does not tell the end. It
 * leaves nothing behind: no memory, and no waiting for the rest of a head. */
static void a_field_section_is_over_though_its_stream_is(void **state)
{
    (void)state;
    static const char first[] = "\0\0\x11\1\4\0\0\0\1\x82\x86\x41\x0ctest.exqm:le\x84"
                                "\0\0\5\1\4\0\0\0\1";
    static const char rest[] = "\x40\1a\1b";
    talk();
    assert_int_equal(send(client, first, sizeof(first) - 1, MSG_NOSIGNAL), sizeof(first) - 1);
    settle();
    assert_null(server.streams); /* answered, and reset */
    assert_non_null(server.intake);
    assert_int_equal(send(client, rest, sizeof(rest) - 1, MSG_NOSIGNAL), sizeof(rest) - 1);
    settle();
    assert_null(server.intake);
    assert_int_equal(kit.intakes.live, 0);
}

/* Whichever allocation fails, nothing is lost but what needed it. */
static void survives_want_of_memory_anywhere(void **state)
{
    bool whole = false;
    unsigned long nth = 1;
    for (; !whole; nth++) {
        static const char good[] = ":status=200 content-length=2 [ok] closed:0 ";
        assert_true(nth < 300);
        talk();
        nghttp2_nv nv[] = {field(":method", "POST"), field(":scheme", "http"),
                           field(":authority", "a"), field(":path", "/p")};
        nghttp2_data_provider data = {.read_callback = read_ten};
        nghttp2_submit_request(session, NULL, nv, 4, &data, NULL);
        const uint8_t *p;
        ssize_t n;
        while ((n = nghttp2_session_mem_send(session, &p)) > 0)
            (void)!send(client, p, (size_t)n, MSG_NOSIGNAL);
        mem_fail_at(nth);
        settle();
        mem_fail_at(0);
        talk();
        whole = strcmp(heard, good) == 0;
        assert_true(whole || closed || server.state == H2_LINGER || strstr(heard, "closed:"));
        tear_down(state);
        set_up(state);
    }
    assert_true(nth > 3);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(requests_are_answered),
        T(what_the_window_has_no_room_for_waits),
        T(a_cut_answer_is_reset),
        T(the_client_leaves),
        T(no_memory_for_an_exchange_refuses_the_stream),
        T(a_drain_serves_what_has_begun),
        T(malformed_requests_are_told_and_reset),
        T(a_flood_ends_the_connection),
        T(a_session_that_breaks_before_its_flush_lingers),
        T(a_field_section_is_over_though_its_stream_is),
        T(survives_want_of_memory_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
