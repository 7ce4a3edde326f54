#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "grant.h"
#include "play_host.h"

static const struct grant_pair headers[] = {{SPAN("email"), SPAN("X-Email")},
                                            {SPAN("org.id"), SPAN("X-Org")}};
static const struct grant_pair facts[] = {{SPAN("admin"), SPAN("claim.admin")},
                                          {SPAN("none"), SPAN("claim.none")},
                                          {SPAN("org.id"), SPAN("claim.org.id")}};
static const struct grant_rules rules = {headers, facts, 2, 3, SPAN("sub")};

static enum refusal grant_of(const char *text, struct grant **ret)
{
    json_t *claims = bounded_object(span_of(text));
    enum refusal refusal;
    assert_non_null(claims);
    refusal = grant_new(&rules, claims, ret);
    json_decref(claims);
    return refusal;
}

static void gives_headers_a_name_and_facts(void **state)
{
    struct postern_request r = {0};
    struct grant *grant;
    (void)state;
    play_begin();
    assert_int_equal(grant_of("{\"sub\":\"ann\",\"email\":\"a@b\",\"org\":{\"id\":7},"
                              "\"scope\":\"read write\",\"admin\":true,\"none\":null}",
                              &grant),
                     REFUSAL_NONE);
    assert_true(grant_apply(grant, &rules, &play_api, &r));
    grant_free(grant);
    assert_string_equal(r.credential, "ann");
    assert_string_equal(play_has(&r, POSTERN_HEADER, "X-Email"), "a@b");
    assert_string_equal(play_has(&r, POSTERN_HEADER, "X-Org"), "7");
    assert_string_equal(play_fact(&r, "consumer"), "ann");
    assert_string_equal(play_fact(&r, "scope"), "read write");
    assert_string_equal(play_fact(&r, "claim.admin"), "true");
    assert_string_equal(play_fact(&r, "claim.org.id"), "7");
    assert_null(play_fact(&r, "claim.none"));
    play_done(&r);
}

static void takes_away_what_the_client_brought(void **state)
{
    struct postern_request r = {0};
    struct grant *grant;
    (void)state;
    play_begin();
    play_put(&r, POSTERN_HEADER, "x-email", "forged");
    play_put(&r, POSTERN_HEADER, "x-org", "forged");
    assert_int_equal(grant_of("{\"email\":\"a@b\"}", &grant), REFUSAL_NONE);
    assert_true(grant_apply(grant, &rules, &play_api, &r));
    grant_free(grant);
    assert_string_equal(play_has(&r, POSTERN_HEADER, "X-Email"), "a@b");
    assert_null(play_has(&r, POSTERN_HEADER, "X-Org"));
    assert_string_equal(r.credential, "");
    assert_true(grant_apply(NULL, &rules, &play_api, &r));
    assert_null(play_has(&r, POSTERN_HEADER, "X-Email"));
    play_done(&r);
}

static void refuses_values_that_no_header_can_have(void **state)
{
    static const char *const bad[] = {
        "{\"email\":\"a\\r\\nX-Admin: 1\"}",
        "{\"email\":\"a\\u0001\"}",
        "{\"email\":\" a\"}",
        "{\"email\":\"a \"}",
        "{\"email\":\"\\u007f\"}",
        "{\"sub\":\"a\\nb\"}",
    };
    struct grant *grant;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(grant_of(bad[i], &grant), REFUSAL_VALUE);
    assert_int_equal(grant_of("{\"email\":\"\xc3\xa4\"}", &grant), REFUSAL_NONE);
    grant_free(grant);
}

static void says_when_there_is_no_memory(void **state)
{
    struct postern_request r = {.out_of_memory = true};
    struct grant *grant;
    (void)state;
    play_begin();
    assert_int_equal(grant_of("{\"sub\":\"ann\"}", &grant), REFUSAL_NONE);
    assert_false(grant_apply(grant, &rules, &play_api, &r));
    grant_free(grant);
    play_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_headers_a_name_and_facts),
        cmocka_unit_test(takes_away_what_the_client_brought),
        cmocka_unit_test(refuses_values_that_no_header_can_have),
        cmocka_unit_test(says_when_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
