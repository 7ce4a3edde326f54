#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "web_url.h"

static void splits(void **state)
{
    struct web_url url;
    (void)state;
    assert_true(web_url_split(SPAN("https://idp.example:8443/keys?v=2"), &url));
    assert_true(span_eq(url.origin, SPAN("https://idp.example:8443")));
    assert_true(span_eq(url.target, SPAN("/keys?v=2")));
    assert_true(web_url_split(SPAN("HTTP://[::1]/"), &url));
    assert_true(span_eq(url.origin, SPAN("HTTP://[::1]")));
    assert_true(web_url_split(SPAN("http://a"), &url));
    assert_int_equal(url.target.n, 0);
}

static void refuses_what_is_no_url_for_keys(void **state)
{
    static const char *const bad[] = {"",
                                      "idp.example/keys",
                                      "ftp://a/b",
                                      "https://",
                                      "https:///keys",
                                      "https://u:p@host/keys",
                                      "https://host/ke ys",
                                      "https://host/keys#x",
                                      "https://host?x=/",
                                      "https://host/\x01",
                                      "https://host/\xc3\xa4"};
    struct web_url url;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (web_url_split(span_of(bad[i]), &url))
            fail_msg("taken: %s", bad[i]);
}

static void compares_origins(void **state)
{
    (void)state;
    assert_true(web_url_same_origin(SPAN("https://A.b:443"), SPAN("HTTPS://a.B")));
    assert_true(web_url_same_origin(SPAN("http://a:80"), SPAN("http://a")));
    assert_false(web_url_same_origin(SPAN("http://a:443"), SPAN("http://a")));
    assert_false(web_url_same_origin(SPAN("http://a"), SPAN("https://a")));
    assert_false(web_url_same_origin(SPAN("https://a"), SPAN("https://a.b")));
}

static bool is_safe(struct postern_str text)
{
    struct web_url url;
    assert_true(web_url_split(text, &url));
    return web_url_is_safe(&url);
}

static void knows_what_nobody_can_change(void **state)
{
    (void)state;
    assert_true(is_safe(SPAN("https://idp/keys")));
    assert_true(is_safe(SPAN("http://127.0.0.1:1/keys")));
    assert_true(is_safe(SPAN("http://[::1]:1/keys")));
    assert_true(is_safe(SPAN("http://localhost/keys")));
    assert_true(is_safe(SPAN("http://localhost:8080/keys")));
    assert_false(is_safe(SPAN("http://localhost.evil/keys")));
    assert_false(is_safe(SPAN("http://10.0.0.1/keys")));
    assert_false(is_safe(SPAN("http://127.evil.example/keys")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),
        cmocka_unit_test(refuses_what_is_no_url_for_keys),
        cmocka_unit_test(compares_origins),
        cmocka_unit_test(knows_what_nobody_can_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
