#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "jwt_test.h"
#include "play_host.h"

#define PLUGIN (&postern_plugin)
#define GOOD   "\"sub\":\"ann\",\"exp\":1800000600"

static struct postern_setup setup;

static void *begin(void)
{
    play_begin();
    assert_true(PLUGIN->load(&play_api));
    return NULL;
}

/* Sections with the secret of the tests, started on both workers. */
#define SECTION(...)                                                                           \
    start(play_configure(PLUGIN, &setup, "algorithms", "HS256", "algorithms", "HS512",         \
                         "secret", SECRET_64, __VA_ARGS__, NULL))

static void *start(void *instance)
{
    if (!instance)
        fail_msg("%s", setup.text);
    for (unsigned i = 0; i < PLAY_WORKERS; i++)
        PLUGIN->start(instance, &play.workers[i]);
    return instance;
}

static void end(void *instance)
{
    for (unsigned i = 0; i < PLAY_WORKERS; i++)
        PLUGIN->stop(instance, &play.workers[i]);
    PLUGIN->discard(instance);
    play_end();
}

static void bring(struct postern_request *r, const char *token)
{
    char value[16384];
    snprintf(value, sizeof(value), "Bearer %s", token);
    play_put(r, POSTERN_HEADER, "Authorization", value);
}

/* The reason that a request with this token is refused for; "" when it is not. */
static const char *asked_with(void *instance, enum alg alg, const char *header,
                              const char *payload)
{
    static char reason[64];
    struct postern_request r = {0};
    char *token = make_token(alg, header, payload);
    enum postern_verdict verdict;
    bring(&r, token);
    verdict = play_ask(PLUGIN, instance, &r, 0);
    snprintf(reason, sizeof(reason), "%s", r.reason);
    assert_true((verdict == POSTERN_GO_ON) == (reason[0] == '\0'));
    if (reason[0] && r.status != 503)
        assert_non_null(strstr(r.challenge, "Bearer realm=\"postern\", error=\"in"));
    play_done(&r);
    free(token);
    return reason;
}

#define H256 "{\"alg\":\"HS256\"}"

static void lets_a_good_token_through(void **state)
{
    struct postern_request r = {0};
    void *jwt = begin();
    char *token = make_token(ALG_HS256, H256, "{" GOOD ",\"scope\":\"read\"}");
    (void)state;
    jwt = SECTION("claims_to_headers", "sub: X-User", "facts", "sub");
    for (int again = 0; again < 2; again++) { /* the second time from the cache */
        bring(&r, token);
        play_put(&r, POSTERN_HEADER, "X-User", "forged");
        assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_GO_ON);
        assert_string_equal(r.credential, "ann");
        assert_string_equal(play_has(&r, POSTERN_HEADER, "X-User"), "ann");
        assert_string_equal(play_fact(&r, "scope"), "read");
        assert_string_equal(play_fact(&r, "claim.sub"), "ann");
        assert_non_null(play_has(&r, POSTERN_HEADER, "Authorization"));
        play_done(&r);
    }
    free(token);
    end(jwt);
}

static void says_what_is_wrong_with_a_token(void **state)
{
    void *jwt = begin();
    (void)state;
    jwt = SECTION("issuer", "me", "audience", "api", "required_claims", "role: admin", "scopes",
                  "read", "claims_to_headers", "email: X-Email");
#define ALL ",\"iss\":\"me\",\"aud\":\"api\",\"role\":\"admin\",\"scope\":\"read\""
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "{" GOOD ALL "}"), "");
    assert_string_equal(asked_with(jwt, ALG_HS512, "{\"alg\":\"HS512\"}", "{" GOOD ALL "}"),
                        "");
    assert_string_equal(asked_with(jwt, ALG_HS512, H256, "{" GOOD ALL "}"), "auth.signature");
    assert_string_equal(asked_with(jwt, ALG_HS384, "{\"alg\":\"HS384\"}", "{" GOOD ALL "}"),
                        "auth.algorithm");
    assert_string_equal(asked_with(jwt, ALG_HS256, "{\"alg\":\"none\"}", "{" GOOD ALL "}"),
                        "auth.algorithm");
    assert_string_equal(asked_with(jwt, ALG_RS256, "{\"alg\":\"RS256\"}", "{" GOOD ALL "}"),
                        "auth.algorithm");
    assert_string_equal(
        asked_with(jwt, ALG_HS256, "{\"alg\":\"HS256\",\"crit\":[\"x\"]}", "{" GOOD ALL "}"),
        "auth.invalid");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "[]"), "auth.invalid");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "{\"sub\":\"x\"}"), "auth.invalid");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "{\"exp\":1799999000}"),
                        "auth.expired");
    assert_string_equal(
        asked_with(jwt, ALG_HS256, H256, "{\"exp\":1900000000,\"nbf\":1800001000}"),
        "auth.not_yet");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "{" GOOD "}"), "auth.issuer");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "{" GOOD ",\"iss\":\"me\"}"),
                        "auth.audience");
    assert_string_equal(
        asked_with(jwt, ALG_HS256, H256, "{" GOOD ",\"iss\":\"me\",\"aud\":\"api\"}"),
        "auth.claim");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256,
                                   "{" GOOD ",\"iss\":\"me\",\"aud\":\"api\","
                                   "\"role\":[\"admin\"],\"scope\":\"reader\"}"),
                        "auth.scope");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "{" GOOD ALL ",\"email\":\"a\\nb\"}"),
                        "auth.invalid");
    end(jwt);
}

