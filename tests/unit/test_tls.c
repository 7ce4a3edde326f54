#include "tls_test.h"

/* ---- the handshake ---- */

static void bytes_pass_both_ways(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&client.stream, "ping", 4));
    UNTIL(server.n == 4);
    IN_LOOP(stream_write(&server.stream, "pong!", 5));
    UNTIL(client.n == 5);
    assert_memory_equal(server.got, "ping", 4);
    assert_memory_equal(client.got, "pong!", 5);
    assert_int_equal(client.stream.pending, 0);
    assert_int_equal(server.stream.pending, 0);
}

static void tells_what_was_agreed(void **state)
{
    (void)state;
    join();
    const struct tls *tls = server.stream.tls;
    assert_str(facts()->sni, "a.example");
    assert_str(facts()->version, "TLSv1.3");
    assert_str(facts()->cipher, "TLS_AES_128_GCM_SHA256");
    assert_null(facts()->subject.p);
    assert_null(stream_protocol(&client.stream).p);
    assert_false(tls_is_resumed(tls));
    assert_true(tls_covers(facts(), STR("a.example")));
    assert_true(tls_covers(facts(), STR("www.a.example")));
    assert_true(tls_covers(facts(), STR("127.0.0.1")));
    assert_false(tls_covers(facts(), STR("b.example")));
    assert_false(tls_covers(facts(), STR("x.www.a.example")));
    assert_false(tls_covers(facts(), STR("127.0.0.2")));
    assert_false(tls_covers(facts(), STR("")));
}

static void agrees_on_a_protocol(void **state)
{
    (void)state;
    front_spec.http2 = back_spec.http2 = true;
    join();
    assert_str(stream_protocol(&client.stream), "h2");
    assert_str(stream_protocol(&server.stream), "h2");
}

static void without_a_common_protocol_there_is_no_connection(void **state)
{
    (void)state;
    back_spec.http2 = true;
    start();
    UNTIL(client.errors && shaken != 1);
    assert_int_equal(shaken, -EPROTO);
    assert_int_equal(client.err, EPROTO);
    assert_non_null(strstr(client.why, "no application protocol"));
}

#define MANY 40

static struct shake many[MANY];
static int many_ends[MANY];

static void on_one_of_many(struct shake *done, int err)
{
    many_ends[done - many] = err;
    tls_free(done->tls);
    shake_leave(done);
    close(done->fd);
}

/* Hellos of as many clients lie there at once; the first turn of the loop does some, not all,
 * and comes back to the others. */
static void handshakes_take_turns(void **state)
{
    (void)state;
    int fds[2];
    make_contexts();
    show(0, &rsa, NULL); /* the dearest kind */
    tls_front_unref(front);
    front = tls_front_new(&front_spec, on_front_fault, NULL);
    for (int i = 0; i < MANY; i++) {
        make_pair(fds);
        struct tls *hello = tls_connect(&peer, &loop, fds[0]);
        assert_int_equal(tls_handshake(hello), -EAGAIN);
        tls_free(hello);
        many_ends[i] = 1;
        assert_int_equal(shake_open(&many[i], &shakes, tls_accept(front, &loop, fds[1]), fds[1],
                                    0, on_one_of_many),
                         0);
        close(fds[0]); /* a step each: behind the hello there is nothing */
    }
    event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK); /* they are all ready */
    int waiting = 0;
    event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    for (int i = 0; i < MANY; i++)
        waiting += many_ends[i] == 1;
    assert_in_range(waiting, 1, MANY - 1);
    for (int i = 0; i < MANY; i++)
        UNTIL(many_ends[i] != 1);
}

static void a_shake_that_is_stopped_says_nothing(void **state)
{
    (void)state;
    int fds[2];
    make_contexts();
    make_pair(fds);
    struct tls *tls = tls_accept(front, &loop, fds[1]);
    assert_int_equal(shake_open(&shake, &shakes, tls, fds[1], 0, on_shaken), 0);
    assert_int_equal(send(fds[0], "\x16\x03\x01", 3, 0), 3);
    event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK); /* it is in the queue */
    shake_stop(&shake);
    settle();
    assert_int_equal(shaken, 1);
    close(fds[0]);
    close(fds[1]);
}

static void on_plain(struct shake *done, int err)
{
    shaken = err;
    tls_free(done->tls);
    shake_leave(done);
}

static void tells_what_is_not_tls(void **state)
{
    (void)state;
    int fds[2];
    char byte;
    make_contexts();
    make_pair(fds);
    assert_int_equal(
        shake_open(&shake, &shakes, tls_accept(front, &loop, fds[1]), fds[1], 0, on_plain), 0);
    assert_int_equal(send(fds[0], "GET", 3, 0), 3);
    UNTIL(shaken != 1);
    assert_int_equal(shaken, -ENOMSG);
    assert_int_equal(recv(fds[1], &byte, 1, 0), 1); /* it is still there */
    assert_int_equal(byte, 'G');
    close(fds[0]);
    close(fds[1]);
}

