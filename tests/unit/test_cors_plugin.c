#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_host.h"

#define APP  "https://app.example.com"
#define EVIL "https://evil.example"

static struct postern_setup s;
static struct postern_request r;
static void *it;

static int setup(void **state)
{
    (void)state;
    fake_load();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (it)
        postern_plugin.discard(it);
    it = NULL;
    return 0;
}

#define START(...)                                                                             \
    do {                                                                                       \
        it = fake_configure(&s, __VA_ARGS__, NULL);                                            \
        if (!it)                                                                               \
            fail_msg("refused: %s", s.text);                                                   \
    } while (0)

static void request(const char *method, const char *origin)
{
    memset(&r, 0, sizeof(r));
    snprintf(r.method, sizeof(r.method), "%s", method);
    if (origin)
        fake_put(&r, POSTERN_HEADER, "Origin", origin);
}

static void preflight(const char *origin, const char *method, const char *headers)
{
    request("OPTIONS", origin);
    fake_put(&r, POSTERN_HEADER, "Access-Control-Request-Method", method);
    if (headers)
        fake_put(&r, POSTERN_HEADER, "Access-Control-Request-Headers", headers);
}

/* An answer's header, without what a browser calls them all: "Allow-Origin". */
static const char *says(const char *name)
{
    char whole[64];
    snprintf(whole, sizeof(whole), "Access-Control-%s", name);
    return fake_has(&r, POSTERN_ANSWER_HEADER, whole);
}

static void assert_answered(unsigned status, const char *reason)
{
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_ANSWERED);
    assert_int_equal(r.answers, 1);
    assert_int_equal(r.status, status);
    assert_string_equal(r.reason, reason);
    postern_plugin.on_response(it, &r);
    assert_non_null(strstr(fake_has(&r, POSTERN_ANSWER_HEADER, "Vary"), "Origin"));
}

static void assert_goes_on(void)
{
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_GO_ON);
    assert_int_equal(r.answers, 0);
}

static void answers_a_preflight(void **state)
{
    (void)state;
    START("origins", APP);
    preflight(APP, "PUT", "x-one, authorization");
    assert_answered(204, "");
    assert_string_equal(says("Allow-Origin"), APP);
    assert_string_equal(says("Allow-Methods"), "GET, HEAD, POST, PUT, PATCH, DELETE");
    assert_string_equal(says("Allow-Headers"), "x-one, authorization");
    assert_non_null(says("Max-Age"));
    assert_null(says("Allow-Credentials"));
    assert_null(says("Allow-Private-Network"));
    preflight(APP, "GET", NULL);
    assert_answered(204, "");
    assert_null(says("Allow-Headers"));
}

static void answers_one_that_no_route_takes(void **state)
{
    (void)state;
    START("origins", APP, "max_age", "7200000");
    preflight(APP, "GET", NULL);
    assert_int_equal(postern_plugin.on_preflight(it, &r), POSTERN_ANSWERED);
    assert_int_equal(r.status, 204);
    postern_plugin.on_response(it, &r);
    assert_string_equal(says("Allow-Origin"), APP);
    assert_string_equal(says("Max-Age"), "7200");
}

static void says_what_was_configured(void **state)
{
    (void)state;
    START("origins", APP, "methods", "GET", "methods", "PURGE", "headers", "X-One", "headers",
          "X-Two", "credentials", "1", "private_network", "1");
    preflight(APP, "PURGE", "x-two");
    fake_put(&r, POSTERN_HEADER, "Access-Control-Request-Private-Network", "true");
    assert_answered(204, "");
    assert_string_equal(says("Allow-Methods"), "GET, PURGE");
    assert_string_equal(says("Allow-Headers"), "X-One, X-Two");
    assert_string_equal(says("Allow-Credentials"), "true");
    assert_string_equal(says("Allow-Private-Network"), "true");
}

static void any_method_is_spelt_out(void **state)
{
    (void)state;
    START("origins", APP, "methods", "*", "credentials", "1");
    preflight(APP, "PURGE", NULL);
    assert_answered(204, "");
    assert_string_equal(says("Allow-Methods"), "PURGE");
    preflight(APP, "PUR GE", NULL);
    assert_answered(403, "cors.method");
}

static void refuses_preflights(void **state)
{
    (void)state;
    START("origins", APP, "headers", "X-One");
    preflight(EVIL, "GET", NULL);
    assert_answered(403, "cors.origin");
    assert_null(says("Allow-Origin"));
    preflight("null", "GET", NULL);
    assert_answered(403, "cors.origin");
    preflight(APP, "TRACE", NULL);
    assert_answered(403, "cors.method");
    assert_string_equal(says("Allow-Origin"), APP);
    assert_null(says("Allow-Methods"));
    preflight(APP, "GET", "x-two");
    assert_answered(403, "cors.header");
    preflight(APP, "GET", NULL);
    fake_put(&r, POSTERN_HEADER, "Origin", APP);
    assert_answered(403, "cors.origin");
}

