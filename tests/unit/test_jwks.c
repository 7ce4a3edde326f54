#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "jwks.h"
#include "jwt_test.h"
#include "play_host.h"

static struct postern_origin idp = {"https://idp"}, elsewhere = {"https://keys"};
static const struct jwks_plan plan = {
    .origin = &idp,
    .target = "/keys",
    .shown = "https://idp/keys",
    .origins = {{SPAN("https://idp"), &idp}, {SPAN("https://keys"), &elsewhere}},
    .origin_count = 2,
    .max_bytes = 65536,
    .max_waiting = 3,
    .refresh_ms = 60000,
    .floor_ms = 10000,
    .grace_ms = 5000,
    .timeout_ms = 3000,
};

/* One instance's users on both workers. */
struct house {
    struct jwks *jwks;
    struct jwks_user users[PLAY_WORKERS];
    struct jwks_seat *seats[PLAY_WORKERS];
};

static void open_house(struct house *house, const struct jwks_plan *how)
{
    play_begin();
    jwks_use(&play_api, NULL);
    house->jwks = jwks_new(NULL);
    for (unsigned i = 0; i < PLAY_WORKERS; i++) {
        house->users[i].plan = how;
        house->seats[i] = jwks_join(house->jwks, &play.workers[i], &house->users[i]);
        assert_non_null(house->seats[i]);
    }
}

static void close_house(struct house *house)
{
    for (unsigned i = 0; i < PLAY_WORKERS; i++)
        jwks_leave(house->seats[i], &play.workers[i], &house->users[i]);
    while (play_open_calls() > 0)
        play_reply_text(0, "the gateway ends", NULL);
    assert_int_equal(play.timer_count, 0);
    jwks_unref(house->jwks);
}

static char *set_text(const char *kid)
{
    char more[64], *jwk, *text;
    snprintf(more, sizeof(more), ",\"kid\":\"%s\"", kid);
    jwk = jwk_text(KEY_P256, more);
    assert_true(asprintf(&text, "{\"keys\":[%s]}", jwk) > 0);
    free(jwk);
    return text;
}

static void reply_keys(const char *kid, const char *cache)
{
    char *text = set_text(kid);
    play_reply_text(200, text, cache);
    free(text);
}

static bool knows(const struct house *house, const char *kid)
{
    const struct jwk *found[KEYSET_TRIES];
    return keyset_find(jwks_keys(house->jwks), span_of(kid), ALG_ES256, play.wall_ms, found) >
           0;
}

/* A plugin of requests that wait: counts how they are woken. */
static unsigned woken, too_late;
static enum postern_verdict on_resume(void *instance, struct postern_request *r, void *result)
{
    (void)instance;
    (void)r;
    assert_true(result == jwks_woken || result == jwks_too_late);
    woken += result == jwks_woken;
    too_late += result == jwks_too_late;
    return POSTERN_GO_ON;
}
static const struct postern_plugin waiter_plugin = {.on_resume = on_resume};

static void wait_there(struct house *house, unsigned worker, struct postern_request *r,
                       struct jwks_waiter *waiter, uint64_t ms)
{
    r->plugin = &waiter_plugin;
    r->worker = &play.workers[worker];
    jwks_wait(house->seats[worker], r->worker, waiter, play_wait(r),
              play.now_ns + ms * UINT64_C(1000000));
}

static void one_worker_fetches_at_the_start(void **state)
{
    struct house house;
    (void)state;
    open_house(&house, &plan);
    assert_null(jwks_keys(house.jwks));
    play_pass(1);
    assert_int_equal(play.call_count, 1);
    assert_string_equal(play.calls[0].target, "/keys");
    assert_string_equal(play.calls[0].method, "GET");
    assert_ptr_equal(play.calls[0].origin, &idp);
    assert_int_equal(play.calls[0].max_bytes, 65536);
    assert_int_equal(play.calls[0].deadline_ms, 3000);
    reply_keys("a", NULL);
    assert_true(knows(&house, "a"));
    play_pass(50000);
    assert_int_equal(play.call_count, 1);
    close_house(&house);
}

