#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decision.h"

static struct postern_str yes_names[] = {{"X-User", 6}}, client_names[] = {{"Set-Cookie", 10}},
                          no_names[] = {{"WWW-Authenticate", 16}};
static const struct forward_auth auth = {.response_headers = {yes_names, 1},
                                         .client_headers = {client_names, 1},
                                         .refusal_headers = {no_names, 1},
                                         .credential_header = {"X-Who", 5},
                                         .cache_ms = 60000};

static const struct postern_header headers[] = {
    {TEXT("x-user"), TEXT("ann")},
    {TEXT("x-who"), TEXT("ann@b")},
    {TEXT("set-cookie"), TEXT("a=1")},
    {TEXT("set-cookie"), TEXT("b=2")},
    {TEXT("www-authenticate"), TEXT("Basic")},
    {TEXT("content-type"), TEXT("text/html")},
    {TEXT("x-internal"), TEXT("secret")},
};

static struct decision *decide(unsigned status, const struct postern_header *list, size_t count)
{
    struct postern_reply reply = {.size = sizeof(reply),
                                  .status = status,
                                  .headers = list,
                                  .header_count = count,
                                  .body = TEXT("hello")};
    struct decision *decision = decision_new(&auth, &reply);
    assert_non_null(decision);
    return decision;
}

static void copies_what_a_yes_may_carry(void **state)
{
    struct decision *decision = decide(204, headers, 7);
    (void)state;
    assert_true(decision_is_yes(decision));
    assert_int_equal(decision->header_count, 4);
    assert_true(text_is(decision->headers[0].value, TEXT("ann")));
    assert_true(text_is(decision->headers[3].value, TEXT("b=2")));
    assert_null(decision->body.p);
    free(decision);
}

static void copies_what_a_no_may_carry(void **state)
{
    struct decision *decision = decide(401, headers, 7);
    (void)state;
    assert_true(decision_is_no(decision) && !decision_is_yes(decision));
    assert_int_equal(decision->header_count, 1);
    assert_true(text_is(decision->headers[0].name, TEXT("www-authenticate")));
    assert_true(text_is(decision->type, TEXT("text/html")));
    assert_true(text_is(decision->body, TEXT("hello")));
    assert_true(decision->keep_ms == 0);
    free(decision);
}

static void knows_what_is_no_decision(void **state)
{
    static const unsigned neither[] = {0, 199, 500, 503, 599};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        struct decision *decision = decide(neither[i], headers, 7);
        assert_false(decision_is_yes(decision) || decision_is_no(decision));
        assert_int_equal(decision->header_count, 0);
        free(decision);
    }
}

static void cache_control_shortens_only(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {{"max-age=5", 5000}, {"max-age=3600", 60000},
                 {"no-store", 0},     {"private, No-Cache", 0},
                 {"max-age=0", 0},    {"max-age=", 60000},
                 {"public", 60000},   {"x,max-age=7 , y", 7000},
                 {"", 60000},         {"max-age=99999999999999999999999", 60000}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct postern_header header = {TEXT("cache-control"),
                                        {cases[i].text, strlen(cases[i].text)}};
        struct decision *decision = decide(200, &header, 1);
        if (decision->keep_ms != cases[i].ms)
            fail_msg("%s: %ju", cases[i].text, (uintmax_t)decision->keep_ms);
        free(decision);
    }
}

static void takes_only_so_many_headers(void **state)
{
    struct postern_header many[200];
    struct decision *decision;
    (void)state;
    for (size_t i = 0; i < 200; i++)
        many[i] = headers[2];
    decision = decide(200, many, 200);
    assert_int_equal(decision->header_count, DECISION_HEADERS);
    free(decision);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_what_a_yes_may_carry),
        cmocka_unit_test(copies_what_a_no_may_carry),
        cmocka_unit_test(knows_what_is_no_decision),
        cmocka_unit_test(cache_control_shortens_only),
        cmocka_unit_test(takes_only_so_many_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
