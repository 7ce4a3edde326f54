#include "h2_client_test.h"

static void lanes_share_a_trunk_that_is_counted_once(void **state)
{
    (void)state;
    struct one *one = ready_lane(0);
    assert_int_equal(idle, 1);
    assert_false(one->lane.client.joined);
    for (size_t i = 1; i < 4; i++)
        assert_true(ready_lane(i)->lane.client.joined);
    for (size_t i = 0; i < 4; i++)
        get(&ones[i]);
    assert_int_equal(accepted, 1);
    assert_int_equal(opened, 1);
    assert_int_equal(idle, 0);
    assert_int_equal(active, 1);
    for (size_t i = 0; i < 4; i++) {
        ones[i].rec.on_end = release_it;
        assert_int_equal(active, 1);
        answer(&peers[0], (int32_t)(2 * i + 1), "200", NULL);
    }
    assert_int_equal(active, 0);
    assert_int_equal(idle, 1);
}

static void a_trunk_has_as_many_lanes_as_its_server_says(void **state)
{
    (void)state;
    settings[0] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 2};
    settings_n = 1;
    for (size_t i = 0; i < 3; i++)
        ready_lane(i);
    assert_int_equal(opened, 2);
    for (size_t i = 0; i < 3; i++)
        get(&ones[i]);
    assert_int_equal(peers[0].requests, 2);
    assert_int_equal(peers[1].requests, 1);
}

static void lanes_beyond_what_the_server_says_leave(void **state)
{
    (void)state;
    settings[0] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1};
    settings_n = 1;
    for (size_t i = 0; i < 3; i++)
        open_lane(i); /* nobody has said anything yet */
    talk();
    assert_int_equal(ones[0].closed + ones[1].closed + ones[2].closed, 2);
}

static void after_a_goodbye_requests_finish_and_none_begins(void **state)
{
    (void)state;
    struct one *busy = ready_lane(0), *other = ready_lane(1);
    get(busy);
    nghttp2_submit_goaway(peers[0].session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_NO_ERROR, NULL, 0);
    talk();
    assert_int_equal(other->closed, 1);
    assert_int_equal(busy->closed, 0);
    assert_true(h2_lane_is_over(&busy->lane));
    ready_lane(2);
    assert_int_equal(opened, 2);
    busy->rec.on_end = release_it;
    answer(&peers[0], 1, "200", NULL);
    assert_string_equal(busy->rec.log, "head 200\nend []\n");
    assert_int_equal(busy->closed, 1); /* not idle: it cannot be used again */
    talk();
    assert_true(peers[0].eof);
}

static void what_a_goodbye_leaves_out_is_untouched(void **state)
{
    (void)state;
    struct one *one = ready_lane(0), *two = ready_lane(1);
    get(one);
    get(two);
    nghttp2_submit_goaway(peers[0].session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_NO_ERROR, NULL, 0);
    talk();
    assert_string_equal(two->rec.log, "gone upstream.reset\n");
    assert_true(two->rec.fault.untouched);
    assert_string_equal(one->rec.log, "");
}

static void so_many_requests_and_no_more(void **state)
{
    (void)state;
    trunks.requests = 3;
    struct one *one = ready_lane(0), *other = ready_lane(1);
    get_and_answer(one, &peers[0]);
    get_and_answer(one, &peers[0]);
    assert_int_equal(other->closed, 0);
    get(one); /* the last one */
    assert_int_equal(other->closed, 1);
    ready_lane(2);
    assert_int_equal(opened, 2);
    answer(&peers[0], peers[0].last, "200", NULL);
    assert_int_equal(one->closed, 1);
    assert_int_equal(peers[0].requests, 3);
    talk();
    assert_true(peers[0].eof);
    assert_non_null(strstr(heard, "goodbye:0 "));
}

static void a_trunk_without_lanes_says_goodbye(void **state)
{
    (void)state;
    struct one *one = ready_lane(0);
    get_and_answer(one, &peers[0]);
    heard[0] = '\0';
    IN_LOOP(h1_client_close(&one->lane.client));
    talk();
    assert_int_equal(idle, 1); /* the next lane may come at once */
    ready_lane(1);
    assert_int_equal(opened, 1);
    IN_LOOP(h1_client_close(&ones[1].lane.client));
    UNTIL((talk(), peers[0].eof));
    assert_string_equal(heard, "goodbye:0 ");
    assert_int_equal(idle, 0);
}

static void a_server_that_says_nothing_gets_no_more_requests(void **state)
{
    (void)state;
    timeouts.response = 50;
    struct one *one = ready_lane(0);
    talk();
    IN_LOOP(send_request(one, "GET", FRAMING_NONE, NULL);
            one->lane.client.leg.ops->send_end(&one->lane.client.leg, NULL));
    UNTIL(one->closed);
    assert_string_equal(one->rec.log, "gone upstream.timeout_response\n");
    ready_lane(1);
    assert_int_equal(opened, 2);
}

static void a_server_that_is_not_there_is_told(void **state)
{
    (void)state;
    close(listening);
    struct one *one = &ones[0];
    int rc;
    IN_LOOP(rc = h2_lane_open(&one->lane, &trunks, &addr, NULL, &timeouts, 0, &ops, NULL));
    if (rc == 0) {
        UNTIL(one->closed);
        assert_int_equal(one->fault.reason, R_UPSTREAM_CONNECT);
        assert_true(one->fault.untouched);
    } else {
        one->lane.client.ops = NULL;
        assert_int_equal(rc, -ECONNREFUSED);
    }
    assert_int_equal(one->connected, 0);
    listening = listen_any(&addr);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(lanes_share_a_trunk_that_is_counted_once),
        T(a_trunk_has_as_many_lanes_as_its_server_says),
        T(lanes_beyond_what_the_server_says_leave),
        T(after_a_goodbye_requests_finish_and_none_begins),
        T(what_a_goodbye_leaves_out_is_untouched),
        T(so_many_requests_and_no_more),
        T(a_trunk_without_lanes_says_goodbye),
        T(a_server_that_says_nothing_gets_no_more_requests),
        T(a_server_that_is_not_there_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
