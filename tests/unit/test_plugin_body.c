#include "plugged_test.h"

/* Who gets the body, and what. */
static char got[65536];
static size_t got_n, got_ends;

static void take_body(struct leg *leg, struct slice slice)
{
    (void)leg;
    assert_true(got_n + slice.n < sizeof(got));
    memcpy(got + got_n, slice.p, slice.n);
    got_n += slice.n;
    got[got_n] = '\0';
    slice_drop(&slice);
}

static void take_end(struct leg *leg, const struct head *trailers)
{
    (void)leg, (void)trailers;
    got_ends++;
}

static size_t nothing_pending(const struct leg *leg)
{
    (void)leg;
    return 0;
}

static void no_pause(struct leg *leg)
{
    (void)leg;
}

static const struct leg_ops sink_ops = {.send_body = take_body,
                                        .send_end = take_end,
                                        .pending = nothing_pending,
                                        .pause = no_pause,
                                        .resume = no_pause};
static struct leg sink = {.ops = &sink_ops}, source = {.ops = &sink_ops};

static int set_up(void **state)
{
    got_n = got_ends = 0;
    got[0] = '\0';
    source.arena = &ex.arena;
    return set_up_plugged(state);
}

static int tear_down(void **state)
{
    flow_drop(&ex.request);
    flow_drop(&ex.response);
    if (ex.plugged)
        plugins_cancel(&ex);
    arena_done(&ex.arena);
    assert_int_equal(loop.blocks.live, 0); /* all references were given back */
    ex.plugged = NULL;
    return tear_down_plugged(state);
}

/* ---- what the actors make of bodies ---- */

static bool shout(void *self, postern_request *r, postern_str piece, bool last)
{
    char text[64];
    (void)self;
    assert_true(piece.n < sizeof(text) - 1);
    for (size_t i = 0; i < piece.n; i++)
        text[i] = piece.p[i] >= 'a' && piece.p[i] <= 'z' ? (char)(piece.p[i] - 32) : piece.p[i];
    if (last)
        text[piece.n] = '!';
    return host_api.body(r, (postern_str){text, piece.n + last});
}

static bool quote(void *self, postern_request *r, postern_str piece, bool last)
{
    (void)self;
    assert_true(!last || piece.n == 0);
    return host_api.body(r, (postern_str){"<", 1}) && host_api.body(r, piece) &&
           host_api.body(r, (postern_str){last ? "]" : ">", 1});
}

static bool swallow(void *self, postern_request *r, postern_str piece, bool last)
{
    (void)self, (void)r, (void)piece, (void)last;
    return true;
}

static bool swell(void *self, postern_request *r, postern_str piece, bool last)
{
    static char large[40000];
    (void)self, (void)piece;
    memset(large, 'x', sizeof(large));
    return last || host_api.body(r, (postern_str){large, sizeof(large)});
}

static bool dislike(void *self, postern_request *r, postern_str piece, bool last)
{
    (void)self, (void)r, (void)last;
    return !memchr(piece.p, 'b', piece.n);
}

static bool dislike_the_end(void *self, postern_request *r, postern_str piece, bool last)
{
    (void)self;
    return !last && host_api.body(r, piece);
}

/* ---- pieces ---- */

static void start(enum ex_state at)
{
    ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n");
    ex.state = at; /* what an exchange that goes upstream would be */
    answered[0] = '\0';
    flow_init(&ex.request, &source, true);
    flow_init(&ex.response, &source, false);
    flow_connect(&ex.response, &sink);
}

static struct slice piece(const char *text)
{
    struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
    size_t n = strlen(text);
    assert_non_null(block);
    memcpy(block->data, text, n);
    return (struct slice){block, block->data, n};
}

static void what_one_gives_the_next_gets(void **state)
{
    (void)state;
    add_actor("a", GO)->request_body = quote;
    add_actor("b", GO)->request_body = shout;
    start(EX_CONNECT);
    flow_connect(&ex.request, &sink);
    plugins_body(&ex, &ex.request, piece("ab"));
    plugins_body(&ex, &ex.request, piece("c"));
    assert_string_equal(got, "<AB><C>");
    assert_int_equal(ex.request.bytes, 3); /* that came, not that went on */
    assert_true(plugins_body_last(&ex, &ex.request));
    assert_string_equal(got, "<AB><C><]!");
    assert_int_equal(ex.request.bytes, 3);
}

static void an_answer_passes_in_reverse(void **state)
{
    (void)state;
    add_actor("a", GO)->response_body = shout;
    add_actor("b", GO)->response_body = quote;
    add_actor("c", GO);
    start(EX_RELAY);
    plugins_body(&ex, &ex.response, piece("ab"));
    assert_true(plugins_body_last(&ex, &ex.response));
    assert_string_equal(got, "<AB><]!");
}

static void it_may_vanish_and_it_may_grow(void **state)
{
    (void)state;
    add_actor("a", GO)->response_body = swallow;
    start(EX_RELAY);
    plugins_body(&ex, &ex.response, piece("ab"));
    assert_true(plugins_body_last(&ex, &ex.response));
    assert_int_equal(got_n, 0);
    assert_int_equal(ex.response.bytes, 2);
    tear_down(state);
    set_up(state);
    add_actor("a", GO)->response_body = swell;
    start(EX_RELAY);
    plugins_body(&ex, &ex.response, piece("a"));
    assert_int_equal(got_n, 40000); /* several blocks */
    assert_int_equal(ex.response.bytes, 1);
}

