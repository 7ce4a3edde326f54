#include "net_test.h"

#include "http/h1_body.h"

static struct stream stream;
static int peer;

static void nothing(struct stream *s)
{
    (void)s;
}

static void on_error(struct stream *s, int err)
{
    (void)s;
    fail_msg("%s", strerror(err));
}

static const struct stream_ops ops = {
    .on_connected = nothing,
    .on_read = nothing,
    .on_eof = nothing,
    .on_drained = nothing,
    .on_pending = nothing,
    .on_error = on_error,
};

static int set_up(void **state)
{
    int fds[2];
    if (set_up_loop(state))
        return -1;
    make_pair(fds);
    peer = fds[1];
    return stream_open(&stream, &loop, fds[0], false, NULL, &ops);
}

static int tear_down(void **state)
{
    stream_close(&stream);
    close(peer);
    return tear_down_loop(state);
}

static struct slice slice_of(const char *text)
{
    return (struct slice){NULL, text, strlen(text)};
}

/* What has reached the peer is that, to the byte. */
static void expect(const char *text)
{
    char got[512];
    bool eof = false;
    stream_flush(&stream);
    settle();
    size_t n = collect(peer, got, 0, sizeof(got), &eof);
    assert_false(eof);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(got, text, n);
}

static void plain_bodies_are_what_they_are(void **state)
{
    (void)state;
    h1_body_write(&stream, slice_of("one"), false);
    h1_body_write(&stream, slice_of("two"), false);
    expect("onetwo");
}

static void each_piece_is_a_chunk(void **state)
{
    (void)state;
    h1_body_write(&stream, slice_of("a"), true);
    h1_body_write(&stream, slice_of("0123456789abcdef"), true);
    h1_body_end_chunks(&stream, NULL);
    expect("1\r\na\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
}

static void no_trailers_are_as_none(void **state)
{
    struct head trailers = {.count = 0};
    (void)state;
    h1_body_end_chunks(&stream, &trailers);
    expect("0\r\n\r\n");
}

static void trailers_stand_behind_the_last_chunk(void **state)
{
    struct field fields[2];
    struct head trailers = {.fields = fields, .cap = 2};
    struct arena arena;
    (void)state;
    arena_init(&arena, &loop.chunks);
    assert_int_equal(head_add(&trailers, &arena, STR("X-Sum"), STR("1")), 0);
    assert_int_equal(head_add(&trailers, &arena, STR("X-More"), STR("2")), 0);
    h1_body_write(&stream, slice_of("a"), true);
    h1_body_end_chunks(&stream, &trailers);
    expect("1\r\na\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n");
    arena_done(&arena);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(plain_bodies_are_what_they_are),
        T(each_piece_is_a_chunk),
        T(no_trailers_are_as_none),
        T(trailers_stand_behind_the_last_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
