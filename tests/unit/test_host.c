#include "plugin_test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/test_host.XXXXXX", found[256];

static void put(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static void on_name(void *arg, const char *name)
{
    (void)arg;
    strcat(strcat(found, name), " ");
}

static void finds_files_by_name(void **state)
{
    (void)state;
    char path[PATH_MAX];
    assert_non_null(mkdtemp(folder));
    put("mine.so");
    put("Other.so");
    put("readme");
    assert_true(host_search(folder, STR("mine"), path));
    assert_non_null(strstr(path, "/mine.so"));
    assert_false(host_search(folder, STR("other"), path));
    assert_string_equal(strrchr(path, '/'), "/other.so"); /* where it would be */
    assert_false(host_search(folder, STR("Other"), path));
    assert_false(host_search(folder, STR("../mine"), path));
    assert_false(host_search(folder, STR(""), path));
    assert_string_equal(path, "");
    assert_false(
        host_search(folder, STR("a_name_that_is_longer_than_any_plugin_may_have_one"), path));
    assert_int_equal(setenv("POSTERN_PLUGINS", folder, 1), 0);
    assert_true(host_search(NULL, STR("mine"), path));
    host_each(NULL, on_name, NULL);
    assert_string_equal(found, "mine ");
    host_each("/nowhere", on_name, NULL);
    assert_string_equal(found, "mine ");
}

static void what_cannot_be_loaded_says_why(void **state)
{
    (void)state;
    char err[HOST_ERROR], path[256];
    snprintf(path, sizeof(path), "%s/mine.so", folder);
    assert_null(host_load(path, err));
    assert_non_null(strstr(err, "mine.so: file too short"));
    assert_null(host_loaded(path));
    for (unsigned long n = 1; n <= 2; n++) {
        mem_fail_at(n);
        assert_null(host_load(path, err));
        mem_fail_at(0);
    }
    snprintf(path, sizeof(path), "rm -r %s", folder);
    assert_int_equal(system(path), 0);
}

static void the_api_says_what_it_is(void **state)
{
    (void)state;
    host_fill();
    assert_int_equal(host_api.size, sizeof(host_api));
    assert_int_equal(host_api.abi_major, POSTERN_ABI_MAJOR);
    uint64_t before = host_api.now_ns();
    assert_true(host_api.now_ns() >= before);
    assert_true(host_api.wall_ms() > 1600000000000);
    host_set_check(true);
    assert_true(host_api.is_check(NULL));
    host_set_check(false);
    assert_false(host_is_check());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_files_by_name),
        cmocka_unit_test(what_cannot_be_loaded_says_why),
        cmocka_unit_test(the_api_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
