#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <string.h>

#include "access_rules.h"

static struct access_rules *rules;
static struct access_who who;
static enum access_kind kind;

static struct postern_str str(const char *text)
{
    return (struct postern_str){text, text ? strlen(text) : 0};
}

static void add(enum access_verdict verdict, const char *text)
{
    const char *warning = NULL;
    const char *expected = access_rules_add(rules, verdict, text, &warning);
    if (expected)
        fail_msg("\"%s\": expected %s", text, expected);
    assert_null(warning);
}

static void allow(const char *text)
{
    add(ACCESS_ALLOW, text);
}

static void deny(const char *text)
{
    add(ACCESS_DENY, text);
}

static int setup(void **state)
{
    (void)state;
    rules = access_rules_new();
    memset(&who, 0, sizeof(who));
    who.method = str("GET");
    return rules ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    access_rules_free(rules);
    access_rules_free(NULL);
    return 0;
}

static enum access_result check(void)
{
    return access_rules_check(rules, &who, &kind);
}

static enum access_result from(const char *address)
{
    who.address_width = strchr(address, ':') ? 16 : 4;
    assert_int_equal(
        inet_pton(who.address_width == 4 ? AF_INET : AF_INET6, address, who.address), 1);
    return check();
}

static enum access_result as(const char *consumer, const char *scope)
{
    who.consumer = str(consumer);
    who.scope = str(scope);
    return check();
}

static enum access_result with(const char *subject)
{
    who.subject = str(subject);
    return check();
}

static void allowing_some_denies_the_rest(void **state)
{
    (void)state;
    allow("10.0.0.0/8");
    deny("10.0.0.66");
    assert_true(access_rules_finish(rules));
    assert_int_equal(from("10.0.0.1"), ACCESS_PASS);
    assert_int_equal(from("10.0.0.66"), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_ADDRESS);
    assert_int_equal(from("11.0.0.1"), ACCESS_REFUSED);
    assert_int_equal(from("::1"), ACCESS_REFUSED);
    who.address_width = 0;
    assert_int_equal(check(), ACCESS_REFUSED);
}

static void denying_some_allows_the_rest(void **state)
{
    (void)state;
    deny("address:10.0.0.0/8");
    deny("method:DELETE");
    deny("consumer:mallory");
    deny("scope:suspended");
    assert_true(access_rules_finish(rules));
    assert_int_equal(from("10.0.0.1"), ACCESS_REFUSED);
    assert_int_equal(from("11.0.0.1"), ACCESS_PASS);
    assert_int_equal(as("alice", "read"), ACCESS_PASS);
    assert_int_equal(as("mallory", NULL), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_CONSUMER);
    assert_int_equal(as("alice", "read suspended"), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_SCOPE);
    who.method = str("DELETE");
    assert_int_equal(as("alice", "read"), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_METHOD);
    who.method = str("DELETED");
    assert_int_equal(check(), ACCESS_PASS);
}

static void all_kinds_must_be_content(void **state)
{
    (void)state;
    allow("10.0.0.0/8");
    allow("method:GET");
    allow("method:HEAD");
    allow("consumer:alice");
    assert_true(access_rules_finish(rules));
    who.consumer = str("alice");
    assert_int_equal(from("10.0.0.1"), ACCESS_PASS);
    assert_int_equal(from("11.0.0.1"), ACCESS_REFUSED);
    from("10.0.0.1");
    who.method = str("POST");
    assert_int_equal(check(), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_METHOD);
    who.method = str("HEAD");
    assert_int_equal(as("bob", NULL), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_CONSUMER);
}

static void unix_peers_are_named_or_all(void **state)
{
    (void)state;
    deny("all");
    allow("unix:");
    assert_true(access_rules_finish(rules));
    assert_int_equal(check(), ACCESS_PASS);
    assert_int_equal(from("10.0.0.1"), ACCESS_REFUSED);
    assert_int_equal(from("::1"), ACCESS_REFUSED);
}

static void all_means_unix_peers_too(void **state)
{
    (void)state;
    allow("10.0.0.1");
    deny("all");
    assert_true(access_rules_finish(rules));
    assert_int_equal(check(), ACCESS_REFUSED);
    assert_int_equal(from("10.0.0.1"), ACCESS_PASS);
}

static void a_consumer_is_needed_by_name_or_at_all(void **state)
{
    (void)state;
    allow("consumer:*");
    deny("consumer:bob");
    assert_true(access_rules_finish(rules));
    assert_int_equal(as(NULL, NULL), ACCESS_UNIDENTIFIED);
    assert_int_equal(as("alice", NULL), ACCESS_PASS);
    assert_int_equal(as("bob", NULL), ACCESS_REFUSED);
    assert_int_equal(as("bobby", NULL), ACCESS_PASS);
    assert_int_equal(as("bo", NULL), ACCESS_PASS);
}

