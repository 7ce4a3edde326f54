#include "up_test.h"

static char path[] = "/healthz", host[] = "inner", body[] = "ok", service[] = "a.B";

static struct watch full(void)
{
    return (struct watch){
        .health = {.type = HEALTH_HTTP,
                   .path = path,
                   .host = host,
                   .body = body,
                   .service = service,
                   .status = {{200, 299}, {404, 404}},
                   .status_count = 2,
                   .interval = 1,
                   .timeout = 2,
                   .rise = 3,
                   .fall = 4},
        .outlier = {true, 1, 2, 3, 4, 5, 6, 7, OUTLIER_RESET},
        .panic = PANIC_USE_ALL,
        .slow_start = 9,
    };
}

static void a_copy_is_equal_and_has_texts_of_its_own(void **state)
{
    (void)state;
    struct watch a = full(), b;
    assert_int_equal(watch_copy(&b, &a), 0);
    assert_true(watch_eq(&a, &b));
    assert_ptr_not_equal(a.health.path, b.health.path);
    watch_done(&b);
    watch_done(&b);
    struct watch zero = {.slow_start = 0};
    assert_int_equal(watch_copy(&b, &zero), 0);
    assert_true(watch_eq(&zero, &b));
    watch_done(&b);
}

static void expect_differ(const struct watch *b, const char *what, size_t which)
{
    struct watch a = full();
    if (watch_eq(&a, b) || watch_eq(b, &a))
        fail_msg("another %s (%zu) makes no difference", what, which);
}

static void differs_in_every_number(void **state)
{
    (void)state;
#define AT(member) offsetof(struct watch, member)
    static const size_t numbers[] = {
        AT(health.status_count),
        AT(health.interval),
        AT(health.timeout),
        AT(health.rise),
        AT(health.fall),
        AT(outlier.failures),
        AT(outlier.share_permille),
        AT(outlier.requests),
        AT(outlier.window),
        AT(outlier.eject),
        AT(outlier.max_eject),
        AT(outlier.max_ejected_permille),
        AT(outlier.counts),
        AT(slow_start),
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        struct watch b = full();
        --*(uint32_t *)((char *)&b + numbers[i]);
        expect_differ(&b, "number", i);
    }
    for (size_t i = 0; i < 4; i++) {
        struct watch b = full();
        ++(i % 2 ? &b.health.status[i / 2].high : &b.health.status[i / 2].low)[0];
        expect_differ(&b, "status", i);
    }
}

static void differs_in_every_text_and_word(void **state)
{
    (void)state;
    static char other[] = "x";
    for (size_t i = 0; i < 8; i++) {
        struct watch b = full();
        char **texts[] = {&b.health.path, &b.health.host, &b.health.body, &b.health.service};
        *texts[i / 2] = i % 2 ? other : NULL;
        expect_differ(&b, "text", i);
    }
    struct watch b = full();
    b.health.type = HEALTH_TCP;
    expect_differ(&b, "type", 0);
    b = full();
    b.outlier.on = false;
    expect_differ(&b, "switch", 0);
    b = full();
    b.panic = PANIC_FAIL;
    expect_differ(&b, "panic", 0);
}

static void a_status_is_in_one_of_the_ranges(void **state)
{
    (void)state;
    struct watch a = full();
    static const unsigned in[] = {200, 250, 299, 404},
                          out[] = {0, 100, 199, 300, 403, 405, 999};
    for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++)
        assert_true(status_is_in(&a.health, in[i]));
    for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++)
        assert_false(status_is_in(&a.health, out[i]));
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (unsigned long n = 1; n <= 4; n++) {
        struct watch a = full(), b;
        mem_fail_at(n);
        assert_true(watch_copy(&b, &a) < 0);
        mem_fail_at(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_equal_and_has_texts_of_its_own),
        cmocka_unit_test(differs_in_every_number),
        cmocka_unit_test(differs_in_every_text_and_word),
        cmocka_unit_test(a_status_is_in_one_of_the_ranges),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
