#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "proxy/admin.h"

/* A main thread in small: an event loop with an admin listener, and what it is asked for. */
static struct {
    pthread_t thread;
    struct event_base *base;
    struct event *control;
    int control_fd; /* 1: stop, 2: unlisten */
    struct admin *admin;
    struct sockaddr_in addr;
    atomic_bool ready, broken, unlistened;
} server;

static bool is_ready(void *owner)
{
    assert_ptr_equal(owner, &server);
    return server.ready;
}

static json_t *config(void *owner)
{
    (void)owner;
    return server.broken ? NULL
                         : json_pack("{s:i, s:s}", "generation", 7, "file", "gateway.conf");
}

static json_t *upstreams(void *owner)
{
    (void)owner;
    return json_pack("[{s:s, s:[]}]", "name", "users", "servers");
}

static void metrics(void *owner, FILE *out)
{
    (void)owner;
    for (int i = 0; i < 20000; i++)
        fprintf(out, "postern_test{n=\"%d\"} 1\n", i);
}

static json_t *drain(void *owner, const char *upstream, const char *name, bool is_drain,
                     char detail[ADMIN_DETAIL])
{
    (void)owner;
    if (server.broken)
        return NULL;
    if (strcmp(upstream, "users") != 0) {
        snprintf(detail, ADMIN_DETAIL, "There is no \"%s\"", upstream);
        return NULL;
    }
    return json_pack("{s:s, s:b}", "server", name, "drain", is_drain);
}

static const struct admin_ops ops = {is_ready, config, upstreams, metrics, drain};

static void on_control(evutil_socket_t fd, short what, void *arg)
{
    uint64_t command = 0;

    (void)what;
    (void)arg;
    if (read(fd, &command, sizeof(command)) != sizeof(command) || command == 1) {
        event_base_loopbreak(server.base);
    } else {
        admin_unlisten(server.admin);
        server.unlistened = true;
    }
}

static void command(uint64_t what)
{
    assert_int_equal(write(server.control_fd, &what, sizeof(what)), sizeof(what));
}

static void *run(void *unused)
{
    event_base_dispatch(server.base);
    return unused;
}

static int bound_tcp(struct sockaddr_in *addr)
{
    socklen_t len = sizeof(*addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *addr =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)addr, sizeof(*addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)addr, &len), 0);
    return fd;
}

static int set_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    server.base = event_base_new();
    server.control_fd = eventfd(0, EFD_CLOEXEC);
    server.control =
        event_new(server.base, server.control_fd, EV_READ | EV_PERSIST, on_control, NULL);
    event_add(server.control, NULL);
    server.admin = admin_new(server.base, &ops, &server);
    server.ready = true;
    server.broken = server.unlistened = false;
    return admin_listen(server.admin, bound_tcp(&server.addr));
}

static int tear_down(void **state)
{
    (void)state;
    admin_free(server.admin);
    event_free(server.control);
    event_base_free(server.base);
    close(server.control_fd);
    return 0;
}

static int start(void **state)
{
    return set_up(state) != 0 || pthread_create(&server.thread, NULL, run, NULL) != 0;
}

static int stop(void **state)
{
    command(1);
    pthread_join(server.thread, NULL);
    return tear_down(state);
}

/* ---- a client ---- */

static int patient_socket(int family)
{
    static const struct timeval patience = {.tv_sec = 5};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return fd;
}

