#include "leg_test.h"

#include "http/h1_server.h"

static struct h1_server server;
static struct h1_server_config config;
static struct recorder rec;
static unsigned closed, buried;
static bool refuse;
static int client;
static char got[65536]; /* what the client received */
static size_t got_n;
static bool got_eof;

static const struct h1_server_config *on_config(struct h1_server *s)
{
    (void)s;
    return &config;
}

static bool on_begin(struct h1_server *s, struct leg *leg)
{
    (void)s;
    if (refuse)
        return false;
    recorder_listen(&rec, leg);
    return true;
}

static void on_closed(struct h1_server *s)
{
    (void)s;
    closed++;
}

static void on_bury(struct h1_server *s)
{
    buried++;
    memset(s, 0xee, sizeof(*s)); /* whoever still uses it fails */
}

static const struct h1_server_ops ops = {
    .config = on_config, .on_begin = on_begin, .on_closed = on_closed, .bury = on_bury};

static void answer_ok(struct recorder *r)
{
    send_answer(r->leg, 200, "ok");
}

static void receive(void)
{
    got_n = collect(client, got, got_n, sizeof(got) - 1, &got_eof);
    got[got_n] = '\0';
}

static int connect_client(void)
{
    int fds[2];
    make_pair(fds);
    client = fds[1];
    got_n = 0;
    got_eof = false;
    closed = buried = 0;
    rec.log[0] = '\0';
    return h1_server_open(&server, &loop, fds[0], NULL, &ops, NULL);
}

static int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    memset(&rec, 0, sizeof(rec));
    rec.on_end = answer_ok;
    refuse = false;
    config = (struct h1_server_config){
        .limits = {.header_bytes = 1024, .headers = 16, .target_bytes = 256}};
    return connect_client();
}

static void hang_up(void)
{
    if (!closed)
        IN_LOOP(h1_server_close(&server));
    settle();
    assert_int_equal(closed, 1);
    assert_int_equal(buried, 1);
    close(client);
}

static int tear_down(void **state)
{
    hang_up();
    recorder_free_arena(&rec);
    return tear_down_loop(state);
}

static void say(const char *text)
{
    feed(client, text, strlen(text));
    settle();
    receive();
}

static void assert_starts(const char *text, const char *start)
{
    if (strncmp(text, start, strlen(start)) != 0)
        fail_msg("\"%s\" does not start with \"%s\"", text, start);
}

#define OK    "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok"
#define OK_X  "HTTP/1.1 200 \r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
#define GET_A "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"

/* ---- requests one after the other ---- */

#define THREE                                                                                  \
    GET_A "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"                      \
          "PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"                   \
          "3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Sum: 7\r\n\r\n" GET_A
#define THREE_LOG                                                                              \
    "head GET /a\nend []\nsent\n"                                                              \
    "head POST /b\nend [hello]\nsent\n"                                                        \
    "head PUT /c\nend [abcdefg]\ntrailer X-Sum: 7\nsent\n"                                     \
    "head GET /a\nend []\nsent\n"

static void pipelined_requests_are_answered_in_turn(void **state)
{
    (void)state;
    say(THREE);
    assert_string_equal(rec.log, THREE_LOG);
    assert_string_equal(got, OK OK OK OK);
    assert_false(closed);
    assert_int_equal(loop.blocks.live, 0); /* an idle connection holds no block */
}

static void however_the_bytes_come(void **state)
{
    (void)state;
    static const char text[] = THREE;
    for (size_t cut = 1; cut < sizeof(text) - 1; cut++) {
        feed(client, text, cut);
        settle();
        say(text + cut);
        assert_string_equal(rec.log, THREE_LOG);
        assert_string_equal(got, OK OK OK OK);
        rec.log[0] = '\0';
        got_n = 0;
    }
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        feed(client, text + i, 1);
        settle();
    }
    receive();
    assert_string_equal(rec.log, THREE_LOG);
    assert_string_equal(got, OK OK OK OK);
}