/* ---- bytes ---- */

static char *noise(size_t n)
{
    uint64_t seed = 42;
    char *p = malloc(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (char)next_random(&seed);
    return p;
}

static void pump(struct stream *from, const char *p, size_t n)
{
    uint64_t seed = 7;
    while (n) {
        size_t part = next_random(&seed) % (next_random(&seed) % 4 ? 3000 : 60000) + 1;
        if (part > n)
            part = n;
        if (part > 1024) {
            struct block *block = block_take(&loop.blocks, BLOCK_LARGE);
            memcpy(block->data, p, part);
            IN_LOOP(stream_write_slice(from, (struct slice){block, block->data, part}));
        } else {
            IN_LOOP(stream_write(from, p, part));
        }
        p += part;
        n -= part;
        if (from->pending > 200000)
            turn();
    }
}

static void much_arrives_whole(void **state)
{
    (void)state;
    size_t n = 3 * 1024 * 1024;
    char *p = noise(n);
    join();
    pump(&client.stream, p, n);
    UNTIL(server.n == n);
    assert_memory_equal(server.got, p, n);
    pump(&server.stream, p, n);
    UNTIL(client.n == n);
    assert_memory_equal(client.got, p, n);
    assert_int_equal(server.stream.pending, 0);
    free(p);
}

static void a_paused_stream_loses_nothing(void **state)
{
    (void)state;
    size_t n = 1024 * 1024;
    char *p = noise(n);
    join();
    stream_pause(&server.stream);
    pump(&client.stream, p, n);
    settle();
    assert_int_equal(server.n, 0);
    assert_true(client.stream.pending > 0); /* nobody takes it */
    for (int i = 0; server.n < n && i < 100000; i++) {
        IN_LOOP(stream_resume(&server.stream));
        turn();
        stream_pause(&server.stream);
    }
    assert_int_equal(server.n, n);
    assert_memory_equal(server.got, p, n);
    free(p);
}

static void an_idle_stream_holds_no_block(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&client.stream, "ping", 4));
    UNTIL(server.n == 4);
    settle();
    assert_int_equal(loop.blocks.live, 0);
}

/* ---- the end ---- */

static void a_close_is_the_end_of_the_stream(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&client.stream, "bye", 3));
    UNTIL(server.n == 3);
    stream_close(&client.stream);
    UNTIL(server.eofs);
    assert_int_equal(server.errors, 0);
}

static void a_half_close_leaves_the_other_half(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&client.stream, "ask", 3));
    IN_LOOP(stream_shutdown(&client.stream));
    UNTIL(server.eofs);
    assert_int_equal(server.n, 3);
    IN_LOOP(stream_write(&server.stream, "answer", 6));
    UNTIL(client.n == 6);
    assert_int_equal(client.errors, 0);
}

static void a_socket_that_just_ends_is_cut_off(void **state)
{
    (void)state;
    join();
    IN_LOOP(stream_write(&server.stream, "half of it", 10));
    UNTIL(client.n == 10);
    shutdown(server.stream.fd, SHUT_WR);
    UNTIL(client.errors);
    assert_int_equal(client.eofs, 0);
    assert_int_equal(client.err, ECONNRESET);
}

static void what_was_not_sent_does_not_look_complete(void **state)
{
    (void)state;
    size_t n = 2 * 1024 * 1024;
    char *p = noise(n);
    join();
    stream_pause(&client.stream);
    pump(&server.stream, p, n);
    settle();
    assert_true(server.stream.pending > 0);
    stream_close(&server.stream);
    IN_LOOP(stream_resume(&client.stream));
    UNTIL(client.errors || client.eofs);
    assert_int_equal(client.eofs, 0);
    free(p);
}

static void damaged_bytes_end_the_connection(void **state)
{
    (void)state;
    join();
    static const char junk[] = "\x17\x03\x03\x00\x20"
                               "0123456789abcdef0123456789abcdef";
    assert_true(send(client.stream.fd, junk, sizeof(junk) - 1, 0) > 0);
    UNTIL(server.errors);
    assert_int_equal(server.err, EPROTO);
    assert_int_equal(server.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(bytes_pass_both_ways),
        T(tells_what_was_agreed),
        T(agrees_on_a_protocol),
        T(without_a_common_protocol_there_is_no_connection),
        T(handshakes_take_turns),
        T(a_shake_that_is_stopped_says_nothing),
        T(tells_what_is_not_tls),
        T(much_arrives_whole),
        T(a_paused_stream_loses_nothing),
        T(an_idle_stream_holds_no_block),
        T(a_close_is_the_end_of_the_stream),
        T(a_half_close_leaves_the_other_half),
        T(a_socket_that_just_ends_is_cut_off),
        T(what_was_not_sent_does_not_look_complete),
        T(damaged_bytes_end_the_connection),
    };
    return cmocka_run_group_tests(tests, make_all, unmake_all);
}
