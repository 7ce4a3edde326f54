#include "net_test.h"

#include "up/probe.h"

static struct cluster *cluster;
static struct addr addr;
static int listening, conn;
static unsigned calls;
static struct probe_result result;
static struct probe *probe;

static char path[] = "/healthz", body[] = "aabaabaac";

static void on_done(void *arg, const struct probe_result *got)
{
    assert_ptr_equal(arg, &calls);
    calls++;
    result = *got;
    probe = NULL;
}

static int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    listening = listen_any(&addr);
    conn = -1;
    calls = 0;
    memset(&result, 0, sizeof(result));
    return 0;
}

static int tear_down(void **state)
{
    if (probe)
        IN_LOOP(probe_cancel(probe));
    probe = NULL;
    if (conn >= 0)
        close(conn);
    if (listening >= 0)
        close(listening);
    cluster_unref(cluster);
    cluster = NULL;
    return tear_down_loop(state);
}

static void make(struct health_policy policy, unsigned proxy_protocol)
{
    struct cluster_server server = {.addr = addr, .weight = 1, .name = "a.test:80"};
    struct cluster_spec spec = {
        .name = "u", .watch.health = policy, .proxy_protocol = proxy_protocol};
    cluster = cluster_new(&spec, &server, 1);
    assert_non_null(cluster);
}

static struct health_policy http(void)
{
    return (struct health_policy){.type = HEALTH_HTTP,
                                  .path = path,
                                  .status = {{200, 399}},
                                  .status_count = 1,
                                  .timeout = 5000};
}

static void start(void)
{
    loop_enter(&loop);
    probe = probe_start(&loop, cluster, 0, on_done, &calls);
    assert_non_null(probe);
    assert_int_equal(calls, 0); /* never from inside the call */
    loop_leave(&loop);
}

/* The server takes the connection and reads the request. */
static void read_request(char *out, size_t cap)
{
    size_t n = 0;
    bool eof = false;
    UNTIL((conn = accept_next(listening)) >= 0);
    while (!memmem(out, n, "\r\n\r\nX", 4)) {
        turn();
        n = collect(conn, out, n, cap - 1, &eof);
        assert_false(eof);
    }
    out[n] = '\0';
}

static void answer(const char *text)
{
    char request[1024];
    start();
    read_request(request, sizeof(request));
    feed(conn, text, strlen(text));
    UNTIL(calls);
    settle();
    assert_int_equal(calls, 1);
}

static void expect(enum probe_end end, const char *why)
{
    if (result.end != end || strcmp(result.why, why) != 0)
        fail_msg("%s: \"%s\"", probe_end_names[result.end], result.why);
}

static void asks_as_a_client_does(void **state)
{
    (void)state;
    char request[1024];
    make(http(), 0);
    start();
    read_request(request, sizeof(request));
    assert_string_equal(request, "GET /healthz HTTP/1.1\r\nHost: a.test:80\r\n"
                                 "User-Agent: postern-health\r\nAccept: */*\r\n"
                                 "Connection: close\r\n\r\n");
}

static void a_proxy_header_goes_first(void **state)
{
    (void)state;
    char request[1024];
    make(http(), 1);
    start();
    read_request(request, sizeof(request));
    assert_memory_equal(request, "PROXY UNKNOWN\r\nGET /healthz", 27);
}

static void an_expected_status_is_well(void **state)
{
    (void)state;
    make(http(), 0);
    answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
    expect(PROBE_OK, "");
}

static void an_answer_may_end_with_its_connection(void **state)
{
    (void)state;
    char request[1024];
    make(http(), 0);
    start();
    read_request(request, sizeof(request));
    feed(conn, "HTTP/1.0 200 OK\r\n\r\nfine", 23);
    settle();
    assert_int_equal(calls, 0);
    close(conn);
    conn = -1;
    UNTIL(calls);
    expect(PROBE_OK, "");
}

static void another_status_is_not(void **state)
{
    (void)state;
    struct health_policy policy = http();
    policy.status[1] = (struct status_range){404, 404};
    policy.status_count = 2;
    make(policy, 0);
    answer("HTTP/1.1 503 No\r\nContent-Length: 100\r\n\r\n");
    expect(PROBE_STATUS, "status 503, expected 200-399, 404");
}

static void the_whole_body_must_come(void **state)
{
    (void)state;
    char request[1024];
    struct health_policy policy = http();
    policy.timeout = 50;
    make(policy, 0);
    start();
    read_request(request, sizeof(request));
    feed(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 40);
    UNTIL(calls);
    expect(PROBE_TIMEOUT, "its answer was not complete within 50 ms");
}

