#include "h2_client_test.h"

static void requests_are_answered(void **state)
{
    (void)state;
    struct one *one = ready_lane(0);
    one->rec.on_end = release_it;
    for (int i = 0; i < 2; i++) {
        heard[0] = one->rec.log[0] = '\0';
        get(one);
        assert_string_equal(heard,
                            ":method=GET :scheme=http :authority=a :path=/p te=trailers end ");
        answer(&peers[0], peers[0].last, "200", (char[]){"hello"});
        assert_string_equal(one->rec.log, "head 200\nend [hello]\n");
        assert_int_equal(one->idle, i + 1);
        assert_int_equal(one->lane.client.state, CLIENT_IDLE);
    }
    assert_int_equal(opened, 1);
    assert_int_equal(loop.blocks.live, 0);
}

static void bodies_and_trailers_go_out(void **state)
{
    (void)state;
    struct one *one = ready_lane(0);
    struct field fields[1];
    struct head trailers = {.fields = fields, .cap = 1};
    struct leg *leg = &one->lane.client.leg;
    loop_enter(&loop);
    send_request(one, "POST", FRAMING_CHUNKED, NULL);
    send_text(leg, "abc");
    loop_leave(&loop);
    talk();
    head_set(&trailers, &one->rec.arena, STR("X-Sum"), STR("3"));
    IN_LOOP(leg->ops->send_end(leg, &trailers));
    talk();
    assert_string_equal(heard,
                        ":method=POST :scheme=http :authority=a :path=/p te=trailers [abc] "
                        "x-sum=3 end ");
    assert_int_equal(leg->ops->pending(leg), 0);
}

static void what_the_window_has_no_room_for_waits(void **state)
{
    (void)state;
    keeps_windows_shut = true;
    struct one *one = ready_lane(0);
    struct leg *leg = &one->lane.client.leg;
    loop_enter(&loop);
    send_request(one, "POST", FRAMING_CHUNKED, NULL);
    for (int i = 0; i < 16; i++) {
        struct block *block = block_take(&loop.blocks, BLOCK_SMALL);
        memset(block->data, 'x', BLOCK_SMALL);
        leg->ops->send_body(leg, (struct slice){block, block->data, BLOCK_SMALL});
    }
    loop_leave(&loop);
    talk();
    assert_int_equal(body_n, 65535);
    assert_int_equal(leg->ops->pending(leg), 16 * BLOCK_SMALL - 65535);
    assert_int_equal(one->rec.rooms, 0);
    nghttp2_session_consume(peers[0].session, peers[0].last, 65535);
    talk();
    assert_int_equal(body_n, 2 * 65535);
    for (int i = 0; i < 4; i++) {
        nghttp2_session_consume(peers[0].session, peers[0].last, 65535);
        talk();
    }
    assert_int_equal(body_n, 16 * BLOCK_SMALL);
    assert_true(one->rec.rooms > 0);
}

static int32_t window(void)
{
    return nghttp2_session_get_stream_remote_window_size(peers[0].session, peers[0].last);
}

static void a_paused_answer_stops_at_its_window(void **state)
{
    (void)state;
    static char big[16384];
    struct one *one = ready_lane(0);
    struct leg *leg = &one->lane.client.leg;
    memset(big, 'y', sizeof(big) - 1);
    IN_LOOP(send_request(one, "POST", FRAMING_CHUNKED, NULL));
    talk();
    IN_LOOP(leg->ops->pause(leg));
    answer_in_pieces(&peers[0], big, 5);
    assert_int_equal(one->rec.total, 5 * (sizeof(big) - 1));
    assert_int_equal(window(), LEG_HIGH - 5 * (sizeof(big) - 1)); /* nothing is given back */
    IN_LOOP(leg->ops->resume(leg));
    talk();
    assert_int_equal(window(), LEG_HIGH);
}

