#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "play_host.h"
#include "question.h"

static struct postern_str passed[] = {{"Authorization", 13}, {"Connection", 10}};
static struct key_item key[] = {{KEY_METHOD, {NULL, 0}}, {KEY_HEADER, {"Authorization", 13}}};
static const struct forward_auth auth = {.path = {"/verify", 7},
                                         .request_headers = {passed, 2},
                                         .timeout_ms = 2000,
                                         .max_bytes = 99,
                                         .cache_ms = 1,
                                         .key = key,
                                         .key_count = 2};

static void prepare(struct postern_request *r)
{
    *r = (struct postern_request){0};
    r->gets[POSTERN_METHOD] = "POST";
    r->gets[POSTERN_AUTHORITY] = "shop:81";
    r->gets[POSTERN_TARGET] = "/x/../a?b=c";
    r->gets[POSTERN_PATH] = "/a";
    r->gets[POSTERN_QUERY] = "b=c";
    r->gets[POSTERN_CLIENT_IP] = "1.2.3.4";
    play_put(r, POSTERN_HEADER, "authorization", "Bearer x");
    play_put(r, POSTERN_HEADER, "Connection", "close");
    play_put(r, POSTERN_HEADER, "X-Forwarded-Uri", "/forged");
    play_put(r, POSTERN_HEADER, "X-Other", "1");
}

static const char *has(const struct postern_call *call, const char *name)
{
    const char *found = NULL;
    struct postern_str wanted = {name, strlen(name)};
    for (size_t i = 0; i < call->header_count; i++) {
        if (!text_is(call->headers[i].name, wanted))
            continue;
        assert_null(found);
        found = call->headers[i].value.p;
    }
    return found;
}

static bool span_is(struct postern_str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

/* For values without a NUL behind them. */
static bool says(const struct postern_call *call, const char *name, const char *value)
{
    const char *found = has(call, name);
    return found && strncmp(found, value, strlen(value)) == 0;
}

static void asks_with_what_was_chosen(void **state)
{
    struct postern_header headers[QUESTION_HEADERS];
    struct postern_request r;
    struct postern_call call;
    (void)state;
    play_begin();
    prepare(&r);
    assert_true(question_call(&auth, &play_api, &r, headers, &call));
    assert_true(text_is(call.method, TEXT("GET")) && text_is(call.target, TEXT("/verify")));
    assert_int_equal(call.deadline_ms, 2000);
    assert_int_equal(call.max_bytes, 99);
    assert_string_equal(has(&call, "X-Forwarded-Method"), "POST");
    assert_true(says(&call, "X-Forwarded-Uri", "/a?b=c"));
    assert_string_equal(has(&call, "X-Forwarded-Host"), "shop:81");
    assert_string_equal(has(&call, "X-Forwarded-For"), "1.2.3.4");
    assert_string_equal(has(&call, "Authorization"), "Bearer x");
    assert_null(has(&call, "Connection"));
    assert_null(has(&call, "X-Other"));
    play_done(&r);
}

static void tells_the_path_that_counts(void **state)
{
    static const struct {
        const char *path, *query, *uri;
    } cases[] = {{"/admin", NULL, "/admin"}, {"/", "", "/?"}, {"/a", "b=/../c", "/a?b=/../c"}};
    struct postern_header headers[QUESTION_HEADERS];
    (void)state;
    play_begin();
    for (size_t i = 0; i < 3; i++) {
        struct postern_request r = {0};
        struct postern_call call;
        r.gets[POSTERN_PATH] = cases[i].path;
        r.gets[POSTERN_QUERY] = cases[i].query;
        assert_true(question_call(&auth, &play_api, &r, headers, &call));
        assert_int_equal(call.header_count, 1);
        assert_true(span_is(call.headers[0].value, cases[i].uri));
        play_done(&r);
    }
}

static void passes_all_on_but_what_is_not_the_clients(void **state)
{
    struct forward_auth all = auth;
    struct postern_header headers[QUESTION_HEADERS];
    struct postern_request r;
    struct postern_call call;
    (void)state;
    play_begin();
    prepare(&r);
    all.all_headers = true;
    all.method = METHOD_SAME;
    assert_true(question_call(&all, &play_api, &r, headers, &call));
    assert_true(text_is(call.method, TEXT("POST")));
    assert_string_equal(has(&call, "X-Other"), "1");
    assert_true(says(&call, "X-Forwarded-Uri", "/a?b=c"));
    assert_null(has(&call, "Connection"));
    play_done(&r);
}

static void does_not_ask_with_too_many_headers(void **state)
{
    struct postern_str same[QUESTION_HEADERS];
    struct forward_auth many = auth;
    struct postern_header headers[QUESTION_HEADERS];
    struct postern_request r;
    struct postern_call call;
    (void)state;
    play_begin();
    prepare(&r);
    for (size_t i = 0; i < QUESTION_HEADERS; i++)
        same[i] = passed[0];
    many.request_headers = (struct names){same, QUESTION_HEADERS};
    assert_false(question_call(&many, &play_api, &r, headers, &call));
    play_done(&r);
}

static struct postern_str key_with(struct postern_request *r, const char *method,
                                   const char *one, const char *two)
{
    *r = (struct postern_request){0};
    r->gets[POSTERN_METHOD] = method;
    if (one)
        play_put(r, POSTERN_HEADER, "Authorization", one);
    if (two)
        play_put(r, POSTERN_HEADER, "Authorization", two);
    return question_key(&auth, &play_api, r);
}

/* No two different requests have the same key. */
static void keys_tell_requests_apart(void **state)
{
    static const char *const cases[][3] = {
        {"GET", NULL, NULL}, {"GET", "", NULL}, {"GET", "a", NULL},   {"GET", "a", "b"},
        {"GET", "ab", NULL}, {"GET", "a", ""},  {"GETa", NULL, NULL}, {NULL, "a", NULL}};
    struct postern_request a, b;
    (void)state;
    play_begin();
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = 0; k < 8; k++) {
            struct postern_str x = key_with(&a, cases[i][0], cases[i][1], cases[i][2]);
            struct postern_str y = key_with(&b, cases[k][0], cases[k][1], cases[k][2]);
            assert_true(x.p && y.p);
            assert_true((x.n == y.n && memcmp(x.p, y.p, x.n) == 0) == (i == k));
            play_done(&a);
            play_done(&b);
        }
    }
}

static void a_key_has_a_bound(void **state)
{
    struct postern_request r = {0};
    char *large = malloc(QUESTION_KEY_MAX + 1);
    (void)state;
    play_begin();
    memset(large, 'x', QUESTION_KEY_MAX);
    large[QUESTION_KEY_MAX] = '\0';
    assert_null(key_with(&r, "GET", large, NULL).p);
    play_done(&r);
    large[QUESTION_KEY_MAX - 100] = '\0';
    assert_non_null(key_with(&r, "GET", large, NULL).p);
    play_done(&r);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_with_what_was_chosen),
        cmocka_unit_test(tells_the_path_that_counts),
        cmocka_unit_test(passes_all_on_but_what_is_not_the_clients),
        cmocka_unit_test(does_not_ask_with_too_many_headers),
        cmocka_unit_test(keys_tell_requests_apart),
        cmocka_unit_test(a_key_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
