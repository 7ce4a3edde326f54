#include "plugin_test.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plugin/station.h"

static struct loop loop;
static struct postern_worker *w;
static char heard[256];

static void hear(const char *what, const void *which)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof(heard) - n, "%s %s\n", what, (const char *)which);
}

static void on_resume(void *waiter, void *result)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof(heard) - n, "%s got %s\n", (char *)waiter, (char *)result);
}

static void drop(void *result)
{
    hear("dropped", result);
}

static void turn(void)
{
    event_base_loop(loop.base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
}

static int open_station(void **state)
{
    (void)state;
    heard[0] = '\0';
    station_fill(&host_api);
    assert_int_equal(loop_init(&loop), 0);
    w = station_open(&loop, 0, 1, NULL);
    assert_non_null(w);
    w->on_resume = on_resume;
    return 0;
}

static int close_station(void **state)
{
    (void)state;
    station_close(w);
    loop_discard(&loop, NULL);
    stations_free();
    loop_done(&loop);
    return 0;
}

static void who_waits_hears_once(void **state)
{
    (void)state;
    struct postern_token token;
    assert_true(station_wait(w, "a", &token));
    host_api.resume(token, "1", drop);
    assert_string_equal(heard, ""); /* never from within */
    host_api.resume(token, "2", drop);
    assert_string_equal(heard, "dropped 2\n");
    turn();
    assert_string_equal(heard, "dropped 2\na got 1\n");
    host_api.resume(token, "3", drop);
    host_api.resume(token, "4", NULL);
    assert_string_equal(heard, "dropped 2\na got 1\ndropped 3\n");
}

static void who_has_left_hears_nothing(void **state)
{
    (void)state;
    struct postern_token before, after;
    assert_true(station_wait(w, "a", &before));
    station_leave(w, before);
    host_api.resume(before, "late", drop);
    assert_true(station_wait(w, "b", &after)); /* in the same place */
    assert_int_equal(before.id[0], after.id[0]);
    host_api.resume(before, "later", drop);
    host_api.resume(after, "1", drop);
    station_leave(w, after); /* while the letter is on its way */
    turn();
    assert_string_equal(heard, "dropped late\ndropped later\ndropped 1\n");
    station_leave(w, after);
}

static void a_token_of_nobody_is_harmless(void **state)
{
    (void)state;
    static const uint64_t ids[][2] = {
        {0, 0}, {1ull << 32, 0}, {7ull << 32, 1}, {~0ull, ~0ull}, {1ull << 32 | 0xffffff, 1}};
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
        host_api.resume((struct postern_token){{ids[i][0], ids[i][1]}}, "x", NULL);
    turn();
    assert_string_equal(heard, "");
}

static void thousands_wait(void **state)
{
    (void)state;
    static struct postern_token tokens[3 * WAIT_CHUNK];
    for (size_t i = 0; i < 3 * WAIT_CHUNK; i++)
        assert_true(station_wait(w, "a", &tokens[i]));
    for (size_t i = 0; i < 3 * WAIT_CHUNK; i++)
        station_leave(w, tokens[i]);
    mem_fail_at(1);
    assert_true(station_wait(w, "a", &tokens[0])); /* there is room */
    mem_fail_at(0);
}

static void without_memory_nobody_can_wait(void **state)
{
    (void)state;
    struct postern_token token;
    mem_fail_at(1);
    assert_false(station_wait(w, "a", &token));
    mem_fail_at(0);
    assert_true(station_wait(w, "a", &token));
}

static void on_run(postern_worker *worker, void *arg)
{
    assert_ptr_equal(worker, w);
    hear("ran", arg);
}

static void what_is_posted_runs_there(void **state)
{
    (void)state;
    assert_true(host_api.post(0, on_run, "x"));
    assert_false(host_api.post(1, on_run, "y"));
    assert_false(host_api.post(1000, on_run, "y"));
    mem_fail_at(1);
    assert_false(host_api.post(0, on_run, "y"));
    mem_fail_at(0);
    turn();
    assert_string_equal(heard, "ran x\n");
    assert_true(host_api.post(0, on_run, "never"));
}

static void timers_run_once_and_can_be_cancelled(void **state)
{
    (void)state;
    uint64_t a = host_api.timer(w, 1, on_run, "a"), b = host_api.timer(w, 1, on_run, "b");
    assert_true(a && b && a != b);
    host_api.cancel(w, b);
    uint64_t c = host_api.timer(w, 1, on_run, "c"); /* where b was */
    host_api.cancel(w, b);
    host_api.cancel(w, 0);
    host_api.cancel(w, 12345);
    while (!strstr(heard, "a") || !strstr(heard, "c"))
        event_base_loop(loop.base, EVLOOP_ONCE);
    assert_null(strstr(heard, "b"));
    host_api.cancel(w, a);
    host_api.cancel(w, c);
    mem_fail_at(1);
    assert_int_equal(host_api.timer(w, 1, on_run, "d"), 0);
    mem_fail_at(0);
    for (int i = 0; i < 100; i++)
        assert_true(host_api.timer(w, 100000, on_run, "never"));
}

static void on_ready(postern_worker *worker, unsigned events, void *arg)
{
    assert_ptr_equal(worker, w);
    hear(events == POSTERN_READ    ? "readable"
         : events == POSTERN_WRITE ? "writable"
                                   : "both",
         arg);
    if (strcmp(arg, "once") == 0)
        host_api.watch(w, *(int *)w->owner, 0, NULL, NULL);
}

static void descriptors_are_watched(void **state)
{
    (void)state;
    int fd = eventfd(0, EFD_NONBLOCK);
    w->owner = &fd;
    assert_true(host_api.watch(w, fd, POSTERN_WRITE, on_ready, "once"));
    turn();
    turn();
    assert_string_equal(heard, "writable once\n");
    assert_true(host_api.watch(w, fd, POSTERN_READ, on_ready, "again"));
    turn();
    assert_string_equal(heard, "writable once\n");
    assert_true(host_api.watch(w, fd, POSTERN_READ | POSTERN_WRITE, on_ready, "more"));
    turn();
    assert_string_equal(heard, "writable once\nwritable more\n");
    assert_true(host_api.watch(w, fd, 0, NULL, NULL));
    assert_true(host_api.watch(w, fd, 0, NULL, NULL));
    assert_false(host_api.watch(w, -1, POSTERN_READ, on_ready, "none"));
    mem_fail_at(1);
    assert_false(host_api.watch(w, fd, POSTERN_READ, on_ready, "none"));
    mem_fail_at(0);
    close(fd);
}

static void what_retires_outlives_the_turn(void **state)
{
    (void)state;
    host_api.retire("x", drop);
    assert_string_equal(heard, "");
    turn();
    assert_string_equal(heard, "dropped x\n");
    host_api.retire("y", drop);
    station_close(w);
    assert_false(host_api.post(0, on_run, "z"));
    host_api.retire("z", drop);
    assert_string_equal(heard, "dropped x\ndropped z\n");
    loop_discard(&loop, NULL);
    assert_string_equal(heard, "dropped x\ndropped z\ndropped y\n");
}

static void *resume_all(void *arg)
{
    struct postern_token *tokens = arg;
    for (size_t i = 0; i < 1000; i++)
        host_api.resume(tokens[i], "1", NULL);
    return NULL;
}

static unsigned resumed;
static void count_resumed(void *waiter, void *result)
{
    (void)waiter, (void)result;
    resumed++;
}

/* Two threads resume what the worker leaves at the same time: each wait ends once. */
static void threads_resume(void **state)
{
    (void)state;
    static struct postern_token tokens[1000];
    pthread_t threads[2];
    resumed = 0;
    w->on_resume = count_resumed;
    for (size_t i = 0; i < 1000; i++)
        assert_true(station_wait(w, "a", &tokens[i]));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, resume_all, tokens), 0);
    for (size_t i = 0; i < 1000; i += 2)
        station_leave(w, tokens[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    turn();
    assert_in_range(resumed, 500, 1000);
}

static void counters_belong_to_workers(void **state)
{
    (void)state;
    struct counters *sets[STATIONS_MAX];
    assert_int_equal(station_counters(sets), 1);
    assert_ptr_equal(sets[0], &w->counters);
    assert_null(station_open(&loop, 0, 1, NULL)); /* there is one */
    assert_int_equal(host_api.worker_index(w), 0);
    assert_int_equal(host_api.worker_count(w), 1);
    host_api.count(w, 0, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_station, close_station)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_waits_hears_once),
        TEST(who_has_left_hears_nothing),
        TEST(a_token_of_nobody_is_harmless),
        TEST(thousands_wait),
        TEST(without_memory_nobody_can_wait),
        TEST(what_is_posted_runs_there),
        TEST(timers_run_once_and_can_be_cancelled),
        TEST(descriptors_are_watched),
        TEST(what_retires_outlives_the_turn),
        TEST(threads_resume),
        TEST(counters_belong_to_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
