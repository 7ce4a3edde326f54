/* A single-threaded HTTP/1.1 load generator that counts every request which did not end in a
 * complete 200.
 *
 *     load [-k N] [-p BYTES] [-H HEADER] rate  PORT PATH CONNS RATE SECS
 *     load [-k N] [-p BYTES] [-H HEADER] count PORT PATH CONNS TOTAL
 *
 * `rate` is an open loop: requests are due at even intervals whatever the answers do, and
 * latency counts from the moment a request was due, so a stall is seen in full. `count` is a
 * closed loop: each connection sends its next request when the last one is answered. -k
 * closes a connection after N answers and opens another; -p sends a POST with a JSON body; -H
 * is one header more, "Name: value".
 * SIGINT and SIGTERM end the run early. One JSON line on standard output; the first failures,
 * one line each, on standard error. Answers have a Content-Length, or are chunked and short. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX   8192
#define GRACE_SECS 5.0 /* for the answers still missing when the last request is sent */
#define SHOWN      10

enum failure {
    FAIL_CONNECT,
    FAIL_SEND,
    FAIL_RESET,
    FAIL_CLOSED,
    FAIL_STATUS,
    FAIL_HEAD,
    FAIL_LOST,
    FAILURES
};
static const char *const failure_name[FAILURES] = {
    [FAIL_CONNECT] = "connect", [FAIL_SEND] = "send",     [FAIL_RESET] = "reset",
    [FAIL_CLOSED] = "closed",   [FAIL_STATUS] = "status", [FAIL_HEAD] = "malformed",
    [FAIL_LOST] = "unanswered",
};

struct conn {
    int fd; /* -1: opened when next used */
    bool busy;
    bool closing; /* the answer said Connection: close */
    double due;
    unsigned served;
    size_t have;
    bool in_body;
    size_t body_left;
    char head[HEAD_MAX + 1];
};

static int epoll_fd;
static struct sockaddr_in target;
static char *request;
static size_t request_len;
static unsigned keep; /* answers per connection; 0: no end */
static volatile sig_atomic_t stopped;

static struct conn **idle; /* a ring, first in first out: all connections stay in use */
static size_t idle_head, idle_count, conn_count;

static double started;
static unsigned long failed[FAILURES], failed_all, opened, idle_closed, done, late;
static float *latency; /* microseconds */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

static void idle_push(struct conn *c)
{
    c->busy = false;
    idle[(idle_head + idle_count++) % conn_count] = c;
}

static struct conn *idle_pop(void)
{
    struct conn *c = idle[idle_head];
    idle_head = (idle_head + 1) % conn_count;
    idle_count--;
    return c;
}

static void conn_close(struct conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static int conn_open(struct conn *c)
{
    static const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&target, sizeof(target)) < 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    c->fd = fd;
    c->served = 0;
    opened++;
    return 0;
}

static void fail(struct conn *c, enum failure why)
{
    if (failed_all++ < SHOWN)
        fprintf(stderr, "load: %s at %.3f s, answer %u of its connection: %.12s\n",
                failure_name[why], now() - started, c->served + 1,
                c->have ? c->head : "(no bytes)");
    failed[why]++;
    conn_close(c);
    idle_push(c);
}

static void send_request(struct conn *c, double due)
{
    c->busy = true;
    c->due = due;
    c->have = 0;
    c->in_body = c->closing = false;
    if (c->fd < 0 && conn_open(c) < 0) {
        fail(c, FAIL_CONNECT);
        return;
    }
    if (send(c->fd, request, request_len, MSG_NOSIGNAL) != (ssize_t)request_len)
        fail(c, FAIL_SEND);
}

/* Chunks stay beside the head until the last one is there. */
static int take_chunks(struct conn *c, char *end, size_t head)
{
    static const char last[] = "\r\n0\r\n\r\n";
    size_t n = sizeof(last) - 1;

    c->in_body = c->have - head >= n && memcmp(c->head + c->have - n, last, n) == 0;
    c->body_left = 0;
    *end = '\r';
    return !c->in_body && c->have == HEAD_MAX ? -1 : 0;
}

