#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "forward_auth.h"
#include "play_host.h"

static const struct postern_plugin table = {.options = forward_options,
                                            .option_count = FORWARD_OPTIONS,
                                            .configure = forward_configure,
                                            .discard = forward_discard};
static struct postern_setup setup;

#define REFUSED(want, ...)                                                                     \
    do {                                                                                       \
        play_begin();                                                                          \
        forward_options_use(&play_api);                                                        \
        assert_null(play_configure(&table, &setup, "upstream", "auth", __VA_ARGS__, NULL));    \
        if (!strstr(setup.text, want))                                                         \
            fail_msg("no \"%s\" in: %s", want, setup.text);                                    \
    } while (0)

static void fills_in_what_is_left_out(void **state)
{
    struct forward_auth *auth;
    (void)state;
    play_begin();
    forward_options_use(&play_api);
    auth = play_configure(&table, &setup, "upstream", "auth", NULL);
    assert_non_null(auth);
    assert_string_equal(auth->origin->where, "auth");
    assert_true(names_have(&auth->request_headers, TEXT("authorization")));
    assert_true(names_have(&auth->request_headers, TEXT("cookie")));
    assert_true(names_have(&auth->refusal_headers, TEXT("www-authenticate")));
    assert_int_equal(auth->response_headers.count, 0);
    assert_int_equal(auth->method, METHOD_GET);
    assert_true(auth->cache_ms == 0);
    assert_null(auth->credential_header.p);
    forward_discard(auth);
}

/* What a decision may hang on is what who decides gets to see. */
static void the_key_is_all_that_is_passed_on(void **state)
{
    struct forward_auth *auth;
    (void)state;
    play_begin();
    forward_options_use(&play_api);
    auth = play_configure(&table, &setup, "upstream", "auth", "cache", "5s", "request_headers",
                          "X-Key", NULL);
    assert_non_null(auth);
    assert_int_equal(auth->cache_ms, 5000);
    static const enum key_part parts[] = {KEY_METHOD, KEY_SCHEME,    KEY_AUTHORITY,
                                          KEY_TARGET, KEY_CLIENT_IP, KEY_HEADER};
    assert_int_equal(auth->key_count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(auth->key[i].part, parts[i]);
    assert_true(text_is(auth->key[5].header, TEXT("x-key")));
    forward_discard(auth);
    auth = play_configure(&table, &setup, "upstream", "auth", "cache", "5s", "cache_key",
                          "host", "cache_key", "header:X-Key", "request_headers", "*", NULL);
    assert_non_null(auth);
    assert_int_equal(auth->key_count, 2);
    assert_int_equal(auth->key[0].part, KEY_HOST);
    forward_discard(auth);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    REFUSED("begins with", "path", "verify");
    REFUSED("begins with", "path", "/a b");
    REFUSED("begins with", "path", "/a#b");
    REFUSED("Host is the gateway's own", "response_headers", "X-A", "response_headers", "Host");
    REFUSED("Host is the gateway's own", "client_headers", "Host");
    REFUSED("Content-Length is the gateway's own", "refusal_headers", "Content-Length");
    REFUSED("expected it alone", "request_headers", "*", "request_headers", "X");
    REFUSED("no two requests", "request_headers", "*", "cache", "5s");
    REFUSED("it would do nothing", "cache_key", "host");
    REFUSED("expected method, host", "cache", "5s", "cache_key", "cookie");
    REFUSED("expected method, host", "cache", "5s", "cache_key", "header:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_what_is_left_out),
        cmocka_unit_test(the_key_is_all_that_is_passed_on),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