static void the_next_request_waits_for_the_answer(void **state)
{
    (void)state;
    rec.on_end = NULL;
    say(GET_A GET_A);
    assert_string_equal(rec.log, "head GET /a\nend []\n");
    IN_LOOP(send_answer(rec.leg, 200, "ok"));
    settle();
    assert_string_equal(rec.log, "head GET /a\nend []\nsent\nhead GET /a\nend []\n");
}

static void http_1_0_ends_unless_it_asks_not_to(void **state)
{
    (void)state;
    say("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_string_equal(
        got, "HTTP/1.1 200 \r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok");
    assert_false(closed);
    got_n = 0;
    say("GET /a HTTP/1.0\r\n\r\n");
    assert_string_equal(got, OK_X);
    assert_true(got_eof && closed);
}

static void the_last_request_is_marked(void **state)
{
    (void)state;
    config.requests = 2;
    say(GET_A GET_A GET_A);
    assert_string_equal(got, OK OK_X);
    assert_string_equal(rec.log, "head GET /a\nend []\nsent\nhead GET /a\nend []\nsent\n");
    settle();
    receive();
    assert_true(got_eof);
}

static void one_empty_line_before_a_request_is_let_pass(void **state)
{
    (void)state;
    say("\r\n" GET_A "\r");
    say("\n" GET_A);
    assert_string_equal(got, OK OK);
    say("\r\n");
    say("\r\n");
    assert_non_null(strstr(rec.log, "bad bad_request.line\n"));
}

/* ---- answers ---- */

static void answer_in_chunks(struct recorder *r)
{
    struct field field = {.name = STR("X-Sum"), .value = STR("9"), .id = F_OTHER};
    struct head trailers = {.fields = &field, .count = 1, .cap = 1};
    send_status(r->leg, 200, FRAMING_CHUNKED, 0);
    send_text(r->leg, "0123456789abcdef");
    send_text(r->leg, "");
    send_text(r->leg, "x");
    r->leg->ops->send_end(r->leg, &trailers);
}

