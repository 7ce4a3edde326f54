#include "plugin_test.h"

#include <limits.h>

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

/* Who has a request hook hears only of requests that it was asked about. */
static void instances_hear_of_requests_that_they_know(void **state)
{
    static const struct plugin both = {.def = {.name = "both",
                                               .order = 300,
                                               .on_request = decide,
                                               .on_preflight = decide,
                                               .on_response = hear}};
    int self = 0;
    (void)state;
    struct instance i[] = {
        {.plugin = &edge}, {.plugin = &b}, {.plugin = &both, .self = &self}, {.plugin = &last}};
    const struct instance *list[] = {&i[0], &i[1], &i[2], &i[3]};
    struct phases *phases = phases_new(list, 4);
    assert_non_null(phases);
    const struct hook *hooks = phases->of[PHASE_RESPONSE].hooks;
    assert_string_equal(names(phases, PHASE_RESPONSE), "last both b edge");
    const unsigned needs[4][2] = {{0, 0}, {2, 2}, {1, UINT_MAX}, {0, 0}};
    for (unsigned k = 0; k < 4; k++) {
        assert_int_equal(hooks[k].need[0], needs[k][0]);
        assert_int_equal(hooks[k].need[1], needs[k][1]);
    }
    assert_ptr_equal(hooks[1].self, &self);
    assert_ptr_equal(hooks[1].hear, hear);
    assert_ptr_equal(phases->of[PHASE_PREFLIGHT].hooks[1].decide, decide);
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
        cmocka_unit_test(instances_hear_of_requests_that_they_know),
        cmocka_unit_test(none_and_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
