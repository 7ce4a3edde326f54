#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_host.h"

static struct postern_setup s;
static struct postern_request r;
static void *it;

static int setup(void **state)
{
    (void)state;
    fake_load();
    memset(&r, 0, sizeof(r));
    strcpy(r.method, "GET");
    memcpy(r.address, (uint8_t[]){10, 0, 0, 1}, 4);
    r.address_width = 4;
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

static void set_fact(const char *name, const char *value)
{
    fake_fact_set(&r, fake_str(name), fake_str(value));
}

static void assert_refused(unsigned status, const char *reason, const char *challenge)
{
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_ANSWERED);
    assert_int_equal(r.answers, 1);
    assert_int_equal(r.status, status);
    assert_string_equal(r.reason, reason);
    assert_string_equal(r.challenge, challenge);
    assert_true(strlen(r.detail) > 0);
}

static void assert_passed(void)
{
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_GO_ON);
    assert_int_equal(r.answers, 0);
}

static void goes_by_the_address(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "10.0.0.0/8", "deny", "10.0.0.66", NULL);
    assert_passed();
    r.address[3] = 66;
    assert_refused(403, "auth.address", "");
}

static void goes_by_the_method(void **state)
{
    (void)state;
    it = fake_configure(&s, "deny", "method:DELETE", NULL);
    assert_passed();
    strcpy(r.method, "DELETE");
    assert_refused(403, "auth.method", "");
}

static void goes_by_the_certificate(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "subject:CN=alice", NULL);
    strcpy(r.subject, "CN=alice");
    assert_passed();
    strcpy(r.subject, "");
    assert_refused(403, "auth.certificate", "");
}

static void goes_by_the_consumer(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "consumer:alice", NULL);
    set_fact("consumer", "alice");
    assert_passed();
}

static void takes_the_credential_where_no_consumer_is_named(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "consumer:alice", NULL);
    strcpy(r.credential, "alice");
    assert_passed();
    strcpy(r.credential, "bob");
    assert_refused(403, "auth.consumer", "");
}

static void asks_who_it_is(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "consumer:*", NULL);
    assert_refused(401, "auth.missing", "ApiKey realm=\"postern\"");
}

static void asks_as_the_plugin_before_it_would(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "scope:admin", NULL);
    set_fact("challenge", "Bearer realm=\"x\"");
    assert_refused(401, "auth.missing", "Bearer realm=\"x\"");
}

static void says_which_scope_is_missing(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "scope:admin", NULL);
    set_fact("consumer", "alice");
    set_fact("scope", "read");
    set_fact("challenge", "Bearer realm=\"x\"");
    assert_refused(403, "auth.scope",
                   "Bearer realm=\"x\", error=\"insufficient_scope\", scope=\"admin\"");
}

static void has_no_challenge_for_another_scheme(void **state)
{
    (void)state;
    it = fake_configure(&s, "deny", "scope:suspended", NULL);
    set_fact("consumer", "alice");
    set_fact("scope", "suspended");
    set_fact("challenge", "ApiKey realm=\"x\"");
    assert_refused(403, "auth.scope", "");
}

static void refuses_without_memory_too(void **state)
{
    (void)state;
    it = fake_configure(&s, "allow", "scope:admin", NULL);
    set_fact("consumer", "alice");
    set_fact("challenge", "Bearer realm=\"x\"");
    r.out_of_memory = true;
    assert_refused(403, "auth.scope", "");
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    it = fake_configure(&s, NULL, NULL);
    assert_int_equal(s.faults, 1);
    assert_non_null(strstr(s.text, "neither what to allow nor what to deny"));
    it = fake_configure(&s, "allow", "10.0.0.1", "allow", "localhost", "deny", "user:x", NULL);
    assert_int_equal(s.faults, 2);
    assert_non_null(strstr(s.text, "\"localhost\"; expected an address"));
    assert_non_null(strstr(s.text, "\"user:x\"; expected"));
    assert_null(it);
    it = fake_configure(&s, "allow", "10.0.0.1/8", NULL);
    assert_int_equal(s.warnings, 1);
    assert_non_null(strstr(s.text, "\"10.0.0.1/8\" has bits behind its length"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(goes_by_the_address),
        TEST(goes_by_the_method),
        TEST(goes_by_the_certificate),
        TEST(goes_by_the_consumer),
        TEST(takes_the_credential_where_no_consumer_is_named),
        TEST(asks_who_it_is),
        TEST(asks_as_the_plugin_before_it_would),
        TEST(says_which_scope_is_missing),
        TEST(has_no_challenge_for_another_scheme),
        TEST(refuses_without_memory_too),
        TEST(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
