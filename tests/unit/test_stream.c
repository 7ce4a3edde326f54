#include "net_test.h"

#define PLENTY (1024u * 1024)

/* What a stream told, and what it should do about it. */
struct end {
    struct stream stream;
    char *got; /* what on_read took */
    size_t n;
    unsigned reads, eofs, drains, pendings, errors, connects;
    int err;
    size_t take;    /* bytes on_read takes at most at once */
    size_t wait;    /* on_read takes nothing before so many are unread */
    bool pause;     /* on_read pauses the stream */
    char *close_in; /* the callback that closes it: 'r', 'e', 'd', 'p', 'x' */
    bool salvage;
};

static struct end *end_of(struct stream *stream)
{
    return (struct end *)((char *)stream - offsetof(struct end, stream));
}

static void maybe_close(struct end *end, char where)
{
    if (end->close_in && strchr(end->close_in, where))
        stream_close(&end->stream);
}

static void on_connected(struct stream *stream)
{
    end_of(stream)->connects++;
}

static void on_read(struct stream *stream)
{
    struct end *end = end_of(stream);
    struct str in = stream_unread(stream);
    assert_int_equal(end->eofs, 0); /* nothing comes behind the end */
    assert_true(in.n > 0);
    end->reads++;
    if (in.n >= end->wait) {
        size_t n = in.n < end->take ? in.n : end->take;
        assert_true(end->n + n <= PLENTY);
        memcpy(end->got + end->n, in.p, n);
        end->n += n;
        stream_skip(stream, n);
    }
    if (end->pause)
        stream_pause(stream);
    maybe_close(end, 'r');
}

static void on_eof(struct stream *stream)
{
    end_of(stream)->eofs++;
    maybe_close(end_of(stream), 'e');
}

static void on_drained(struct stream *stream)
{
    assert_int_equal(stream->pending, 0);
    end_of(stream)->drains++;
    maybe_close(end_of(stream), 'd');
}

static void on_pending(struct stream *stream)
{
    assert_true(stream->pending > 0);
    end_of(stream)->pendings++;
    maybe_close(end_of(stream), 'p');
}

static void on_error(struct stream *stream, int err)
{
    struct end *end = end_of(stream);
    end->errors++;
    end->err = err;
    if (end->salvage)
        stream_salvage(stream);
    maybe_close(end, 'x');
}

static const struct stream_ops ops = {
    .on_connected = on_connected,
    .on_read = on_read,
    .on_eof = on_eof,
    .on_drained = on_drained,
    .on_pending = on_pending,
    .on_error = on_error,
};

static struct end one;
static int peer;

static void begin(struct end *end)
{
    char *got = end->got ? end->got : malloc(PLENTY);
    *end = (struct end){.got = got, .take = PLENTY};
}

static int set_up(void **state)
{
    int fds[2];
    if (set_up_loop(state))
        return -1;
    make_pair(fds);
    begin(&one);
    peer = fds[1];
    return stream_open(&one.stream, &loop, fds[0], false, NULL, &ops);
}

static int tear_down(void **state)
{
    stream_close(&one.stream);
    if (peer >= 0)
        close(peer);
    return tear_down_loop(state);
}

static void small_buffers(int fd)
{
    int bytes = 1; /* the kernel makes it its least */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

static bool is_idle(void)
{
    return !one.stream.in && !one.stream.tail && !one.stream.first && !loop.blocks.live &&
           !loop.segs.live && !loop.events.live;
}

/* ---- reading ---- */

static void what_arrives_is_told_in_order(void **state)
{
    (void)state;
    char *sent = malloc(300000);
    for (size_t i = 0; i < 300000; i++)
        sent[i] = (char)(i * 7 + i / 251);
    feed(peer, sent, 300000);
    UNTIL(one.n == 300000);
    assert_memory_equal(one.got, sent, 300000);
    assert_int_equal(one.stream.read_total, 300000);
    settle();
    assert_true(is_idle()); /* no block while there is nothing to read */
    free(sent);
}

static void unread_bytes_stay_in_one_piece(void **state)
{
    (void)state;
    static const size_t waits[] = {2, 2000, 16 * 1024, 16 * 1024 + 1, 40000, 64 * 1024 - 1};
    for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
        one.n = 0;
        one.wait = waits[i];
        for (size_t k = 0; k < waits[i]; k += 997) {
            char piece[997];
            size_t n = waits[i] - k < sizeof(piece) ? waits[i] - k : sizeof(piece);
            memset(piece, (int)(k / 997), sizeof(piece));
            feed(peer, piece, n);
            settle();
            assert_int_equal(one.n, k + n == waits[i] ? waits[i] : 0);
        }
        for (size_t k = 0; k < waits[i]; k++)
            assert_int_equal((unsigned char)one.got[k], (unsigned char)(k / 997));
    }
    assert_true(is_idle());
}