static int dial(void)
{
    int fd = patient_socket(AF_INET);

    if (connect(fd, (struct sockaddr *)&server.addr, sizeof(server.addr)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* What is left of `text` when the peer no longer reads is not sent. */
static void say(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        text += sent;
        n -= (size_t)sent;
    }
}

/* All that comes until the peer closes, which it must, NUL-terminated. */
static void hear(int fd, char *out, size_t cap)
{
    size_t n = 0;
    ssize_t got;

    while ((got = recv(fd, out + n, cap - 1 - n, 0)) > 0)
        n += (size_t)got;
    out[n] = '\0';
    if (got < 0 && errno != ECONNRESET)
        fail_msg("still open after \"%.200s\": %s", out, strerror(errno));
}

static char answer[1 << 20];

static const char *ask(const char *method, const char *target)
{
    char request[512];
    int fd = dial();

    assert_true(fd >= 0);
    snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
             method, target);
    say(fd, request, strlen(request));
    hear(fd, answer, sizeof(answer));
    close(fd);
    return answer;
}

static const char *body_of(const char *text)
{
    const char *body = strstr(text, "\r\n\r\n");

    assert_non_null(body);
    return body + 4;
}

static void expect_status(const char *text, int status)
{
    char line[32];

    snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
    if (strncmp(text, line, strlen(line)) != 0)
        fail_msg("expected %d, got %.200s", status, text);
}

static void expect_header(const char *text, const char *header)
{
    char line[256];

    snprintf(line, sizeof(line), "\r\n%s\r\n", header);
    if (!strstr(text, line))
        fail_msg("no %s in %.500s", header, text);
}

static void expect_alive(void)
{
    expect_status(ask("GET", "/healthz"), 200);
}

/* ---- tests ---- */

static void says_that_it_works(void **state)
{
    const char *text = ask("GET", "/healthz");

    (void)state;
    expect_status(text, 200);
    expect_header(text, "Content-Type: text/plain; charset=utf-8");
    expect_header(text, "Cache-Control: no-store");
    assert_string_equal(body_of(text), "ok\n");
}

static void says_whether_it_is_ready(void **state)
{
    (void)state;
    expect_status(ask("GET", "/readyz"), 200);
    server.ready = false;
    expect_status(ask("GET", "/readyz"), 503);
    expect_status(ask("GET", "/healthz"), 200);
}

static void writes_metrics_whole(void **state)
{
    const char *text = ask("GET", "/metrics");

    (void)state;
    expect_status(text, 200);
    expect_header(text, "Content-Type: text/plain; version=0.0.4; charset=utf-8");
    assert_memory_equal(body_of(text), "postern_test{n=\"0\"} 1\n", 22);
    assert_string_equal(text + strlen(text) - 27, "\npostern_test{n=\"19999\"} 1\n");
}

static void writes_json(void **state)
{
    json_t *json;

    (void)state;
    expect_status(ask("GET", "/config"), 200);
    expect_header(answer, "Content-Type: application/json");
    json = json_loads(body_of(answer), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "generation")), 7);
    json_decref(json);
    expect_status(ask("GET", "/upstreams"), 200);
    json = json_loads(body_of(answer), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json, 0), "name")),
                        "users");
    json_decref(json);
    assert_int_equal(answer[strlen(answer) - 1], '\n');
}

static void expect_problem(int status)
{
    json_t *json;

    expect_status(answer, status);
    expect_header(answer, "Content-Type: application/problem+json");
    json = json_loads(body_of(answer), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "status")), status);
    assert_true(json_is_string(json_object_get(json, "title")));
    assert_true(json_is_string(json_object_get(json, "detail")));
    json_decref(json);
}

static void tells_when_it_has_no_memory_for_an_answer(void **state)
{
    (void)state;
    server.broken = true;
    ask("GET", "/config");
    expect_problem(500);
}

static void knows_only_its_own_paths(void **state)
{
    static const char *const unknown[] = {"/",         "/healthz/",   "/HEALTHZ",
                                          "/health",   "//healthz",   "/healthz%00",
                                          "/config/x", "/../healthz", "*"};

    (void)state;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
        ask("GET", unknown[i]);
        if (strncmp(answer, "HTTP/1.1 400", 12) != 0) /* evhttp refuses a target by itself */
            expect_problem(404);
    }
    ask("GET", "/nothing");
    expect_problem(404);
    expect_status(ask("GET", "/healthz?verbose=1"), 200);
    expect_status(ask("GET", "http://a/healthz"), 200);
}

static void answers_only_get_and_head(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"};

    (void)state;
    for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
        ask(methods[i], "/config");
        expect_problem(405);
        expect_header(answer, "Allow: GET, HEAD");
    }
    ask("BREW", "/healthz");
    assert_true(strncmp(answer, "HTTP/1.1 501", 12) == 0 || answer[0] == '\0');
    expect_alive();
}

