/* The backend of every measurement: a single-threaded HTTP/1.1 keep-alive server, as cheap
 * as it can be, so that what is measured is the gateway before it. Not a general server.
 *
 *     backend PORT [SOCKET]            (on 127.0.0.1, and on a unix socket)
 *     GET  /small /64k /1m             150 bytes, 64 KiB, 1 MiB of JSON
 *     GET  /limited /keyed /token      as /small, for gateways that do more about them
 *     GET  /r/...                      as /small, for gateways with many routes
 *     POST /echo                       the body comes back, of at most 16 KiB
 *     POST /upload                     the body goes nowhere, however long it is; as /small
 *     GET  /wait                       as /small, 10 ms later: so many a second for each one
 *     GET  /tunnel + Upgrade           101, then every byte comes back
 *     GET  /__conns                    {"accepted":N,"open":N,"requests":N}, not counted */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define IN_MAX   16384
#define HEAD_MAX 256
#define WAIT_MS  10

struct answer {
    char *bytes;
    size_t len;
};

struct conn {
    int fd;
    bool wants_out; /* EPOLLOUT is armed: the client reads slower than we write */
    bool tunnel;
    bool last; /* close once the answer is out */
    long due;  /* ms; 0: it does not wait */
    TAILQ_ENTRY(conn) waiting;
    size_t have;
    size_t unwanted; /* bytes of an upload still to come */
    const char *out;
    size_t out_left;
    char own[HEAD_MAX + IN_MAX]; /* an answer made for this request */
    char in[IN_MAX + 1];
};

static struct answer small, large, huge;
static unsigned long accepted, open_now, requests;
static int epoll_fd;
static TAILQ_HEAD(, conn) waiters = TAILQ_HEAD_INITIALIZER(waiters); /* all wait equally long */

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct answer answer_new(size_t body)
{
    static const char item[] =
        "{\"id\":1234567,\"name\":\"widget\",\"tags\":[\"a\",\"b\"],\"price\":12.50},";
    struct answer a;
    a.bytes = malloc(HEAD_MAX + body);
    if (!a.bytes)
        exit(1);
    size_t head = (size_t)snprintf(a.bytes, HEAD_MAX,
                                   "HTTP/1.1 200 OK\r\nServer: bench\r\n"
                                   "Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
                                   "Content-Type: application/json\r\n"
                                   "Content-Length: %zu\r\n\r\n",
                                   body);
    char *p = a.bytes + head;
    for (size_t i = 0; i < body; i++)
        p[i] = item[i % (sizeof(item) - 1)];
    p[0] = '[';
    p[body - 1] = ']';
    a.len = head + body;
    return a;
}

static void conn_free(struct conn *c)
{
    if (c->due)
        TAILQ_REMOVE(&waiters, c, waiting);
    close(c->fd);
    free(c);
    open_now--;
}

static void watch(struct conn *c, bool out)
{
    if (c->wants_out == out)
        return;
    struct epoll_event ev = {.events = out ? EPOLLOUT : EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
    c->wants_out = out;
}

/* 1: all is written, 0: the socket is full, -1: the connection is to be closed */
static int flush(struct conn *c)
{
    while (c->out_left) {
        ssize_t n = send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(c, true);
            return 0;
        }
        if (n < 0)
            return -1;
        c->out += n;
        c->out_left -= (size_t)n;
    }
    watch(c, false);
    return c->last ? -1 : 1;
}

static int say(struct conn *c, const char *bytes, size_t len)
{
    c->out = bytes;
    c->out_left = len;
    return flush(c);
}

static int say_own(struct conn *c, const char *status, const char *fields, const char *body,
                   size_t len)
{
    int head = snprintf(c->own, HEAD_MAX, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n",
                        status, fields, len);
    memcpy(c->own + head, body, len);
    return say(c, c->own, (size_t)head + len);
}

static int refuse(struct conn *c, const char *status)
{
    c->last = true;
    return say_own(c, status, "Connection: close\r\n", "", 0);
}