/* The head is complete: how much body follows. -1: the failure is in *ret_why. */
static int take_head(struct conn *c, char *end, enum failure *ret_why)
{
    size_t head = (size_t)(end - c->head) + 4;
    *end = 0;
    *ret_why = FAIL_STATUS;
    if (strncmp(c->head, "HTTP/1.1 200", 12) != 0)
        return -1;
    char *field = strcasestr(c->head, "\r\ncontent-length:");
    *ret_why = FAIL_HEAD;
    if (!field && strcasestr(c->head, "\r\ntransfer-encoding: chunked"))
        return take_chunks(c, end, head);
    if (!field)
        return -1;
    size_t body = strtoul(field + strlen("\r\ncontent-length:"), NULL, 10);
    if (c->have - head > body)
        return -1;
    c->closing = strcasestr(c->head, "\r\nconnection: close") != NULL;
    c->body_left = body - (c->have - head);
    c->in_body = true;
    return 0;
}

/* 1: the answer is complete, 0: more is to come, -1: failed, *ret_why says how */
static int receive(struct conn *c, enum failure *ret_why)
{
    static char body[65536];

    while (!c->in_body || c->body_left) {
        char *to = c->in_body ? body : c->head + c->have;
        size_t room = c->in_body ? sizeof(body) : HEAD_MAX - c->have;
        if (c->in_body && room > c->body_left)
            room = c->body_left;
        ssize_t n = recv(c->fd, to, room, 0);
        if (n < 0 && errno == EAGAIN)
            return 0;
        *ret_why = n < 0 ? FAIL_RESET : FAIL_CLOSED;
        if (n <= 0)
            return -1;
        if (c->in_body) {
            c->body_left -= (size_t)n;
            continue;
        }
        c->have += (size_t)n;
        c->head[c->have] = 0;
        char *end = strstr(c->head, "\r\n\r\n");
        *ret_why = FAIL_HEAD;
        if ((end && take_head(c, end, ret_why) < 0) || (!end && c->have == HEAD_MAX))
            return -1;
    }
    return 1;
}

static void on_conn(struct conn *c)
{
    enum failure why;

    if (c->fd < 0)
        return;
    if (!c->busy) { /* still in the ring of idle ones, and opened anew when its turn comes */
        idle_closed++;
        conn_close(c);
        return;
    }
    int rc = receive(c, &why);
    if (rc < 0)
        fail(c, why);
    if (rc <= 0)
        return;
    latency[done++] = (float)((now() - c->due) * 1e6);
    c->served++;
    if (c->closing || (keep && c->served >= keep))
        conn_close(c);
    idle_push(c);
}