static void not_every_options_is_a_preflight(void **state)
{
    (void)state;
    START("origins", APP);
    request("OPTIONS", APP);
    assert_goes_on();
    preflight(NULL, "GET", NULL);
    assert_goes_on();
    request("GET", APP);
    fake_put(&r, POSTERN_HEADER, "Access-Control-Request-Method", "GET");
    assert_goes_on();
}

/* As the gateway does it: what was kept is in the answer, then the response hook runs. */
static void answer_of_an_upstream(void)
{
    static const char *const own[] = {"Allow-Origin", "Allow-Credentials", "Expose-Headers"};
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof(name), "Access-Control-%s", own[i]);
        if (!fake_has(&r, POSTERN_ANSWER_HEADER, name))
            fake_put(&r, POSTERN_ANSWER_HEADER, name, "the upstream's");
    }
    postern_plugin.on_response(it, &r);
}

static void marks_an_answer_for_its_origin(void **state)
{
    (void)state;
    START("origins", APP, "expose", "X-One", "expose", "X-Two");
    request("GET", APP);
    assert_goes_on();
    assert_string_equal(fake_has(&r, POSTERN_ANSWER_HEADER, "Vary"), "Origin");
    answer_of_an_upstream();
    assert_string_equal(says("Allow-Origin"), APP);
    assert_string_equal(says("Expose-Headers"), "X-One, X-Two");
    assert_null(says("Allow-Credentials"));
}

static void lets_credentials_be_used(void **state)
{
    (void)state;
    START("origins", APP, "credentials", "1");
    request("POST", APP);
    assert_goes_on();
    answer_of_an_upstream();
    assert_string_equal(says("Allow-Origin"), APP);
    assert_string_equal(says("Allow-Credentials"), "true");
    assert_null(says("Expose-Headers"));
}

static void others_may_read_nothing(void **state)
{
    static const char *const others[] = {EVIL, "null", "", NULL};
    (void)state;
    START("origins", APP, "expose", "X-One", "credentials", "1");
    for (size_t i = 0; i < 4; i++) {
        request("GET", others[i]);
        assert_goes_on();
        assert_string_equal(fake_has(&r, POSTERN_ANSWER_HEADER, "Vary"), "Origin");
        answer_of_an_upstream();
        assert_null(says("Allow-Origin"));
        assert_null(says("Allow-Credentials"));
        assert_null(says("Expose-Headers"));
    }
}

static void everybody_is_a_star(void **state)
{
    (void)state;
    START("origins", "*");
    request("GET", EVIL);
    assert_goes_on();
    assert_null(fake_has(&r, POSTERN_ANSWER_HEADER, "Vary"));
    answer_of_an_upstream();
    assert_string_equal(says("Allow-Origin"), "*");
    preflight(EVIL, "GET", NULL);
    assert_answered(204, "");
    assert_string_equal(says("Allow-Origin"), "*");
}

static void null_must_be_named(void **state)
{
    (void)state;
    START("origins", "null", "origins", "http://localhost:*");
    assert_int_equal(s.warnings, 1);
    request("GET", "null");
    assert_goes_on();
    assert_string_equal(says("Allow-Origin"), "null");
    request("GET", "http://localhost:5173");
    assert_goes_on();
    assert_string_equal(says("Allow-Origin"), "http://localhost:5173");
}

static void fails_without_memory(void **state)
{
    (void)state;
    START("origins", APP);
    request("GET", APP);
    r.out_of_memory = true;
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_FAILED);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    it = fake_configure(&s, "origins", "*", "credentials", "1", NULL);
    assert_int_equal(s.faults, 1);
    assert_non_null(strstr(s.text, "credentials = false"));
    it = fake_configure(&s, "origins", APP, "origins", APP "/", "origins", "x", NULL);
    assert_int_equal(s.faults, 2);
    assert_int_equal(s.at, 2);
    assert_non_null(strstr(s.text, "\"" APP "/\"; expected an origin without a path"));
    it = fake_configure(&s, NULL, NULL);
    assert_int_equal(s.faults, 1);
    assert_null(it);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_a_preflight),
        TEST(answers_one_that_no_route_takes),
        TEST(says_what_was_configured),
        TEST(any_method_is_spelt_out),
        TEST(refuses_preflights),
        TEST(not_every_options_is_a_preflight),
        TEST(marks_an_answer_for_its_origin),
        TEST(lets_credentials_be_used),
        TEST(others_may_read_nothing),
        TEST(everybody_is_a_star),
        TEST(null_must_be_named),
        TEST(fails_without_memory),
        TEST(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
