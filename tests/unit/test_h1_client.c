#include "leg_test.h"

#include "http/h1_client.h"

static struct h1_client client;
static struct h1_client_timeouts timeouts;
static struct recorder rec;
static struct leg_fault why;
static unsigned connected, idle, closed, buried;
static bool has_why;
static int listening, server; /* the scripted peer */
static struct addr addr;
static char got[65536];
static size_t got_n;
static bool got_eof;

static void on_connected(struct h1_client *c)
{
    (void)c;
    connected++;
}

static void on_idle(struct h1_client *c)
{
    assert_int_equal(c->state, CLIENT_IDLE);
    idle++;
}

static void on_closed(struct h1_client *c, const struct leg_fault *fault)
{
    (void)c;
    closed++;
    has_why = fault != NULL;
    if (fault)
        why = *fault;
}

static void on_bury(struct h1_client *c)
{
    buried++;
    memset(c, 0xee, sizeof(*c));
}

static const struct h1_client_ops ops = {
    .on_connected = on_connected, .on_idle = on_idle, .on_closed = on_closed, .bury = on_bury};

static void release_it(struct recorder *r)
{
    struct leg *leg = r->leg;
    recorder_free_arena(r);
    leg->ops->release(leg);
}

static void on_idle_due(struct h1_client *c)
{
    h1_client_close(c);
}

static void connect_one(void)
{
    connected = idle = closed = buried = 0;
    rec.log[0] = '\0';
    got_n = 0;
    got_eof = false;
    loop_enter(&loop);
    assert_int_equal(h1_client_open(&client, &loop, &addr, NULL, &timeouts, &ops, NULL), 0);
    client.on_idle_due = on_idle_due;
    loop_leave(&loop);
    UNTIL(connected);
    do
        server = accept_next(listening);
    while (server < 0);
    sock_no_delay(server);
}

static int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    memset(&rec, 0, sizeof(rec));
    rec.on_end = release_it;
    timeouts = (struct h1_client_timeouts){0};
    listening = listen_any(&addr);
    connect_one();
    return 0;
}

static void hang_up(void)
{
    if (!closed)
        IN_LOOP(h1_client_close(&client));
    settle();
    assert_int_equal(closed, 1);
    assert_int_equal(buried, 1);
    recorder_free_arena(&rec);
    close(server);
}

static int tear_down(void **state)
{
    hang_up();
    close(listening);
    return tear_down_loop(state);
}

static void lend(void)
{
    recorder_listen(&rec, &client.leg);
    h1_client_lend(&client);
}

static void send_request(enum method method, enum framing framing, uint64_t length)
{
    struct head head = {.minor = 1,
                        .method = method,
                        .method_text = method_names[method],
                        .target = STR("/x"),
                        .framing = framing,
                        .has_length = framing == FRAMING_LENGTH,
                        .length = length};
    client.leg.ops->send_head(&client.leg, &head);
}

static void ask(enum method method)
{
    loop_enter(&loop);
    lend();
    send_request(method, FRAMING_NONE, 0);
    client.leg.ops->send_end(&client.leg, NULL);
    loop_leave(&loop);
}

static void receive(void)
{
    got_n = collect(server, got, got_n, sizeof(got) - 1, &got_eof);
    got[got_n] = '\0';
}

static void say(const char *text)
{
    feed(server, text, strlen(text));
    settle();
}

/* ---- connecting ---- */

static void a_refused_connection_is_told(void **state)
{
    (void)state;
    hang_up();
    close(listening);
    closed = 0;
    loop_enter(&loop);
    int rc = h1_client_open(&client, &loop, &addr, NULL, &timeouts, &ops, NULL);
    loop_leave(&loop);
    assert_int_equal(rc, 0);
    assert_int_equal(closed, 0); /* never from inside open */
    UNTIL(closed);
    assert_true(has_why);
    assert_int_equal(why.reason, R_UPSTREAM_CONNECT);
    assert_int_equal(why.err, ECONNREFUSED);
    settle();
    listening = listen_any(&addr);
    connect_one();
}