static void more_unread_than_a_block_is_an_error(void **state)
{
    (void)state;
    char *sent = calloc(1, 70000);
    one.wait = SIZE_MAX;
    feed(peer, sent, 70000);
    UNTIL(one.errors);
    assert_int_equal(one.err, EMSGSIZE);
    assert_int_equal(stream_unread(&one.stream).n, BLOCK_LARGE);
    free(sent);
}

static void a_pause_holds_back_and_a_resume_offers_it(void **state)
{
    (void)state;
    one.take = 3;
    one.pause = true;
    feed(peer, "abcdef", 6);
    UNTIL(one.n == 3);
    feed(peer, "ghi", 3);
    settle();
    assert_int_equal(one.reads, 1);
    one.pause = false;
    one.take = PLENTY;
    IN_LOOP(stream_resume(&one.stream));
    UNTIL(one.n == 9);
    assert_memory_equal(one.got, "abcdefghi", 9);
    assert_true(is_idle());
}

static void a_pause_within_a_turn_costs_nothing(void **state)
{
    (void)state;
    feed(peer, "x", 1);
    IN_LOOP((stream_pause(&one.stream), stream_resume(&one.stream)));
    assert_true(one.stream.read_armed);
    UNTIL(one.n == 1);
    IN_LOOP(stream_pause(&one.stream));
    assert_true(one.stream.read_armed);
    feed(peer, "y", 1);
    settle();
    assert_false(one.stream.read_armed); /* now that something came */
    assert_int_equal(one.n, 1);
    IN_LOOP(stream_resume(&one.stream));
    UNTIL(one.n == 2);
}

static void the_end_is_told_once_behind_the_data(void **state)
{
    (void)state;
    for (int paused = 0; paused < 2; paused++) {
        one.pause = paused;
        one.take = paused ? 2 : PLENTY;
        feed(peer, "abcde", 5);
        shutdown(peer, SHUT_WR);
        settle();
        if (paused) {
            assert_int_equal(one.eofs, 0);
            one.pause = false;
            one.take = PLENTY;
            IN_LOOP(stream_resume(&one.stream));
        }
        UNTIL(one.eofs);
        settle();
        assert_int_equal(one.eofs, 1);
        assert_int_equal(one.n, 5);
        assert_int_equal(one.errors, 0);
        IN_LOOP((stream_pause(&one.stream), stream_resume(&one.stream)));
        settle();
        assert_int_equal(one.eofs, 1);
        tear_down(state);
        set_up(state);
    }
}

static void slices_outlive_the_stream(void **state)
{
    (void)state;
    one.take = 0;
    feed(peer, "hello", 5);
    UNTIL(one.reads);
    struct slice slice = stream_take(&one.stream, 5);
    stream_close(&one.stream);
    assert_memory_equal(slice.p, "hello", 5);
    assert_int_equal(loop.blocks.live, 1);
    slice_drop(&slice);
    assert_int_equal(loop.blocks.live, 0);
}

static void a_block_in_use_is_not_written_over(void **state)
{
    (void)state;
    struct slice slices[200];
    one.take = 0;
    for (size_t i = 0; i < 200; i++) {
        char piece[300];
        unsigned reads = one.reads;
        memset(piece, (int)i, sizeof(piece));
        feed(peer, piece, sizeof(piece));
        UNTIL(one.reads > reads);
        slices[i] = stream_take(&one.stream, sizeof(piece));
    }
    for (size_t i = 0; i < 200; i++) {
        for (size_t k = 0; k < 300; k++)
            assert_int_equal((unsigned char)slices[i].p[k], i);
        slice_drop(&slices[i]);
    }
    settle();
}

