#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/fdwatch.h"

static struct loop loop;
static struct fdwatch watch;
static unsigned seen, calls;

static void on_ready(struct fdwatch *it, unsigned events)
{
    assert_ptr_equal(it, &watch);
    seen = events;
    calls++;
}

static void turn(void)
{
    seen = 0;
    event_base_loop(loop.base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
}

static void tells_what_is_asked_for(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    watch = (struct fdwatch){.loop = &loop, .on_ready = on_ready};
    assert_int_equal(fdwatch_set(&watch, fds[0], 0), 0);
    assert_int_equal(fdwatch_set(&watch, fds[0], FDWATCH_READ), 0);
    turn();
    assert_int_equal(seen, 0);
    assert_int_equal(fdwatch_set(&watch, fds[0], FDWATCH_READ | FDWATCH_WRITE), 0);
    turn();
    assert_int_equal(seen, FDWATCH_WRITE);
    assert_int_equal(write(fds[1], "x", 1), 1);
    turn();
    assert_int_equal(seen, FDWATCH_READ | FDWATCH_WRITE);
    assert_int_equal(fdwatch_set(&watch, fds[0], FDWATCH_READ), 0);
    assert_int_equal(fdwatch_set(&watch, fds[0], FDWATCH_READ), 0);
    turn();
    assert_int_equal(seen, FDWATCH_READ); /* again and again, until it is read */
    turn();
    assert_int_equal(seen, FDWATCH_READ);
    assert_int_equal(fdwatch_set(&watch, fds[0], 0), 0);
    calls = 0;
    turn();
    assert_int_equal(calls, 0);
    close(fds[0]);
    close(fds[1]);
    assert_true(fdwatch_set(&watch, -1, FDWATCH_READ) < 0);
    assert_int_equal(watch.wanted, 0);
    loop_done(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tells_what_is_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
