#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "claims.h"

#define NOW UINT64_C(1800000000000)

static uint64_t expires;

static enum refusal check(const struct claims_rules *rules, const char *text)
{
    json_t *claims = bounded_object(span_of(text));
    enum refusal refusal;
    assert_non_null(claims);
    refusal = claims_check(rules, claims, NOW, &expires);
    json_decref(claims);
    return refusal;
}

static void compares_times_with_leeway(void **state)
{
    const struct claims_rules rules = {.leeway_ms = 30000};
    (void)state;
    assert_int_equal(check(&rules, "{\"exp\":1800000001}"), REFUSAL_NONE);
    assert_true(expires == NOW + 31000);
    assert_int_equal(check(&rules, "{\"exp\":1799999971}"), REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"exp\":1799999970}"), REFUSAL_EXPIRED);
    assert_int_equal(check(&rules, "{\"exp\":1799999970.5}"), REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"nbf\":1800000030}"), REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"nbf\":1800000031}"), REFUSAL_NOT_YET);
    assert_int_equal(check(&rules, "{\"iat\":1800000030}"), REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"iat\":1800000031}"), REFUSAL_NOT_YET);
}

static void takes_no_time_that_is_none(void **state)
{
    const struct claims_rules rules = {.leeway_ms = 0};
    (void)state;
    assert_int_equal(check(&rules, "{\"exp\":\"1800000001\"}"), REFUSAL_PAYLOAD);
    assert_int_equal(check(&rules, "{\"exp\":null}"), REFUSAL_PAYLOAD);
    assert_int_equal(check(&rules, "{\"exp\":-1}"), REFUSAL_PAYLOAD);
    assert_int_equal(check(&rules, "{\"nbf\":true}"), REFUSAL_PAYLOAD);
    assert_int_equal(check(&rules, "{\"exp\":1e300}"), REFUSAL_NONE);
    assert_true(expires == UINT64_MAX);
    assert_int_equal(check(&rules, "{\"nbf\":1e300}"), REFUSAL_NOT_YET);
    assert_int_equal(check(&rules, "{\"exp\":0}"), REFUSAL_EXPIRED);
}

static void wants_an_expiry_when_asked(void **state)
{
    const struct claims_rules rules = {.expiry_required = true};
    (void)state;
    assert_int_equal(check(&rules, "{}"), REFUSAL_NO_EXPIRY);
    assert_int_equal(check(&rules, "{\"exp\":1900000000}"), REFUSAL_NONE);
}

static void compares_issuer_and_audience(void **state)
{
    struct postern_str issuers[] = {SPAN("https://a"), SPAN("https://b")};
    struct postern_str audiences[] = {SPAN("api"), SPAN("web")};
    const struct claims_rules rules = {.issuers = {issuers, 2}, .audiences = {audiences, 2}};
    (void)state;
    assert_int_equal(check(&rules, "{\"iss\":\"https://b\",\"aud\":\"web\"}"), REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"iss\":\"https://a\",\"aud\":[\"x\",\"api\"]}"),
                     REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"iss\":\"https://c\",\"aud\":\"web\"}"), REFUSAL_ISSUER);
    assert_int_equal(check(&rules, "{\"iss\":[\"https://a\"],\"aud\":\"web\"}"),
                     REFUSAL_ISSUER);
    assert_int_equal(check(&rules, "{\"aud\":\"web\"}"), REFUSAL_ISSUER);
    assert_int_equal(check(&rules, "{\"iss\":\"https://a\"}"), REFUSAL_AUDIENCE);
    assert_int_equal(check(&rules, "{\"iss\":\"https://a\",\"aud\":[]}"), REFUSAL_AUDIENCE);
    assert_int_equal(check(&rules, "{\"iss\":\"https://a\",\"aud\":[[\"api\"]]}"),
                     REFUSAL_AUDIENCE);
    assert_int_equal(check(&rules, "{\"iss\":\"https://a\",\"aud\":{\"api\":1}}"),
                     REFUSAL_AUDIENCE);
}