static void a_connection_that_takes_too_long_is_told(void **state)
{
    (void)state;
    int fds[8];
    hang_up();
    close(listening);
    listening = listen_any(&addr);
    assert_int_equal(listen(listening, 0), 0);
    for (size_t i = 0; i < 8; i++) /* the queue is full: who comes now is not answered */
        assert_true(sock_connect(&addr, &fds[i]) >= 0);
    closed = buried = 0;
    timeouts.connect = 20;
    IN_LOOP(h1_client_open(&client, &loop, &addr, NULL, &timeouts, &ops, NULL));
    UNTIL(closed);
    assert_int_equal(why.reason, R_UPSTREAM_TIMEOUT_CONNECT);
    server = fds[0];
    for (size_t i = 1; i < 8; i++)
        close(fds[i]);
}

/* ---- requests ---- */

static void requests_are_framed_as_their_head_says(void **state)
{
    (void)state;
    struct field field = {.name = STR("X-Sum"), .value = STR("1"), .id = F_OTHER};
    struct head trailers = {.fields = &field, .count = 1, .cap = 1};
    loop_enter(&loop);
    lend();
    send_request(M_POST, FRAMING_LENGTH, 5);
    send_text(&client.leg, "he");
    send_text(&client.leg, "llo");
    client.leg.ops->send_end(&client.leg, NULL);
    loop_leave(&loop);
    UNTIL((receive(), got_n >= 5 && strcmp(got + got_n - 5, "hello") == 0));
    assert_string_equal(got, "POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
    say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(idle, 1);

    got_n = 0;
    loop_enter(&loop);
    lend();
    send_request(M_PUT, FRAMING_CHUNKED, 0);
    send_text(&client.leg, "0123456789abcdefg");
    send_text(&client.leg, "");
    client.leg.ops->send_end(&client.leg, &trailers);
    loop_leave(&loop);
    UNTIL((receive(), got_n > 7 && strcmp(got + got_n - 7, ": 1\r\n\r\n") == 0));
    assert_string_equal(got, "PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                             "11\r\n0123456789abcdefg\r\n0\r\nX-Sum: 1\r\n\r\n");
}

/* ---- answers ---- */

enum after { KEPT, LEFT };

static const struct {
    enum method method;
    enum after after; /* what becomes of the connection */
    bool end;         /* the server closes behind it */
    const char *text, *log;
} answers[] = {
    {M_GET, KEPT, false, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
     "head 200\nend [hello]\n"},
    {M_GET, KEPT, false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "head 200\nend []\n"},
    {M_GET, KEPT, false, "HTTP/1.1 204 No Content\r\n\r\n", "head 204\nend []\n"},
    {M_GET, KEPT, false, "HTTP/1.1 304 \r\nContent-Length: 99\r\n\r\n", "head 304\nend []\n"},
    {M_HEAD, KEPT, false, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
     "head 200\nend []\n"},
    {M_GET, KEPT, false,
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
     "head 200\nend [abcde]\n"},
    {M_GET, KEPT, false,
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 7\r\n\r\n",
     "head 200\nend [a]\ntrailer X-Sum: 7\n"},
    {M_GET, KEPT, false,
     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
     "head 100\nhead 103\nhead 200\nend [a]\n"},
    {M_GET, KEPT, false,
     "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na",
     "head 200\nend [a]\n"},
    {M_GET, LEFT, false, "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
     "head 200\nend [a]\n"},
    {M_GET, LEFT, false, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
     "head 200\nend [a]\n"},
    {M_GET, LEFT, true, "HTTP/1.1 200 OK\r\n\r\nto the end", "head 200\nend [to the end]\n"},
    {M_GET, LEFT, true, "HTTP/1.1 200 OK\r\n\r\n", "head 200\nend []\n"},
    /* cut short */
    {M_GET, LEFT, true, "", "gone upstream.reset\n"},
    {M_GET, LEFT, true, "HTTP/1.1 200 OK\r\nCont", "gone upstream.reset\n"},
    {M_GET, LEFT, true, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
     "head 200\ngone upstream.reset\n"},
    {M_GET, LEFT, true, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
     "head 200\ngone upstream.reset\n"},
    {M_GET, LEFT, true, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: 1\r\n",
     "head 200\ngone upstream.reset\n"},
    /* not HTTP, or not ours to have */
    {M_GET, LEFT, false, "SSH-2.0-OpenSSH\r\n", "gone upstream.protocol\n"},
    {M_GET, LEFT, false, "HTTP/1.1 200 OK\r\nA b\r\n\r\n", "gone upstream.protocol\n"},
    {M_GET, LEFT, false, "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
     "gone upstream.protocol\n"},
    {M_GET, LEFT, false, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     "head 200\ngone upstream.protocol\n"},
};

static void answers_are_read_however_they_come(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        size_t n = strlen(answers[i].text);
        for (size_t cut = 0; cut <= n; cut++) {
            if (closed) {
                hang_up();
                connect_one();
            }
            rec.log[0] = '\0';
            idle = 0;
            ask(answers[i].method);
            feed(server, answers[i].text, cut);
            settle();
            if (!closed)
                feed(server, answers[i].text + cut, n - cut);
            if (answers[i].end)
                shutdown(server, SHUT_WR);
            UNTIL(idle || closed);
            if (strcmp(rec.log, answers[i].log) != 0)
                fail_msg("%zu cut at %zu: %s", i, cut, rec.log);
            assert_int_equal(idle, answers[i].after == KEPT);
            settle();
            assert_int_equal(closed, answers[i].after == LEFT);
        }
    }
    assert_int_equal(loop.blocks.live, 0); /* idle ones hold no block */
}

static void bytes_behind_an_answer_end_the_connection(void **state)
{
    (void)state;
    ask(M_GET);
    say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\r\n");
    assert_string_equal(rec.log, "head 200\nend [a]\n");
    assert_int_equal(idle, 0);
    assert_true(closed);
}

static void an_idle_connection_hears_nothing(void **state)
{
    (void)state;
    assert_false(h1_client_is_stale(&client));
    feed(server, "x", 1);
    assert_true(h1_client_is_stale(&client));
    UNTIL(closed);
    hang_up();
    connect_one();
    shutdown(server, SHUT_WR);
    UNTIL(closed);
    assert_string_equal(rec.log, "");
}

static void too_many_interim_answers_are_too_many(void **state)
{
    (void)state;
    ask(M_GET);
    for (int i = 0; i < 40 && !closed; i++)
        say("HTTP/1.1 103 \r\n\r\n");
    assert_non_null(strstr(rec.log, "gone upstream.protocol\n"));
}

static void faults_say_how_far_it_got(void **state)
{
    (void)state;
    ask(M_GET); /* the server never sees it */
    shutdown(server, SHUT_WR);
    UNTIL(closed);
    assert_false(rec.fault.untouched);
    assert_true(rec.fault.silent);
    hang_up();
    connect_one();
    shutdown(server, SHUT_WR);
    loop_enter(&loop);
    lend();
    send_request(M_GET, FRAMING_NONE, 0);
    h1_client_close(&client); /* before the turn's flush */
    loop_leave(&loop);
    assert_true(rec.fault.untouched);
    assert_true(rec.fault.silent);
    assert_string_equal(rec.log, "gone upstream.reset\n");
}

/* ---- uploads ---- */

static void a_request_not_sent_to_its_end_spoils_it(void **state)
{
    (void)state;
    loop_enter(&loop);
    lend();
    send_request(M_POST, FRAMING_LENGTH, 10);
    send_text(&client.leg, "half");
    loop_leave(&loop);
    say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_string_equal(rec.log, "head 200\nend []\n");
    assert_int_equal(idle, 0);
    assert_true(closed);
}

static void an_early_answer_behind_a_closed_door_is_heard(void **state)
{
    (void)state;
    static char large[1 << 20];
    loop_enter(&loop);
    lend();
    send_request(M_POST, FRAMING_LENGTH, 4 * sizeof(large));
    loop_leave(&loop);
    UNTIL((receive(), got_n > 0));
    feed(server, "HTTP/1.1 413 \r\nContent-Length: 4\r\n\r\nlong", 40);
    for (int i = 0; i < 4; i++) /* without a turn in between: only writing can fail */
        client.leg.ops->send_body(&client.leg, (struct slice){NULL, large, sizeof(large)});
    close(server);
    server = -1;
    UNTIL(closed);
    assert_string_equal(rec.log, "head 413\nend [long]\n");
}

static void pause_at_head(struct recorder *r, struct head *head)
{
    (void)head;
    r->on_head = NULL;
    r->leg->ops->pause(r->leg);
}

/* An answer that is paused while our writing fails. `left`: of its body, comes behind the
 * pause. */
static void pause_and_fail(const char *answer, size_t n, size_t left)
{
    static char large[1 << 20];
    loop_enter(&loop);
    lend();
    rec.on_head = pause_at_head;
    send_request(M_POST, FRAMING_LENGTH, 4 * sizeof(large));
    loop_leave(&loop);
    UNTIL((receive(), got_n > 0));
    feed(server, answer, n - left);
    UNTIL(strstr(rec.log, "head 413"));
    feed(server, answer + n - left, left);
    loop_enter(&loop);
    for (int i = 0; i < 4; i++)
        client.leg.ops->send_body(&client.leg, (struct slice){NULL, large, sizeof(large)});
    loop_leave(&loop);
    close(server);
    server = -1;
    UNTIL(client.stream.err);
    settle();
    assert_false(closed);
    IN_LOOP(client.leg.ops->resume(&client.leg));
    UNTIL(closed);
}

/* It is complete all the same, and must not end as one that was cut. */
static void an_early_answer_may_be_taken_slowly(void **state)
{
    (void)state;
    static char answer[31000];
    int n = snprintf(answer, sizeof(answer), "HTTP/1.1 413 \r\nContent-Length: 30000\r\n\r\n");
    memset(answer + n, 'x', 30000);
    pause_and_fail(answer, (size_t)n + 30000, 29000);
    assert_int_equal(rec.total, 30000);
    assert_null(strstr(rec.log, "gone"));
}

static void what_is_cut_while_paused_is_told_when_resumed(void **state)
{
    (void)state;
    pause_and_fail("HTTP/1.1 413 \r\nContent-Length: 9\r\n\r\nlong", 40, 3);
    assert_non_null(strstr(rec.log, "gone upstream.reset"));
}

static void room_is_told_below_the_low_mark(void **state)
{
    (void)state;
    static char large[4 << 20];
    loop_enter(&loop);
    lend();
    /* else the kernel may have room for all of it */
    assert_int_equal(
        setsockopt(client.stream.fd, SOL_SOCKET, SO_SNDBUF, &(int){65536}, sizeof(int)), 0);
    send_request(M_POST, FRAMING_LENGTH, sizeof(large));
    client.leg.ops->send_body(&client.leg, (struct slice){NULL, large, sizeof(large)});
    loop_leave(&loop);
    assert_true(leg_is_full(&client.leg));
    assert_int_equal(rec.rooms, 0);
    while (!rec.rooms) {
        receive();
        got_n = 0;
        turn();
    }
    assert_true(client.leg.ops->pending(&client.leg) < LEG_LOW);
}

/* ---- time ---- */

static void wait_ms(unsigned ms)
{
    uint64_t until = clock_ns() + ms * NS_PER_MS;
    UNTIL(clock_ns() > until);
}

static void a_silent_server_is_given_up(void **state)
{
    (void)state;
    client.timeouts.response = 20;
    ask(M_GET);
    UNTIL(closed);
    assert_string_equal(rec.log, "gone upstream.timeout_response\n");
    hang_up();
    connect_one();
    client.timeouts.idle = 20;
    ask(M_GET);
    say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell");
    UNTIL(closed);
    assert_string_equal(rec.log, "head 200\ngone upstream.timeout_idle\n");
}

static void a_slow_client_is_not_the_servers_fault(void **state)
{
    (void)state;
    client.timeouts.response = 20;
    loop_enter(&loop);
    lend();
    send_request(M_POST, FRAMING_LENGTH, 2);
    loop_leave(&loop);
    wait_ms(50);
    assert_string_equal(rec.log, "");
    IN_LOOP(send_text(&client.leg, "a"));
    wait_ms(50);
    assert_string_equal(rec.log, "");
    IN_LOOP((send_text(&client.leg, "b"), client.leg.ops->send_end(&client.leg, NULL)));
    UNTIL(closed); /* now it is */
    assert_string_equal(rec.log, "gone upstream.timeout_response\n");
}

static void pause_it(struct recorder *r)
{
    r->leg->ops->pause(r->leg);
}

static void a_pause_holds_body_and_timer(void **state)
{
    (void)state;
    client.timeouts.idle = 20;
    rec.on_body = pause_it;
    ask(M_GET);
    say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
    assert_int_equal(rec.total, 1);
    wait_ms(50);
    assert_string_equal(rec.log, "head 200\n");
    rec.on_body = NULL;
    IN_LOOP(rec.leg->ops->resume(rec.leg));
    settle();
    assert_string_equal(rec.log, "head 200\nend [ab]\n");
    assert_int_equal(idle, 1);
}

/* ---- tunnels and aborts ---- */

static void enter_tunnel(struct recorder *r, struct head *head)
{
    if (head->status == 101)
        r->leg->ops->tunnel(r->leg);
}

static void a_tunnel_passes_bytes_and_half_closes(void **state)
{
    (void)state;
    rec.on_head = enter_tunnel;
    rec.on_end = NULL;
    loop_enter(&loop);
    lend();
    struct head head = {.minor = 1,
                        .method = M_GET,
                        .method_text = STR("GET"),
                        .target = STR("/"),
                        .upgrade = STR("x")};
    client.leg.ops->send_head(&client.leg, &head);
    client.leg.ops->send_end(&client.leg, NULL);
    loop_leave(&loop);
    say("HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly");
    assert_memory_equal(rec.body, "early", 5);
    UNTIL((receive(), got_n > 0));
    got_n = 0;
    IN_LOOP((send_text(&client.leg, "up"), client.leg.ops->send_end(&client.leg, NULL)));
    UNTIL((receive(), got_eof));
    assert_string_equal(got, "up");
    say("!");
    shutdown(server, SHUT_WR);
    UNTIL(strstr(rec.log, "end [early!]"));
    assert_false(closed);
    IN_LOOP(rec.leg->ops->release(rec.leg));
    assert_true(closed); /* nobody can use it again */
    assert_int_equal(idle, 0);
}

static void abort_calls_nothing_any_more(void **state)
{
    (void)state;
    ask(M_GET);
    feed(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 43);
    IN_LOOP(recorder_abort(&rec));
    settle();
    assert_string_equal(rec.log, "");
    assert_true(closed);
}

/* ---- without memory ---- */

static void every_allocation_may_fail(void **state)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                 "1\r\na\r\n0\r\nX: 1\r\n\r\n";
    unsigned long nth = 1;
    for (bool whole = false; !whole; nth++) {
        assert_true(nth < 100);
        mem_fail_at(nth);
        ask(M_GET);
        send(server, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
        settle();
        UNTIL(idle || closed);
        mem_fail_at(0);
        whole = idle;
        assert_string_equal(rec.log, whole ? "head 200\nend [a]\ntrailer X: 1\n"
                                     : strncmp(rec.log, "head", 4) == 0
                                         ? "head 200\ngone gateway.memory\n"
                                         : "gone gateway.memory\n");
        tear_down(state);
        set_up(state);
    }
    assert_true(nth > 3);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_refused_connection_is_told),
        T(a_connection_that_takes_too_long_is_told),
        T(requests_are_framed_as_their_head_says),
        T(answers_are_read_however_they_come),
        T(bytes_behind_an_answer_end_the_connection),
        T(an_idle_connection_hears_nothing),
        T(too_many_interim_answers_are_too_many),
        T(faults_say_how_far_it_got),
        T(a_request_not_sent_to_its_end_spoils_it),
        T(an_early_answer_behind_a_closed_door_is_heard),
        T(an_early_answer_may_be_taken_slowly),
        T(what_is_cut_while_paused_is_told_when_resumed),
        T(room_is_told_below_the_low_mark),
        T(a_silent_server_is_given_up),
        T(a_slow_client_is_not_the_servers_fault),
        T(a_pause_holds_body_and_timer),
        T(a_tunnel_passes_bytes_and_half_closes),
        T(abort_calls_nothing_any_more),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("h1_client", tests, NULL, NULL);
}
