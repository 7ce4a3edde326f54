#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "fake_host.h"
#include "keys_test.h"

/* printf %s%s salt hashed | sha256sum */
static const char keys[] =
    "{\"salt\": \"salt\", \"keys\": [\n"
    "{\"key\": \"one\", \"consumer\": \"alice\", \"scopes\": [\"read\", \"write\"],\n"
    " \"metadata\": {\"plan\": \"gold\", \"seats\": 3}},\n"
    "{\"hash\": \"sha256:a29b98082456be50d4311a05add3543e45a43c29d079cbd621625786a4912fa6\",\n"
    " \"consumer\": \"bob\"},\n"
    "{\"key\": \"off\", \"consumer\": \"carol\", \"enabled\": false},\n"
    "{\"key\": \"old\", \"consumer\": \"dave\", \"expires\": \"2027-01-01\"},\n"
    "{\"key\": \"new\", \"consumer\": \"erin\", \"expires\": \"2027-02-01\"}]}";

static char folder[64], path[80];
static struct postern_setup s;
static struct postern_request r;
static void *it;

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/test_key_auth.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys.json", folder);
    write_keys(path, keys);
    fake_load();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (it) {
        postern_plugin.stop(it, &fake.worker);
        postern_plugin.discard(it);
    }
    it = NULL;
    fake_end();
    unlink(path);
    return rmdir(folder);
}

/* The section has the file, and these; it runs. */
#define START(...)                                                                             \
    do {                                                                                       \
        it = fake_configure(&s, "file", path, __VA_ARGS__);                                    \
        if (!it)                                                                               \
            fail_msg("refused: %s", s.text);                                                   \
        postern_plugin.start(it, &fake.worker);                                                \
    } while (0)

static enum postern_verdict ask(enum postern_part part, const char *name, const char *value)
{
    memset(&r, 0, sizeof(r));
    if (name)
        fake_put(&r, part, name, value);
    return postern_plugin.on_request(it, &r);
}

static void assert_refused(const char *reason)
{
    assert_int_equal(r.answers, 1);
    assert_int_equal(r.status, 401);
    assert_string_equal(r.reason, reason);
    assert_true(strlen(r.challenge) > 0);
    assert_true(strlen(r.detail) > 0);
    assert_string_equal(r.credential, "");
}

static void assert_passed_as(const char *consumer)
{
    assert_int_equal(r.answers, 0);
    assert_string_equal(r.credential, consumer);
    assert_string_equal(fake_fact(&r, fake_str("consumer")).p, consumer);
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Consumer"), consumer);
}

static void lets_a_known_key_through(void **state)
{
    (void)state;
    START(NULL);
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "one"), POSTERN_GO_ON);
    assert_passed_as("alice");
    assert_null(fake_has(&r, POSTERN_HEADER, "X-Api-Key"));
    assert_string_equal(fake_fact(&r, fake_str("scope")).p, "read write");
    /* a hashed one, the slow way and then the fast one */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(POSTERN_HEADER, "x-api-key", "hashed"), POSTERN_GO_ON);
        assert_passed_as("bob");
        assert_null(fake_fact(&r, fake_str("scope")).p);
    }
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "new"), POSTERN_GO_ON);
    assert_passed_as("erin");
}

static void refuses_all_others(void **state)
{
    char endless[1026];
    (void)state;
    START(NULL);
    assert_int_equal(ask(0, NULL, NULL), POSTERN_ANSWERED);
    assert_refused("auth.missing");
    assert_string_equal(r.challenge,
                        "ApiKey realm=\"postern\", in=\"header\", name=\"X-Api-Key\"");
    assert_non_null(strstr(r.detail, "header X-Api-Key"));
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", ""), POSTERN_ANSWERED);
    assert_refused("auth.missing");
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "two"), POSTERN_ANSWERED);
    assert_refused("auth.unknown");
    assert_null(fake_has(&r, POSTERN_HEADER, "X-Api-Key")); /* nor is it logged */
    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", endless), POSTERN_ANSWERED);
    assert_refused("auth.unknown");
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "off"), POSTERN_ANSWERED);
    assert_refused("auth.disabled");
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "old"), POSTERN_ANSWERED);
    assert_refused("auth.expired");
}

