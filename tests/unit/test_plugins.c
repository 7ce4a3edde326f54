#include "plugged_test.h"

static void turn_until(const char *word)
{
    uint64_t limit = clock_ns() + 10 * NS_PER_S;
    while (!strstr(heard, word)) {
        assert_true(clock_ns() < limit);
        event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
}

static void assert_answer(const char *begins, const char *has)
{
    if (strncmp(answered, begins, strlen(begins)) != 0 || !strstr(answered, has))
        fail_msg("the answer is %s", answered);
}

static void all_are_asked_in_order_and_hear_of_the_answer_in_reverse(void **state)
{
    (void)state;
    add_actor("a", GO);
    add_actor("b", GO);
    add_actor("c", GO)->deaf = true;
    ask(GET);
    assert_string_equal(answered, "200 Content-Type=text/plain [on]");
    assert_string_equal(heard, "a.request b.request c.response b.response a.response");
    finish();
    assert_non_null(strstr(heard, " a.log b.log c.log"));
}

/* Who was not asked does not hear of the answer; who asks for nothing always does. */
static void an_answer_ends_it(void **state)
{
    (void)state;
    add_actor("a", GO);
    add_actor("b", ANSWER);
    add_actor("c", GO);
    add_actor("d", GO)->deaf = true;
    ask(GET);
    finish();
    assert_answer("403 ", "\"reason\":\"test.no\"");
    assert_non_null(strstr(answered, "\"detail\":\"No.\""));
    assert_string_equal(
        heard, "a.request b.request d.response b.response a.response a.log b.log d.log");
}

static void answers_have_a_body_or_a_reason(void **state)
{
    static const struct {
        struct postern_answer answer;
        const char *begins, *has;
    } cases[] = {
        {{.status = 204}, "204", ""},
        {{.status = 99}, "500", "[]"},
        {{.status = 302, .reason = "test.odd"}, "302", "[]"},
        {{.status = 418, .reason = "test.odd", .type = {"text/x", 6}, .body = {"b", 1}},
         "418 Content-Type=text/x",
         "[b]"},
        {{.status = 429, .reason = "test.odd", .limit = 5, .actual = 6},
         "429",
         "\"limit\":5,\"actual\":6"},
        {{.status = 400, .reason = "nobody's"}, "400", "\"reason\":\"plugin.failed\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        add_actor("a", ANSWER)->answer = cases[i].answer;
        ask(GET);
        assert_answer(cases[i].begins, cases[i].has);
        if (i + 1 == sizeof(cases) / sizeof(*cases))
            break;
        tear_down_plugged(state);
        set_up_plugged(state);
    }
}

static void grpc_clients_get_a_status_and_no_body(void **state)
{
    (void)state;
    add_actor("a", ANSWER)->answer =
        (struct postern_answer){.status = 401, .reason = "test.no", .body = {"who?", 4}};
    ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc\r\n\r\n");
    assert_answer("200 ", "Grpc-Status=16");
    assert_null(strstr(answered, "who?"));
    assert_int_equal(ex.status, 401);
}

static void who_fails_is_refused_or_passed_by_its_option(void **state)
{
    (void)state;
    add_actor("a", FAIL)->fail_open = true;
    add_actor("b", WAIT_UNTOLD)->fail_open = true;
    add_actor("c", FAIL);
    add_actor("d", GO);
    ask(GET);
    assert_answer("503 ", "\"reason\":\"plugin.failed\"");
    assert_non_null(strstr(answered, "\\u0022c\\u0022"));
    assert_non_null(strstr(heard, "a.request b.request c.request c.response"));
}

static void who_waits_goes_on_with_what_came(void **state)
{
    (void)state;
    struct actor *a = add_actor("a", WAIT);
    a->then = WAIT;
    add_actor("b", GO);
    ask(GET);
    assert_string_equal(heard, "a.request");
    assert_int_equal(ex.state, EX_PLUGINS);
    host_api.resume(a->token, "one", NULL);
    turn_until("a.one");
    a->then = GO;
    host_api.resume(a->token, "two", NULL);
    turn_until("b.request");
    assert_string_equal(answered, "200 Content-Type=text/plain [on]");
    assert_non_null(strstr(heard, "a.request a.one a.two b.request"));
    assert_null(strstr(heard, "cancel"));
}

static void may_be_resumed_before_it_waits(void **state)
{
    (void)state;
    add_actor("a", WAIT_RESUMED)->then = ANSWER;
    ask(GET);
    turn_until("a.inside");
    assert_answer("403 ", "test.no");
}

static unsigned dropped;
static void drop(void *result)
{
    (void)result;
    dropped++;
}

static void who_takes_too_long_is_told_once(void **state)
{
    (void)state;
    struct actor *a = add_actor("a", WAIT), *b = add_actor("b", WAIT);
    a->deadline = 10;
    a->fail_open = true;
    b->deadline = 10;
    dropped = 0;
    ask(GET);
    turn_until("b.cancel");
    assert_string_equal(heard, "a.request a.cancel b.request b.cancel b.response a.response");
    assert_answer("503 ", "\"reason\":\"plugin.timeout\"");
    host_api.resume(a->token, "late", drop);
    host_api.resume(b->token, "late", drop);
    assert_int_equal(dropped, 2);
    finish();
    assert_null(strstr(strstr(heard, "b.cancel") + 8, "cancel"));
}

/* What it asks in turn has one time for all. */
static void the_deadline_runs_from_the_first_wait(void **state)
{
    (void)state;
    struct actor *a = add_actor("a", WAIT);
    a->then = WAIT;
    a->deadline = 100;
    ask(GET);
    uint64_t due = ex.plugged->due.at;
    host_api.resume(a->token, "one", NULL);
    turn_until("a.one");
    assert_true(ex.plugged->waiting);
    assert_true(ex.plugged->due.at == due);
    turn_until("a.cancel");
}

/* Whoever waits next has a deadline of his own. */
static void each_has_its_own_deadline(void **state)
{
    (void)state;
    struct actor *a = add_actor("a", WAIT);
    add_actor("b", WAIT)->deadline = 10;
    ask(GET);
    host_api.resume(a->token, "one", NULL);
    turn_until("b.cancel");
    assert_answer("503 ", "\"reason\":\"plugin.timeout\"");
}

static void an_answer_is_told_of_once(void **state)
{
    (void)state;
    struct head another = {.status = 500};
    add_actor("a", GO);
    ask(GET);
    assert_true(plugins_response(&ex, &another));
    assert_string_equal(heard, "a.request a.response");
}

static void a_client_that_leaves_is_told_once(void **state)
{
    (void)state;
    struct actor *a = add_actor("a", WAIT);
    dropped = 0;
    ask(GET);
    finish();
    finish();
    assert_string_equal(heard,
                        "a.request a.cancel a.log a.log"); /* the second log is the test's */
    host_api.resume(a->token, "late", drop);
    assert_int_equal(dropped, 1);
}

static void answer_twice(postern_request *r)
{
    actor_does(&actors[0], r, ANSWER);
    actors[0].answer.status = 402;
}

static void the_first_answer_counts(void **state)
{
    (void)state;
    add_actor("a", ANSWER)->inside = answer_twice;
    ask(GET);
    assert_answer("403 ", "test.no");
}

static void goes_on_although_it_answered(postern_request *r)
{
    actor_does(&actors[0], r, ANSWER);
}

static void an_answer_counts_whatever_the_verdict(void **state)
{
    (void)state;
    add_actor("a", GO)->inside = goes_on_although_it_answered;
    add_actor("b", GO);
    ask(GET);
    assert_answer("403 ", "test.no");
    assert_null(strstr(heard, "b.request"));
}

static void waits_and_answers(postern_request *r)
{
    actors[0].token = host_api.wait(r);
    actor_does(&actors[0], r, ANSWER);
}

static void who_answers_does_not_wait_any_more(void **state)
{
    (void)state;
    add_actor("a", WAIT)->inside = waits_and_answers;
    dropped = 0;
    ask(GET);
    assert_answer("403 ", "test.no");
    host_api.resume(actors[0].token, "late", drop);
    assert_int_equal(dropped, 1);
    finish();
    assert_null(strstr(heard, "cancel"));
}

static void without_memory_the_request_is_refused(void **state)
{
    (void)state;
    add_actor("a", GO);
    prepare(GET);
    while (chunks.live == 0 || ex.arena.end - ex.arena.p > 64)
        assert_non_null(arena_alloc(&ex.arena, 32));
    mem_fail_at(1);
    go();
    mem_fail_at(0);
    assert_string_equal(heard, "");
    assert_answer("503 ", "\"reason\":\"gateway.memory\"");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_plugged, tear_down_plugged)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_are_asked_in_order_and_hear_of_the_answer_in_reverse),
        TEST(an_answer_ends_it),
        TEST(answers_have_a_body_or_a_reason),
        TEST(grpc_clients_get_a_status_and_no_body),
        TEST(who_fails_is_refused_or_passed_by_its_option),
        TEST(who_waits_goes_on_with_what_came),
        TEST(may_be_resumed_before_it_waits),
        TEST(who_takes_too_long_is_told_once),
        TEST(the_deadline_runs_from_the_first_wait),
        TEST(each_has_its_own_deadline),
        TEST(an_answer_is_told_of_once),
        TEST(a_client_that_leaves_is_told_once),
        TEST(the_first_answer_counts),
        TEST(an_answer_counts_whatever_the_verdict),
        TEST(who_answers_does_not_wait_any_more),
        TEST(without_memory_the_request_is_refused),
    };
    return cmocka_run_group_tests_name("plugins", tests, NULL, NULL);
}
