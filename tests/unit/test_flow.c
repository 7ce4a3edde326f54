#include "net_test.h"

#include "proxy/flow.h"

/* Two legs that write down what a flow does to them. */
struct fake {
    struct leg leg;
    struct arena arena;
    char log[512];
    size_t pending;
};
static struct fake source, sink, other;
static struct flow flow;

static struct fake *fake_of(const struct leg *leg)
{
    return (struct fake *)(uintptr_t)((const char *)leg - offsetof(struct fake, leg));
}

static void note(struct leg *leg, const char *what, size_t n)
{
    struct fake *fake = fake_of(leg);
    assert_true(strlen(fake->log) + n < sizeof(fake->log));
    strncat(fake->log, what, n);
}

static void send_body(struct leg *leg, struct slice slice)
{
    note(leg, slice.p, slice.n < 20 ? slice.n : 20);
    fake_of(leg)->pending += slice.n;
    slice_drop(&slice);
}

static void send_end(struct leg *leg, const struct head *trailers)
{
    note(leg, trailers ? ".T" : ".", 2);
}

static void pause_leg(struct leg *leg)
{
    note(leg, "P", 1);
}

static void resume_leg(struct leg *leg)
{
    note(leg, "R", 1);
}

static size_t pending_of(const struct leg *leg)
{
    return fake_of(leg)->pending;
}

static const struct leg_ops ops = {.send_body = send_body,
                                   .send_end = send_end,
                                   .pause = pause_leg,
                                   .resume = resume_leg,
                                   .pending = pending_of};

static void reset(struct fake *fake)
{
    *fake = (struct fake){.leg = {.ops = &ops, .arena = &fake->arena}};
    arena_init(&fake->arena, &loop.chunks);
}

static int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    reset(&source);
    reset(&sink);
    reset(&other);
    flow_init(&flow, &source.leg, true);
    return 0;
}

static int tear_down(void **state)
{
    flow_drop(&flow);
    arena_done(&source.arena);
    return tear_down_loop(state); /* all references were given back */
}

static void body(const char *text)
{
    struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
    size_t n = strlen(text);
    memcpy(block->data, text, n);
    flow_body(&flow, (struct slice){block, block->data, n});
}

static void large(size_t n)
{
    struct block *block = block_take(&loop.blocks, BLOCK_LARGE);
    memset(block->data, 'x', n);
    flow_body(&flow, (struct slice){block, block->data, n});
}

static void bytes_pass_and_the_end_behind_them(void **state)
{
    (void)state;
    struct head trailers = {0};
    flow_connect(&flow, &sink.leg);
    body("ab");
    body("cd");
    flow_end(&flow, &trailers);
    assert_string_equal(sink.log, "abcd.T");
    assert_int_equal(flow.bytes, 4);
    assert_string_equal(source.log, "");
}

static void what_comes_early_is_held(void **state)
{
    (void)state;
    body("ab");
    body("cd");
    assert_int_equal(loop.blocks.live, 2);
    flow_connect(&flow, &sink.leg);
    assert_string_equal(sink.log, "abcd");
    body("ef");
    flow_end(&flow, NULL);
    assert_string_equal(sink.log, "abcdef.");
    assert_int_equal(flow.bytes, 6);
}

static void an_early_end_is_held_too(void **state)
{
    (void)state;
    struct head trailers = {0};
    body("ab");
    flow_end(&flow, &trailers);
    flow_connect(&flow, &sink.leg);
    assert_string_equal(sink.log, "ab.T");
}

static void all_of_it_can_be_sent_again(void **state)
{
    (void)state;
    body("ab");
    flow_connect(&flow, &sink.leg);
    body("cd");
    flow_disconnect(&flow);
    body("ef");
    flow_end(&flow, NULL);
    assert_true(flow.holds);
    flow_connect(&flow, &other.leg);
    assert_string_equal(sink.log, "abcd");
    assert_string_equal(other.log, "abcdef.");
    flow_drop(&flow);
    assert_false(flow.holds);
    assert_int_equal(loop.blocks.live, 0);
}

static void too_much_to_hold_is_not_held(void **state)
{
    (void)state;
    flow_connect(&flow, &sink.leg);
    large(FLOW_HOLD_BYTES - 1);
    assert_true(flow.holds);
    body("a");
    assert_true(flow.holds);
    sink.pending = 0;
    body("b");
    assert_false(flow.holds);
    assert_int_equal(loop.blocks.live, 0);
}

