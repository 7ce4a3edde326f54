#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "cors_policy.h"

static struct postern_str str(const char *text)
{
    return (struct postern_str){text, strlen(text)};
}

static bool is(const char *pattern, const char *origin)
{
    struct cors_origin compiled;
    if (cors_origin_parse(pattern, &compiled) != 0)
        fail_msg("refused \"%s\"", pattern);
    bool does = cors_origin_is(&compiled, str(origin));
    cors_origin_done(&compiled);
    return does;
}

static void an_origin_is_itself(void **state)
{
    (void)state;
    assert_true(is("https://app.example.com", "https://app.example.com"));
    assert_true(is("HTTPS://App.Example.com", "https://app.example.com"));
    assert_true(is("http://[::1]:8080", "http://[::1]:8080"));
    assert_true(is("chrome-extension://abcdef", "chrome-extension://abcdef"));
    assert_false(is("https://app.example.com", "http://app.example.com"));
    assert_false(is("https://app.example.com", "https://app.example.com:8443"));
    assert_false(is("https://app.example.com", "https://app.example.com.evil"));
    assert_false(is("https://app.example.com", "https://xapp.example.com"));
    assert_false(is("https://app.example.com", "https://app.example.com/"));
    assert_false(is("https://app.example.com", "https://APP.example.com"));
    assert_false(is("https://app.example.com", "https://app.example.com https://evil"));
    assert_false(is("https://app.example.com", ""));
    assert_false(is("https://app.example.com", "null"));
}

static void a_scheme_has_its_port(void **state)
{
    (void)state;
    assert_true(is("https://a.example:443", "https://a.example"));
    assert_true(is("http://a.example:80", "http://a.example"));
    assert_false(is("http://a.example:443", "http://a.example"));
    assert_true(is("http://a.example:443", "http://a.example:443"));
    assert_true(is("http://localhost:*", "http://localhost"));
    assert_true(is("http://localhost:*", "http://localhost:5173"));
    assert_false(is("http://localhost:*", "http://localhost:"));
    assert_false(is("http://localhost:*", "http://localhost:x"));
    assert_false(is("http://localhost:*", "http://localhost:123456"));
    assert_false(is("http://localhost:*", "http://localhost.evil:80"));
}

static void a_star_is_all_names_below(void **state)
{
    (void)state;
    assert_true(is("https://*.example.com", "https://a.example.com"));
    assert_true(is("https://*.example.com", "https://a.b.example.com"));
    assert_true(is("https://*.example.com:8443", "https://a.example.com:8443"));
    assert_true(is("https://*.example.com:*", "https://a.example.com:1"));
    assert_false(is("https://*.example.com", "https://example.com"));
    assert_false(is("https://*.example.com", "https://.example.com"));
    assert_false(is("https://*.example.com", "https://evilexample.com"));
    assert_false(is("https://*.example.com", "https://evil.com/.example.com"));
    assert_false(is("https://*.example.com", "https://evil.com?.example.com"));
    assert_false(is("https://*.example.com", "https://evil.com#.example.com"));
    assert_false(is("https://*.example.com", "https://user@a.example.com"));
    assert_false(is("https://*.example.com", "https://a.example.com:8443"));
    assert_false(is("https://*.example.com", "http://a.example.com"));
    assert_false(is("https://*.example.com", "https://a.example.com.evil.com"));
}

static void a_long_origin_is_none(void **state)
{
    char origin[1024] = "https://";
    (void)state;
    memset(origin + 8, 'a', 900);
    strcpy(origin + 908, ".example.com");
    assert_false(is("https://*.example.com", origin));
    strcpy(origin + 308, ".example.com");
    assert_true(is("https://*.example.com", origin));
}

static void refuses_what_is_no_origin(void **state)
{
    static const char *const wrong[] = {
        "",
        "example.com",
        "https://",
        "https:///",
        "https://example.com/",
        "https://example.com/path",
        "https://example.com:",
        "https://example.com:x",
        "https://*",
        "https://*example.com",
        "https://*.",
        "https://a.*.com",
        "https://*.*.com",
        "https://.example.com",
        "https://example.com:80:*",
        "*.example.com",
        "*://example.com",
        "https://user@example.com",
        "https://exa mple.com",
        "9http://example.com",
        "https://[::1",
    };
    struct cors_origin origin;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (cors_origin_parse(wrong[i], &origin) != -EINVAL)
            fail_msg("took \"%s\"", wrong[i]);
}

static void lists_hold_their_tokens(void **state)
{
    static const char *const texts[] = {"GET", "POST", "X-One"};
    struct cors_tokens tokens = {0};
    (void)state;
    assert_true(cors_tokens_make(&tokens, texts, 3));
    assert_string_equal(tokens.joined, "GET, POST, X-One");
    assert_false(tokens.has_any);
    assert_true(cors_tokens_has(&tokens, str("POST"), false));
    assert_false(cors_tokens_has(&tokens, str("post"), false));
    assert_true(cors_tokens_has(&tokens, str("post"), true));
    assert_false(cors_tokens_has(&tokens, str("POS"), false));
    assert_false(cors_tokens_has(&tokens, str(""), false));
    assert_true(cors_tokens_have_all(&tokens, str("x-one,get")));
    assert_true(cors_tokens_have_all(&tokens, str(" x-one ,\tget , ")));
    assert_true(cors_tokens_have_all(&tokens, str("")));
    assert_true(cors_tokens_have_all(&tokens, (struct postern_str){NULL, 0}));
    assert_false(cors_tokens_have_all(&tokens, str("x-one, x-two")));
    assert_false(cors_tokens_have_all(&tokens, str("x-one get")));
    cors_tokens_done(&tokens);
}

static void a_star_takes_every_token_and_nothing_else(void **state)
{
    static const char *const texts[] = {"*"};
    struct cors_tokens tokens = {0};
    (void)state;
    assert_true(cors_tokens_make(&tokens, texts, 1));
    assert_true(tokens.has_any);
    assert_true(cors_tokens_have_all(&tokens, str("a, b")));
    assert_false(cors_tokens_have_all(&tokens, str("a, b c")));
    assert_false(cors_tokens_have_all(&tokens, str("a\"")));
    assert_false(cors_tokens_has(&tokens, str("G T"), false));
    cors_tokens_done(&tokens);
}

static void a_list_may_be_empty(void **state)
{
    struct cors_tokens tokens = {0};
    (void)state;
    assert_true(cors_tokens_make(&tokens, NULL, 0));
    assert_string_equal(tokens.joined, "");
    assert_false(cors_tokens_has(&tokens, str("a"), true));
    cors_tokens_done(&tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_origin_is_itself),
        cmocka_unit_test(a_scheme_has_its_port),
        cmocka_unit_test(a_star_is_all_names_below),
        cmocka_unit_test(a_long_origin_is_none),
        cmocka_unit_test(refuses_what_is_no_origin),
        cmocka_unit_test(lists_hold_their_tokens),
        cmocka_unit_test(a_star_takes_every_token_and_nothing_else),
        cmocka_unit_test(a_list_may_be_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
