/* The floor: the least that a user-space proxy over read and write can do. A single-threaded
 * epoll relay of TCP bytes with one upstream connection per client connection: two reads and
 * two writes a keep-alive request, plus its share of epoll_wait. It does not know HTTP.
 *
 *     relay [-s] LISTEN_PORT BACKEND       (a port on 127.0.0.1, or the path of a unix socket)
 *
 * -s: with splice, through a pipe for each direction, so that no byte comes to user space. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BATCH    256
#define READ_MAX 65536

struct end {
    int fd;
    uint32_t events; /* what epoll watches */
    struct end *peer;
    char *pending; /* read from the peer, not yet written to fd */
    int pipe[2];   /* with -s: where it waits */
    size_t off, len;
    bool dead;
};

static int epoll_fd;
static bool splicing;
static struct sockaddr_storage backend;
static socklen_t backend_len;
/* Ends that died in this batch: a later event of the batch may still name them. */
static struct end *dead[2 * BATCH];
static int dead_count;

static void arm(struct end *e, uint32_t events)
{
    if (e->events == events)
        return;
    struct epoll_event ev = {.events = events, .data.ptr = e};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, e->fd, &ev);
    e->events = events;
}

static void kill_pair(struct end *e)
{
    struct end *pair[2] = {e, e->peer};

    if (e->dead)
        return;
    for (int i = 0; i < 2; i++) {
        close(pair[i]->fd);
        if (splicing) {
            close(pair[i]->pipe[0]);
            close(pair[i]->pipe[1]);
        }
        free(pair[i]->pending);
        pair[i]->dead = true;
        dead[dead_count++] = pair[i];
    }
}

#define HOW (SPLICE_F_MOVE | SPLICE_F_NONBLOCK)

static void on_writable(struct end *e)
{
    while (e->len) {
        ssize_t n = splicing ? splice(e->pipe[0], NULL, e->fd, NULL, e->len, HOW)
                             : send(e->fd, e->pending + e->off, e->len, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN)
                kill_pair(e);
            return;
        }
        e->off += (size_t)n;
        e->len -= (size_t)n;
    }
    free(e->pending);
    e->pending = NULL;
    arm(e, e->peer->len ? 0 : EPOLLIN);
    arm(e->peer, e->peer->len ? EPOLLOUT : EPOLLIN);
}

/* The rest waits at `to`, and its source is not read until it is gone. */
static void hold(struct end *to, const char *bytes, size_t len)
{
    to->pending = malloc(len);
    if (!to->pending) {
        kill_pair(to);
        return;
    }
    memcpy(to->pending, bytes, len);
    to->off = 0;
    to->len = len;
    arm(to, EPOLLOUT);
    arm(to->peer, 0);
}

static void pass(struct end *e)
{
    struct end *to = e->peer;
    ssize_t n = splice(e->fd, NULL, to->pipe[1], NULL, READ_MAX, HOW);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            kill_pair(e);
        return;
    }
    ssize_t sent = splice(to->pipe[0], NULL, to->fd, NULL, (size_t)n, HOW);
    if (sent < 0 && errno != EAGAIN) {
        kill_pair(e);
        return;
    }
    to->len = (size_t)(sent < 0 ? n : n - sent);
    if (to->len) {
        arm(to, EPOLLOUT);
        arm(e, 0);
    }
}

static void on_readable(struct end *e)
{
    static char buf[READ_MAX];

    if (e->peer->len) { /* not watched for input: only an error or hang-up comes here */
        kill_pair(e);
        return;
    }
    if (splicing) {
        pass(e);
        return;
    }
    ssize_t n = recv(e->fd, buf, sizeof(buf), 0);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            kill_pair(e);
        return;
    }
    ssize_t sent = send(e->peer->fd, buf, (size_t)n, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        kill_pair(e);
        return;
    }
    if (sent < 0)
        sent = 0;
    if (sent < n)
        hold(e->peer, buf + sent, (size_t)(n - sent));
}

static struct end *end_new(int fd)
{
    static const int on = 1;
    struct end *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    if (splicing && pipe2(e->pipe, O_NONBLOCK | O_CLOEXEC) < 0) {
        free(e);
        return NULL;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    e->fd = fd;
    e->events = EPOLLIN;
    return e;
}

static void on_listener(int listener)
{
    int down = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (down < 0)
        return;
    int up = socket(backend.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct end *a = NULL, *b = NULL;
    /* connecting over loopback is immediate, so it may block */
    if (up < 0 || connect(up, (const struct sockaddr *)&backend, backend_len) < 0 ||
        fcntl(up, F_SETFL, O_NONBLOCK) < 0 || !(a = end_new(down)) || !(b = end_new(up))) {
        free(a);
        if (up >= 0)
            close(up);
        close(down);
        return;
    }
    a->peer = b;
    b->peer = a;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = a};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, a->fd, &ev);
    ev.data.ptr = b;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, b->fd, &ev);
}

static void turn(int listener)
{
    struct epoll_event events[BATCH];
    int n = epoll_wait(epoll_fd, events, BATCH, -1);

    for (int i = 0; i < n; i++) {
        struct end *e = events[i].data.ptr;
        if (!e)
            on_listener(listener);
        else if (!e->dead && (events[i].events & EPOLLOUT))
            on_writable(e);
        else if (!e->dead)
            on_readable(e);
    }
    while (dead_count)
        free(dead[--dead_count]);
}

static struct sockaddr_in loopback(const char *port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(port)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void backend_at(const char *where)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in tcp = loopback(where);

    if (*where != '/') {
        backend_len = sizeof(tcp);
        memcpy(&backend, &tcp, sizeof(tcp));
        return;
    }
    if (strlen(where) >= sizeof(local.sun_path)) {
        fprintf(stderr, "relay: %s: the name is too long\n", where);
        exit(1);
    }
    strcpy(local.sun_path, where);
    backend_len = sizeof(local);
    memcpy(&backend, &local, sizeof(local));
}

int main(int argc, char **argv)
{
    static const int on = 1;

    splicing = argc > 1 && strcmp(argv[1], "-s") == 0;
    argc -= splicing;
    argv += splicing;
    if (argc != 3) {
        fprintf(stderr, "usage: relay [-s] LISTEN_PORT BACKEND\n");
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    struct sockaddr_in addr = loopback(argv[1]);
    backend_at(argv[2]);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        listen(listener, 8192) < 0) {
        perror("relay: listen");
        return 1;
    }
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &ev);
    for (;;)
        turn(listener);
}