static void expiry_is_to_the_millisecond(void **state)
{
    (void)state;
    START(NULL);
    fake.wall_ms = 1801440000000 - 1; /* 2027-02-01 */
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "new"), POSTERN_GO_ON);
    fake.wall_ms++;
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "new"), POSTERN_ANSWERED);
    assert_refused("auth.expired");
}

static void more_than_one_key_is_too_many(void **state)
{
    static const struct {
        enum postern_part part;
        const char *name;
    } others[] = {
        {POSTERN_HEADER, "X-Api-Key"},
        {POSTERN_HEADER, "x-other"},
        {POSTERN_PARAMETER, "key"},
        {POSTERN_COOKIE, "key"},
    };
    (void)state;
    START("header", "X-Api-Key", "header", "X-Other", "query", "key", "cookie", "key", NULL);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        memset(&r, 0, sizeof(r));
        fake_put(&r, POSTERN_HEADER, "X-Api-Key", "one");
        fake_put(&r, others[i].part, others[i].name, "one");
        assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_ANSWERED);
        assert_refused("auth.multiple");
        for (size_t k = 0; k < r.count; k++)
            assert_true(r.fields[k].part == 0 || r.fields[k].part == POSTERN_ANSWER_HEADER);
    }
}

static void finds_a_key_in_each_place(void **state)
{
    (void)state;
    START("header", "X-Key", "query", "api_key", "cookie", "key", "scheme", "Bearer", "scheme",
          "ApiKey", NULL);
    assert_int_equal(ask(POSTERN_HEADER, "X-Key", "one"), POSTERN_GO_ON);
    assert_passed_as("alice");
    assert_int_equal(ask(POSTERN_PARAMETER, "api_key", "one"), POSTERN_GO_ON);
    assert_passed_as("alice");
    assert_null(fake_has(&r, POSTERN_PARAMETER, "api_key"));
    assert_int_equal(ask(POSTERN_COOKIE, "key", "one"), POSTERN_GO_ON);
    assert_passed_as("alice");
    assert_null(fake_has(&r, POSTERN_COOKIE, "key"));
    assert_int_equal(ask(POSTERN_HEADER, "Authorization", "bearer one"), POSTERN_GO_ON);
    assert_passed_as("alice");
    assert_string_equal(fake_fact(&r, fake_str("challenge")).p, "Bearer realm=\"postern\"");
    assert_null(fake_has(&r, POSTERN_HEADER, "Authorization"));
    assert_int_equal(ask(POSTERN_HEADER, "Authorization", "ApiKey   one"), POSTERN_GO_ON);
    assert_passed_as("alice");
    /* not where nobody looks */
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "one"), POSTERN_ANSWERED);
    assert_refused("auth.missing");
    assert_string_equal(r.challenge, "Bearer realm=\"postern\" | ApiKey realm=\"postern\" | "
                                     "ApiKey realm=\"postern\", in=\"header\", name=\"X-Key\"");
}

static void leaves_other_schemes_alone(void **state)
{
    static const char *const others[] = {"Basic one", "Bearerone", "Bear", "", "one"};
    (void)state;
    START("scheme", "Bearer", "realm", "my \"own\" \\", NULL);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(ask(POSTERN_HEADER, "Authorization", others[i]), POSTERN_ANSWERED);
        assert_refused("auth.missing");
        assert_string_equal(r.challenge, "Bearer realm=\"my \\\"own\\\" \\\\\"");
        assert_string_equal(fake_has(&r, POSTERN_HEADER, "Authorization"), others[i]);
    }
    assert_int_equal(ask(POSTERN_HEADER, "Authorization", "Bearer"), POSTERN_ANSWERED);
    assert_refused("auth.missing");
    assert_int_equal(ask(POSTERN_HEADER, "Authorization", "Bearer two"), POSTERN_ANSWERED);
    assert_refused("auth.unknown");
    assert_string_equal(r.challenge,
                        "Bearer realm=\"my \\\"own\\\" \\\\\", error=\"invalid_token\"");
    memset(&r, 0, sizeof(r));
    fake_put(&r, POSTERN_HEADER, "Authorization", "Basic one");
    fake_put(&r, POSTERN_HEADER, "Authorization", "Bearer one");
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_ANSWERED);
    assert_refused("auth.multiple");
}