static void refuses_a_token_cut_at_every_byte(void **state)
{
    void *jwt = begin();
    char *token = make_token(ALG_HS256, H256, "{" GOOD "}");
    size_t n = strlen(token);
    (void)state;
    jwt = SECTION("cache", "0");
    for (size_t cut = 0; cut < n; cut++) {
        struct postern_request r = {0};
        char part[1024];
        snprintf(part, sizeof(part), "%.*s", (int)cut, token);
        bring(&r, part);
        assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_ANSWERED);
        assert_int_equal(r.status, 401);
        play_done(&r);
    }
    free(token);
    end(jwt);
}

static void asks_for_a_token(void **state)
{
    static const char *const others[] = {NULL, "Basic YTpi", "Bearer", "bearerx y"};
    void *jwt = begin();
    (void)state;
    jwt = SECTION("realm", "shop");
    for (size_t i = 0; i < 4; i++) {
        struct postern_request r = {0};
        if (others[i])
            play_put(&r, POSTERN_HEADER, "Authorization", others[i]);
        assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_ANSWERED);
        assert_int_equal(r.status, 401);
        assert_string_equal(r.reason, "auth.missing");
        assert_string_equal(r.challenge, "Bearer realm=\"shop\"");
        play_done(&r);
    }
    end(jwt);
}

static void refuses_more_than_one_credential(void **state)
{
    static const enum postern_part parts[] = {POSTERN_HEADER, POSTERN_PARAMETER,
                                              POSTERN_COOKIE};
    static const char *const names[] = {"Authorization", "t", "c"};
    void *jwt = begin();
    char *token = make_token(ALG_HS256, H256, "{" GOOD "}");
    (void)state;
    jwt = SECTION("query", "t", "cookie", "c");
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            struct postern_request r = {0};
            a ? play_put(&r, parts[a], names[a], token) : bring(&r, token);
            b ? play_put(&r, parts[b], names[b], token) : bring(&r, token);
            assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_ANSWERED);
            assert_string_equal(r.reason, "auth.multiple");
            assert_non_null(strstr(r.challenge, "error=\"invalid_request\""));
            play_done(&r);
        }
    }
    /* One that is none beside it does not count. */
    struct postern_request r = {0};
    play_put(&r, POSTERN_HEADER, "Authorization", "Basic YTpi");
    play_put(&r, POSTERN_COOKIE, "c", token);
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_GO_ON);
    play_done(&r);
    free(token);
    end(jwt);
}

static void takes_the_token_away_when_asked(void **state)
{
    void *jwt = begin();
    char *token = make_token(ALG_HS256, H256, "{" GOOD "}");
    struct postern_request r = {0};
    (void)state;
    jwt = SECTION("forward_token", "false", "header", "X-Token", "query", "t");
    play_put(&r, POSTERN_HEADER, "X-Token", token); /* no scheme needed here */
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_GO_ON);
    assert_null(play_has(&r, POSTERN_HEADER, "X-Token"));
    play_done(&r);
    play_put(&r, POSTERN_PARAMETER, "t", token);
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_GO_ON);
    assert_null(play_has(&r, POSTERN_PARAMETER, "t"));
    play_done(&r);
    free(token);
    end(jwt);
}

static void lets_strangers_through_when_asked(void **state)
{
    void *jwt = begin();
    struct postern_request r = {0};
    (void)state;
    jwt = SECTION("optional", "true", "claims_to_headers", "sub: X-User");
    play_put(&r, POSTERN_HEADER, "X-User", "forged");
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_GO_ON);
    assert_null(play_has(&r, POSTERN_HEADER, "X-User"));
    assert_string_equal(r.credential, "");
    /* for those behind, who may refuse it */
    assert_string_equal(play_fact(&r, "challenge"), "Bearer realm=\"postern\"");
    assert_null(play_fact(&r, "optional"));
    play_done(&r);
    bring(&r, "wrong");
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_ANSWERED);
    play_done(&r);
    end(jwt);
}

