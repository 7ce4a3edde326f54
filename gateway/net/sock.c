#include "net/sock.h"

#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/demand.h"

#define BACKLOG 8192 /* the kernel cuts it to net.core.somaxconn */

/* A socket file left behind by a process that is gone is in the way of bind. */
static void remove_stale_unix(const struct addr *addr)
{
    struct stat st;
    if (addr->sa.sa_family != AF_UNIX || lstat(addr->un.sun_path, &st) < 0 ||
        !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, &addr->sa, addr->len) < 0 && errno == ECONNREFUSED)
        unlink(addr->un.sun_path);
    close(fd);
}

int sock_listen(const struct addr *addr, bool reuse_port, int *ret_fd)
{
    static const int on = 1;
    int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (addr->sa.sa_family == AF_UNIX) {
        remove_stale_unix(addr);
    } else if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
               (reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0) ||
               (addr->sa.sa_family == AF_INET6 &&
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)) {
        goto fail;
    }
    if (bind(fd, &addr->sa, addr->len) < 0 || listen(fd, BACKLOG) < 0)
        goto fail;
    *ret_fd = fd;
    return 0;
fail:;
    int err = -errno; /* close() may overwrite errno */
    close(fd);
    return err;
}

void sock_forget(const struct addr *addr)
{
    struct stat st;
    if (addr->sa.sa_family == AF_UNIX && lstat(addr->un.sun_path, &st) == 0 &&
        S_ISSOCK(st.st_mode))
        unlink(addr->un.sun_path);
}

/* ---- the last descriptors ---- */

static int clients_end = INT_MAX, backends_end = INT_MAX; /* constant once there are threads */

uint64_t sock_limit(uint64_t files)
{
    uint64_t kept = files / 8 < 16 ? 16 : files / 8 > 1024 ? 1024 : files / 8;
    if (files > INT_MAX || files <= kept)
        return 0;
    clients_end = (int)(files - kept);
    backends_end = (int)(files - kept / 2);
    return kept / 2;
}

bool sock_is_last(int fd)
{
    return fd >= clients_end - 1;
}

bool sock_is_beyond(int fd)
{
    return fd >= backends_end;
}

bool sock_is_scarce(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0)
        return true;
    close(fd);
    return fd >= clients_end;
}

int sock_accept(int fd, int *ret_fd, struct addr *ret_peer)
{
    ret_peer->len = sizeof(ret_peer->un);
    int conn = accept4(fd, &ret_peer->sa, &ret_peer->len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (conn < 0)
        return -errno;
    *ret_fd = conn;
    return 0;
}

#ifndef NDEBUG
/* POSTERN_FAULT=connect:N: every N-th connect is refused. */
static bool is_refused_on_demand(void)
{
    static _Thread_local unsigned calls;
    uint64_t n = demand("connect");
    if (!n)
        return false;
    return ++calls % n == 0;
}
#endif

int sock_connect(const struct addr *addr, int *ret_fd)
{
    int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (sock_is_beyond(fd)) {
        close(fd);
        return -EMFILE;
    }
    sock_no_delay(fd);
#ifndef NDEBUG
    if (is_refused_on_demand()) {
        close(fd);
        return -ECONNREFUSED;
    }
#endif
    int rc = connect(fd, &addr->sa, addr->len);
    if (rc < 0 && errno != EINPROGRESS) {
        int err = -errno;
        close(fd);
        return err;
    }
    *ret_fd = fd;
    return rc < 0;
}

int sock_error(int fd)
{
    int err = 0;
    socklen_t len = sizeof(err);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
        return -errno;
    return -err;
}

int sock_local(int fd, struct addr *ret)
{
    ret->len = sizeof(ret->un);
    return getsockname(fd, &ret->sa, &ret->len) < 0 ? -errno : 0;
}

void sock_no_delay(int fd)
{
    static const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void sock_reset_on_close(int fd)
{
    static const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}