static void several_are_an_invalid_request(void **state)
{
    (void)state;
    START("scheme", "Bearer", NULL);
    memset(&r, 0, sizeof(r));
    fake_put(&r, POSTERN_HEADER, "Authorization", "Bearer one");
    fake_put(&r, POSTERN_HEADER, "Authorization", "Bearer one");
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_ANSWERED);
    assert_refused("auth.multiple");
    assert_string_equal(r.challenge, "Bearer realm=\"postern\", error=\"invalid_request\"");
}

static enum postern_verdict ask_behind(const char *fact, const char *value, const char *known,
                                       const char *key)
{
    memset(&r, 0, sizeof(r));
    fake_fact_set(&r, fake_str(fact), fake_str(value));
    snprintf(r.credential, sizeof(r.credential), "%s", known);
    if (key)
        fake_put(&r, POSTERN_HEADER, "X-Api-Key", key);
    return postern_plugin.on_request(it, &r);
}

/* Of those that would do, one: else a request had the name of one and the scopes of another. */
static void one_credential_of_those_that_would_do(void **state)
{
    (void)state;
    START("optional", "true", NULL);
    assert_int_equal(ask_behind("optional", "jwt", "zoe", "one"), POSTERN_ANSWERED);
    assert_string_equal(r.reason, "auth.multiple");
    assert_int_equal(ask_behind("optional", "jwt", "zoe", NULL), POSTERN_GO_ON);
    assert_string_equal(r.credential, "zoe");
    assert_int_equal(ask_behind("other", "jwt", "zoe", "one"), POSTERN_GO_ON);
    assert_string_equal(r.credential, "alice");
    postern_plugin.stop(it, &fake.worker);
    postern_plugin.discard(it);
    START(NULL);
    assert_int_equal(ask_behind("optional", "jwt", "zoe", "one"), POSTERN_GO_ON);
    assert_string_equal(r.credential, "alice");
}

/* The last word of that name, as the gateway has it. */
static const char *challenge(void)
{
    const char *last = NULL;
    for (size_t i = 0; i < r.fact_count; i++)
        if (strcmp(r.facts[i].name, "challenge") == 0)
            last = r.facts[i].value;
    return last;
}

static void others_challenges_stand_beside_its_own(void **state)
{
    (void)state;
    START("optional", "true", NULL);
    assert_int_equal(ask_behind("challenge", "Bearer realm=\"a\"", "", NULL), POSTERN_GO_ON);
    assert_string_equal(challenge(), "Bearer realm=\"a\", ApiKey realm=\"postern\", "
                                     "in=\"header\", name=\"X-Api-Key\"");
    assert_int_equal(ask_behind("challenge", "Bearer realm=\"a\"", "zoe", NULL), POSTERN_GO_ON);
    assert_string_equal(challenge(), "Bearer realm=\"a\"");
    assert_int_equal(ask(POSTERN_HEADER, NULL, NULL), POSTERN_GO_ON);
    assert_string_equal(challenge(),
                        "ApiKey realm=\"postern\", in=\"header\", name=\"X-Api-Key\"");
}