static void too_many_pieces_are_not_held(void **state)
{
    (void)state;
    flow_connect(&flow, &sink.leg);
    for (int i = 0; i < FLOW_HOLD_SLICES; i++)
        body("x");
    assert_true(flow.holds);
    body("x");
    assert_false(flow.holds);
    assert_int_equal(loop.blocks.live, 0);
}

static void a_source_without_receiver_is_paused(void **state)
{
    (void)state;
    large(FLOW_HOLD_BYTES);
    assert_string_equal(source.log, "");
    body("y"); /* what was on its way still comes */
    assert_string_equal(source.log, "P");
    body("z");
    assert_string_equal(source.log, "P"); /* once */
    flow_connect(&flow, &sink.leg);
    assert_false(flow.holds); /* more than can be kept for another try */
    assert_string_equal(source.log, "PR");
    assert_int_equal(sink.pending, FLOW_HOLD_BYTES + 2);
}

static void a_full_receiver_pauses_the_source(void **state)
{
    (void)state;
    flow_connect(&flow, &sink.leg);
    large(60000);
    large(60000);
    assert_string_equal(source.log, "");
    large(60000);
    assert_string_equal(source.log, "P");
    flow_room(&flow); /* not yet */
    assert_string_equal(source.log, "P");
    sink.pending = LEG_LOW - 1;
    flow_room(&flow);
    flow_room(&flow);
    assert_string_equal(source.log, "PR");
}

static void an_ended_source_is_not_paused(void **state)
{
    (void)state;
    flow_connect(&flow, &sink.leg);
    sink.pending = LEG_HIGH;
    flow_end(&flow, NULL);
    flow_room(&flow);
    assert_string_equal(source.log, "");
}

static void a_new_receiver_resumes_a_paused_source(void **state)
{
    (void)state;
    flow_connect(&flow, &sink.leg);
    sink.pending = LEG_HIGH;
    body("a");
    assert_string_equal(source.log, "P");
    flow_disconnect(&flow);
    flow_connect(&flow, &other.leg);
    assert_string_equal(source.log, "PR");
    assert_string_equal(other.log, "a");
}

static void without_hold_nothing_is_remembered(void **state)
{
    (void)state;
    flow_init(&flow, &source.leg, false);
    flow_connect(&flow, &sink.leg);
    body("ab");
    assert_false(flow.holds);
    assert_int_equal(loop.blocks.live, 0);
}

static void what_cannot_be_held_for_want_of_memory(void **state)
{
    (void)state;
    struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
    mem_fail_at(1);
    flow_body(&flow, (struct slice){block, block->data, 5});
    assert_true(flow.lost); /* with nobody to take it */
    assert_int_equal(loop.blocks.live, 0);

    flow_init(&flow, &source.leg, true);
    flow_connect(&flow, &sink.leg);
    block = block_take(&loop.blocks, BLOCK_SMALL);
    mem_fail_at(1);
    memcpy(block->data, "hello", 5);
    flow_body(&flow, (struct slice){block, block->data, 5});
    assert_false(flow.lost); /* only a second try is not possible any more */
    assert_false(flow.holds);
    assert_string_equal(sink.log, "hello");
}

static void the_owner_says_how_much_is_held(void **state)
{
    (void)state;
    flow.hold_max = 10;
    flow_connect(&flow, &sink.leg);
    body("0123456789");
    assert_true(flow.holds);
    body("x");
    assert_false(flow.holds);
    assert_int_equal(flow.held_bytes, 0);
}

static void what_is_held_moves_along(void **state)
{
    (void)state;
    struct flow moved;
    flow_move(&moved, &flow); /* nothing held: it begins in the new place */
    assert_ptr_equal(moved.last, &moved.first);
    body("held");
    flow_move(&moved, &flow);
    flow_connect(&moved, &sink.leg);
    assert_string_equal(sink.log, "held");
    flow_drop(&moved);
    flow_init(&flow, &source.leg, true); /* it was given away */
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(the_owner_says_how_much_is_held),
        T(what_is_held_moves_along),
        T(bytes_pass_and_the_end_behind_them),
        T(what_comes_early_is_held),
        T(an_early_end_is_held_too),
        T(all_of_it_can_be_sent_again),
        T(too_much_to_hold_is_not_held),
        T(too_many_pieces_are_not_held),
        T(a_source_without_receiver_is_paused),
        T(a_full_receiver_pauses_the_source),
        T(an_ended_source_is_not_paused),
        T(a_new_receiver_resumes_a_paused_source),
        T(without_hold_nothing_is_remembered),
        T(what_cannot_be_held_for_want_of_memory),
    };
    return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
