#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proxy/proc.h"

static char *text;

static int write_text(void **state)
{
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    (void)state;
    proc_write(out);
    return fclose(out);
}

static int free_text(void **state)
{
    (void)state;
    free(text);
    return 0;
}

static double value_of(const char *name)
{
    char key[128];
    const char *at;

    snprintf(key, sizeof(key), "\n%s ", name);
    at = strstr(text, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

static void tells_what_memory_and_time_it_took(void **state)
{
    (void)state;
    assert_true(value_of("process_cpu_seconds_total") > 0);
    assert_true(value_of("process_cpu_seconds_total") < 60);
    assert_true(value_of("process_resident_memory_bytes") > 100000);
    assert_true(value_of("process_virtual_memory_bytes") >
                value_of("process_resident_memory_bytes"));
    assert_true(value_of("process_virtual_memory_max_bytes") >=
                value_of("process_virtual_memory_bytes"));
    assert_true(value_of("process_threads") == 1);
    assert_non_null(strstr(text, "# TYPE process_cpu_seconds_total counter\n"));
}

static void tells_when_it_began(void **state)
{
    double now = (double)time(NULL);

    (void)state;
    assert_true(value_of("process_start_time_seconds") > now - 600);
    assert_true(value_of("process_start_time_seconds") < now + 2);
}

static void counts_open_descriptors_but_not_its_own(void **state)
{
    double before = value_of("process_open_fds");
    int fd = dup(STDERR_FILENO);

    (void)state;
    free(text);
    write_text(NULL);
    assert_true(value_of("process_open_fds") == before + 1);
    assert_true(value_of("process_max_fds") > before);
    close(fd);
    free(text);
    write_text(NULL);
    assert_true(value_of("process_open_fds") == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_what_memory_and_time_it_took),
        cmocka_unit_test(tells_when_it_began),
        cmocka_unit_test(counts_open_descriptors_but_not_its_own),
    };

    return cmocka_run_group_tests(tests, write_text, free_text);
}
