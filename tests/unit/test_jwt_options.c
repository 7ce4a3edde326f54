#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "jwt.h"
#include "jwt_test.h"
#include "play_host.h"

static const struct postern_plugin table = {.options = jwt_options,
                                            .option_count = JWT_OPTIONS,
                                            .configure = jwt_configure,
                                            .discard = jwt_discard};
static struct postern_setup setup;

static void begin(void)
{
    play_begin();
    jwt_options_use(&play_api);
    jwks_use(&play_api, &table);
}

/* The section is refused, and says so. */
#define REFUSED(want, ...)                                                                     \
    do {                                                                                       \
        assert_null(play_configure(&table, &setup, __VA_ARGS__, NULL));                        \
        if (!strstr(setup.text, want))                                                         \
            fail_msg("no \"%s\" in: %s", want, setup.text);                                    \
        play_end();                                                                            \
    } while (0)

#define HS "algorithms", "HS256", "secret", SECRET_64

static void takes_a_whole_section(void **state)
{
    struct jwt *jwt;
    (void)state;
    begin();
    jwt = play_configure(&table, &setup, HS, "issuer", "https://a", "issuer", "b", "audience",
                         "api", "required_claims", "sub", "required_claims",
                         "https://x/role: admin", "scopes", "read", "scopes", "write",
                         "claims_to_headers", "sub: X-User", "header", "off", "cookie", "c",
                         "forward_token", "false", "leeway", "5s", "type", "at+jwt", NULL);
    assert_non_null(jwt);
    assert_true(jwt->allowed[ALG_HS256] && !jwt->allowed[ALG_HS384] &&
                !jwt->allowed[ALG_RS256]);
    assert_int_equal(jwt->from, KEYS_SECRET);
    assert_int_equal(jwt->rules.issuers.count, 2);
    assert_true(span_eq(jwt->rules.required[1].path, SPAN("https://x/role")));
    assert_true(span_eq(jwt->rules.required[1].value, SPAN("admin")));
    assert_null(jwt->rules.required[0].value.p);
    assert_string_equal(jwt->scope_text, "read write");
    assert_true(span_eq(jwt->headers[0].name, SPAN("X-User")));
    assert_null(jwt->header.p);
    assert_true(span_eq(jwt->cookie, SPAN("c")));
    assert_false(jwt->forward_token);
    assert_int_equal(jwt->rules.leeway_ms, 5000);
    assert_true(jwt->rules.expiry_required);
    jwt_discard(jwt);
}

static void wants_one_source_of_keys(void **state)
{
    (void)state;
    begin();
    REFUSED("expected where keys come from", "algorithms", "RS256");
    REFUSED("expected where keys come from", "algorithms", "RS256", "issuer", "https://a",
            "issuer", "https://b");
    REFUSED("keys come from \"secret\" already", HS, "jwks_url", "https://a/keys");
}

static void wants_keys_that_serve(void **state)
{
    (void)state;
    begin();
    REFUSED("no key serves", "algorithms", "RS256", "secret", SECRET_64);
    REFUSED("32 bytes or more", "algorithms", "HS256", "secret", "short");
    REFUSED("no key serves", "algorithms", "HS512", "secret",
            "0123456789abcdef0123456789abcdef");
    REFUSED("needs a secret", "algorithms", "HS256", "jwks_url", "https://a/keys");
}

static void wants_urls_that_are_some(void **state)
{
    (void)state;
    begin();
    REFUSED("https://HOST", "algorithms", "RS256", "jwks_url", "idp/keys");
    REFUSED("https://HOST", "algorithms", "RS256", "jwks_url", "https://idp");
    REFUSED("https://HOST", "algorithms", "RS256", "issuer", "idp");
    REFUSED("https://HOST", "algorithms", "RS256", "issuer", "https://idp/?a=b");
    REFUSED("https://HOST", "algorithms", "RS256", "issuer", "https://idp", "jwks_origins",
            "https://keys/path");
    REFUSED("no discovery", "algorithms", "RS256", "jwks_url", "https://idp/k", "jwks_origins",
            "https://keys");
}

static void wants_pairs_and_names(void **state)
{
    (void)state;
    begin();
    REFUSED("claim: Header", HS, "claims_to_headers", "sub");
    REFUSED("claim: Header", HS, "claims_to_headers", "sub:X-User");
    REFUSED("claim: Header", HS, "claims_to_headers", "sub: X User");
    REFUSED("claim: Header", HS, "claims_to_headers", "sub: ");
    REFUSED("host is the gateway's own", HS, "claims_to_headers", "sub: X-User",
            "claims_to_headers", "sub: host");
    REFUSED("claim: value", HS, "required_claims", " : x");
    REFUSED("expected one scope", HS, "scopes", "read write");
    REFUSED("expected one scope", HS, "scopes", "a\"b");
    REFUSED("without quote", HS, "realm", "a\"b");
}

static void reports_every_fault(void **state)
{
    (void)state;
    begin();
    REFUSED("without quote", "algorithms", "RS256", "secret", "short", "realm", "a\"b",
            "scopes", "a b");
    assert_int_equal(setup.faults, 3);
}

static void plans_fetches(void **state)
{
    struct jwt *jwt, *same, *discovery;
    (void)state;
    begin();
    jwt = play_configure(&table, &setup, "algorithms", "RS256", "jwks_url",
                         "http://10.0.0.1:81/k?token=x", "refresh", "60s", NULL);
    assert_non_null(jwt);
    assert_int_equal(setup.warnings, 1); /* http */
    assert_string_equal(jwt->plan.target, "/k?token=x");
    assert_string_equal(jwt->plan.shown, "http://10.0.0.1:81/k");
    assert_string_equal(jwt->plan.origin->where, "http://10.0.0.1:81");
    assert_int_equal(jwt->plan.refresh_ms, 60000);
    same = play_configure(&table, &setup, "algorithms", "ES256", "jwks_url",
                          "http://10.0.0.1:81/k?token=x", NULL);
    assert_ptr_equal(same->jwks, jwt->jwks);
    discovery = play_configure(&table, &setup, "algorithms", "RS256", "issuer",
                               "https://idp/realm/", "jwks_origins", "https://keys/", NULL);
    assert_non_null(discovery);
    assert_int_equal(setup.warnings, 0);
    assert_string_equal(discovery->plan.target, "/realm/.well-known/openid-configuration");
    assert_true(span_eq(discovery->plan.issuer, SPAN("https://idp/realm/")));
    assert_int_equal(discovery->plan.origin_count, 2);
    assert_ptr_not_equal(discovery->jwks, jwt->jwks);
    jwt_discard(discovery);
    jwt_discard(same);
    jwt_discard(jwt);
    play_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_whole_section), cmocka_unit_test(wants_one_source_of_keys),
        cmocka_unit_test(wants_keys_that_serve), cmocka_unit_test(wants_urls_that_are_some),
        cmocka_unit_test(wants_pairs_and_names), cmocka_unit_test(reports_every_fault),
        cmocka_unit_test(plans_fetches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