static void fetches_again_before_the_keys_expire(void **state)
{
    static const struct {
        const char *cache;
        unsigned ms; /* at most: the floor, 9/10 of max-age, or refresh */
    } cases[] = {{NULL, 60000},          {"max-age=30", 27000},
                 {"no-store", 10000},    {"max-age=0", 10000},
                 {"max-age=1", 10000},   {"public, MAX-AGE=99999999999999999999", 60000},
                 {"max-age=\"9", 10000}, {"private,  max-age=20 , x", 18000}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct house house;
        open_house(&house, &plan);
        play_pass(1);
        reply_keys("a", cases[i].cache);
        play_pass(cases[i].ms / 8 * 7 - 100);
        assert_int_equal(play.call_count, 1);
        play_pass(cases[i].ms / 8 + 200);
        if (play.call_count != 2)
            fail_msg("%s: %zu calls", cases[i].cache, play.call_count);
        reply_keys("a", NULL);
        assert_int_equal(play.retired, 0); /* the same text: the same keys */
        close_house(&house);
    }
}

static void keeps_old_keys_for_the_grace_only(void **state)
{
    struct house house;
    (void)state;
    open_house(&house, &plan);
    play_pass(1);
    reply_keys("a", NULL);
    play_pass(60000);
    reply_keys("b", NULL);
    assert_int_equal(play.retired, 1);
    assert_true(knows(&house, "a") && knows(&house, "b"));
    play_pass(4999);
    assert_true(knows(&house, "a"));
    play_pass(1);
    assert_false(knows(&house, "a"));
    close_house(&house);
}

static void no_failure_drops_good_keys(void **state)
{
    static const struct {
        unsigned status;
        const char *body;
    } failures[] = {{0, "refused"},        {500, "{}"}, {404, ""},
                    {200, "<html>"},       {200, ""},   {304, ""},
                    {200, "{\"keys\":[]}"}};
    struct house house;
    (void)state;
    open_house(&house, &plan);
    play_pass(1);
    reply_keys("a", NULL);
    play_pass(60000);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        unsigned warns = play.warns;
        play_reply_text(failures[i].status, failures[i].body, NULL);
        assert_true(knows(&house, "a"));
        assert_int_equal(play.warns, warns + 1);
        play_pass(60000);
        assert_int_equal(play_open_calls(), 1); /* it tries again */
    }
    reply_keys("b", NULL);
    assert_true(knows(&house, "b"));
    close_house(&house);
}

static void waits_longer_with_each_failure(void **state)
{
    struct house house;
    size_t calls;
    (void)state;
    open_house(&house, &plan);
    play_pass(1);
    for (unsigned ms = 250; ms <= 64000; ms *= 2) {
        unsigned wait = ms < 60000 ? ms : 60000;
        play_reply_text(0, "refused", NULL);
        calls = play.call_count;
        play_pass(wait / 8 * 7 - 10);
        assert_int_equal(play.call_count, calls);
        play_pass(wait / 8 + 20);
        assert_int_equal(play.call_count, calls + 1);
    }
    close_house(&house);
}

static void ten_thousand_unknown_keys_are_one_fetch(void **state)
{
    struct house house;
    (void)state;
    open_house(&house, &plan);
    play_pass(1);
    reply_keys("a", NULL);
    play_pass(10000);
    for (unsigned i = 0; i < 10000; i++)
        assert_int_equal(jwks_miss(house.seats[i % 2], &play.workers[i % 2]), JWKS_WAIT);
    assert_int_equal(play.call_count, 2);
    reply_keys("a", NULL);
    for (unsigned i = 0; i < 10000; i++) {
        assert_int_equal(jwks_miss(house.seats[i % 2], &play.workers[i % 2]), JWKS_LATER);
        play_pass(i % 2 ? 1 : 0); /* 5 s in all: less than the floor */
    }
    assert_int_equal(play.call_count, 2);
    play_pass(5000);
    assert_int_equal(jwks_miss(house.seats[1], &play.workers[1]), JWKS_WAIT);
    assert_int_equal(play.call_count, 3);
    close_house(&house);
}