static void an_answer_of_unknown_length_is_chunked(void **state)
{
    (void)state;
    rec.on_end = answer_in_chunks;
    say(GET_A);
    assert_string_equal(got, "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"
                             "10\r\n0123456789abcdef\r\n1\r\nx\r\n0\r\nX-Sum: 9\r\n\r\n");
    assert_false(closed);
    got_n = 0;
    say("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_string_equal(got, "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_false(closed);
    got_n = 0;
    say("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_string_equal(got, "HTTP/1.1 200 \r\nConnection: close\r\n\r\n0123456789abcdefx");
    assert_true(got_eof);
}

static void answer_100_first(struct recorder *r, struct head *head)
{
    if (head->expect_continue)
        r->leg->ops->send_head(r->leg, &(struct head){.minor = 1, .status = 100});
}

static void interim_answers_pass(void **state)
{
    (void)state;
    rec.on_head = answer_100_first;
    say("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_string_equal(got, "HTTP/1.1 100 \r\n\r\n");
    got_n = 0;
    say("hi");
    assert_string_equal(got, OK);
    assert_false(closed);
}

static void answer_at_head(struct recorder *r, struct head *head)
{
    (void)head;
    r->on_end = NULL;
    send_answer(r->leg, 200, "ok");
}

static void behind_an_early_answer_a_small_body_is_read_away(void **state)
{
    (void)state;
    rec.on_head = answer_at_head;
    say("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123");
    assert_string_equal(got, OK);
    say("4567890" GET_A);
    assert_string_equal(got, OK OK);
    assert_false(closed);
}

static void behind_an_early_answer_any_other_body_ends_it(void **state)
{
    static const char *const requests[] = {
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 65537\r\n\r\n123",
        "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"};
    for (size_t i = 0; i < 3; i++) {
        rec.on_head = answer_at_head;
        say(requests[i]);
        assert_string_equal(got, OK_X);
        assert_true(got_eof);    /* we send no more ... */
        assert_false(closed);    /* but read on, so that the answer arrives */
        say("more of the body"); /* not a reset */
        shutdown(client, SHUT_WR);
        UNTIL(closed);
        tear_down(state);
        set_up(state);
    }
}

static void pause_and_answer(struct recorder *r, struct head *head)
{
    r->leg->ops->pause(r->leg);
    answer_at_head(r, head);
}

static void a_body_that_is_read_away_must_come_in_time(void **state)
{
    (void)state;
    config.timeouts.body = 20;
    rec.on_head = pause_and_answer; /* nobody waits for it, so no timer runs */
    say("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123");
    assert_string_equal(got, OK);
    UNTIL(closed);
}

/* ---- what is refused ---- */

static void answer_400(struct recorder *r)
{
    send_status(r->leg, 400, FRAMING_LENGTH, 0);
    r->leg->ops->send_end(r->leg, NULL);
}

static void malformed_requests_are_answered_and_end_it(void **state)
{
    (void)state;
    static const struct {
        const char *text, *log;
    } cases[] = {
        {"GET /a HTTP/1.1\nHost: h\n\n", "bad bad_request.line_ending\n"},
        {"GET /a HTTP/3.0\r\nHost: h\r\n\r\n", "bad bad_request.version\n"},
        {"GET /a HTTP/1.1\r\n\r\n", "bad bad_request.host\n"},
        {"GET /a HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", "bad bad_request.field_name\n"},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: "
         "chunked\r\n\r\n",
         "bad bad_request.framing\n"},
        {"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
         "head POST /c\nbad bad_request.chunk\n"},
        {"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA b\r\n\r\n",
         "head POST /c\nbad bad_request.trailer\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t n = strlen(cases[i].text);
        for (size_t cut = 0; cut < n; cut++) {
            rec.on_end = answer_400;
            feed(client, cases[i].text, cut);
            settle();
            feed(client, cases[i].text + cut, n - cut);
            settle();
            receive();
            if (strncmp(rec.log, cases[i].log, strlen(cases[i].log)) != 0)
                fail_msg("%zu cut at %zu: %s", i, cut, rec.log);
            assert_starts(got,
                          "HTTP/1.1 400 \r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            assert_true(got_eof);
            close(client); /* and nothing more of it is looked at */
            settle();
            client = -1;
            assert_true(closed);
            recorder_free_arena(&rec);
            connect_client();
        }
    }
}

static void an_exchange_without_memory_is_refused(void **state)
{
    (void)state;
    refuse = true;
    say(GET_A GET_A);
    assert_starts(got, "HTTP/1.1 503 Service Unavailable\r\n");
    assert_null(strstr(got + 1, "HTTP/1.1"));
    assert_true(got_eof);
    assert_string_equal(rec.log, "");
}

/* ---- time ---- */

static void a_slow_head_is_answered(void **state)
{
    (void)state;
    config.timeouts.header = 20;
    say("GET /a HT");
    UNTIL(strstr(rec.log, "sent"));
    assert_string_equal(rec.log, "bad client.timeout_head\nsent\n");
    receive();
    assert_string_equal(got, OK_X);
    assert_true(got_eof);
}

static void pause_at_head(struct recorder *r, struct head *head)
{
    (void)head;
    r->leg->ops->pause(r->leg);
}

static void a_slow_body_is_answered_unless_we_are_slow(void **state)
{
    (void)state;
    config.timeouts.body = 20;
    rec.on_head = pause_at_head;
    say("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123");
    uint64_t until = clock_ns() + 60 * NS_PER_MS;
    UNTIL(clock_ns() > until);
    assert_string_equal(rec.log, "head POST /a\n");
    assert_int_equal(rec.total, 0);
    IN_LOOP(rec.leg->ops->resume(rec.leg));
    assert_int_equal(rec.total, 3); /* delivered in the same turn */
    UNTIL(strstr(rec.log, "sent"));
    assert_string_equal(rec.log, "head POST /a\nbad client.timeout_body\nsent\n");
}

static void an_idle_connection_is_closed(void **state)
{
    (void)state;
    config.timeouts.idle = 20;
    say(GET_A);
    assert_false(closed);
    UNTIL(closed);
    receive();
    assert_true(got_eof);
}

static char large[1 << 20];

static void answer_large(struct recorder *r)
{
    send_status(r->leg, 200, FRAMING_LENGTH, sizeof(large));
    r->leg->ops->send_body(r->leg, (struct slice){NULL, large, sizeof(large)});
    r->leg->ops->send_end(r->leg, NULL);
}

static void a_client_that_does_not_read_is_given_up(void **state)
{
    (void)state;
    config.timeouts.write = 20;
    rec.on_end = answer_large;
    feed(client, GET_A, strlen(GET_A));
    UNTIL(closed);
    assert_string_equal(rec.log, "head GET /a\nend []\ngone client.timeout_write\n");
}

/* ---- early ends ---- */

static void a_client_that_leaves_is_told(void **state)
{
    static const char *const requests[] = {
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123", GET_A};
    for (size_t i = 0; i < 2; i++) {
        rec.on_end = NULL;
        say(requests[i]);
        close(client);
        client = -1;
        UNTIL(closed); /* waiting for an answer, it is asked whether it is there */
        assert_non_null(strstr(rec.log, "gone client.abort\n"));
        tear_down(state);
        set_up(state);
    }
}

static void pause_at_body(struct recorder *r)
{
    r->leg->ops->pause(r->leg);
}

static void a_client_that_leaves_is_told_behind_a_pause(void **state)
{
    (void)state;
    rec.on_end = NULL;
    rec.on_body = pause_at_body;
    say("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n123");
    assert_string_equal(rec.log, "head POST /a\nend [123]\n");
    IN_LOOP(rec.leg->ops->resume(rec.leg));
    close(client);
    client = -1;
    UNTIL(closed);
}

static void a_half_closed_client_gets_its_answer(void **state)
{
    (void)state;
    rec.on_end = NULL;
    feed(client, GET_A, strlen(GET_A));
    shutdown(client, SHUT_WR);
    UNTIL(server.probed); /* it is there: it takes the interim answer */
    IN_LOOP(send_answer(rec.leg, 200, "ok"));
    UNTIL(closed);
    receive();
    assert_string_equal(got, "HTTP/1.1 100 Continue\r\n\r\n" OK_X);
}

static void abort_shows(void **state)
{
    static const enum framing framings[] = {FRAMING_LENGTH, FRAMING_CHUNKED};
    for (size_t i = 0; i < 2; i++) {
        rec.on_end = NULL;
        say(GET_A);
        loop_enter(&loop);
        send_status(rec.leg, 200, framings[i], 100);
        send_text(rec.leg, "part");
        recorder_abort(&rec);
        loop_leave(&loop);
        settle();
        receive();
        assert_true(got_eof && closed);
        assert_string_equal(strstr(got, "\r\n\r\n") + 4,
                            framings[i] == FRAMING_LENGTH ? "part" : "4\r\npart\r\n");
        assert_null(strstr(rec.log, "gone")); /* it calls nothing any more */
        tear_down(state);
        set_up(state);
    }
}

static void abort_shows_where_only_the_end_could_tell(void **state)
{
    (void)state;
    struct addr addr;
    int fd, listening = listen_any(&addr);
    hang_up();
    closed = buried = 0;
    rec.log[0] = '\0';
    assert_true(sock_connect(&addr, &client) >= 0);
    do
        fd = accept_next(listening);
    while (fd < 0);
    assert_int_equal(h1_server_open(&server, &loop, fd, NULL, &ops, NULL), 0);
    rec.on_end = NULL;
    feed(client, "GET /a HTTP/1.0\r\n\r\n", 19);
    UNTIL(strstr(rec.log, "end"));
    loop_enter(&loop);
    send_status(rec.leg, 200, FRAMING_CHUNKED, 0);
    send_text(rec.leg, "part");
    recorder_abort(&rec);
    loop_leave(&loop);
    UNTIL(closed);
    ssize_t n;
    do
        n = recv(client, got, sizeof(got), 0);
    while (n > 0 || (n < 0 && errno == EAGAIN));
    assert_int_equal(n, -1);
    assert_int_equal(errno, ECONNRESET);
    close(listening);
}

/* ---- the owner's wishes ---- */

static void drain_closes_what_is_idle(void **state)
{
    (void)state;
    say(GET_A);
    IN_LOOP(h1_server_drain(&server));
    assert_true(closed);
}

static void drain_ends_it_behind_the_answer_under_way(void **state)
{
    for (int begun = 0; begun < 2; begun++) {
        rec.on_end = NULL;
        say(GET_A);
        loop_enter(&loop);
        if (begun)
            send_status(rec.leg, 200, FRAMING_LENGTH, 2);
        h1_server_drain(&server);
        if (!begun)
            send_status(rec.leg, 200, FRAMING_LENGTH, 2);
        loop_leave(&loop);
        settle();
        assert_false(closed);
        IN_LOOP((send_text(rec.leg, "ok"), rec.leg->ops->send_end(rec.leg, NULL)));
        settle();
        receive();
        assert_string_equal(got, begun ? OK : OK_X);
        assert_true(closed && got_eof);
        tear_down(state);
        set_up(state);
    }
}

/* ---- tunnels ---- */

static void a_tunnel_passes_bytes_and_half_closes(void **state)
{
    (void)state;
    rec.on_end = NULL;
    say("GET /ws HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly");
    struct head head = {.minor = 1, .status = 101, .upgrade = STR("x"), .keep_alive = true};
    loop_enter(&loop);
    rec.leg->ops->send_head(rec.leg, &head);
    rec.leg->ops->tunnel(rec.leg);
    loop_leave(&loop);
    settle();
    receive();
    assert_starts(got, "HTTP/1.1 101 \r\n");
    assert_memory_equal(rec.body, "early", 5);
    got_n = 0;
    say(" and late");
    assert_memory_equal(rec.body, "early and late", 14);
    IN_LOOP((send_text(rec.leg, "down"), rec.leg->ops->send_end(rec.leg, NULL)));
    settle();
    receive();
    assert_string_equal(got, "down");
    assert_true(got_eof);
    say("!");
    shutdown(client, SHUT_WR);
    UNTIL(strstr(rec.log, "end [early and late!]"));
    assert_false(closed);
    IN_LOOP(rec.leg->ops->release(rec.leg));
    settle();
    assert_true(closed);
}

/* ---- without memory ---- */

static void every_allocation_may_fail(void **state)
{
    unsigned long nth = 1;
    for (bool whole = false; !whole; nth++) {
        assert_true(nth < 100);
        mem_fail_at(nth);
        send(client, THREE, sizeof(THREE) - 1, MSG_NOSIGNAL);
        settle();
        receive();
        mem_fail_at(0);
        whole = strcmp(got, OK OK OK OK) == 0;
        assert_true(whole || closed || got_eof); /* never a connection that hangs */
        tear_down(state);
        set_up(state);
    }
    assert_true(nth > 3);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(pipelined_requests_are_answered_in_turn),
        T(however_the_bytes_come),
        T(the_next_request_waits_for_the_answer),
        T(http_1_0_ends_unless_it_asks_not_to),
        T(the_last_request_is_marked),
        T(one_empty_line_before_a_request_is_let_pass),
        T(an_answer_of_unknown_length_is_chunked),
        T(interim_answers_pass),
        T(behind_an_early_answer_a_small_body_is_read_away),
        T(behind_an_early_answer_any_other_body_ends_it),
        T(a_body_that_is_read_away_must_come_in_time),
        T(malformed_requests_are_answered_and_end_it),
        T(an_exchange_without_memory_is_refused),
        T(a_slow_head_is_answered),
        T(a_slow_body_is_answered_unless_we_are_slow),
        T(an_idle_connection_is_closed),
        T(a_client_that_does_not_read_is_given_up),
        T(a_client_that_leaves_is_told),
        T(a_client_that_leaves_is_told_behind_a_pause),
        T(a_half_closed_client_gets_its_answer),
        T(abort_shows),
        T(abort_shows_where_only_the_end_could_tell),
        T(drain_closes_what_is_idle),
        T(drain_ends_it_behind_the_answer_under_way),
        T(a_tunnel_passes_bytes_and_half_closes),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("h1_server", tests, NULL, NULL);
}