static void refuses_long_tokens_before_it_reads_them(void **state)
{
    void *jwt = begin();
    struct postern_request r = {0};
    char token[301];
    (void)state;
    jwt = SECTION("token_bytes", "256");
    memset(token, 'a', 300);
    token[300] = '\0';
    bring(&r, token);
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_ANSWERED);
    assert_string_equal(r.reason, "auth.invalid");
    assert_int_equal(r.limit, 256);
    assert_int_equal(r.actual, 300);
    play_done(&r);
    end(jwt);
}

static void forgets_a_cached_token_when_it_expires(void **state)
{
    void *jwt = begin();
    char *token = make_token(ALG_HS256, H256, "{" GOOD "}");
    (void)state;
    jwt = SECTION("leeway", "0");
    for (int i = 0; i < 3; i++) {
        struct postern_request r = {0};
        bring(&r, token);
        if (i == 2)
            play_pass(600000);
        assert_int_equal(play_ask(PLUGIN, jwt, &r, 0),
                         i < 2 ? POSTERN_GO_ON : POSTERN_ANSWERED);
        play_done(&r);
    }
    free(token);
    end(jwt);
}

static void wants_the_type_when_asked(void **state)
{
    void *jwt = begin();
    (void)state;
    jwt = SECTION("type", "at+jwt");
    assert_string_equal(asked_with(jwt, ALG_HS256, H256, "{" GOOD "}"), "auth.invalid");
    assert_string_equal(
        asked_with(jwt, ALG_HS256, "{\"alg\":\"HS256\",\"typ\":\"JWT\"}", "{" GOOD "}"),
        "auth.invalid");
    assert_string_equal(asked_with(jwt, ALG_HS256,
                                   "{\"alg\":\"HS256\",\"typ\":\"application/AT+JWT\"}",
                                   "{" GOOD "}"),
                        "");
    end(jwt);
}

/* ---- keys from a URL ---- */

static void *url_section(void)
{
    begin();
    return start(play_configure(PLUGIN, &setup, "algorithms", "ES256", "algorithms", "RS256",
                                "jwks_url", "https://idp/keys", NULL));
}

static void reply_keys(enum key_kind kind, const char *kid)
{
    char more[64], *jwk, *text;
    snprintf(more, sizeof(more), ",\"kid\":\"%s\"", kid);
    jwk = jwk_text(kind, more);
    assert_true(asprintf(&text, "{\"keys\":[%s]}", jwk) > 0);
    play_reply_text(200, text, NULL);
    free(jwk);
    free(text);
}

static void waits_for_the_first_keys(void **state)
{
    void *jwt = url_section();
    struct postern_request r[3] = {0};
    char *token = make_token(ALG_ES256, "{\"alg\":\"ES256\",\"kid\":\"a\"}", "{" GOOD "}");
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        bring(&r[i], token);
        assert_int_equal(play_ask(PLUGIN, jwt, &r[i], i % 2), POSTERN_WAIT);
    }
    play_done(&r[2]); /* its client leaves */
    assert_int_equal(play.call_count, 1);
    reply_keys(KEY_P256, "a");
    assert_int_equal(r[0].verdict, POSTERN_GO_ON);
    assert_int_equal(r[1].verdict, POSTERN_GO_ON);
    assert_string_equal(r[1].credential, "ann");
    play_done(&r[0]);
    play_done(&r[1]);
    free(token);
    end(jwt);
}

static void says_so_when_no_keys_come(void **state)
{
    void *jwt = url_section();
    struct postern_request r = {0};
    char *token = make_token(ALG_ES256, "{\"alg\":\"ES256\",\"kid\":\"a\"}", "{" GOOD "}");
    (void)state;
    bring(&r, token);
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_WAIT);
    play_reply_text(500, "", NULL);
    play_pass(1999);
    assert_int_equal(r.verdict, POSTERN_WAIT);
    play_pass(1);
    assert_int_equal(r.verdict, POSTERN_ANSWERED);
    assert_int_equal(r.status, 503);
    assert_string_equal(r.reason, "auth.keys_unavailable");
    assert_non_null(play_has(&r, POSTERN_ANSWER_HEADER, "Retry-After"));
    play_done(&r);
    while (play_open_calls())
        play_reply_text(0, "refused", NULL);
    free(token);
    end(jwt);
}