static void wants_claims(void **state)
{
    struct claims_rule required[] = {{SPAN("sub"), {NULL, 0}},
                                     {SPAN("org.role"), SPAN("admin")}};
    const struct claims_rules rules = {.required = required, .required_count = 2};
    (void)state;
    assert_int_equal(check(&rules, "{\"sub\":\"x\",\"org\":{\"role\":\"admin\"}}"),
                     REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"sub\":\"x\",\"org.role\":[\"a\",\"admin\"]}"),
                     REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"sub\":null,\"org\":{\"role\":\"admin\"}}"),
                     REFUSAL_CLAIM);
    assert_int_equal(check(&rules, "{\"sub\":\"x\",\"org\":{\"role\":\"adm\"}}"),
                     REFUSAL_CLAIM);
    assert_int_equal(check(&rules, "{\"sub\":\"x\",\"org\":\"admin\"}"), REFUSAL_CLAIM);
}

static void compares_numbers_and_truth_as_json_has_them(void **state)
{
    struct claims_rule level = {SPAN("level"), SPAN("3")},
                       verified = {SPAN("ok"), SPAN("true")};
    const struct claims_rules first = {.required = &level, .required_count = 1};
    const struct claims_rules second = {.required = &verified, .required_count = 1};
    (void)state;
    assert_int_equal(check(&first, "{\"level\":3}"), REFUSAL_NONE);
    assert_int_equal(check(&first, "{\"level\":30}"), REFUSAL_CLAIM);
    assert_int_equal(check(&second, "{\"ok\":true}"), REFUSAL_NONE);
    assert_int_equal(check(&second, "{\"ok\":false}"), REFUSAL_CLAIM);
}

static void wants_all_scopes(void **state)
{
    struct postern_str scopes[] = {SPAN("read"), SPAN("write")};
    const struct claims_rules rules = {.scopes = {scopes, 2}};
    (void)state;
    assert_int_equal(check(&rules, "{\"scope\":\"write other read\"}"), REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"scope\":\"read\"}"), REFUSAL_SCOPE);
    assert_int_equal(check(&rules, "{\"scope\":\"readwrite read\"}"), REFUSAL_SCOPE);
    assert_int_equal(check(&rules, "{\"scp\":[\"read\",\"write\"]}"), REFUSAL_NONE);
    assert_int_equal(check(&rules, "{\"scp\":\"read write\"}"), REFUSAL_NONE);
    /* One scope with a blank in it is not two. */
    assert_int_equal(check(&rules, "{\"scp\":[\"read write\"]}"), REFUSAL_SCOPE);
    assert_int_equal(check(&rules, "{\"scope\":\"\",\"scp\":[\"read\",\"write\"]}"),
                     REFUSAL_SCOPE);
    assert_int_equal(check(&rules, "{}"), REFUSAL_SCOPE);
}

static void writes_claims_as_text(void **state)
{
    static const struct {
        const char *json, *text;
    } cases[] = {{"{\"a\":\"x y\"}", "x y"},
                 {"{\"a\":12}", "12"},
                 {"{\"a\":true}", "true"},
                 {"{\"a\":[\"x\",\"y,z\"]}", "[\"x\",\"y,z\"]"},
                 {"{\"a\":[\"\xc3\xa4\\n\"]}", "[\"\\u00E4\\n\"]"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *json = bounded_object(span_of(cases[i].json));
        char *own;
        assert_true(
            span_eq(claims_text(json_object_get(json, "a"), &own), span_of(cases[i].text)));
        free(own);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares_times_with_leeway),
        cmocka_unit_test(takes_no_time_that_is_none),
        cmocka_unit_test(wants_an_expiry_when_asked),
        cmocka_unit_test(compares_issuer_and_audience),
        cmocka_unit_test(wants_claims),
        cmocka_unit_test(compares_numbers_and_truth_as_json_has_them),
        cmocka_unit_test(wants_all_scopes),
        cmocka_unit_test(writes_claims_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