static void tells_the_upstream_who_it_is(void **state)
{
    (void)state;
    START("consumer_header", "X-Who", "scope_header", "X-Scopes", "metadata_headers",
          "X-Plan: plan", "metadata_headers", "X-Seats:seats", NULL);
    memset(&r, 0, sizeof(r));
    fake_put(&r, POSTERN_HEADER, "X-Api-Key", "one");
    fake_put(&r, POSTERN_HEADER, "X-Who", "admin");
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_GO_ON);
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Who"), "alice");
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Scopes"), "read write");
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Plan"), "gold");
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Seats"), "3");
    assert_null(fake_has(&r, POSTERN_HEADER, "X-Consumer"));
    /* what bob has not, a client does not say for him */
    memset(&r, 0, sizeof(r));
    fake_put(&r, POSTERN_HEADER, "X-Api-Key", "hashed");
    fake_put(&r, POSTERN_HEADER, "X-Scopes", "admin");
    fake_put(&r, POSTERN_HEADER, "X-Plan", "gold");
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_GO_ON);
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Who"), "bob");
    assert_null(fake_has(&r, POSTERN_HEADER, "X-Scopes"));
    assert_null(fake_has(&r, POSTERN_HEADER, "X-Plan"));
}

static void headers_can_be_off(void **state)
{
    (void)state;
    START("consumer_header", "off", "forward_key", "1", NULL);
    memset(&r, 0, sizeof(r));
    fake_put(&r, POSTERN_HEADER, "X-Api-Key", "one");
    fake_put(&r, POSTERN_HEADER, "X-Consumer", "its own");
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_GO_ON);
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Consumer"), "its own");
    assert_string_equal(fake_has(&r, POSTERN_HEADER, "X-Api-Key"), "one");
    assert_null(fake_has(&r, POSTERN_HEADER, "off"));
}

static void optional_lets_nobody_through_as_nobody(void **state)
{
    (void)state;
    START("optional", "1", NULL);
    assert_int_equal(ask(POSTERN_HEADER, "X-Consumer", "admin"), POSTERN_GO_ON);
    assert_null(fake_has(&r, POSTERN_HEADER, "X-Consumer"));
    assert_null(fake_fact(&r, fake_str("consumer")).p);
    assert_string_equal(r.credential, "");
    assert_string_equal(fake_fact(&r, fake_str("challenge")).p,
                        "ApiKey realm=\"postern\", in=\"header\", name=\"X-Api-Key\"");
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "two"), POSTERN_ANSWERED);
    assert_refused("auth.unknown");
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", ""), POSTERN_ANSWERED);
    assert_refused("auth.missing");
}

static void fails_rather_than_pass_half_a_request(void **state)
{
    (void)state;
    START("optional", "1", NULL);
    memset(&r, 0, sizeof(r));
    fake_put(&r, POSTERN_HEADER, "X-Api-Key", "one");
    r.out_of_memory = true;
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_FAILED);
    memset(&r, 0, sizeof(r));
    r.out_of_memory = true;
    assert_int_equal(postern_plugin.on_request(it, &r), POSTERN_FAILED);
    /* a worker that got no hasher */
    postern_plugin.stop(it, &fake.worker);
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "hashed"), POSTERN_FAILED);
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "one"), POSTERN_GO_ON);
}

static void follows_its_file(void **state)
{
    (void)state;
    START(NULL);
    assert_string_equal(s.followed, path);
    write_keys(path, "[{\"key\": \"two\", \"consumer\": \"zoe\"}]");
    postern_plugin.on_change(it, path);
    assert_int_equal(fake.retired, 1);
    assert_int_equal(fake.logs, 1);
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "one"), POSTERN_ANSWERED);
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "two"), POSTERN_GO_ON);
    assert_passed_as("zoe");
    postern_plugin.on_change(it, path);
    assert_int_equal(fake.logs, 1);
    write_keys(path, "[\n{\"key\": \"three\"}]");
    postern_plugin.on_change(it, path);
    assert_non_null(strstr(fake.log, "keys.json:2: entry 1: no \"consumer\""));
    assert_non_null(strstr(fake.log, "stay in force"));
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "two"), POSTERN_GO_ON);
}