static int say_counters(struct conn *c)
{
    char body[128];
    int n = snprintf(body, sizeof(body), "{\"accepted\":%lu,\"open\":%lu,\"requests\":%lu}",
                     accepted, open_now, requests);
    return say_own(c, "200 OK", "", body, (size_t)n);
}

static int get(struct conn *c, const char *head)
{
    static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\n"
                                   "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    const char *target = head + strlen("GET ");

    if (!strncmp(target, "/__conns ", 9))
        return say_counters(c);
    requests++;
    if (!strncmp(target, "/small ", 7) || !strncmp(target, "/limited ", 9) ||
        !strncmp(target, "/keyed", 6) || !strncmp(target, "/token ", 7) ||
        !strncmp(target, "/r/", 3))
        return say(c, small.bytes, small.len);
    if (!strncmp(target, "/wait ", 6)) {
        c->due = now_ms() + WAIT_MS;
        TAILQ_INSERT_TAIL(&waiters, c, waiting);
        return 0;
    }
    if (!strncmp(target, "/64k ", 5))
        return say(c, large.bytes, large.len);
    if (!strncmp(target, "/1m ", 4))
        return say(c, huge.bytes, huge.len);
    if (!strncmp(target, "/tunnel ", 8) && strcasestr(head, "\r\nupgrade:")) {
        c->tunnel = true;
        return say(c, switched, sizeof(switched) - 1);
    }
    return refuse(c, "404 Not Found");
}

/* The chunks of a body at `p`, put together where the first one is; *ret_n is its length then.
 * How many bytes it took, 0: it is not complete, and nothing has been changed. */
static size_t join_chunks(char *p, size_t len, size_t *ret_n)
{
    for (int joining = 0; joining < 2; joining++) {
        size_t at = 0, n = 0;
        for (;;) {
            char *line = memmem(p + at, len - at, "\r\n", 2);
            if (!line)
                return 0;
            size_t size = strtoul(p + at, NULL, 16);
            at = (size_t)(line - p) + 2;
            if (len - at < 2 || len - at - 2 < size)
                return 0;
            if (joining)
                memmove(p + n, p + at, size);
            n += size;
            at += size + 2;
            if (size == 0)
                break;
        }
        *ret_n = n;
        len = joining ? at : len;
    }
    return len;
}

/* One request from the start of in[]: its length, 0 when it is not complete; *ret_rc as
 * flush(). */
static size_t take_request(struct conn *c, char *p, size_t len, int *ret_rc)
{
    char *end = memmem(p, len, "\r\n\r\n", 4);
    if (!end) {
        if (len >= IN_MAX)
            *ret_rc = refuse(c, "431 Request Header Fields Too Large");
        return 0;
    }
    size_t head = (size_t)(end - p) + 4;
    *end = 0;
    if (!strncmp(p, "GET ", 4)) {
        *ret_rc = get(c, p);
        return head;
    }
    char *field = strcasestr(p, "\r\ncontent-length:");
    if (!strncmp(p, "POST /echo ", 11) && strcasestr(p, "\r\ntransfer-encoding: chunked")) {
        size_t joined, took = join_chunks(p + head, len - head, &joined);
        *end = '\r';
        if (!took)
            return 0;
        requests++;
        *ret_rc = say_own(c, "200 OK", "Content-Type: application/json\r\n", p + head, joined);
        return head + took;
    }
    bool upload = !strncmp(p, "POST /upload ", 13);
    if ((!upload && strncmp(p, "POST /echo ", 11)) || !field) {
        *ret_rc = refuse(c, field ? "404 Not Found" : "411 Length Required");
        return head;
    }
    size_t body = strtoul(field + strlen("\r\ncontent-length:"), NULL, 10);
    *end = '\r';
    if (upload) {
        size_t here = len - head < body ? len - head : body;
        requests++;
        c->unwanted = body - here;
        *ret_rc = c->unwanted ? 0 : say(c, small.bytes, small.len);
        return head + here;
    }
    if (body > IN_MAX - head) {
        *ret_rc = refuse(c, "413 Content Too Large");
        return head;
    }
    if (len < head + body)
        return 0;
    requests++;
    *ret_rc = say_own(c, "200 OK", "Content-Type: application/json\r\n", p + head, body);
    return head + body;
}

