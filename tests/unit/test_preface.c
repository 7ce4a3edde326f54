#include "net_test.h"

#include "net/preface.h"

static struct preface preface;
static int told, told_err, peer;

static void on_done(struct preface *p, int err)
{
    assert_ptr_equal(p, &preface);
    told++;
    told_err = err;
}

static void begin(uint64_t ms)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    told = 0;
    peer = pair[1];
    assert_int_equal(preface_open(&preface, &loop, pair[0], ms, on_done), 0);
}

static void end(void)
{
    close(preface.fd);
    close(peer);
}

static void say(const char *text, size_t n)
{
    assert_int_equal(write(peer, text, n), n);
}

#define LINE "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"

static void leaves_what_stands_behind_the_header(void **state)
{
    (void)state;
    char rest[16];
    begin(0);
    say(LINE "GET /", sizeof(LINE) + 4);
    turn();
    assert_int_equal(told, 1);
    assert_int_equal(told_err, 0);
    assert_false(preface.header.is_local);
    assert_int_equal(ntohs(preface.header.source.in4.sin_port), 56324);
    assert_int_equal(recv(preface.fd, rest, sizeof(rest), 0), 5);
    assert_memory_equal(rest, "GET /", 5);
    end();
}

/* And does not spin while it waits for the rest: what it saw, it has taken. */
static void takes_a_header_byte_by_byte(void **state)
{
    (void)state;
    char rest[16];
    begin(0);
    for (size_t i = 0; i < sizeof(LINE) - 1; i++) {
        assert_int_equal(told, 0);
        say(LINE + i, 1);
        turn();
        assert_true(recv(preface.fd, rest, sizeof(rest), MSG_PEEK) < 0);
    }
    assert_int_equal(told, 1);
    assert_int_equal(told_err, 0);
    end();
}

static void tells_where_a_header_is_malformed(void **state)
{
    (void)state;
    begin(0);
    say("PROXY ", 6);
    turn();
    say("TCP5 a b c d\r\n", 14);
    turn();
    assert_int_equal(told, 1);
    assert_int_equal(told_err, -EPROTO);
    assert_int_equal(preface.offset, 6);
    end();
}

static void tells_when_the_peer_has_closed(void **state)
{
    (void)state;
    begin(0);
    say("PROXY ", 6);
    turn();
    shutdown(peer, SHUT_WR);
    turn();
    assert_int_equal(told, 1);
    assert_int_equal(told_err, -ECONNRESET);
    end();
}

static void tells_when_time_is_up(void **state)
{
    (void)state;
    begin(20);
    for (int i = 0; i < 2000 && !told; i++)
        turn();
    assert_int_equal(told, 1);
    assert_int_equal(told_err, -ETIMEDOUT);
    turn();
    assert_int_equal(told, 1);
    end();
}

static void tells_nothing_once_stopped(void **state)
{
    (void)state;
    begin(1);
    say(LINE, sizeof(LINE) - 1);
    preface_stop(&preface);
    for (int i = 0; i < 50; i++)
        turn();
    assert_int_equal(told, 0);
    end();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_loop, tear_down_loop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(leaves_what_stands_behind_the_header),
        TEST(takes_a_header_byte_by_byte),
        TEST(tells_where_a_header_is_malformed),
        TEST(tells_when_the_peer_has_closed),
        TEST(tells_when_time_is_up),
        TEST(tells_nothing_once_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