static void sections_share_a_file(void **state)
{
    struct postern_setup other;
    (void)state;
    START(NULL);
    assert_int_equal(s.warnings, 1);
    void *second = fake_configure(&other, "file", path, "header", "X-Other", NULL);
    assert_non_null(second);
    assert_int_equal(other.warnings, 0);
    write_keys(path, "[{\"key\": \"two\", \"consumer\": \"zoe\"}]");
    postern_plugin.on_change(second, path);
    postern_plugin.on_change(it, path);
    assert_int_equal(fake.logs, 1);
    assert_int_equal(ask(POSTERN_HEADER, "X-Api-Key", "two"), POSTERN_GO_ON);
    postern_plugin.discard(second);
}

static void warns_of_plain_keys(void **state)
{
    (void)state;
    assert_int_equal(chmod(path, 0644), 0);
    START(NULL);
    assert_int_equal(s.warnings, 1);
    assert_int_equal(s.option, 0);
    assert_non_null(strstr(s.text, "4 keys stand in plain text, for every user"));
    assert_non_null(strstr(s.text, "postern-keys hash "));
}

static void assert_fault(const char *text)
{
    assert_null(it);
    assert_int_equal(s.faults, 1);
    if (!strstr(s.text, text))
        fail_msg("expected: %s\nit said: %s", text, s.text);
}

static void says_what_is_wrong_with_a_section(void **state)
{
    (void)state;
    it = fake_configure(&s, "file", path, "header", "authorization", NULL);
    assert_fault("expected scheme = Bearer");
    it = fake_configure(&s, "file", path, "consumer_header", "x-api-key", NULL);
    assert_fault("x-api-key has another meaning");
    it = fake_configure(&s, "file", path, "scope_header", "Content-Length", NULL);
    assert_fault("Content-Length has another meaning");
    it = fake_configure(&s, "file", path, "metadata_headers", "X-Plan", NULL);
    assert_fault("expected \"Header: member\"");
    it = fake_configure(&s, "file", path, "metadata_headers", "X-A: b", "metadata_headers",
                        "X Plan: plan", NULL);
    assert_fault("expected \"Header: member\"");
    assert_int_equal(s.at, 1);
    it = fake_configure(&s, "file", path, "metadata_headers", "Host: plan", NULL);
    assert_fault("expected \"Header: member\"");
}

static void says_what_is_wrong_with_the_file(void **state)
{
    (void)state;
    write_keys(path, "[\n{\"key\": \"three\"}]");
    it = fake_configure(&s, "file", path, NULL);
    assert_fault("keys.json:2: entry 1: no \"consumer\"");
    assert_int_equal(s.option, 0);
    unlink(path);
    it = fake_configure(&s, "file", path, NULL);
    assert_fault("keys.json: No such file");
    char many[2048] = "[0";
    for (int i = 1; i < 25; i++)
        strcat(many, ",0");
    strcat(many, "]");
    write_keys(path, many);
    it = fake_configure(&s, "file", path, NULL);
    assert_null(it);
    assert_int_equal(s.faults, 21);
    assert_non_null(strstr(s.text, "and 5 faults more"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(several_are_an_invalid_request),
        TEST(one_credential_of_those_that_would_do),
        TEST(others_challenges_stand_beside_its_own),
        TEST(lets_a_known_key_through),
        TEST(refuses_all_others),
        TEST(expiry_is_to_the_millisecond),
        TEST(more_than_one_key_is_too_many),
        TEST(finds_a_key_in_each_place),
        TEST(leaves_other_schemes_alone),
        TEST(tells_the_upstream_who_it_is),
        TEST(headers_can_be_off),
        TEST(optional_lets_nobody_through_as_nobody),
        TEST(fails_rather_than_pass_half_a_request),
        TEST(follows_its_file),
        TEST(sections_share_a_file),
        TEST(warns_of_plain_keys),
        TEST(says_what_is_wrong_with_a_section),
        TEST(says_what_is_wrong_with_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
