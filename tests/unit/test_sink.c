#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sink.h"

static int put(struct sink *sink, const char *line, size_t n, int patience_ms)
{
    struct iovec iov = {.iov_base = (char *)(uintptr_t)line, .iov_len = n};
    struct pipe_guard guard;
    size_t left = 0;
    int err;

    pipe_guard_enter(&guard);
    err = sink_write(sink, &iov, 1, patience_ms, &left);
    pipe_guard_leave(&guard);
    assert_int_equal(left, err < 0 ? 1 : 0);
    return err;
}

static int puts_line(struct sink *sink, const char *line, int patience_ms)
{
    return put(sink, line, strlen(line), patience_ms);
}

static size_t read_all(int fd, char *out, size_t cap)
{
    size_t n = 0;
    ssize_t got;

    while (n < cap && (got = read(fd, out + n, cap - n)) > 0)
        n += (size_t)got;
    return n;
}

static void appends_to_files_that_only_the_group_may_read(void **state)
{
    char name[] = "/tmp/postern-test-sink-XXXXXX", path[64], text[64];
    struct sink sink;
    struct stat st;
    mode_t mask = umask(0);
    int fd;

    (void)state;
    assert_non_null(mkdtemp(name));
    snprintf(path, sizeof(path), "%s/log", name);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sink_open(path, -1, &sink), 0);
        assert_int_equal(puts_line(&sink, i == 0 ? "one\n" : "two\n", 0), 0);
        sink_close(&sink);
    }
    umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    fd = open(path, O_RDONLY);
    assert_int_equal(read_all(fd, text, sizeof(text)), 8);
    assert_memory_equal(text, "one\ntwo\n", 8);
    close(fd);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sink_open(path, -1, &sink), -ENXIO); /* nobody reads it: no wait */
    unlink(path);
    assert_int_equal(sink_open(name, -1, &sink), -EISDIR);
    rmdir(name);
    assert_int_equal(sink_open(path, -1, &sink), -ENOENT);
}

static void off_goes_nowhere(void **state)
{
    struct sink sink;

    (void)state;
    assert_int_equal(sink_open("off", -1, &sink), 0);
    assert_int_equal(sink.fd, -1);
    assert_int_equal(puts_line(&sink, "x\n", 0), 0);
    sink_close(&sink);
}

static void leaves_a_shared_pipes_flags_alone(void **state)
{
    struct sink sink;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sink_open("-", fds[1], &sink), 0);
    assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
    assert_int_not_equal(fcntl(sink.fd, F_GETFL) & O_NONBLOCK, 0);
    sink_close(&sink);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(sink_open("-", fds[1], &sink), -EBADF);
}