static void answers_head_as_get_without_the_body(void **state)
{
    static const char *const paths[] = {"/healthz",   "/readyz", "/metrics",
                                        "/upstreams", "/config", "/none"};
    char *get;

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        char length[64];
        get = strdup(ask("GET", paths[i]));
        snprintf(length, sizeof(length), "Content-Length: %zu", strlen(body_of(get)));
        expect_header(get, length);
        ask("HEAD", paths[i]);
        assert_string_equal(body_of(answer), "");
        assert_memory_equal(answer, get, strcspn(get, "\r"));
        expect_header(answer, length);
        free(get);
    }
}

/* evhttp leaves such a connection open, for its timeout to end. */
static void opens_no_tunnel(void **state)
{
    int fd = dial();
    ssize_t n;

    (void)state;
    say(fd, "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 37);
    n = recv(fd, answer, sizeof(answer) - 1, 0);
    assert_true(n > 0);
    answer[n] = '\0';
    expect_problem(405);
    close(fd);
    expect_alive();
}

/* A HEAD and a GET on one connection: the head's length must not be waited for. */
static void keeps_its_connections_alive(void **state)
{
    static const char requests[] = "HEAD /config HTTP/1.1\r\nHost: a\r\n\r\n"
                                   "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
                                   "GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    int fd = dial();
    const char *second;

    (void)state;
    say(fd, requests, sizeof(requests) - 1);
    hear(fd, answer, sizeof(answer));
    close(fd);
    expect_status(answer, 200);
    second = body_of(answer);
    expect_status(second, 200);
    assert_memory_equal(body_of(second), "ok\nHTTP/1.1 404", 15);
}

static void closes_on_a_head_or_body_without_end(void **state)
{
    static const char head[] = "GET /healthz HTTP/1.1\r\nHost: a\r\nX: ";
    static const char body[] =
        "POST /config HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n";
    static const char chunk[] = "POST /config HTTP/1.1\r\nHost: a\r\n"
                                "Transfer-Encoding: chunked\r\n\r\nfffffff\r\n";
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {
        {head, sizeof(head) - 1}, {body, sizeof(body) - 1}, {chunk, sizeof(chunk) - 1}};
    char *flood = malloc(1 << 20);

    (void)state;
    memset(flood, 'a', 1 << 20);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int fd = dial();
        say(fd, cases[i].text, cases[i].n);
        say(fd, flood, 1 << 20);
        hear(fd, answer, sizeof(answer)); /* ends: it was closed */
        assert_true(answer[0] == '\0' || strncmp(answer, "HTTP/1.1 4", 10) == 0);
        close(fd);
        expect_alive();
    }
    free(flood);
}

static void survives_rubbish(void **state)
{
    static const char *const texts[] = {
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET /healthz\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "GET  HTTP/1.1\r\n\r\n",
        "GET http:// HTTP/1.1\r\n\r\n",
        "GET /%zz%00 HTTP/1.1\r\n\r\n",
        "POST /config HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /config HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabc",
        "POST /config HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n",
        "POST /config HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /config HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        "GET /healthz HTTP/1.1\r\n: empty\r\n folded\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "CONNECT  HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "HEAD /config HTTP/0.9\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    };
    char noise[600];
    unsigned seed = 4711;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        int fd = dial();
        say(fd, texts[i], strlen(texts[i]));
        shutdown(fd, SHUT_WR);
        hear(fd, answer, sizeof(answer));
        close(fd);
        expect_alive();
    }
    for (int round = 0; round < 200; round++) {
        size_t n = (size_t)rand_r(&seed) % sizeof(noise);
        int fd = dial();
        for (size_t i = 0; i < n; i++)
            noise[i] = (char)(rand_r(&seed) >> 8);
        if (round % 2)
            memcpy(noise, "GET /metrics HTTP/1.1\r\n", 23);
        say(fd, noise, n);
        if (round % 3 == 0) {
            shutdown(fd, SHUT_WR);
            hear(fd, answer, sizeof(answer));
        }
        close(fd);
    }
    expect_alive();
}