static void wakes_the_requests_of_all_workers(void **state)
{
    struct postern_request r[3] = {0};
    struct jwks_waiter waiters[3];
    struct house house;
    (void)state;
    woken = too_late = 0;
    open_house(&house, &plan);
    play_pass(1);
    wait_there(&house, 0, &r[0], &waiters[0], 2000);
    wait_there(&house, 1, &r[1], &waiters[1], 2000);
    wait_there(&house, 1, &r[2], &waiters[2], 2000);
    jwks_unwait(&waiters[2]); /* its client has gone */
    jwks_unwait(&waiters[2]);
    reply_keys("a", NULL);
    assert_int_equal(woken, 2);
    play_pass(5000);
    assert_int_equal(too_late, 0);
    close_house(&house);
}

static void requests_wait_for_the_first_keys_over_failures(void **state)
{
    struct postern_request r[2] = {0};
    struct jwks_waiter waiters[2];
    struct house house;
    (void)state;
    woken = too_late = 0;
    open_house(&house, &plan);
    play_pass(1);
    assert_int_equal(jwks_miss(house.seats[0], &play.workers[0]), JWKS_WAIT);
    wait_there(&house, 0, &r[0], &waiters[0], 200);
    wait_there(&house, 0, &r[1], &waiters[1], 2000);
    play_reply_text(500, "", NULL);
    assert_int_equal(woken + too_late, 0);
    play_pass(199);
    assert_int_equal(too_late, 0);
    play_pass(1);
    assert_int_equal(too_late, 1);
    play_pass(100); /* the second try */
    reply_keys("a", NULL);
    assert_int_equal(woken, 1);
    close_house(&house);
}

static void says_when_the_last_try_failed(void **state)
{
    struct house house;
    (void)state;
    open_house(&house, &plan);
    play_pass(1);
    reply_keys("a", NULL);
    play_pass(60000);
    play_reply_text(500, "", NULL);
    assert_int_equal(jwks_miss(house.seats[0], &play.workers[0]), JWKS_BROKEN);
    play_pass(300);
    reply_keys("a", NULL);
    assert_int_equal(jwks_miss(house.seats[0], &play.workers[0]), JWKS_LATER);
    close_house(&house);
}

static void only_so_many_wait(void **state)
{
    struct postern_request r[3] = {0};
    struct jwks_waiter waiters[3];
    struct house house;
    (void)state;
    open_house(&house, &plan);
    play_pass(1);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(jwks_miss(house.seats[0], &play.workers[0]), JWKS_WAIT);
        wait_there(&house, 0, &r[i], &waiters[i], 2000);
    }
    assert_int_equal(jwks_miss(house.seats[0], &play.workers[0]), JWKS_BROKEN);
    assert_int_equal(jwks_miss(house.seats[1], &play.workers[1]), JWKS_WAIT);
    play_pass(2000);
    close_house(&house);
}

static void survives_its_instances(void **state)
{
    struct house house;
    struct jwks_user next[PLAY_WORKERS] = {{.plan = &plan}, {.plan = &plan}};
    (void)state;
    open_house(&house, &plan);
    play_pass(1);
    reply_keys("a", NULL);
    for (unsigned i = 0; i < PLAY_WORKERS; i++) {
        assert_ptr_equal(jwks_join(house.jwks, &play.workers[i], &next[i]), house.seats[i]);
        jwks_leave(house.seats[i], &play.workers[i], &house.users[i]);
        house.users[i].plan = NULL; /* looked at by nobody any more */
    }
    assert_true(knows(&house, "a"));
    play_pass(60000);
    assert_int_equal(play.call_count, 2);
    /* A fetch that nobody wants any more ends without harm, even behind the last reference. */
    for (unsigned i = 0; i < PLAY_WORKERS; i++)
        jwks_leave(house.seats[i], &play.workers[i], &next[i]);
    jwks_unref(house.jwks);
    reply_keys("b", NULL);
    assert_int_equal(play.timer_count, 0);
}