static void finds_one_consumer_of_many(void **state)
{
    static const char *const names[] = {"zoe", "al", "alice", "bob", "b", "carol", "alic"};
    (void)state;
    for (size_t i = 0; i < 7; i++) {
        char text[32] = "consumer:";
        allow(strcat(text, names[i]));
    }
    assert_true(access_rules_finish(rules));
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(as(names[i], NULL), ACCESS_PASS);
    assert_int_equal(as("ali", NULL), ACCESS_REFUSED);
    assert_int_equal(as("zoey", NULL), ACCESS_REFUSED);
    assert_int_equal(as("a", NULL), ACCESS_REFUSED);
    assert_int_equal(as("", NULL), ACCESS_REFUSED);
}

static void scopes_are_words(void **state)
{
    (void)state;
    allow("scope:admin");
    allow("scope:read write");
    assert_true(access_rules_finish(rules));
    assert_string_equal(access_rules_scope(rules), "admin");
    assert_int_equal(as(NULL, NULL), ACCESS_UNIDENTIFIED);
    assert_int_equal(as("a", NULL), ACCESS_REFUSED);
    assert_int_equal(as("a", "admin"), ACCESS_PASS);
    assert_int_equal(as("a", "x admin"), ACCESS_PASS);
    assert_int_equal(as("a", "write x read"), ACCESS_PASS);
    assert_int_equal(as("a", "read"), ACCESS_REFUSED);
    assert_int_equal(as("a", "administrator"), ACCESS_REFUSED);
    assert_int_equal(as("a", "read-write"), ACCESS_REFUSED);
    assert_int_equal(as("a", ""), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_SCOPE);
}

static void a_star_is_one_part_of_a_subject(void **state)
{
    (void)state;
    allow("subject:CN=*.internal,O=Example");
    allow("subject:CN=alice*");
    assert_true(access_rules_finish(rules));
    assert_int_equal(with("CN=a.internal,O=Example"), ACCESS_PASS);
    assert_int_equal(with("CN=a.b.internal,O=Example"), ACCESS_PASS);
    assert_int_equal(with("CN=a\\,b.internal,O=Example"), ACCESS_PASS);
    assert_int_equal(with("CN=.internal,O=Example"), ACCESS_PASS);
    assert_int_equal(with("CN=a,OU=b.internal,O=Example"), ACCESS_REFUSED);
    assert_int_equal(kind, ACCESS_SUBJECT);
    assert_int_equal(with("CN=a+OU=b.internal,O=Example"), ACCESS_REFUSED);
    assert_int_equal(with("CN=a.internal,O=Example,C=DE"), ACCESS_REFUSED);
    assert_int_equal(with("CN=a.internal\\,O=Example"), ACCESS_REFUSED);
    assert_int_equal(with("CN=a.internal"), ACCESS_REFUSED);
    assert_int_equal(with("CN=alice"), ACCESS_PASS);
    assert_int_equal(with("CN=alice.smith"), ACCESS_PASS);
    assert_int_equal(with("CN=alice,O=Evil"), ACCESS_REFUSED);
    assert_int_equal(with(NULL), ACCESS_REFUSED);
}

static void says_what_it_expects(void **state)
{
    static const char *const wrong[] = {"localhost",  "user:bob",  "10.0.0.0/99",
                                        "",           "consumer:", "scope: ",
                                        "method:G T", "subject:",  "address:all:"};
    const char *warning = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (!access_rules_add(rules, ACCESS_ALLOW, wrong[i], &warning))
            fail_msg("took \"%s\"", wrong[i]);
    assert_null(warning);
    assert_null(access_rules_add(rules, ACCESS_ALLOW, "10.0.0.1/8", &warning));
    assert_non_null(warning);
    warning = NULL;
    assert_null(access_rules_add(rules, ACCESS_ALLOW, "method:get", &warning));
    assert_non_null(warning);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(allowing_some_denies_the_rest),   TEST(denying_some_allows_the_rest),
        TEST(all_kinds_must_be_content),       TEST(unix_peers_are_named_or_all),
        TEST(all_means_unix_peers_too),        TEST(a_consumer_is_needed_by_name_or_at_all),
        TEST(finds_one_consumer_of_many),      TEST(scopes_are_words),
        TEST(a_star_is_one_part_of_a_subject), TEST(says_what_it_expects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
