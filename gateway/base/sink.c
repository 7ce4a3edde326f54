#include "base/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void sink_close(struct sink *sink)
{
    if (sink->own)
        close(sink->fd);
    free(sink->path);
}

/* A pipe is opened anew, to be non-blocking without changing the flags of the descriptor that
 * others hold too. Where that is not allowed (another user's pipe), we must look before we
 * write. */
static int standard_open(int standard, struct sink *sink)
{
    struct stat st;
    char name[32];

    if (fstat(standard, &st) < 0)
        return -errno;
    if (S_ISFIFO(st.st_mode)) {
        snprintf(name, sizeof(name), "/proc/self/fd/%d", standard);
        sink->fd = open(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (sink->fd >= 0)
            return 0;
    }
    sink->fd = fcntl(standard, F_DUPFD_CLOEXEC, 3);
    if (sink->fd < 0)
        return -errno;
    sink->is_socket = S_ISSOCK(st.st_mode);
    sink->may_block = !S_ISREG(st.st_mode) && !sink->is_socket;
    return 0;
}

int sink_open(const char *path, int standard, struct sink *ret_sink)
{
    struct sink sink = {.fd = -1, .own = true};
    int err = 0;

    sink.path = strdup(path);
    if (!sink.path)
        return -ENOMEM;
    if (strcmp(path, "-") == 0) {
        err = standard_open(standard, &sink);
    } else if (strcmp(path, "off") == 0) {
        sink.own = false;
    } else {
        /* O_NONBLOCK: a FIFO without a reader is a fault, not a wait. */
        sink.fd =
            open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
        err = sink.fd < 0 ? -errno : 0;
    }
    if (err < 0) {
        free(sink.path);
        return err;
    }
    *ret_sink = sink;
    return 0;
}

static bool sink_wait(struct sink *sink, int patience_ms)
{
    struct pollfd pfd = {.fd = sink->fd, .events = POLLOUT};
    int n;

    do
        n = poll(&pfd, 1, sink->stuck ? 0 : patience_ms);
    while (n < 0 && errno == EINTR);
    sink->stuck = n == 0;
    return n > 0;
}

/* As many of the lines as one call may carry: a write of at most PIPE_BUF to a pipe that
 * polls writable does not block. */
static size_t lines_at_once(const struct iovec *lines, size_t count)
{
    size_t n = 0, bytes = 0;

    while (n < count && bytes + lines[n].iov_len <= PIPE_BUF)
        bytes += lines[n++].iov_len;
    return n;
}

static ssize_t sink_try(struct sink *sink, struct iovec *lines, size_t count, int patience_ms)
{
    if (sink->is_socket) {
        struct msghdr msg = {.msg_iov = lines, .msg_iovlen = count};
        return sendmsg(sink->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (sink->may_block) {
        size_t fit = lines_at_once(lines, count);
        if (!sink_wait(sink, patience_ms)) {
            errno = ETIMEDOUT;
            return -1;
        }
        if (fit == 0)
            return write(sink->fd, lines[0].iov_base, PIPE_BUF);
        return writev(sink->fd, lines, (int)fit);
    }
    return writev(sink->fd, lines, (int)count);
}

static int sink_put(struct sink *sink, struct iovec *lines, size_t count, int patience_ms,
                    size_t *ret_left)
{
    while (count > 0) {
        ssize_t n = sink_try(sink, lines, count, patience_ms);
        if (n < 0) {
            int err = -errno; /* poll() may overwrite errno */
            if (err == -EINTR || (err == -EAGAIN && sink_wait(sink, patience_ms)))
                continue;
            *ret_left = count;
            return err == -EAGAIN ? -ETIMEDOUT : err;
        }
        while (count > 0 && (size_t)n >= lines->iov_len) {
            n -= (ssize_t)lines->iov_len;
            lines++;
            count--;
            sink->torn = false;
        }
        if (n > 0 && count > 0) {
            sink->torn = true;
            lines->iov_base = (char *)lines->iov_base + n;
            lines->iov_len -= (size_t)n;
        }
    }
    return 0;
}

int sink_write(struct sink *sink, struct iovec *lines, size_t count, int patience_ms,
               size_t *ret_left)
{
    char end[] = "\n";
    struct iovec lf = {.iov_base = end, .iov_len = 1};
    size_t left;

    if (sink->fd < 0 || count == 0)
        return 0;
    /* A line that was cut off ends before the next one begins. */
    if (sink->torn) {
        int err = sink_put(sink, &lf, 1, patience_ms, &left);
        if (err < 0) {
            *ret_left = count;
            return err;
        }
    }
    return sink_put(sink, lines, count, patience_ms, ret_left);
}

void pipe_guard_enter(struct pipe_guard *guard)
{
    sigset_t set, pending;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &guard->old);
    guard->pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

void pipe_guard_leave(const struct pipe_guard *guard)
{
    static const struct timespec at_once;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    if (!guard->pending)
        while (sigtimedwait(&set, NULL, &at_once) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &guard->old, NULL);
}