/* ---- writing ---- */

/* Pieces of all sizes, copied and by reference, through the narrowest of sockets. */
static void mixed_writes_keep_order_and_content(void **state)
{
    (void)state;
    uint64_t seed = 42;
    char *sent = malloc(PLENTY), *got = malloc(PLENTY);
    size_t written = 0, n = 0;
    bool eof = false;
    for (size_t i = 0; i < PLENTY; i++)
        sent[i] = (char)next_random(&seed);
    small_buffers(one.stream.fd);
    small_buffers(peer);
    while (n < PLENTY) {
        loop_enter(&loop);
        for (unsigned burst = 0; burst < next_random(&seed) % 90 && written < PLENTY; burst++) {
            size_t part = next_random(&seed) % (1u << (next_random(&seed) % 16));
            if (part > PLENTY - written)
                part = PLENTY - written;
            struct block *block = block_take(&loop.blocks, BLOCK_LARGE);
            memcpy(block->data, sent + written, part);
            struct slice slice = {block, block->data, part};
            if (next_random(&seed) % 2) {
                stream_write(&one.stream, slice.p, slice.n);
                slice_drop(&slice);
            } else {
                stream_write_slice(&one.stream, slice);
            }
            written += part;
        }
        loop_leave(&loop);
        assert_int_equal(one.stream.pending, written - one.stream.written_total);
        size_t room = n + next_random(&seed) % 60000;
        n = collect(peer, got, n, room < written ? room : written, &eof);
        turn();
    }
    assert_memory_equal(got, sent, PLENTY);
    assert_true(one.pendings > 0 && one.drains > 0);
    settle();
    assert_true(is_idle());
    free(sent);
    free(got);
}

static void writes_of_one_callback_go_out_together(void **state)
{
    (void)state;
    static const char large[2000];
    char got[4096];
    bool eof = false;
    loop_enter(&loop);
    stream_write(&one.stream, "a", 1);
    char *room = stream_reserve(&one.stream, 100);
    memcpy(room, "bc", 2);
    stream_commit(&one.stream, 2);
    assert_ptr_equal(one.stream.first->next, NULL); /* one piece of memory */
    stream_write_slice(&one.stream, (struct slice){NULL, large, sizeof(large)});
    stream_write(&one.stream, "d", 1);
    assert_int_equal(collect(peer, got, 0, sizeof(got), &eof), 0);
    loop_leave(&loop);
    assert_int_equal(collect(peer, got, 0, sizeof(got), &eof), 2004);
    assert_memory_equal(got, "abc", 3);
    assert_int_equal(got[2003], 'd');
    loop_enter(&loop);
    stream_write(&one.stream, "e", 1);
    stream_flush(&one.stream); /* but for who cannot wait */
    assert_int_equal(collect(peer, got, 0, sizeof(got), &eof), 1);
    loop_leave(&loop);
    assert_int_equal(one.drains, 2);
    assert_null(one.stream.ev_write);
    assert_true(is_idle());
}

static void shutdown_waits_for_what_was_written(void **state)
{
    (void)state;
    char *got = malloc(PLENTY), *sent = malloc(400000);
    size_t n = 0;
    bool eof = false;
    memset(sent, 'x', 400000);
    loop_enter(&loop);
    stream_write(&one.stream, sent, 400000);
    stream_shutdown(&one.stream);
    loop_leave(&loop);
    while (!eof) {
        n = collect(peer, got, n, PLENTY, &eof);
        turn();
    }
    assert_int_equal(n, 400000);
    feed(peer, "still", 5); /* the other direction lives */
    UNTIL(one.n == 5);
    free(got);
    free(sent);
}

static void shutdown_alone_is_told_too(void **state)
{
    (void)state;
    char byte;
    bool eof = false;
    IN_LOOP(stream_shutdown(&one.stream));
    collect(peer, &byte, 0, 1, &eof);
    assert_true(eof);
    assert_int_equal(one.drains, 0);
}