static void goes_on_when_letters_get_lost(void **state)
{
    struct postern_request r = {0};
    struct jwks_waiter waiter;
    struct house house;
    (void)state;
    woken = too_late = 0;
    open_house(&house, &plan);
    play_pass(1);
    play.no_letters = true;
    wait_there(&house, 1 - play.calls[0].worker, &r, &waiter, 2000);
    reply_keys("a", NULL);
    assert_int_equal(woken, 0);
    play_pass(2000);
    assert_int_equal(too_late, 1);
    close_house(&house);
}

static struct jwks_plan discovery_plan(void)
{
    struct jwks_plan with = plan;
    with.target = "/.well-known/openid-configuration";
    with.issuer = SPAN("https://idp");
    return with;
}

static void discovers_where_the_keys_are(void **state)
{
    struct jwks_plan with = discovery_plan();
    struct house house;
    (void)state;
    open_house(&house, &with);
    play_pass(1);
    assert_string_equal(play_next_call()->target, "/.well-known/openid-configuration");
    play_reply_text(200, "{\"issuer\":\"https://idp\",\"jwks_uri\":\"https://KEYS:443/k?v=1\"}",
                    NULL);
    assert_string_equal(play_next_call()->target, "/k?v=1");
    assert_ptr_equal(play_next_call()->origin, &elsewhere);
    reply_keys("a", NULL);
    assert_true(knows(&house, "a"));
    close_house(&house);
}

static void believes_no_other_discovery(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"jwks_uri\":\"https://idp/k\"}",
        "{\"issuer\":\"https://idp/\",\"jwks_uri\":\"https://idp/k\"}",
        "{\"issuer\":\"https://idp\"}",
        "{\"issuer\":\"https://idp\",\"jwks_uri\":7}",
        "{\"issuer\":\"https://idp\",\"jwks_uri\":\"/k\"}",
        "{\"issuer\":\"https://idp\",\"jwks_uri\":\"https://idp\"}",
        "{\"issuer\":\"https://idp\",\"jwks_uri\":\"http://idp/k\"}",
        "{\"issuer\":\"https://idp\",\"jwks_uri\":\"https://10.0.0.1/k\"}",
        "{\"issuer\":\"https://idp\",\"jwks_uri\":\"https://idp@evil/k\"}",
    };
    struct jwks_plan with = discovery_plan();
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct house house;
        open_house(&house, &with);
        play_pass(1);
        play_reply_text(200, bad[i], NULL);
        if (play_open_calls() || play.warns != 1)
            fail_msg("believed: %s", bad[i]);
        close_house(&house);
    }
}

static int clean(void **state)
{
    (void)state;
    free_private_keys();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_fetches_at_the_start),
        cmocka_unit_test(fetches_again_before_the_keys_expire),
        cmocka_unit_test(keeps_old_keys_for_the_grace_only),
        cmocka_unit_test(no_failure_drops_good_keys),
        cmocka_unit_test(waits_longer_with_each_failure),
        cmocka_unit_test(ten_thousand_unknown_keys_are_one_fetch),
        cmocka_unit_test(wakes_the_requests_of_all_workers),
        cmocka_unit_test(requests_wait_for_the_first_keys_over_failures),
        cmocka_unit_test(says_when_the_last_try_failed),
        cmocka_unit_test(only_so_many_wait),
        cmocka_unit_test(survives_its_instances),
        cmocka_unit_test(goes_on_when_letters_get_lost),
        cmocka_unit_test(discovers_where_the_keys_are),
        cmocka_unit_test(believes_no_other_discovery),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
