#include "plugin_test.h"

#include <stdlib.h>

static int made, freed, discarded;
static bool refuses, says_nothing, warns;
static void *shared[2];
static int here; /* what an instance is */

static void *make(void *arg)
{
    made++;
    return arg;
}

static void free_it(void *object)
{
    (void)object;
    freed++;
}

static bool configure(postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    static int first, second;
    (void)values;
    shared[0] = host_api.shared(s, "first", make, &first, free_it);
    shared[1] = host_api.shared(s, "second", make, &second, free_it);
    if (warns)
        host_api.warn(s, 1, 2, "careful: %s", host_api.place(s).p);
    if (refuses && !says_nothing)
        host_api.fault(s, -1, 0, "no: %d", 7);
    *ret_instance = &here;
    return !refuses;
}

static void discard(void *instance)
{
    assert_ptr_equal(instance, &here);
    discarded++;
}

static const struct plugin one = {
    .path = (char *)"/x/one.so",
    .def = {.name = "one", .configure = configure, .discard = discard}};
static const struct plugin other = {
    .def = {.name = "other", .configure = configure, .discard = discard}};

static int reset(void **state)
{
    (void)state;
    made = freed = discarded = 0;
    refuses = says_nothing = warns = false;
    host_fill();
    return 0;
}

static void state_is_shared_while_somebody_has_it(void **state)
{
    (void)state;
    struct instance *a = instance_of(&one, "route a");
    void *was = shared[0];
    assert_ptr_not_equal(shared[0], shared[1]);
    struct instance *b = instance_of(&one, "");
    assert_ptr_equal(shared[0], was);
    assert_int_equal(made, 2);
    struct instance *c = instance_of(&other, "");
    assert_int_equal(made, 4); /* another plugin's is another */
    instance_free(c);
    assert_int_equal(freed, 2);
    instance_free(a);
    assert_int_equal(freed, 2);
    instance_free(b);
    assert_int_equal(freed, 4);
    assert_int_equal(discarded, 3);
    instance_free(NULL);
}

static void a_refusal_leaves_nothing_behind(void **state)
{
    (void)state;
    refuses = true;
    assert_null(instance_of(&one, ""));
    assert_string_equal(said, "fault -1 0 no: 7\n");
    assert_int_equal(made, freed);
    assert_int_equal(discarded, 0);
    says_nothing = true;
    assert_null(instance_of(&one, ""));
    assert_string_equal(said, "fault -1 0 /x/one.so refuses this section without a word\n");
}

static void a_warning_is_no_fault(void **state)
{
    (void)state;
    warns = true;
    struct instance *a = instance_of(&one, "listener l");
    assert_non_null(a);
    assert_string_equal(said, "warning 1 2 careful: listener l\n");
    instance_free(a);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    for (unsigned long n = 1; n < 20; n++) {
        mem_fail_at(n);
        struct instance *a = instance_of(&one, "route a");
        mem_fail_at(0);
        instance_free(a);
        assert_int_equal(made, freed);
    }
}

static void on_change(void *instance, const char *path)
{
    (void)instance, (void)path;
    discarded += 100;
}

static bool follows(postern_setup *s, const struct postern_values *values, void **ret_instance)
{
    (void)values;
    host_api.follow(s, "/nowhere");
    *ret_instance = &here;
    return true;
}

static void who_follows_must_listen(void **state)
{
    (void)state;
    struct plugin deaf = {.def = {.name = "deaf", .configure = follows}};
    struct plugin hears = deaf;
    hears.def.on_change = on_change;
    assert_null(instance_of(&deaf, ""));
    assert_string_equal(said, "fault -1 0 it follows a file and has no on_change\n");
    struct instance *a = instance_of(&hears, "");
    assert_non_null(a);
    instance_free(a);
    mem_fail_at(3); /* the instance, its place, what follows */
    a = instance_of(&hears, "");
    mem_fail_at(0);
    assert_null(a);
}

static struct loop loop;

static void *let_go(void *arg)
{
    instance_free(arg);
    return NULL;
}

static void what_dies_elsewhere_is_discarded_at_home(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(loop_init(&loop), 0);
    host_run(&loop);
    struct instance *a = instance_of(&one, ""), *b = instance_of(&one, "");
    instance_free(a);
    assert_int_equal(discarded, 1);
    assert_int_equal(pthread_create(&thread, NULL, let_go, b), 0);
    pthread_join(thread, NULL);
    assert_int_equal(discarded, 1);
    event_base_loop(loop.base, EVLOOP_NONBLOCK);
    assert_int_equal(discarded, 2);
    b = instance_of(&one, "");
    assert_int_equal(pthread_create(&thread, NULL, let_go, b), 0);
    pthread_join(thread, NULL);
    host_run(NULL); /* the end finds it too */
    assert_int_equal(discarded, 3);
    loop_discard(&loop, NULL);
    loop_done(&loop);
}

#define TEST(f) cmocka_unit_test_setup(f, reset)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(state_is_shared_while_somebody_has_it),
        TEST(a_refusal_leaves_nothing_behind),
        TEST(a_warning_is_no_fault),
        TEST(each_allocation_may_fail),
        TEST(who_follows_must_listen),
        TEST(what_dies_elsewhere_is_discarded_at_home),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