static void more_than_a_block_at_once_is_refused(void **state)
{
    (void)state;
    loop_enter(&loop);
    assert_non_null(stream_reserve(&one.stream, BLOCK_LARGE));
    assert_null(stream_reserve(&one.stream, BLOCK_LARGE + 1));
    loop_leave(&loop);
    assert_int_equal(one.errors, 1);
}

/* ---- the end of it ---- */

static void a_dead_peer_is_an_error_and_writes_are_swallowed(void **state)
{
    (void)state;
    IN_LOOP(stream_write(&one.stream, "unread", 6));
    close(peer); /* with bytes it never read: a reset */
    peer = -1;
    UNTIL(one.errors);
    assert_int_equal(one.err, ECONNRESET);
    IN_LOOP(stream_write(&one.stream, "x", 1));
    loop_enter(&loop);
    struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
    stream_write_slice(&one.stream, (struct slice){block, block->data, 5000});
    loop_leave(&loop);
    settle();
    assert_int_equal(one.errors, 1);
    assert_int_equal(one.eofs, 0);
}

static void what_came_before_the_failure_is_salvaged_and_its_end_is_none(void **state)
{
    (void)state;
    one.salvage = true;
    feed(peer, "answer", 6);
    close(peer);
    peer = -1;
    IN_LOOP(stream_write(&one.stream, "request", 7));
    assert_int_equal(one.errors, 1);
    assert_int_equal(one.err, EPIPE);
    assert_memory_equal(one.got, "answer", 6);
    assert_int_equal(one.eofs, 0);
}

static void news_are_asked_of_the_socket(void **state)
{
    (void)state;
    assert_false(stream_has_news(&one.stream));
    feed(peer, "x", 1);
    assert_true(stream_has_news(&one.stream));
    UNTIL(one.n == 1);
    assert_false(stream_has_news(&one.stream));
    close(peer);
    peer = -1;
    assert_true(stream_has_news(&one.stream));
}

/* What the kernel took and the peer's has not: nothing of it is known once the peer's took it.
 */
static void what_the_peers_kernel_has_not_taken_is_counted(void **state)
{
    static char much[256 * 1024];
    size_t total = 0, before;
    ssize_t n;
    (void)state;
    assert_int_equal(stream_unacked(&one.stream), 0);
    small_buffers(one.stream.fd);
    small_buffers(peer);
    IN_LOOP(stream_write(&one.stream, much, sizeof(much)));
    UNTIL(one.stream.pending < sizeof(much));
    UNTIL(stream_unacked(&one.stream) > 0);
    do {
        before = total;
        while ((n = recv(peer, much, sizeof(much), MSG_DONTWAIT)) > 0)
            total += (size_t)n;
        settle();
    } while (total < sizeof(much) && (total > before || one.stream.pending));
    assert_int_equal(total, sizeof(much));
    UNTIL(stream_unacked(&one.stream) == 0);
    stream_close(&one.stream);
    assert_int_equal(stream_unacked(&one.stream), 0);
}

static void it_may_be_closed_in_every_callback(void **state)
{
    static char *const where[] = {"r", "e", "d", "p", "x"};
    for (size_t i = 0; i < sizeof(where) / sizeof(*where); i++) {
        char *large = calloc(1, PLENTY);
        one.close_in = where[i];
        if (*where[i] == 'x')
            close(peer), peer = -1;
        else if (*where[i] == 'r')
            feed(peer, "abc", 3);
        else if (*where[i] == 'e')
            shutdown(peer, SHUT_WR);
        if (*where[i] == 'p' || *where[i] == 'd' || *where[i] == 'x')
            IN_LOOP(stream_write(&one.stream, large, *where[i] == 'p' ? PLENTY : 10));
        UNTIL(one.stream.fd < 0);
        settle();
        assert_int_equal(one.reads + one.eofs + one.drains + one.pendings + one.errors, 1);
        stream_close(&one.stream); /* harmless */
        tear_down(state);
        set_up(state);
        free(large);
    }
}

/* ---- connecting ---- */