/* SIGPIPE is at its default here: the test itself would die. */
static void survives_a_reader_that_left(void **state)
{
    struct sink sinks[3];
    sigset_t pending;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sink_open("-", fds[1], &sinks[0]), 0);
    sinks[1] = (struct sink){.fd = fds[1], .may_block = true};
    close(fds[0]);
    assert_int_equal(puts_line(&sinks[0], "x\n", 0), -EPIPE);
    assert_int_equal(puts_line(&sinks[1], "x\n", 0), -EPIPE);
    sink_close(&sinks[0]);
    close(fds[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(sink_open("-", fds[1], &sinks[2]), 0);
    close(fds[0]);
    assert_int_equal(puts_line(&sinks[2], "x\n", 0), -EPIPE);
    sink_close(&sinks[2]);
    close(fds[1]);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
}

static void says_how_many_lines_a_full_disk_took(void **state)
{
    struct iovec lines[2] = {{.iov_base = (char[]){"a\n"}, .iov_len = 2},
                             {.iov_base = (char[]){"b\n"}, .iov_len = 2}};
    struct sink sink;
    size_t left = 0;

    (void)state;
    assert_int_equal(sink_open("/dev/full", -1, &sink), 0);
    assert_int_equal(sink_write(&sink, lines, 2, 0, &left), -ENOSPC);
    assert_int_equal(left, 2);
    sink_close(&sink);
}

/* Fills the pipe behind `fd` up, until a line fails; returns the error. */
static int fill(struct sink *sink, size_t line, int patience_ms, uint64_t *ret_ms)
{
    char *text = malloc(line);
    uint64_t began;
    int err;

    memset(text, 'x', line);
    text[line - 1] = '\n';
    do {
        began = clock_ns();
        err = put(sink, text, line, patience_ms);
    } while (err == 0);
    *ret_ms = (clock_ns() - began) / NS_PER_MS;
    free(text);
    return err;
}

/* All lines in the pipe but one are whole, and that one ends as well. */
static void expect_one_torn(int fd, size_t line)
{
    static char text[1 << 20];
    size_t n = 0, torn = 0;
    const char *p = text;

    fcntl(fd, F_SETFL, O_NONBLOCK);
    n = read_all(fd, text, sizeof(text) - 1);
    assert_int_equal(text[n - 1], '\n');
    while (p < text + n) {
        const char *lf = memchr(p, '\n', (size_t)(text + n - p));
        assert_non_null(lf);
        if (lf + 1 - p == 5)
            assert_memory_equal(p, "last\n", 5);
        else if ((size_t)(lf + 1 - p) != line)
            torn++;
        p = lf + 1;
    }
    assert_int_equal(torn, 1);
}

static void loses_patience_once_with_a_reader_that_stopped(struct sink *sink, int reader,
                                                           size_t line)
{
    char text[PIPE_BUF * 4];
    uint64_t ms;

    assert_int_equal(fill(sink, line, 50, &ms), -ETIMEDOUT);
    assert_in_range(ms, 49, 1000);
    assert_int_equal(fill(sink, line, 50, &ms), -ETIMEDOUT);
    assert_in_range(ms, 0, 40); /* not again, as long as it does not read */
    assert_true(read(reader, text, line < sizeof(text) ? line : sizeof(text)) > 0);
    assert_true(read(reader, text, sizeof(text)) > 0);
    assert_int_equal(puts_line(sink, "last\n", 50), 0);
}

static void does_not_hang_on_a_pipe_that_is_not_read(void **state)
{
    struct sink sink;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sink_open("-", fds[1], &sink), 0);
    loses_patience_once_with_a_reader_that_stopped(&sink, fds[0], 3000);
    sink_close(&sink);
    close(fds[0]);
    close(fds[1]);
}

/* Where the pipe could not be opened anew, its descriptor stays a blocking one. */
static void does_not_hang_on_a_blocking_pipe(void **state)
{
    struct sink sink = {.may_block = true};
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    sink.fd = fds[1];
    loses_patience_once_with_a_reader_that_stopped(&sink, fds[0], 3 * PIPE_BUF + 1);
    close(fds[0]);
    close(fds[1]);
}

static void ends_a_line_that_was_cut_off(void **state)
{
    enum { LINE = 10000 }; /* longer than PIPE_BUF: a write may be done in part */
    struct sink sink;
    char text[2 * LINE];
    uint64_t ms;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sink_open("-", fds[1], &sink), 0);
    assert_int_equal(fill(&sink, LINE, 1, &ms), -ETIMEDOUT);
    assert_true(sink.torn);
    assert_int_equal(read(fds[0], text, LINE), LINE);
    assert_int_equal(puts_line(&sink, "last\n", 1), 0);
    assert_false(sink.torn);
    expect_one_torn(fds[0], LINE);
    sink_close(&sink);
    close(fds[0]);
    close(fds[1]);
}

static void writes_to_sockets_without_waiting(void **state)
{
    struct sink sink;
    uint64_t ms;
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(sink_open("-", fds[1], &sink), 0);
    assert_true(sink.is_socket);
    assert_int_equal(fill(&sink, 1000, 20, &ms), -ETIMEDOUT);
    assert_in_range(ms, 19, 1000);
    assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
    sink_close(&sink);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_to_files_that_only_the_group_may_read),
        cmocka_unit_test(off_goes_nowhere),
        cmocka_unit_test(leaves_a_shared_pipes_flags_alone),
        cmocka_unit_test(survives_a_reader_that_left),
        cmocka_unit_test(says_how_many_lines_a_full_disk_took),
        cmocka_unit_test(does_not_hang_on_a_pipe_that_is_not_read),
        cmocka_unit_test(does_not_hang_on_a_blocking_pipe),
        cmocka_unit_test(ends_a_line_that_was_cut_off),
        cmocka_unit_test(writes_to_sockets_without_waiting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
