#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "key_store.h"
#include "keys_test.h"

static char folder[64], path[80], linked[80];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/test_key_store.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys.json", folder);
    snprintf(linked, sizeof(linked), "%s/link.json", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(linked);
    unlink(path);
    return rmdir(folder); /* fails when a temporary file was left behind */
}

static void assert_has(const char *expected)
{
    char text[64] = "";
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    size_t n = fread(text, 1, sizeof(text) - 1, in);
    fclose(in);
    text[n] = '\0';
    assert_string_equal(text, expected);
}

static mode_t mode_of(void)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static void replaces_a_file_and_keeps_its_mode(void **state)
{
    struct key_store store;
    (void)state;
    write_keys(path, "old");
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(key_store_open(&store, path), 0);
    assert_int_equal(key_store_replace(&store, "new\n", 4), 0);
    key_store_close(&store);
    assert_has("new\n");
    assert_int_equal(mode_of(), S_IFREG | 0604);
}

static void makes_a_file_that_is_not_for_everyone(void **state)
{
    struct key_store store;
    (void)state;
    assert_int_equal(key_store_open(&store, path), 0);
    assert_int_equal(store.fd, -1);
    assert_int_equal(key_store_replace(&store, "new", 3), 0);
    key_store_close(&store);
    assert_has("new");
    assert_int_equal(mode_of(), S_IFREG | 0640);
}

static void does_not_take_the_place_of_a_file_that_came_meanwhile(void **state)
{
    struct key_store store;
    (void)state;
    assert_int_equal(key_store_open(&store, path), 0);
    write_keys(path, "other");
    assert_int_equal(key_store_replace(&store, "new", 3), -EEXIST);
    key_store_close(&store);
    assert_has("other");
}

static void goes_through_links(void **state)
{
    struct key_store store;
    struct stat st;
    (void)state;
    write_keys(path, "old");
    assert_int_equal(symlink("keys.json", linked), 0);
    assert_int_equal(key_store_open(&store, linked), 0);
    assert_int_equal(key_store_replace(&store, "new", 3), 0);
    key_store_close(&store);
    assert_has("new");
    assert_int_equal(lstat(linked, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void is_locked_while_it_is_open(void **state)
{
    struct key_store store;
    (void)state;
    write_keys(path, "old");
    int fd = open(path, O_RDONLY);
    assert_int_equal(key_store_open(&store, path), 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    key_store_close(&store);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
}

static void says_what_it_cannot_open(void **state)
{
    struct key_store store;
    (void)state;
    assert_int_equal(key_store_open(&store, folder), -EINVAL);
    snprintf(linked, sizeof(linked), "%s/no/keys.json", folder);
    assert_int_equal(key_store_open(&store, linked), 0);
    assert_int_equal(key_store_replace(&store, "new", 3), -ENOENT);
    key_store_close(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replaces_a_file_and_keeps_its_mode, setup, teardown),
        cmocka_unit_test_setup_teardown(makes_a_file_that_is_not_for_everyone, setup, teardown),
        cmocka_unit_test_setup_teardown(does_not_take_the_place_of_a_file_that_came_meanwhile,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(goes_through_links, setup, teardown),
        cmocka_unit_test_setup_teardown(is_locked_while_it_is_open, setup, teardown),
        cmocka_unit_test_setup_teardown(says_what_it_cannot_open, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