static void a_connection_on_its_way_is_told(void **state)
{
    (void)state;
    struct addr addr;
    struct end two = {0};
    int fd, listening = listen_any(&addr);
    begin(&two);
    assert_true(sock_connect(&addr, &fd) >= 0);
    assert_int_equal(stream_open(&two.stream, &loop, fd, true, NULL, &ops), 0);
    IN_LOOP((stream_write(&two.stream, "early", 5), stream_shutdown(&two.stream)));
    assert_int_equal(two.connects, 0);
    UNTIL(two.connects && two.drains);
    assert_int_equal(two.connects, 1);
    char got[8];
    bool eof = false;
    int conn = accept_next(listening);
    assert_int_equal(collect(conn, got, 0, 8, &eof), 5);
    assert_true(eof);
    IN_LOOP(stream_reset(&two.stream));
    assert_int_equal(recv(conn, got, 1, 0), 0);
    close(conn);
    close(listening);

    listening = listen_any(&addr);
    begin(&two);
    assert_true(sock_connect(&addr, &fd) >= 0);
    assert_int_equal(stream_open(&two.stream, &loop, fd, true, NULL, &ops), 0);
    IN_LOOP(stream_shutdown(&two.stream)); /* and nothing is written */
    UNTIL(two.connects);
    conn = accept_next(listening);
    assert_int_equal(recv(conn, got, 1, 0), 0);
    stream_close(&two.stream);
    close(conn);
    close(listening);

    begin(&two);
    assert_true(sock_connect(&addr, &fd) >= 0); /* nobody listens now */
    assert_int_equal(stream_open(&two.stream, &loop, fd, true, NULL, &ops), 0);
    UNTIL(two.errors);
    assert_int_equal(two.err, ECONNREFUSED);
    assert_int_equal(two.connects, 0);
    stream_close(&two.stream);
    free(two.got);
}

/* ---- without memory ---- */

/* Reads, writes both ways, and ends. True: nothing failed. */
static bool scene(void)
{
    char got[8192];
    bool eof = false;
    size_t n = 0;
    loop_enter(&loop);
    stream_write(&one.stream, "head", 4);
    struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
    if (block) {
        memset(block->data, 'b', 3000);
        stream_write_slice(&one.stream, (struct slice){block, block->data, 3000});
    }
    stream_write(&one.stream, "tail", 4);
    loop_leave(&loop);
    feed(peer, "question", 8);
    settle();
    n = collect(peer, got, n, sizeof(got), &eof);
    bool whole = block && n == 3008 && one.n == 8;
    assert_true(whole || !block || one.errors == 1);
    if (one.errors) {
        assert_int_equal(one.err, ENOMEM);
        unsigned before = one.errors;
        IN_LOOP(stream_write(&one.stream, "more", 4));
        assert_int_equal(one.errors, before); /* dead is dead */
    }
    return whole;
}

static void every_allocation_may_fail(void **state)
{
    unsigned long nth = 1;
    for (bool whole = false; !whole; nth++) {
        assert_true(nth < 50);
        mem_fail_at(nth);
        whole = scene();
        mem_fail_at(0);
        tear_down(state);
        assert_int_equal(loop.base == NULL, false);
        set_up(state);
    }
    assert_true(nth > 5); /* it did allocate */
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(what_arrives_is_told_in_order),
        T(unread_bytes_stay_in_one_piece),
        T(more_unread_than_a_block_is_an_error),
        T(a_pause_holds_back_and_a_resume_offers_it),
        T(a_pause_within_a_turn_costs_nothing),
        T(the_end_is_told_once_behind_the_data),
        T(slices_outlive_the_stream),
        T(a_block_in_use_is_not_written_over),
        T(mixed_writes_keep_order_and_content),
        T(writes_of_one_callback_go_out_together),
        T(shutdown_waits_for_what_was_written),
        T(shutdown_alone_is_told_too),
        T(more_than_a_block_at_once_is_refused),
        T(a_dead_peer_is_an_error_and_writes_are_swallowed),
        T(what_came_before_the_failure_is_salvaged_and_its_end_is_none),
        T(news_are_asked_of_the_socket),
        T(what_the_peers_kernel_has_not_taken_is_counted),
        T(it_may_be_closed_in_every_callback),
        T(a_connection_on_its_way_is_told),
        T(every_allocation_may_fail),
    };
    int rc = cmocka_run_group_tests_name("stream", tests, NULL, NULL);
    free(one.got);
    return rc;
}