static void looks_for_an_unknown_key_once(void **state)
{
    void *jwt = url_section();
    struct postern_request r = {0};
    char *fresh = make_token(ALG_RS256, "{\"alg\":\"RS256\",\"kid\":\"b\"}", "{" GOOD "}");
    char *never = make_token(ALG_RS256, "{\"alg\":\"RS256\",\"kid\":\"c\"}", "{" GOOD "}");
    (void)state;
    play_pass(1);
    reply_keys(KEY_P256, "a");
    play_pass(10000);
    bring(&r, fresh);
    assert_int_equal(play_ask(PLUGIN, jwt, &r, 0), POSTERN_WAIT);
    reply_keys(KEY_RSA, "b");
    assert_int_equal(r.verdict, POSTERN_GO_ON);
    play_done(&r);
    for (int i = 0; i < 100; i++) {
        bring(&r, never);
        assert_int_equal(play_ask(PLUGIN, jwt, &r, (unsigned)i % 2), POSTERN_ANSWERED);
        assert_string_equal(r.reason, "auth.key_unknown");
        play_done(&r);
    }
    assert_int_equal(play.call_count, 2);
    free(fresh);
    free(never);
    end(jwt);
}

static void the_fetch_ends(void)
{
    reply_keys(KEY_RSA, "b");
}

/* Another worker's fetch ends between the look for the key and the question whether one is
 * under way, where the clock is read. */
static void takes_keys_that_came_while_it_looked(void **state)
{
    char *fresh = make_token(ALG_RS256, "{\"alg\":\"RS256\",\"kid\":\"b\"}", "{" GOOD "}");
    (void)state;
    for (int failed = 0; failed < 2; failed++) { /* the last fetch before it */
        void *jwt = url_section();
        struct postern_request r = {0};
        play_pass(1);
        reply_keys(KEY_P256, "a");
        play_pass(300000); /* the next one begins */
        if (failed) {
            play_reply_text(500, "", NULL);
            play_pass(250);
        }
        assert_int_equal(play_open_calls(), 1);
        play.meanwhile = the_fetch_ends;
        bring(&r, fresh);
        assert_int_equal(play_ask(PLUGIN, jwt, &r, 1), POSTERN_GO_ON);
        assert_null(play.meanwhile);
        assert_string_equal(r.credential, "ann");
        play_done(&r);
        end(jwt);
    }
    free(fresh);
}

/* A token in the cache is good only as long as its key is. */
static void forgets_tokens_of_a_key_that_goes(void **state)
{
    void *jwt = url_section();
    char *token = make_token(ALG_ES256, "{\"alg\":\"ES256\",\"kid\":\"a\"}",
                             "{\"sub\":\"ann\",\"exp\":1900000000}");
    (void)state;
    play_pass(1);
    reply_keys(KEY_P256, "a");
    for (int i = 0; i < 4; i++) {
        struct postern_request r = {0};
        if (i == 1) {
            play_pass(300000);
            reply_keys(KEY_RSA, "b"); /* the grace begins */
        }
        if (i == 3)
            play_pass(299000);
        if (i == 3)
            play_pass(1000);
        bring(&r, token);
        enum postern_verdict verdict = play_ask(PLUGIN, jwt, &r, 0);
        if (i < 3)
            assert_int_equal(verdict, POSTERN_GO_ON);
        else
            assert_int_not_equal(verdict, POSTERN_GO_ON);
        play_done(&r);
    }
    while (play_open_calls())
        play_reply_text(0, "refused", NULL);
    free(token);
    end(jwt);
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
        cmocka_unit_test(lets_a_good_token_through),
        cmocka_unit_test(says_what_is_wrong_with_a_token),
        cmocka_unit_test(refuses_a_token_cut_at_every_byte),
        cmocka_unit_test(asks_for_a_token),
        cmocka_unit_test(refuses_more_than_one_credential),
        cmocka_unit_test(takes_the_token_away_when_asked),
        cmocka_unit_test(lets_strangers_through_when_asked),
        cmocka_unit_test(refuses_long_tokens_before_it_reads_them),
        cmocka_unit_test(forgets_a_cached_token_when_it_expires),
        cmocka_unit_test(wants_the_type_when_asked),
        cmocka_unit_test(waits_for_the_first_keys),
        cmocka_unit_test(says_so_when_no_keys_come),
        cmocka_unit_test(looks_for_an_unknown_key_once),
        cmocka_unit_test(takes_keys_that_came_while_it_looked),
        cmocka_unit_test(forgets_tokens_of_a_key_that_goes),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
