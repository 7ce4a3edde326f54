#include "plugin_test.h"

#include "plugin/phases.h"

static enum postern_verdict decide(void *instance, postern_request *r)
{
    (void)instance, (void)r;
    return POSTERN_GO_ON;
}

static void hear(void *instance, postern_request *r)
{
    (void)instance, (void)r;
}

static const struct plugin
    edge = {.def = {.name = "edge", .order = 100, .on_response = hear, .on_preflight = decide}},
    b = {.def = {.name = "b", .order = 200, .on_request = decide, .on_response = hear}},
    a = {.def = {.name = "a", .order = 200, .on_request = decide, .on_log = hear}},
    last = {.def = {.name = "last", .order = 500, .on_response = hear}};

static char *names(const struct phases *phases, enum phase phase)
{
    static char out[64];
    out[0] = '\0';
    for (unsigned i = 0; i < phases->of[phase].count; i++) {
        const struct hook *hook = &phases->of[phase].hooks[i];
        assert_ptr_equal(hook->instance, phases->instances[hook->at]);
        strcat(strcat(out, i ? " " : ""), hook->instance->plugin->def.name);
    }
    return out;
}

static void hooks_are_sorted_and_those_that_are_not_there_cost_nothing(void **state)
{
    (void)state;
    struct instance i[] = {
        {.plugin = &last}, {.plugin = &b}, {.plugin = &edge}, {.plugin = &a}};
    const struct instance *list[] = {&i[0], &i[1], &i[2], &i[3]};
    struct phases *phases = phases_new(list, 4);
    assert_non_null(phases);
    assert_string_equal(names(phases, PHASE_REQUEST), "a b");
    assert_string_equal(names(phases, PHASE_PREFLIGHT), "edge");
    assert_string_equal(names(phases, PHASE_RESPONSE), "last b edge");
    assert_string_equal(names(phases, PHASE_LOG), "a");
    assert_string_equal(names(phases, PHASE_REQUEST_BODY), "");
    assert_string_equal(names(phases, PHASE_RESPONSE_BODY), "");
    phases_free(phases);
}

static void none_and_no_memory(void **state)
{
    (void)state;
    struct phases *phases = phases_new(NULL, 0);
    assert_int_equal(phases->count, 0);
    phases_free(phases);
    mem_fail_at(1);
    assert_null(phases_new(NULL, 0));
    mem_fail_at(0);
    phases_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_are_sorted_and_those_that_are_not_there_cost_nothing),
        cmocka_unit_test(none_and_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
