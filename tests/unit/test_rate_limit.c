#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_host.h"

#define MS UINT64_C(1000000)

static int setup(void **state)
{
    (void)state;
    fake_load();
    fake.now_ns = 1000000 * MS;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_end();
    return 0;
}

static struct postern_request request(void)
{
    return (struct postern_request){.address = {192, 0, 2, 1}, .address_width = 4};
}

static unsigned ask_many(void *instance, unsigned n)
{
    unsigned passed = 0;
    for (unsigned i = 0; i < n; i++) {
        struct postern_request r = request();
        enum postern_verdict verdict = postern_plugin.on_request(instance, &r);
        assert_int_equal(verdict, r.answers ? POSTERN_ANSWERED : POSTERN_GO_ON);
        passed += verdict == POSTERN_GO_ON;
    }
    return passed;
}

static void refuses_with_numbers_and_when_to_come_again(void **state)
{
    struct postern_setup s;
    struct postern_request r = request();
    void *limit = fake_configure(&s, "rate", "3/m", NULL);
    (void)state;
    assert_int_equal(ask_many(limit, 3), 3);
    fake.now_ns += 500 * MS;
    assert_int_equal(postern_plugin.on_request(limit, &r), POSTERN_ANSWERED);
    assert_int_equal(r.status, 429);
    assert_string_equal(r.reason, "limit.rate");
    assert_int_equal(r.limit, 3);
    assert_int_equal(r.actual, 4);
    assert_string_equal(fake_has(&r, POSTERN_ANSWER_HEADER, "Retry-After"), "20"); /* 19.5 s */
    assert_string_equal(fake_has(&r, POSTERN_ANSWER_HEADER, "RateLimit"), "\"3/m\";r=0;t=20");
    assert_non_null(strstr(r.detail, "3/m"));
    assert_int_equal(fake_counted("refused"), 1);
    fake.now_ns += 19500 * MS;
    assert_int_equal(ask_many(limit, 2), 1);
    postern_plugin.discard(limit);
}

static void counts_the_cost_in_what_it_says(void **state)
{
    struct postern_setup s;
    struct postern_request r = request();
    void *limit = fake_configure(&s, "rate", "10/m", "cost", "4", "headers", "both", NULL);
    (void)state;
    assert_int_equal(ask_many(limit, 2), 2);
    assert_int_equal(postern_plugin.on_request(limit, &r), POSTERN_ANSWERED);
    assert_int_equal(r.actual, 12); /* two are left, and four are asked for */
    assert_string_equal(fake_has(&r, POSTERN_ANSWER_HEADER, "X-RateLimit-Remaining"), "2");
    assert_string_equal(fake_has(&r, POSTERN_ANSWER_HEADER, "X-RateLimit-Limit"), "10");
    assert_string_equal(fake_has(&r, POSTERN_ANSWER_HEADER, "Retry-After"), "12");
    postern_plugin.discard(limit);
}

static void the_default_burst_is_at_least_the_cost(void **state)
{
    struct postern_setup s;
    void *limit = fake_configure(&s, "rate", "100/s", "cost", "50", NULL);
    (void)state;
    assert_int_equal(ask_many(limit, 5), 1);
    postern_plugin.discard(limit);
}

static void goes_on_where_it_was_after_a_reload(void **state)
{
    struct postern_setup s;
    void *old = fake_configure(&s, "rate", "5/h", NULL);
    (void)state;
    assert_int_equal(ask_many(old, 4), 4);
    void *new = fake_configure(&s, "rate", "5/h", NULL);
    postern_plugin.discard(old);
    assert_int_equal(ask_many(new, 4), 1);
    postern_plugin.discard(new);
}

static void dry_run_says_nothing_to_anybody(void **state)
{
    struct postern_setup s;
    struct postern_request r = request();
    void *limit = fake_configure(&s, "rate", "1/h", "dry_run", "true", NULL);
    (void)state;
    assert_int_equal(ask_many(limit, 6), 6);
    assert_int_equal(fake_counted("would_refuse"), 5);
    postern_plugin.on_request(limit, &r);
    assert_int_equal(r.count, 0);
    postern_plugin.discard(limit);
}

static void nothing_depends_on_memory_for_fields(void **state)
{
    struct postern_setup s;
    struct postern_request r = request();
    void *limit = fake_configure(&s, "rate", "1/h", NULL);
    (void)state;
    r.out_of_memory = true;
    assert_int_equal(postern_plugin.on_request(limit, &r), POSTERN_GO_ON);
    assert_int_equal(postern_plugin.on_request(limit, &r), POSTERN_ANSWERED);
    postern_plugin.discard(limit);
}

static void faults_stand_where_the_value_stands(void **state)
{
    struct postern_setup s;
    (void)state;
    assert_null(fake_configure(&s, "rate", "1/s", "rate", "9/s", NULL));
    assert_int_equal(s.option, 0);
    assert_int_equal(s.at, 1);
    assert_null(fake_configure(&s, "rate", "1/s", "rate", "9/m", "burst", "1", NULL));
    assert_int_equal(s.option, 1);
    assert_null(fake_configure(&s, "rate", "1/s", "burst", "1", "cost", "2", NULL));
    assert_null(fake_configure(&s, "rate", "1/h", "burst", "10000", NULL));
    assert_null(fake_configure(&s, "rate", "1/s", "by", "x", "cost", "2", "burst", "1", NULL));
    assert_int_equal(s.faults, 2); /* all of them at once */
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(refuses_with_numbers_and_when_to_come_again),
        CASE(counts_the_cost_in_what_it_says),
        CASE(the_default_burst_is_at_least_the_cost),
        CASE(goes_on_where_it_was_after_a_reload),
        CASE(dry_run_says_nothing_to_anybody),
        CASE(nothing_depends_on_memory_for_fields),
        CASE(faults_stand_where_the_value_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