static void resets_say_what_they_mean(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        const char *log;
        bool untouched;
    } cases[] = {{NGHTTP2_REFUSED_STREAM, "gone upstream.reset\n", true},
                 {NGHTTP2_INTERNAL_ERROR, "gone upstream.reset\n", false},
                 {NGHTTP2_NO_ERROR, "gone upstream.reset\n", false},
                 {NGHTTP2_PROTOCOL_ERROR, "gone upstream.protocol\n", false}};
    for (size_t i = 0; i < 4; i++) {
        struct one *one = ready_lane(i);
        get(one);
        nghttp2_submit_rst_stream(peers[0].session, NGHTTP2_FLAG_NONE, peers[0].last,
                                  cases[i].code);
        talk();
        assert_string_equal(one->rec.log, cases[i].log);
        assert_int_equal(one->rec.fault.untouched, cases[i].untouched);
        assert_true(one->rec.fault.silent);
        assert_int_equal(one->closed, 1);
    }
    assert_int_equal(opened, 1); /* the others on it need not know */
}

static void who_gives_up_resets_the_stream_and_keeps_the_lane(void **state)
{
    (void)state;
    struct one *one = ready_lane(0);
    get(one);
    heard[0] = '\0';
    IN_LOOP(recorder_abort(&one->rec));
    talk();
    assert_string_equal(heard, "ping reset:8 "); /* it had waited in vain */
    assert_int_equal(one->idle, 1);
    heard[0] = '\0';
    get_and_answer(one, &peers[0]);
    assert_string_equal(one->rec.log, "head 200\nend []\n");
    assert_int_equal(opened, 1);
}

static void a_tunnel_is_asked_for_where_it_is_taken(void **state)
{
    (void)state;
    settings[0] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1};
    settings_n = 1;
    struct one *one = ready_lane(0);
    struct leg *leg = &one->lane.client.leg;
    IN_LOOP(send_request(one, "GET", FRAMING_NONE, "websocket"); leg->ops->send_end(leg, NULL));
    talk();
    assert_non_null(strstr(heard, ":method=CONNECT"));
    assert_non_null(strstr(heard, ":protocol=websocket"));
    nghttp2_nv nv[] = {pair(":status", "200")};
    nghttp2_submit_headers(peers[0].session, NGHTTP2_FLAG_NONE, peers[0].last, NULL, nv, 1,
                           NULL);
    talk();
    assert_string_equal(one->rec.log, "head 101\n");
    IN_LOOP(leg->ops->tunnel(leg); send_text(leg, "frame"));
    talk();
    assert_non_null(strstr(heard, "[frame] "));
    assert_null(strstr(heard, "end "));
}

static void a_server_that_takes_no_tunnel_is_not_asked(void **state)
{
    (void)state;
    struct one *one = ready_lane(0);
    IN_LOOP(send_request(one, "GET", FRAMING_NONE, "websocket"));
    talk();
    assert_string_equal(one->rec.log, "gone upstream.websocket\n");
    assert_int_equal(peers[0].requests, 0);
}

/* Whichever allocation fails, nothing is lost but what needed it. */
static void survives_want_of_memory_anywhere(void **state)
{
    bool whole = false;
    unsigned long nth = 1;
    for (; !whole; nth++) {
        struct one *one = &ones[0];
        bool refused = false;
        int rc;
        assert_true(nth < 300);
        one->rec.on_end = release_it;
        mem_fail_at(nth);
        IN_LOOP(rc = h2_lane_open(&one->lane, &trunks, &addr, NULL, &timeouts, 0, &ops, NULL));
        if (rc < 0)
            one->lane.client.ops = NULL;
        settle();
        if (one->connected && !one->closed) {
            loop_enter(&loop);
            refused = !send_request(one, "POST", FRAMING_CHUNKED, NULL);
            if (!refused) {
                send_text(&one->lane.client.leg, "abc");
                one->lane.client.leg.ops->send_end(&one->lane.client.leg, NULL);
            }
            loop_leave(&loop);
            settle();
        }
        mem_fail_at(0);
        talk();
        if (one->rec.leg && accepted)
            answer(&peers[0], peers[0].last, "200", NULL);
        whole = strcmp(one->rec.log, "head 200\nend []\n") == 0;
        assert_true(whole || rc < 0 || refused || one->closed);
        tear_down(state);
        set_up(state);
    }
    assert_true(nth > 3);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(requests_are_answered),
        T(bodies_and_trailers_go_out),
        T(what_the_window_has_no_room_for_waits),
        T(a_paused_answer_stops_at_its_window),
        T(resets_say_what_they_mean),
        T(who_gives_up_resets_the_stream_and_keeps_the_lane),
        T(a_tunnel_is_asked_for_where_it_is_taken),
        T(a_server_that_takes_no_tunnel_is_not_asked),
        T(survives_want_of_memory_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