/* Sends what is due until `total` are sent, then waits for the answers. rate 0: closed loop. */
static void run(unsigned long total, double rate)
{
    unsigned long sent = 0;
    double deadline = 0;

    while (done + failed_all < total) {
        double t = now();
        if (stopped)
            total = sent;
        while (sent < total && idle_count &&
               (rate <= 0 || started + (double)sent / rate <= t)) {
            double due = rate > 0 ? started + (double)sent / rate : now();
            if (t - due > 0.001)
                late++;
            sent++;
            send_request(idle_pop(), due);
        }
        if (sent < total)
            deadline = t + GRACE_SECS;
        else if (t > deadline)
            break;
        struct timespec wait = {.tv_sec = done + failed_all < total ? 1 : 0};
        if (rate > 0 && sent < total && idle_count) {
            double left = started + (double)sent / rate - now();
            left = left < 0 ? 0 : left > 1 ? 1 : left;
            wait.tv_sec = (time_t)left;
            wait.tv_nsec = (long)((left - (double)wait.tv_sec) * 1e9);
        }
        struct epoll_event events[256];
        int n = epoll_pwait2(epoll_fd, events, 256, &wait, NULL);
        for (int i = 0; i < n; i++)
            on_conn(events[i].data.ptr);
    }
    if (sent > done + failed_all) {
        failed[FAIL_LOST] = sent - done - failed_all;
        failed_all = sent - done;
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(double share)
{
    return done ? (double)latency[(size_t)((double)(done - 1) * share)] : 0;
}

static void report(double secs)
{
    qsort(latency, done, sizeof(*latency), by_value);
    printf("{\"requests\":%lu,\"failed\":%lu,\"failures\":{", done, failed_all);
    for (int i = 0; i < FAILURES; i++)
        printf("%s\"%s\":%lu", i ? "," : "", failure_name[i], failed[i]);
    printf("},\"secs\":%.3f,\"rps\":%.1f,\"p50_us\":%.0f,\"p90_us\":%.0f,\"p99_us\":%.0f,"
           "\"p999_us\":%.0f,\"max_us\":%.0f,\"late\":%lu,\"opened\":%lu,"
           "\"idle_closed\":%lu}\n",
           secs, (double)done / secs, percentile(.5), percentile(.9), percentile(.99),
           percentile(.999), percentile(1), late, opened, idle_closed);
}

/* An array of as many objects as there is room for; the rest is space, which JSON allows. */
static void json_make(char *to, size_t n)
{
    static const char item[] =
        "{\"id\":1234567,\"name\":\"widget\",\"tags\":[\"a\",\"b\"],\"price\":12.5}";
    size_t len = sizeof(item) - 1, at = 1;

    memset(to, ' ', n);
    if (n < 2)
        memset(to, '1', n);
    if (n < 2)
        return;
    to[0] = '[';
    for (bool first = true; at + len + 2 <= n; first = false) {
        if (!first)
            to[at++] = ',';
        memcpy(to + at, item, len);
        at += len;
    }
    to[n - 1] = ']';
}

static void request_make(const char *path, int port, const char *header, size_t body)
{
    request = malloc(1024 + strlen(path) + strlen(header) + body);
    if (!request)
        exit(1);
    int n = sprintf(request, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: load\r\n",
                    body ? "POST" : "GET", path, port);
    if (*header)
        n += sprintf(request + n, "%s\r\n", header);
    if (body)
        n += sprintf(request + n,
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body);
    else
        n += sprintf(request + n, "Accept: */*\r\n\r\n");
    json_make(request + n, body);
    request_len = (size_t)n + body;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: load [-k N] [-p BYTES] [-H HEADER] rate  PORT PATH CONNS RATE SECS\n"
            "       load [-k N] [-p BYTES] [-H HEADER] count PORT PATH CONNS TOTAL\n");
    return 2;
}

static int conns_open(size_t count)
{
    conn_count = count;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct conn *conns = calloc(count, sizeof(*conns));
    idle = calloc(count, sizeof(struct conn *));
    if (!conns || !idle)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (conn_open(&conns[i]) < 0)
            return -1;
        idle_push(&conns[i]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *header = "";
    size_t body = 0;
    int opt;

    while ((opt = getopt(argc, argv, "+k:p:H:")) != -1) {
        if (opt == 'k')
            keep = (unsigned)strtoul(optarg, NULL, 10);
        else if (opt == 'p')
            body = strtoul(optarg, NULL, 10);
        else if (opt == 'H')
            header = optarg;
        else
            return usage();
    }
    argv += optind;
    argc -= optind;
    bool open_loop = argc == 6 && !strcmp(argv[0], "rate");
    if (!open_loop && !(argc == 5 && !strcmp(argv[0], "count")))
        return usage();
    double rate = open_loop ? strtod(argv[4], NULL) : 0;
    unsigned long total =
        open_loop ? (unsigned long)(rate * strtod(argv[5], NULL)) : strtoul(argv[4], NULL, 10);
    if (total == 0 || atoi(argv[3]) < 1)
        return usage();

    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    target.sin_family = AF_INET;
    target.sin_port = htons((uint16_t)atoi(argv[1]));
    target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    request_make(argv[2], atoi(argv[1]), header, body);
    latency = malloc(total * sizeof(*latency));
    if (!latency || conns_open((size_t)atoi(argv[3])) < 0) {
        perror("load: connect");
        return 1;
    }
    started = now();
    run(total, rate);
    report(now() - started);
    return 0;
}
