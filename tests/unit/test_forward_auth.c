#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "play_host.h"

#define PLUGIN (&postern_plugin)

static struct postern_setup setup;

static void *start(const char *cache)
{
    void *auth;
    play_begin();
    assert_true(PLUGIN->load(&play_api));
    auth = play_configure(PLUGIN, &setup, "upstream", "auth", "response_headers", "X-User",
                          "client_headers", "Set-Cookie", "credential_header", "X-User",
                          "cache", cache, NULL);
    assert_non_null(auth);
    for (unsigned i = 0; i < PLAY_WORKERS; i++)
        PLUGIN->start(auth, &play.workers[i]);
    return auth;
}

static void ask(void *auth, struct postern_request *r, const char *key)
{
    r->gets[POSTERN_METHOD] = "GET";
    r->gets[POSTERN_TARGET] = r->gets[POSTERN_PATH] = "/";
    play_put(r, POSTERN_HEADER, "Authorization", key);
    play_put(r, POSTERN_HEADER, "X-User", "forged");
    play_ask(PLUGIN, auth, r, 0);
}

static void reply(unsigned status, const char *user)
{
    struct postern_header headers[] = {{{"x-user", 6}, play_str(user)},
                                       {{"set-cookie", 10}, {"s=1", 3}},
                                       {{"www-authenticate", 16}, {"Basic", 5}}};
    struct postern_reply reply = {.size = sizeof(reply),
                                  .status = status,
                                  .failure = "refused",
                                  .headers = headers,
                                  .header_count = status ? 3 : 0,
                                  .body = play_str(status >= 300 ? "no" : "")};
    play_reply(&reply);
}

static void a_yes_goes_on_with_its_headers(void **state)
{
    void *auth = start("0s");
    struct postern_request r = {0};
    (void)state;
    ask(auth, &r, "good");
    assert_int_equal(r.verdict, POSTERN_WAIT);
    reply(200, "ann");
    assert_int_equal(r.verdict, POSTERN_GO_ON);
    assert_string_equal(play_has(&r, POSTERN_HEADER, "X-User"), "ann");
    assert_string_equal(play_has(&r, POSTERN_ANSWER_HEADER, "Set-Cookie"), "s=1");
    assert_string_equal(r.credential, "ann");
    assert_string_equal(play_fact(&r, "consumer"), "ann");
    play_done(&r);
    PLUGIN->discard(auth);
}

static void a_no_is_the_clients_answer(void **state)
{
    static const unsigned statuses[] = {302, 401, 403, 429};
    void *auth = start("5s");
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct postern_request r = {0};
        ask(auth, &r, "bad");
        reply(statuses[i], "ann");
        assert_int_equal(r.verdict, POSTERN_ANSWERED);
        assert_int_equal(r.status, statuses[i]);
        assert_string_equal(r.reason, "auth.denied");
        assert_string_equal(r.challenge, "Basic");
        assert_string_equal(r.body, "no");
        assert_string_equal(r.credential, "");
        play_done(&r);
    }
    assert_int_equal(play.call_count, 4); /* none was remembered */
    PLUGIN->discard(auth);
}

static void no_decision_is_a_failure(void **state)
{
    void *auth = start("5s");
    (void)state;
    for (unsigned status = 0; status < 1000; status += 500) {
        struct postern_request r = {0};
        ask(auth, &r, "good");
        reply(status, "ann");
        assert_int_equal(r.verdict, POSTERN_FAILED);
        play_done(&r);
    }
    PLUGIN->discard(auth);
}

static void a_yes_counts_for_a_while(void **state)
{
    void *auth = start("5s");
    struct postern_request r = {0};
    (void)state;
    ask(auth, &r, "good");
    reply(200, "ann");
    play_done(&r);
    play_pass(4999);
    ask(auth, &r, "good");
    assert_int_equal(r.verdict, POSTERN_GO_ON);
    assert_string_equal(r.credential, "ann");
    assert_string_equal(play_has(&r, POSTERN_HEADER, "X-User"), "ann");
    play_done(&r);
    ask(auth, &r, "other");
    assert_int_equal(r.verdict, POSTERN_WAIT);
    reply(403, NULL);
    play_done(&r);
    play_pass(1);
    ask(auth, &r, "good");
    assert_int_equal(r.verdict, POSTERN_WAIT);
    reply(200, "ann");
    play_done(&r);
    PLUGIN->discard(auth);
}

/* The client leaves while its request is asked about. */
static void a_decision_too_late_harms_nobody(void **state)
{
    void *auth = start("5s");
    struct postern_request r = {0};
    (void)state;
    ask(auth, &r, "good");
    play.waiting_count = 0;
    r.id = 0;
    reply(200, "ann");
    play_done(&r);
    PLUGIN->discard(auth);
}

static void without_memory_it_fails(void **state)
{
    void *auth = start("0s");
    struct postern_request r = {0};
    (void)state;
    ask(auth, &r, "good");
    r.out_of_memory = true;
    reply(200, "ann");
    assert_int_equal(r.verdict, POSTERN_FAILED);
    play_done(&r);
    r.out_of_memory = true;
    play_ask(PLUGIN, auth, &r, 0);
    assert_int_equal(r.verdict, POSTERN_FAILED);
    play_done(&r);
    PLUGIN->discard(auth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_yes_goes_on_with_its_headers),
        cmocka_unit_test(a_no_is_the_clients_answer),
        cmocka_unit_test(no_decision_is_a_failure),
        cmocka_unit_test(a_yes_counts_for_a_while),
        cmocka_unit_test(a_decision_too_late_harms_nobody),
        cmocka_unit_test(without_memory_it_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