static int take_input(struct conn *c)
{
    size_t used = 0;
    int rc = 1;

    if (c->tunnel) {
        size_t len = c->have;
        memcpy(c->own, c->in, len);
        c->have = 0;
        return say(c, c->own, len);
    }
    while (rc == 1 && used < c->have && !c->tunnel) {
        c->in[c->have] = 0;
        size_t n = take_request(c, c->in + used, c->have - used, &rc);
        if (n == 0)
            break;
        used += n;
    }
    memmove(c->in, c->in + used, c->have - used);
    c->have -= used;
    return rc;
}

/* More of an upload, of which the kernel need not even give us a copy. */
static int swallow(struct conn *c)
{
    static char nowhere[65536];
    size_t room = c->unwanted < sizeof(nowhere) ? c->unwanted : sizeof(nowhere);
    ssize_t n = recv(c->fd, nowhere, room, MSG_TRUNC);
    if (n <= 0)
        return n < 0 && errno == EAGAIN ? 0 : -1;
    c->unwanted -= (size_t)n < room ? (size_t)n : room;
    return c->unwanted ? 0 : say(c, small.bytes, small.len);
}

static void on_conn(struct conn *c)
{
    int rc = 1;

    if (c->unwanted) {
        rc = swallow(c);
    } else if (c->wants_out) {
        rc = flush(c);
        if (rc == 1 && c->have)
            rc = take_input(c);
    } else {
        if (c->have >= IN_MAX) /* more than one request while it waits: not from a gateway */
            return conn_free(c);
        ssize_t n = recv(c->fd, c->in + c->have, IN_MAX - c->have, 0);
        if (n > 0) {
            c->have += (size_t)n;
            rc = c->due ? 0 : take_input(c);
        } else if (n == 0 || errno != EAGAIN) {
            rc = -1;
        }
    }
    if (rc < 0)
        conn_free(c);
}

/* Answers those whose time has come; how long the next one has, -1: there is none. */
static int on_time(void)
{
    struct conn *c;
    long now = now_ms();
    while ((c = TAILQ_FIRST(&waiters)) && c->due <= now) {
        TAILQ_REMOVE(&waiters, c, waiting);
        c->due = 0;
        int rc = say(c, small.bytes, small.len);
        if (rc == 1 && c->have)
            rc = take_input(c);
        if (rc < 0)
            conn_free(c);
    }
    return c ? (int)(c->due - now) : -1;
}

static void on_listener(int listener)
{
    static const int on = 1;
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *c = malloc(sizeof(*c));
        if (!c) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        memset(c, 0, offsetof(struct conn, own));
        c->fd = fd;
        accepted++;
        open_now++;
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    }
}

/* The listeners, which epoll tells apart from connections by where they stand. */
static int listeners[2];

static void listen_on(int *listener, const struct sockaddr *addr, socklen_t len)
{
    static const int on = 1;
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, addr, len) < 0 || listen(fd, 8192) < 0) {
        perror("backend: listen");
        exit(1);
    }
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = listener};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    *listener = fd;
}

static void listen_all(char **argv)
{
    struct sockaddr_in tcp = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(argv[1])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};

    listen_on(&listeners[0], (struct sockaddr *)&tcp, sizeof(tcp));
    if (!argv[2])
        return;
    if (strlen(argv[2]) >= sizeof(local.sun_path)) {
        fprintf(stderr, "backend: %s: the name is too long\n", argv[2]);
        exit(1);
    }
    strcpy(local.sun_path, argv[2]);
    listen_on(&listeners[1], (struct sockaddr *)&local, sizeof(local));
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: backend PORT [SOCKET]\n");
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    small = answer_new(150);
    large = answer_new(65536);
    huge = answer_new(1048576);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    listen_all(argv);
    for (;;) {
        struct epoll_event events[256];
        int n = epoll_wait(epoll_fd, events, 256, on_time());
        for (int i = 0; i < n; i++) {
            int *listener = events[i].data.ptr;
            if (listener == &listeners[0] || listener == &listeners[1])
                on_listener(*listener);
            else
                on_conn(events[i].data.ptr);
        }
    }
}