static void a_client_that_leaves_early_does_no_harm(void **state)
{
    static const struct linger reset = {.l_onoff = 1};

    (void)state;
    for (int i = 0; i < 50; i++) {
        int fd = dial();
        say(fd, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 34);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
    }
    expect_alive();
}

static void stops_accepting_and_serves_who_is_there(void **state)
{
    int fd = dial();

    (void)state;
    say(fd, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 34);
    assert_true(recv(fd, answer, sizeof(answer), 0) > 0);
    command(2);
    while (!server.unlistened)
        usleep(1000);
    assert_int_equal(dial(), -1);
    say(fd, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 53);
    hear(fd, answer, sizeof(answer));
    expect_status(answer, 200);
    close(fd);
}

/* Descriptors run out: the loop neither spins nor stays deaf. */
static void waits_while_there_are_no_descriptors(void **state)
{
    int fd = patient_socket(AF_INET), next = dup(fd);
    struct timespec before, after;
    struct rlimit old, low;
    clockid_t clock;

    (void)state;
    close(next); /* the lowest that is free */
    log_set_level(LOG_ERROR);
    getrlimit(RLIMIT_NOFILE, &old);
    low = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max};
    pthread_getcpuclockid(server.thread, &clock);
    clock_gettime(clock, &before);
    setrlimit(RLIMIT_NOFILE, &low);
    assert_int_equal(connect(fd, (struct sockaddr *)&server.addr, sizeof(server.addr)), 0);
    say(fd, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 53);
    usleep(200000);
    clock_gettime(clock, &after);
    assert_int_equal(recv(fd, answer, sizeof(answer), MSG_DONTWAIT), -1);
    assert_true((after.tv_sec - before.tv_sec) * 1000 +
                    (after.tv_nsec - before.tv_nsec) / 1000000 <
                100);
    setrlimit(RLIMIT_NOFILE, &old);
    hear(fd, answer, sizeof(answer));
    expect_status(answer, 200);
    close(fd);
    log_set_level(LOG_INFO);
}

static void listens_on_a_unix_socket_too(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), client = patient_socket(AF_UNIX);

    (void)state;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "/tmp/postern-test-admin-%d", (int)getpid());
    unlink(addr.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(admin_listen(server.admin, fd), 0);
    assert_int_equal(pthread_create(&server.thread, NULL, run, NULL), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&addr, sizeof(addr)), 0);
    say(client, "GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 52);
    hear(client, answer, sizeof(answer));
    expect_status(answer, 200);
    close(client);
    unlink(addr.sun_path);
    expect_alive(); /* the other one works on */
    command(1);
    pthread_join(server.thread, NULL);
}

static void refuses_what_it_cannot_listen_on(void **state)
{
    int fd = eventfd(0, 0);

    (void)state;
    assert_int_equal(admin_listen(server.admin, fd), -ENOTSOCK);
    assert_int_equal(close(fd), -1); /* it was taken and closed */
    admin_free(NULL);
}

int main(void)
{
#define RUNNING(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        RUNNING(says_that_it_works),
        RUNNING(says_whether_it_is_ready),
        RUNNING(writes_metrics_whole),
        RUNNING(writes_json),
        RUNNING(tells_when_it_has_no_memory_for_an_answer),
        RUNNING(knows_only_its_own_paths),
        RUNNING(answers_only_get_and_head),
        RUNNING(opens_no_tunnel),
        RUNNING(answers_head_as_get_without_the_body),
        RUNNING(keeps_its_connections_alive),
        RUNNING(closes_on_a_head_or_body_without_end),
        RUNNING(survives_rubbish),
        RUNNING(a_client_that_leaves_early_does_no_harm),
        RUNNING(stops_accepting_and_serves_who_is_there),
        RUNNING(waits_while_there_are_no_descriptors),
        cmocka_unit_test_setup_teardown(listens_on_a_unix_socket_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_what_it_cannot_listen_on, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
