#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_host.h"

static int setup(void **state)
{
    (void)state;
    fake_load();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_end();
    return 0;
}

static struct postern_request enter(void *instance, enum postern_verdict expected)
{
    struct postern_request r = {.address = {192, 0, 2, 1}, .address_width = 4};
    assert_int_equal(postern_plugin.on_request(instance, &r), expected);
    return r;
}

static void a_place_is_given_back_once(void **state)
{
    struct postern_setup s;
    void *limit = fake_configure(&s, "limit", "2", NULL);
    (void)state;
    struct postern_request a = enter(limit, POSTERN_GO_ON), b = enter(limit, POSTERN_GO_ON);
    struct postern_request c = enter(limit, POSTERN_ANSWERED);
    assert_int_equal(c.status, 429);
    assert_string_equal(c.reason, "limit.concurrency");
    assert_int_equal(c.limit, 2);
    assert_int_equal(c.actual, 3);
    assert_string_equal(fake_has(&c, POSTERN_ANSWER_HEADER, "Retry-After"), "1");
    postern_plugin.on_log(limit, &c); /* it has none */
    postern_plugin.on_log(limit, &a);
    postern_plugin.on_log(limit, &a);
    postern_plugin.on_log(limit, &a);
    a = enter(limit, POSTERN_GO_ON);
    enter(limit, POSTERN_ANSWERED);
    postern_plugin.on_log(limit, &a);
    postern_plugin.on_log(limit, &b);
    assert_int_equal(fake_counted("refused"), 2);
    postern_plugin.discard(limit);
}

static void the_status_is_a_choice(void **state)
{
    struct postern_setup s;
    void *limit = fake_configure(&s, "limit", "1", "status", "503", NULL);
    (void)state;
    enter(limit, POSTERN_GO_ON);
    assert_int_equal(enter(limit, POSTERN_ANSWERED).status, 503);
    postern_plugin.discard(limit);
}

static void dry_run_lets_through_what_holds_no_place(void **state)
{
    struct postern_setup s;
    void *limit = fake_configure(&s, "limit", "1", "dry_run", "true", NULL);
    (void)state;
    struct postern_request a = enter(limit, POSTERN_GO_ON), b = enter(limit, POSTERN_GO_ON);
    postern_plugin.on_log(limit, &b);
    enter(limit, POSTERN_GO_ON);
    assert_int_equal(fake_counted("would_refuse"), 2);
    postern_plugin.on_log(limit, &a);
    enter(limit, POSTERN_GO_ON);
    assert_int_equal(fake_counted("would_refuse"), 2);
    postern_plugin.discard(limit);
}

static void requests_outlive_the_section_that_counted_them(void **state)
{
    struct postern_setup s;
    void *old = fake_configure(&s, "limit", "2", NULL);
    (void)state;
    struct postern_request a = enter(old, POSTERN_GO_ON);
    void *new = fake_configure(&s, "limit", "1", NULL);
    enter(new, POSTERN_ANSWERED);
    postern_plugin.on_log(old, &a);
    postern_plugin.discard(old);
    enter(new, POSTERN_GO_ON);
    postern_plugin.discard(new);
}

static void a_bad_key_is_a_fault(void **state)
{
    struct postern_setup s;
    (void)state;
    assert_null(fake_configure(&s, "limit", "1", "by", "user", NULL));
    assert_int_equal(s.option, 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_place_is_given_back_once),
        CASE(the_status_is_a_choice),
        CASE(dry_run_lets_through_what_holds_no_place),
        CASE(requests_outlive_the_section_that_counted_them),
        CASE(a_bad_key_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
