#include "net_test.h"

#include "net/pipe.h"

static int up[2], down[2];

static int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    make_pair(up);
    make_pair(down);
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < 2; i++) {
        close(up[i]);
        close(down[i]);
    }
    return tear_down_loop(state);
}

static ssize_t fill(size_t n, struct slice *ret)
{
    return pipe_fill(&loop.pipes, &loop.blocks, up[1], n, ret);
}

static void bytes_pass_unseen_and_in_order(void **state)
{
    struct slice slice;
    char got[64];
    (void)state;
    assert_int_equal(write(up[0], "abcdefgh", 8), 8);
    assert_int_equal(fill(6, &slice), 6);
    assert_true(pipe_is(slice.block));
    assert_int_equal(slice.n, 6);
    assert_int_equal(pipe_drain(slice.block, down[0], 4, true), 4);
    assert_int_equal(pipe_drain(slice.block, down[0], 2, false), 2);
    assert_int_equal(loop.pipes.count, 0);
    slice_drop(&slice);
    assert_int_equal(loop.pipes.count, 1); /* empty: it serves again */
    assert_int_equal(fill(64, &slice), 2);
    assert_int_equal(loop.pipes.count, 0);
    assert_int_equal(pipe_drain(slice.block, down[0], 2, false), 2);
    slice_drop(&slice);
    assert_int_equal(read(down[1], got, sizeof(got)), 8);
    assert_memory_equal(got, "abcdefgh", 8);
}

static void what_is_let_go_full_never_reaches_another(void **state)
{
    struct slice slice;
    (void)state;
    assert_int_equal(write(up[0], "secret", 6), 6);
    assert_int_equal(fill(64, &slice), 6);
    assert_int_equal(pipe_drain(slice.block, down[0], 3, false), 3);
    slice_drop(&slice);
    assert_int_equal(loop.pipes.count, 0);
    assert_int_equal(loop.blocks.live, 0);
}

static void says_when_nothing_has_come_and_when_nothing_will(void **state)
{
    struct slice slice;
    (void)state;
    assert_int_equal(fill(64, &slice), -1);
    assert_int_equal(errno, EAGAIN);
    shutdown(up[0], SHUT_WR);
    assert_int_equal(fill(64, &slice), 0);
    assert_int_equal(loop.pipes.count, 1);
}

static void no_memory_or_descriptor_is_no_pipe(void **state)
{
    struct slice slice;
    (void)state;
    assert_int_equal(write(up[0], "x", 1), 1);
    mem_fail_at(1);
    ssize_t n = fill(64, &slice);
    mem_fail_at(0);
#ifndef NDEBUG
    assert_int_equal(n, -1);
    assert_int_equal(errno, ENOBUFS);
    n = fill(64, &slice);
#endif
    assert_int_equal(n, 1);
    slice_drop(&slice);
}

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(bytes_pass_unseen_and_in_order),
        T(what_is_let_go_full_never_reaches_another),
        T(says_when_nothing_has_come_and_when_nothing_will),
        T(no_memory_or_descriptor_is_no_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
