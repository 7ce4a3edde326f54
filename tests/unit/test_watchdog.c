#include "plugin_test.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "plugin/watchdog.h"

/* What the log says, in a file of its own. */
static char path[] = "/tmp/test_watchdog.XXXXXX";

static size_t lines(void)
{
    char text[4096];
    FILE *file = fopen(path, "r");
    size_t n = fread(text, 1, sizeof(text) - 1, file), count = 0;
    fclose(file);
    for (size_t i = 0; i < n; i++)
        count += text[i] == '\n';
    return count;
}

static void names_who_takes_long_and_not_too_often(void **state)
{
    (void)state;
    struct plugin slow = {.def = {.name = "slow"}};
    struct instance instance = {.plugin = &slow};
    const char *bad = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(log_set_paths(path, NULL, &bad), 0);
    watchdog_init();
    uint64_t ticks = watchdog_ticks();
    usleep(1000);
    watchdog_judge(&slow, "on_request", 1); /* suspicious, but it was not long */
    assert_int_equal(lines(), 0);
    usleep(WATCHDOG_MS * 1000 + 5000);
    ticks = watchdog_behind(&instance, "on_request", ticks);
    assert_int_equal(lines(), 1);
    usleep(WATCHDOG_MS * 1000 + 5000);
    watchdog_behind(&instance, "on_log", ticks); /* it was named just now */
    assert_int_equal(lines(), 1);
    watchdog_behind_code((const void *)lines, "timer", ticks); /* no plugin's code */
    assert_int_equal(lines(), 1);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_who_takes_long_and_not_too_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