static void a_body_is_searched_however_it_is_cut(void **state)
{
    (void)state;
    static const char text[] =
        "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\naabaabaabaabaacaabaab";
    struct health_policy policy = http();
    policy.body = body;
    for (size_t cut = 40; cut < sizeof(text) - 1; cut++) {
        char request[1024];
        make(policy, 0);
        calls = 0;
        start();
        read_request(request, sizeof(request));
        feed(conn, text, cut);
        settle();
        feed(conn, text + cut, sizeof(text) - 1 - cut);
        UNTIL(calls);
        expect(PROBE_OK, "");
        close(conn);
        cluster_unref(cluster);
        settle();
    }
    conn = -1;
    cluster = NULL;
}

static void a_body_that_lacks_it_is_not_well(void **state)
{
    (void)state;
    struct health_policy policy = http();
    policy.body = body;
    make(policy, 0);
    answer("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\naabaabaa");
    expect(PROBE_BODY_LACKS, "its body (8 bytes) lacks \"aabaabaac\"");
}

static void an_endless_body_is_read_to_its_bound(void **state)
{
    (void)state;
    char request[1024], piece[4096];
    struct health_policy policy = http();
    policy.body = body;
    make(policy, 0);
    memset(piece, 'a', sizeof(piece));
    start();
    read_request(request, sizeof(request));
    feed(conn, "HTTP/1.1 200 OK\r\n\r\n", 19);
    for (int i = 0; i < 16; i++)
        feed(conn, piece, sizeof(piece));
    UNTIL(calls);
    expect(PROBE_BODY_LACKS, "its body (65536 bytes were looked at) lacks \"aabaabaac\"");
}

static void what_is_not_http_is_told(void **state)
{
    (void)state;
    make(http(), 0);
    answer("SSH-2.0-x\r\n");
    expect(PROBE_PROTOCOL, "what it answers is not HTTP/1 (byte 0)");
}

static void hanging_up_is_told(void **state)
{
    (void)state;
    char request[1024];
    make(http(), 0);
    start();
    read_request(request, sizeof(request));
    close(conn);
    conn = -1;
    UNTIL(calls);
    expect(PROBE_RESET, "it closed the connection without an answer");
}

static void silence_is_told(void **state)
{
    (void)state;
    struct health_policy policy = http();
    policy.timeout = 30;
    make(policy, 0);
    start();
    UNTIL(calls);
    expect(PROBE_TIMEOUT, "no answer within 30 ms");
}

static void a_refused_connection_is_told(void **state)
{
    (void)state;
    make(http(), 0);
    close(listening);
    listening = -1;
    start();
    UNTIL(calls);
    expect(PROBE_CONNECT, "cannot connect: Connection refused");
}

static void what_fails_at_once_is_told_later(void **state)
{
    (void)state;
    close(listening);
    listening = -1;
    addr = addr_of("unix:/nonexistent/socket");
    make(http(), 0);
    start();
    UNTIL(calls);
    expect(PROBE_CONNECT, "cannot connect: No such file or directory");
}

static void tcp_only_asks_nothing(void **state)
{
    (void)state;
    char byte;
    make((struct health_policy){.type = HEALTH_TCP, .timeout = 5000}, 0);
    start();
    UNTIL(calls);
    expect(PROBE_OK, "");
    UNTIL((conn = accept_next(listening)) >= 0);
    settle();
    assert_int_equal(recv(conn, &byte, 1, 0), 0);
}

static void a_cancelled_probe_says_nothing(void **state)
{
    (void)state;
    char request[1024];
    make(http(), 0);
    start();
    read_request(request, sizeof(request));
    IN_LOOP(probe_cancel(probe));
    feed(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38);
    settle();
    probe = NULL;
    assert_int_equal(calls, 0);
    start(); /* before it is connected */
    IN_LOOP(probe_cancel(probe));
    settle();
    probe = NULL;
    assert_int_equal(calls, 0);
}

static void want_of_memory_is_told(void **state)
{
    (void)state;
    make(http(), 0);
    mem_fail_at(1);
    IN_LOOP(probe = probe_start(&loop, cluster, 0, on_done, &calls));
    assert_null(probe);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(asks_as_a_client_does),
        TEST(a_proxy_header_goes_first),
        TEST(an_expected_status_is_well),
        TEST(an_answer_may_end_with_its_connection),
        TEST(another_status_is_not),
        TEST(the_whole_body_must_come),
        TEST(a_body_is_searched_however_it_is_cut),
        TEST(a_body_that_lacks_it_is_not_well),
        TEST(an_endless_body_is_read_to_its_bound),
        TEST(what_is_not_http_is_told),
        TEST(hanging_up_is_told),
        TEST(silence_is_told),
        TEST(a_refused_connection_is_told),
        TEST(what_fails_at_once_is_told_later),
        TEST(tcp_only_asks_nothing),
        TEST(a_cancelled_probe_says_nothing),
        TEST(want_of_memory_is_told),
    };
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