static void who_does_not_like_it_ends_it(void **state)
{
    (void)state;
    add_actor("a", GO)->request_body = quote;
    add_actor("b", GO)->request_body = dislike;
    start(EX_CONNECT);
    plugins_body(&ex, &ex.request, piece("a"));
    assert_string_equal(answered, "");
    plugins_body(&ex, &ex.request, piece("b"));
    assert_non_null(strstr(answered, "\"reason\":\"plugin.failed\""));
    assert_non_null(strstr(answered, "\\u0022b\\u0022"));
    assert_int_equal(ex.state, EX_REPLY);
}

static void the_end_can_be_refused_too(void **state)
{
    (void)state;
    add_actor("a", GO)->request_body = dislike_the_end;
    start(EX_CONNECT);
    plugins_body(&ex, &ex.request, piece("a"));
    assert_string_equal(answered, "");
    assert_false(plugins_body_last(&ex, &ex.request));
    assert_non_null(strstr(answered, "plugin.failed"));
}

static void without_memory_it_is_refused(void **state)
{
    (void)state;
    for (unsigned long n = 1; n < 4; n++) {
        add_actor("a", GO)->request_body = quote;
        start(EX_CONNECT);
        while (ex.arena.end - ex.arena.p > 8)
            arena_alloc(&ex.arena, 8);
        struct slice slice = piece("a");
        mem_fail_at(n);
        plugins_body(&ex, &ex.request, slice);
        mem_fail_at(0);
        if (n < 2) /* later ones may find memory that was given back */
            assert_int_equal(ex.state, EX_REPLY);
        if (n < 3) {
            tear_down(state);
            set_up(state);
        }
    }
}

/* What came while plugins were asked goes through the hooks when they let the request go. */
static void what_came_early_goes_through_too(void **state)
{
    (void)state;
    struct head trailers = {0};
    add_actor("a", GO)->request_body = quote;
    start(EX_PLUGINS);
    plugins_frame_request(&ex);
    assert_true(ex.plugged->filters_request);
    flow_body(&ex.request, piece("ab"));
    flow_body(&ex.request, piece("c"));
    flow_end(&ex.request, &trailers);
    assert_int_equal(ex.request.bytes, 3);
    assert_true(plugins_refeed(&ex));
    assert_int_equal(ex.request.bytes, 3);
    assert_true(ex.request.ended && ex.request.trailers == &trailers);
    flow_connect(&ex.request, &sink);
    assert_string_equal(got, "<ab><c><]");
    assert_int_equal(got_ends, 1);
}

static void what_came_early_may_end_it(void **state)
{
    (void)state;
    add_actor("a", GO)->request_body = dislike;
    start(EX_PLUGINS);
    plugins_frame_request(&ex);
    flow_body(&ex.request, piece("b"));
    flow_body(&ex.request, piece("a")); /* nobody looks at it any more */
    assert_false(plugins_refeed(&ex));
    assert_int_equal(ex.state, EX_REPLY);
}

/* ---- framing ---- */

static void whoever_changes_a_body_does_not_know_its_length(void **state)
{
    (void)state;
    struct head answer = {.status = 200, .framing = FRAMING_LENGTH, .has_length = true};
    add_actor("a", GO)->response_body = quote;
    start(EX_SEND);
    plugins_frame_request(&ex); /* nobody wants it */
    assert_int_equal(head.framing, FRAMING_LENGTH);
    assert_false(ex.plugged->filters_request);
    plugins_frame_response(&ex, &answer);
    assert_true(ex.plugged->filters_response && answer.framing == FRAMING_CHUNKED);
    assert_false(answer.has_length);
    /* no body, and an interim answer, stay what they are */
    answer = (struct head){.status = 304, .framing = FRAMING_NONE, .has_length = true};
    plugins_frame_response(&ex, &answer);
    assert_false(ex.plugged->filters_response || answer.framing != FRAMING_NONE);
    answer = (struct head){.status = 103, .framing = FRAMING_LENGTH};
    plugins_frame_response(&ex, &answer);
    assert_false(ex.plugged->filters_response);
    assert_int_equal(answer.framing, FRAMING_LENGTH);
}

static void write_a_body(postern_request *r)
{
    assert_false(host_api.body(r, (postern_str){"x", 1}));
}

static void nobody_writes_a_body_elsewhere(void **state)
{
    (void)state;
    struct actor *a = add_actor("a", GO);
    a->request_body = quote;
    a->inside = write_a_body;
    start(EX_CONNECT);
    assert_string_equal(got, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_one_gives_the_next_gets),
        TEST(an_answer_passes_in_reverse),
        TEST(it_may_vanish_and_it_may_grow),
        TEST(who_does_not_like_it_ends_it),
        TEST(the_end_can_be_refused_too),
        TEST(without_memory_it_is_refused),
        TEST(what_came_early_goes_through_too),
        TEST(what_came_early_may_end_it),
        TEST(whoever_changes_a_body_does_not_know_its_length),
        TEST(nobody_writes_a_body_elsewhere),
    };
    return cmocka_run_group_tests_name("plugin_body", tests, NULL, NULL);
}
