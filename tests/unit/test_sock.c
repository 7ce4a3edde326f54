#include "net_test.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>

static char dir[] = "/tmp/postern-test-sock-XXXXXX";
static char path[64], text[80];

static void assert_ours(int fd)
{
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void wait_for(int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    assert_int_equal(poll(&poll_fd, 1, 10000), 1);
}

static void a_connection_is_made_and_accepted(void **state)
{
    (void)state;
    struct addr addr, peer;
    int conn, fd, listening = listen_any(&addr);
    assert_ours(listening);
    assert_int_equal(sock_accept(listening, &conn, &peer), -EAGAIN);
    int rc = sock_connect(&addr, &fd);
    assert_true(rc == 0 || rc == 1);
    assert_ours(fd);
    wait_for(fd, POLLOUT);
    assert_int_equal(sock_error(fd), 0);
    wait_for(listening, POLLIN);
    assert_int_equal(sock_accept(listening, &conn, &peer), 0);
    assert_ours(conn);
    struct addr own = {.len = sizeof(own.un)};
    assert_int_equal(getsockname(fd, &own.sa, &own.len), 0);
    assert_true(addr_eq(&own, &peer));
    int on = 0;
    socklen_t len = sizeof(on);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
    assert_true(on);
    close(fd);
    close(conn);
    close(listening);
}

static void a_refused_connection_says_so(void **state)
{
    (void)state;
    struct addr addr;
    int fd, listening = listen_any(&addr);
    close(listening);
    int rc = sock_connect(&addr, &fd);
    if (rc == 1) {
        wait_for(fd, POLLOUT);
        rc = sock_error(fd);
        close(fd);
    }
    assert_int_equal(rc, -ECONNREFUSED);
}

static void every_nth_connect_is_refused_on_demand(void **state)
{
    (void)state;
#ifndef NDEBUG
    struct addr addr;
    int fd, listening = listen_any(&addr), refused = 0;
    char *before = getenv("POSTERN_FAULT") ? strdup(getenv("POSTERN_FAULT")) : NULL;
    setenv("POSTERN_FAULT", "connect:3", 1);
    for (int i = 0; i < 9; i++) {
        int rc = sock_connect(&addr, &fd);
        refused += rc == -ECONNREFUSED;
        if (rc >= 0)
            close(fd);
    }
    if (before)
        setenv("POSTERN_FAULT", before, 1);
    else
        unsetenv("POSTERN_FAULT");
    free(before);
    assert_int_equal(refused, 3);
    close(listening);
#endif
}

static void a_port_is_shared_only_when_both_want_it(void **state)
{
    (void)state;
    struct addr addr, shared;
    int other, fd = listen_any(&addr);
    assert_int_equal(sock_listen(&addr, false, &other), -EADDRINUSE);
    assert_int_equal(sock_listen(&addr, true, &other), -EADDRINUSE);
    close(fd);

    shared = addr_of("127.0.0.1:1");
    shared.in4.sin_port = 0;
    assert_int_equal(sock_listen(&shared, true, &fd), 0);
    assert_int_equal(getsockname(fd, &shared.sa, &shared.len), 0);
    assert_int_equal(sock_listen(&shared, true, &other), 0);
    close(fd);
    close(other);
}

static void a_port_is_free_again_at_once(void **state)
{
    (void)state;
    struct addr addr;
    int fd, conn, listening = listen_any(&addr);
    assert_true(sock_connect(&addr, &fd) >= 0);
    wait_for(listening, POLLIN);
    conn = accept_next(listening);
    close(conn); /* ours ends first: TIME_WAIT */
    close(fd);
    close(listening);
    assert_int_equal(sock_listen(&addr, false, &listening), 0);
    close(listening);
}

static void an_ipv6_port_leaves_ipv4_alone(void **state)
{
    (void)state;
    struct addr addr, six = addr_of("[::]:1");
    int fd, other = listen_any(&addr);
    six.in6.sin6_port = addr.in4.sin_port;
    int rc = sock_listen(&six, false, &fd);
    close(other);
    if (rc == -EAFNOSUPPORT)
        return; /* a machine without IPv6 */
    assert_int_equal(rc, 0);
    close(fd);
}

static void a_socket_file_is_taken_over_only_from_the_dead(void **state)
{
    (void)state;
    struct addr addr = addr_of(text);
    int fd, other;
    assert_int_equal(sock_listen(&addr, true, &fd), 0);
    assert_int_equal(sock_listen(&addr, true, &other), -EADDRINUSE); /* it lives */
    assert_int_equal(sock_connect(&addr, &other), 0);
    close(other);
    close(fd); /* and leaves its file behind */
    assert_int_equal(sock_listen(&addr, true, &fd), 0);
    close(fd);
    unlink(path);
}

static void another_file_in_its_place_stays(void **state)
{
    (void)state;
    struct addr addr = addr_of(text);
    struct stat st;
    int fd;
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(sock_listen(&addr, false, &fd), -EADDRINUSE);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    unlink(path);
}

static void a_socket_file_is_forgotten_and_nothing_else(void **state)
{
    (void)state;
    struct addr addr = addr_of(text), port;
    int fd;
    sock_forget(&addr); /* nothing there */
    close(open(path, O_CREAT | O_WRONLY, 0600));
    sock_forget(&addr);
    assert_int_equal(access(path, F_OK), 0); /* no socket */
    unlink(path);
    assert_int_equal(sock_listen(&addr, false, &fd), 0);
    assert_int_equal(access(path, F_OK), 0);
    sock_forget(&addr);
    assert_int_equal(access(path, F_OK), -1);
    close(fd);
    close(listen_any(&port));
    sock_forget(&port); /* a port has no file */
}

static void nobody_at_a_unix_path(void **state)
{
    (void)state;
    struct addr addr = addr_of(text);
    int fd;
    assert_int_equal(sock_connect(&addr, &fd), -ENOENT);
}

/* Last: what it sets stays. Of 200 descriptors clients leave 25, and 12 of these are nobody's.
 */
static void the_last_descriptors_are_not_for_clients(void **state)
{
    (void)state;
    struct addr addr;
    int fd;
    assert_int_equal(sock_limit(UINT64_MAX), 0);
    assert_false(sock_is_last(1 << 20) || sock_is_beyond(1 << 20) || sock_is_scarce());
    assert_int_equal(sock_limit(200), 12);
    assert_false(sock_is_last(173) || sock_is_beyond(187) || sock_is_scarce());
    assert_true(sock_is_last(174) && sock_is_beyond(188));
    int many[200], count = 0;
    while (count == 0 || many[count - 1] < 174)
        assert_true((many[count++] = dup(0)) >= 0);
    assert_true(sock_is_scarce());
    close(many[--count]);
    assert_false(sock_is_scarce());
    assert_int_equal(addr_parse(STR("127.0.0.1:9"), &addr), 0);
    assert_int_not_equal(sock_connect(&addr, &fd), -EMFILE);
    while (many[count - 1] < 187)
        assert_true((many[count++] = dup(0)) >= 0);
    assert_int_equal(sock_connect(&addr, &fd), -EMFILE);
    while (count)
        close(many[--count]);
}

static void a_close_with_reset_is_not_an_orderly_end(void **state)
{
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        struct addr addr;
        int fd, conn, listening = listen_any(&addr);
        char byte;
        assert_true(sock_connect(&addr, &fd) >= 0);
        wait_for(listening, POLLIN);
        conn = accept_next(listening);
        if (reset)
            sock_reset_on_close(conn);
        close(conn);
        wait_for(fd, POLLIN);
        ssize_t n = recv(fd, &byte, 1, 0);
        assert_int_equal(n, reset ? -1 : 0);
        if (reset)
            assert_int_equal(errno, ECONNRESET);
        close(fd);
        close(listening);
    }
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(text, sizeof(text), "unix:%s", path);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_made_and_accepted),
        cmocka_unit_test(a_refused_connection_says_so),
        cmocka_unit_test(every_nth_connect_is_refused_on_demand),
        cmocka_unit_test(a_port_is_shared_only_when_both_want_it),
        cmocka_unit_test(a_port_is_free_again_at_once),
        cmocka_unit_test(an_ipv6_port_leaves_ipv4_alone),
        cmocka_unit_test(a_socket_file_is_taken_over_only_from_the_dead),
        cmocka_unit_test(another_file_in_its_place_stays),
        cmocka_unit_test(a_socket_file_is_forgotten_and_nothing_else),
        cmocka_unit_test(nobody_at_a_unix_path),
        cmocka_unit_test(a_close_with_reset_is_not_an_orderly_end),
        cmocka_unit_test(the_last_descriptors_are_not_for_clients),
    };
    return cmocka_run_group_tests_name("sock", tests, make_dir, remove_dir);
}
