/* Reading and writing a connected socket: the two system calls under a stream, and where debug
 * builds make them fail as loopback never does (POSTERN_FAULT=short-read: nearly always one
 * byte at a time; =eagain: every other call finds the kernel not ready). */
#ifndef POSTERN_NET_IO_H
#define POSTERN_NET_IO_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef NDEBUG
/* False: pretend that the kernel is not ready (errno says so). Else *n may be made smaller. */
bool io_fault(size_t *n);
#endif

/* Not the library's recv, send and splice: threads can be cancelled in those, and to keep note
 * of that costs each call two atomic operations. Nobody is cancelled here. */

/* As recv: 0 at the end of the stream, -1 with errno. */
static inline ssize_t io_recv(int fd, char *p, size_t n)
{
#ifndef NDEBUG
    if (!io_fault(&n))
        return -1;
#endif
    ssize_t got;
    do
        got = syscall(SYS_recvfrom, fd, p, n, 0, NULL, NULL);
    while (got < 0 && errno == EINTR);
    return got;
}

/* What `count` pieces hold; as sendmsg. `more`: others follow at once. */
static inline ssize_t io_send(int fd, struct iovec *iov, size_t count, bool more)
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
    int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
    ssize_t sent;
    do
        sent = count == 1 ? syscall(SYS_sendto, fd, iov->iov_base, iov->iov_len, flags, NULL, 0)
                          : syscall(SYS_sendmsg, fd, &msg, flags);
    while (sent < 0 && errno == EINTR);
    return sent;
}

/* From a socket into a pipe, or from a pipe into a socket; as read and write. */
static inline ssize_t io_splice(int from, int to, size_t n, bool more)
{
#ifndef NDEBUG
    if (!io_fault(&n))
        return -1;
#endif
    unsigned flags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0);
    ssize_t moved;
    do
        moved = syscall(SYS_splice, from, NULL, to, NULL, n, flags);
    while (moved < 0 && errno == EINTR);
    return moved;
}

#endif
