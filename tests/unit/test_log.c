#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

static char dir[] = "/tmp/postern-test-log-XXXXXX";
static char error_path[64], access_path[64], moved_path[64];

static int set_up(void **state)
{
    const char *bad;

    (void)state;
    unlink(error_path);
    unlink(access_path);
    unlink(moved_path);
    log_set_level(LOG_INFO);
    return log_set_paths("-", "off", &bad) || log_set_paths(error_path, access_path, &bad);
}

static int tear_down(void **state)
{
    const char *bad;

    (void)state;
    log_stop();
    return log_set_paths("-", "off", &bad);
}

static char *contents(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    char *text;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    text = malloc((size_t)st.st_size + 1);
    assert_int_equal(read(fd, text, (size_t)st.st_size), st.st_size);
    text[st.st_size] = '\0';
    close(fd);
    return text;
}

static unsigned count(const char *text, const char *part)
{
    unsigned n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static unsigned count_in(const char *path, const char *part)
{
    char *text = contents(path);
    unsigned n = count(text, part);

    free(text);
    return n;
}

static bool put_access(struct log_ring *ring, const char *line)
{
    char *room = log_line_reserve(ring, 512);

    if (!room)
        return false;
    strcpy(room, line);
    log_line_commit(ring, strlen(line));
    return true;
}

/* ---- the error log ---- */

static void writes_at_once_without_a_ring(void **state)
{
    char *text, stamp[32], level[8], rest[64];

    (void)state;
    log_info("listening on %s", "127.0.0.1:8080");
    text = contents(error_path);
    assert_int_equal(sscanf(text, "%31s %7s %63[^\n]", stamp, level, rest), 3);
    assert_int_equal(strlen(stamp), CLOCK_ISO_LEN);
    assert_string_equal(level, "info");
    assert_string_equal(rest, "listening on 127.0.0.1:8080");
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
    assert_int_equal(log_start(), 0);
    log_error("second");
    assert_int_equal(count_in(error_path, " error second\n"), 1);
}

static void keeps_what_is_below_its_level_to_itself(void **state)
{
    (void)state;
    log_debug("not asked for");
    assert_int_equal(count_in(error_path, "asked"), 0);
    log_set_level(LOG_DEBUG);
    assert_true(log_is_on(LOG_DEBUG));
    log_debug("asked for");
    log_set_level(LOG_ERROR);
    log_warn("not asked for");
    assert_int_equal(count_in(error_path, "asked"), 1);
}

static void escapes_what_is_not_text(void **state)
{
    (void)state;
    log_info("a\nb\x1b[2J\x7f \xff\xc3 \xc2\x9b gr\xc3\xbc\xc3\x9f");
    assert_int_equal(
        count_in(error_path,
                 " info a\\x0ab\\x1b[2J\\x7f \\xff\\xc3 \\xc2\\x9b gr\xc3\xbc\xc3\x9f\n"),
        1);
}

static void cuts_long_messages_between_characters(void **state)
{
    char big[3000];
    char *text;

    (void)state;
    for (size_t shift = 0; shift < 3; shift++) {
        memset(big, 'a', sizeof(big));
        for (size_t i = shift; i + 3 < sizeof(big); i += 3)
            memcpy(big + i, "\xe2\x82\xac", 3);
        big[sizeof(big) - 1] = '\0';
        log_info("%s", big);
    }
    text = contents(error_path);
    assert_int_equal(count(text, "\n"), 3);
    assert_int_equal(count(text, "\xe2\x82\xac...\n"), 3);
    assert_int_equal(count(text, "\\x"), 0);
    free(text);
}

static void leaves_errno_as_it_was(void **state)
{
    const char *bad;

    (void)state;
    log_set_paths("/dev/full", NULL, &bad);
    errno = EXDEV;
    log_error("lost");
    assert_int_equal(errno, EXDEV);
}

/* ---- rings ---- */

static void writes_out_what_waits_when_it_stops(void **state)
{
    struct log_ring *ring = log_attach(1);

    (void)state;
    assert_int_equal(log_start(), 0);
    assert_true(put_access(ring, "one\n"));
    log_info("through the ring");
    assert_non_null(log_line_reserve(ring, 100));
    log_line_commit(ring, 0); /* forgotten */
    assert_true(put_access(ring, "two\n"));
    log_stop();
    assert_int_equal(count_in(access_path, "one\ntwo\n"), 1);
    assert_int_equal(count_in(error_path, " info through the ring\n"), 1);
    log_info("at once again");
    assert_int_equal(count_in(error_path, " info at once again\n"), 1);
    log_detach(ring);
}

static void writes_out_what_waits_when_a_ring_goes(void **state)
{
    struct log_ring *ring = log_attach(1);

    (void)state;
    assert_true(put_access(ring, "last\n"));
    log_detach(ring);
    assert_int_equal(count_in(access_path, "last\n"), 1);
    log_detach(NULL);
}

static void shows_a_lone_line_soon_even_after_a_long_rest(void **state)
{
    struct log_ring *ring = log_attach(1);
    uint64_t began;

    (void)state;
    assert_int_equal(log_start(), 0);
    for (int i = 0; i < 2; i++) {
        usleep(i == 0 ? 400000 : 1000); /* asleep, then napping */
        began = clock_ns();
        assert_true(put_access(ring, "lone\n"));
        while (count_in(access_path, "lone\n") <= (unsigned)i)
            if (clock_ns() - began > NS_PER_S)
                fail_msg("no line after a second");
            else
                usleep(1000);
    }
    log_stop();
    log_detach(ring);
}

static void drops_and_counts_when_a_ring_is_full(void **state)
{
    struct log_ring *ring = log_attach(1); /* nobody drains it yet */
    uint64_t before = log_dropped();
    unsigned kept = 0, text;
    char *room;

    (void)state;
    while (put_access(ring, "a line of some length, as lines have\n"))
        kept++;
    assert_in_range(kept, 100, 1000);
    assert_int_equal(log_dropped() - before, 1);
    assert_false(put_access(ring, "another\n"));
    assert_int_equal(log_dropped() - before, 2);
    room = log_line_reserve(ring, 1 << 20); /* would never fit */
    assert_null(room);
    assert_int_equal(log_start(), 0);
    log_stop();
    text = count_in(access_path, "\n");
    assert_int_equal(text, kept);
    assert_int_equal(count_in(error_path, " log lines dropped: "), 1);
    assert_true(put_access(ring, "room again\n"));
    log_detach(ring);
    assert_int_equal(count_in(access_path, "room again\n"), 1);
}

static void keeps_lines_whole_around_the_rings_end(void **state)
{
    struct log_ring *ring = log_attach(1);
    char line[512], *text, *p;
    unsigned kept = 0;

    (void)state;
    assert_int_equal(log_start(), 0);
    for (unsigned i = 0; i < 20000; i++) {
        unsigned n = (unsigned)sprintf(line, "%u ", i);
        unsigned fill = i * 7 % 480;
        memset(line + n, 'a' + (int)(i % 26), fill);
        strcpy(line + n + fill, "\n");
        kept += put_access(ring, line);
        if (i % 50 == 0)
            usleep(100);
    }
    log_stop();
    log_detach(ring);
    text = contents(access_path);
    long last = -1;
    for (p = text; *p; kept--) {
        char *end;
        long i = strtol(p, &end, 10);
        unsigned n = (unsigned)(i * 7 % 480);
        assert_true(i > last);
        last = i;
        for (unsigned k = 1; k <= n; k++)
            assert_int_equal(end[k], 'a' + (int)(i % 26));
        assert_int_equal(end[n + 1], '\n');
        p = end + n + 2;
    }
    assert_int_equal(kept, 0);
    free(text);
}

#define THREADS 4
#define LINES   20000

static void *worker(void *arg)
{
    unsigned id = *(unsigned *)arg;
    struct log_ring *ring = log_attach(64 * 1024);
    char line[64];

    for (unsigned i = 0; i < LINES; i++) {
        snprintf(line, sizeof(line), "w%u %u\n", id, i);
        put_access(ring, line);
        if (i % 1000 == 0)
            log_info("worker %u at %u", id, i);
        if (i % 200 == 0)
            usleep(50);
    }
    log_detach(ring);
    return NULL;
}

/* Every line that was not counted as dropped is there, whole and in its worker's order,
 * whatever file it went to while files were changed. */
static void many_workers_lose_nothing_uncounted_while_files_change(void **state)
{
    pthread_t threads[THREADS];
    unsigned ids[THREADS], last[THREADS] = {0}, lines = 0;
    uint64_t before = log_dropped();
    const char *bad;
    char other[64], *texts[3];

    (void)state;
    snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(log_start(), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        ids[i] = i;
        pthread_create(&threads[i], NULL, worker, &ids[i]);
    }
    usleep(10000);
    assert_int_equal(rename(access_path, moved_path), 0);
    assert_int_equal(log_reopen(&bad), 0);
    usleep(10000);
    assert_int_equal(log_set_paths(error_path, other, &bad), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    log_stop();
    texts[0] = contents(moved_path);
    texts[1] = contents(access_path);
    texts[2] = contents(other);
    for (int i = 0; i < 3; i++) {
        for (char *rest = texts[i], *line; (line = strsep(&rest, "\n")) && *line; lines++) {
            unsigned id, n;
            char end;
            assert_int_equal(sscanf(line, "w%u %u%c", &id, &n, &end), 2);
            assert_in_range(id, 0, THREADS - 1);
            assert_true(n >= last[id]);
            last[id] = n + 1;
        }
        free(texts[i]);
    }
    lines += count_in(error_path, " info worker ");
    assert_int_equal(lines + (log_dropped() - before), THREADS * (LINES + LINES / 1000));
    unlink(other);
}

/* ---- paths ---- */

static void keeps_the_old_files_when_a_new_one_cannot_be_opened(void **state)
{
    const char *bad = NULL;
    char other[64];

    (void)state;
    snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(log_set_paths(other, "/nonexistent/access.log", &bad), -ENOENT);
    assert_string_equal(bad, "/nonexistent/access.log");
    log_info("still here");
    assert_int_equal(count_in(error_path, "still here"), 1);
    assert_true(log_access_is_on());
    unlink(other);
    assert_int_equal(log_set_paths(error_path, "off", &bad), 0);
    assert_false(log_access_is_on());
}

static void drops_nothing_when_lines_are_not_wanted(void **state)
{
    struct log_ring *ring = log_attach(1);
    uint64_t before = log_dropped();
    const char *bad;

    (void)state;
    assert_int_equal(log_set_paths(error_path, NULL, &bad), 0);
    assert_true(put_access(ring, "nobody wants it\n"));
    log_detach(ring);
    assert_int_equal(log_dropped(), before);
}

/* 200 lines that cannot be written: counted, one warning, nobody waits or dies. */
static void expect_all_lost(const char *why)
{
    struct log_ring *ring = log_attach(64 * 1024);
    uint64_t before = log_dropped(), began = clock_ns();
    char *text;

    assert_int_equal(log_start(), 0);
    for (unsigned i = 0; i < 200; i++) {
        assert_true(put_access(ring, "lost\n"));
        if (i % 20 == 0)
            usleep(3000);
    }
    assert_true(clock_ns() - began < NS_PER_S);
    log_stop();
    log_detach(ring);
    assert_int_equal(log_dropped() - before, 200);
    text = contents(error_path);
    assert_in_range(count(text, "log lines dropped: "), 1,
                    2); /* the first, and the last word */
    assert_true(count(text, why) >= 1);
    free(text);
}

static void a_full_disk_costs_lines_only(void **state)
{
    const char *bad;

    (void)state;
    assert_int_equal(log_set_paths(error_path, "/dev/full", &bad), 0);
    expect_all_lost("the access log /dev/full: No space left on device");
}

static void a_closed_pipe_costs_lines_only(void **state)
{
    const char *bad;
    int fds[2], out = dup(STDOUT_FILENO);

    (void)state;
    assert_int_equal(pipe(fds), 0);
    fflush(stdout);
    dup2(fds[1], STDOUT_FILENO);
    assert_int_equal(log_set_paths(error_path, "-", &bad), 0);
    dup2(out, STDOUT_FILENO);
    close(fds[0]);
    close(fds[1]);
    close(out);
    expect_all_lost("Broken pipe");
}

/* The writer stands before a pipe that is full; workers and the error log go on. */
static void a_pipe_that_is_not_read_delays_nobody_else(void **state)
{
    struct log_ring *ring = log_attach(64 * 1024);
    uint64_t before = log_dropped(), began;
    const char *bad;
    int fds[2], out = dup(STDOUT_FILENO);

    (void)state;
    assert_int_equal(pipe(fds), 0);
    fcntl(fds[1], F_SETPIPE_SZ, 4096);
    fflush(stdout);
    dup2(fds[1], STDOUT_FILENO);
    assert_int_equal(log_set_paths(error_path, "-", &bad), 0);
    dup2(out, STDOUT_FILENO);
    assert_int_equal(log_start(), 0);
    began = clock_ns();
    for (unsigned i = 0; i < 5000; i++)
        put_access(ring, "a line of some length, as lines have\n");
    assert_true(clock_ns() - began < NS_PER_S / 10);
    log_info("not stuck");
    while (count_in(error_path, "not stuck\n") == 0 && clock_ns() - began < 5 * NS_PER_S)
        usleep(1000);
    assert_int_equal(count_in(error_path, "not stuck\n"), 1);
    log_stop();
    log_detach(ring);
    assert_true(log_dropped() > before);
    close(fds[0]);
    close(fds[1]);
    close(out);
}

static void no_memory_means_no_ring(void **state)
{
    (void)state;
    for (unsigned long n = 1; n <= 2; n++) {
        mem_fail_at(n);
        assert_null(log_attach(1));
    }
    mem_fail_at(0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(writes_at_once_without_a_ring),
        TEST(keeps_what_is_below_its_level_to_itself),
        TEST(escapes_what_is_not_text),
        TEST(cuts_long_messages_between_characters),
        TEST(leaves_errno_as_it_was),
        TEST(writes_out_what_waits_when_it_stops),
        TEST(writes_out_what_waits_when_a_ring_goes),
        TEST(shows_a_lone_line_soon_even_after_a_long_rest),
        TEST(drops_and_counts_when_a_ring_is_full),
        TEST(keeps_lines_whole_around_the_rings_end),
        TEST(many_workers_lose_nothing_uncounted_while_files_change),
        TEST(keeps_the_old_files_when_a_new_one_cannot_be_opened),
        TEST(drops_nothing_when_lines_are_not_wanted),
        TEST(a_full_disk_costs_lines_only),
        TEST(a_closed_pipe_costs_lines_only),
        TEST(a_pipe_that_is_not_read_delays_nobody_else),
        TEST(no_memory_means_no_ring),
    };
    int failed;

    if (!mkdtemp(dir))
        return 1;
    snprintf(error_path, sizeof(error_path), "%s/error", dir);
    snprintf(access_path, sizeof(access_path), "%s/access", dir);
    snprintf(moved_path, sizeof(moved_path), "%s/moved", dir);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(error_path);
    unlink(access_path);
    unlink(moved_path);
    rmdir(dir);
    return failed;
}
