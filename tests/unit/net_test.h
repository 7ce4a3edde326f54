/* For the tests of what lives on a loop: one loop for each test, turned by hand. */
#ifndef NET_TEST_H
#define NET_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <unistd.h>

#include "net/loop.h"
#include "net/sock.h"
#include "net/stream.h"

static struct loop loop;

static inline int set_up_loop(void **state)
{
    (void)state;
    return loop_init(&loop);
}

/* Whatever a test did, nothing of it is left. */
static inline int tear_down_loop(void **state)
{
    (void)state;
    mem_fail_at(0);
    while (loop.graves) {
        struct grave *grave = loop.graves;
        loop.graves = grave->next;
        grave->bury(grave);
    }
    int left = loop.blocks.live || loop.segs.live || loop.chunks.live || loop.first_task;
    if (left)
        print_error("left: %u blocks, %u segments, %u chunks, %s\n", loop.blocks.live,
                    loop.segs.live, loop.chunks.live, loop.first_task ? "tasks" : "no task");
    else
        loop_done(&loop);
    return left;
}

/* What loop_run does over and over: whatever is due by now, and the burials. */
static inline void turn(void)
{
    uint64_t before = loop.now;
    event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    while (loop.graves) {
        struct grave *grave = loop.graves;
        loop.graves = grave->next;
        grave->bury(grave);
    }
    if (loop.now == before)
        usleep(100);
}

/* Turns until nothing happens any more that does not wait for a timer. */
static inline void settle(void)
{
    for (int quiet = 0; quiet < 3;) {
        uint64_t before = loop.now;
        event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        while (loop.graves) {
            struct grave *grave = loop.graves;
            loop.graves = grave->next;
            grave->bury(grave);
        }
        quiet = loop.now == before ? quiet + 1 : 0;
    }
}

/* Waits long enough for the slowest machine, and never longer than needed. */
#define UNTIL(condition)                                                                       \
    do {                                                                                       \
        uint64_t end_ = clock_ns() + 10 * NS_PER_S;                                            \
        while (!(condition)) {                                                                 \
            if (clock_ns() > end_)                                                             \
                fail_msg("never came true: %s", #condition);                                   \
            turn();                                                                            \
        }                                                                                      \
    } while (0)

/* As from a callback of libevent's. */
#define IN_LOOP(statement)                                                                     \
    do {                                                                                       \
        loop_enter(&loop);                                                                     \
        statement;                                                                             \
        loop_leave(&loop);                                                                     \
    } while (0)

/* Both ends non-blocking. */
static inline void make_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
                     0);
}

static inline struct addr addr_of(const char *text)
{
    struct addr addr;
    assert_int_equal(addr_parse(str_of(text), &addr), 0);
    return addr;
}

/* A listening socket on a port of the kernel's choice. */
static inline int listen_any(struct addr *ret)
{
    int fd;
    *ret = addr_of("127.0.0.1:1");
    ret->in4.sin_port = 0;
    assert_int_equal(sock_listen(ret, false, &fd), 0);
    assert_int_equal(getsockname(fd, &ret->sa, &ret->len), 0);
    return fd;
}

/* The next connection, or -1 when none waits. */
static inline int accept_next(int fd)
{
    struct addr peer;
    int conn;
    return sock_accept(fd, &conn, &peer) == 0 ? conn : -1;
}

/* Sends all of it; the other side reads meanwhile. */
static inline void feed(int fd, const char *p, size_t n)
{
    uint64_t end = clock_ns() + 10 * NS_PER_S;
    while (n) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            fail_msg("cannot send: %s", strerror(errno));
        if (sent > 0) {
            p += sent;
            n -= (size_t)sent;
        } else {
            turn();
        }
        assert_true(clock_ns() < end);
    }
}

/* What has come so far, behind `n` bytes that came before. Sets *eof at the end of it. */
static inline size_t collect(int fd, char *out, size_t n, size_t room, bool *eof)
{
    ssize_t got;
    while (n < room && (got = recv(fd, out + n, room - n, 0)) > 0)
        n += (size_t)got;
    if (n < room && got == 0)
        *eof = true;
    return n;
}

/* Small, fast, and the same in every run. */
static inline uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#endif
