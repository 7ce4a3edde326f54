/* Reading and writing a connected socket: the two system calls under a stream, and where debug
 * builds make them fail as loopback never does (POSTERN_FAULT=short-read: nearly always one
 * byte at a time; =eagain: every other call finds the kernel not ready). */
#ifndef POSTERN_NET_IO_H
#define POSTERN_NET_IO_H

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef NDEBUG
/* False: pretend that the kernel is not ready (errno says so). Else *n may be made smaller. */
bool io_fault(size_t *n);
#endif

/* As recv: 0 at the end of the stream, -1 with errno. */
static inline ssize_t io_recv(int fd, char *p, size_t n)
{
#ifndef NDEBUG
    if (!io_fault(&n))
        return -1;
#endif
    ssize_t got;
    do
        got = recv(fd, p, n, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

/* What `count` pieces hold; as sendmsg. */
static inline ssize_t io_send(int fd, struct iovec *iov, size_t count)
{
#ifndef NDEBUG
    size_t first = iov->iov_len;
    if (!io_fault(&first))
        return -1;
    if (first < iov->iov_len) {
        iov->iov_len = first;
        count = 1;
    }
#endif
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t sent;
    do
        sent = count == 1 ? send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL)
                          : sendmsg(fd, &msg, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

#endif
