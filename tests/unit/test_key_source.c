#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "key_source.h"
#include "keys_test.h"

static char folder[64], path[80];
static struct heard heard;
static struct key_source *source;
static struct key_report report;

static int refresh(bool again)
{
    struct key_table *old = NULL;
    report = (struct key_report){.say = hear, .arg = &heard};
    heard.text[0] = '\0';
    int result = key_source_refresh(source, again, &report, &old);
    assert_true(result == 1 || !old);
    assert_true((result == -1) == (report.count > 0));
    key_table_free(old);
    return result;
}

static bool has(const char *key)
{
    return key_table_known(key_source_table(source), key, strlen(key));
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/test_key_source.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys.json", folder);
    source = key_source_new(path);
    return source ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    key_source_free(source);
    key_source_free(NULL);
    unlink(path);
    return rmdir(folder);
}

static void follows_the_file(void **state)
{
    (void)state;
    write_keys(path, "[{\"key\": \"one\", \"consumer\": \"a\"}]");
    assert_null(key_source_table(source));
    assert_int_equal(refresh(true), 1);
    assert_true(has("one"));
    assert_int_equal(refresh(true), 0);
    assert_int_equal(refresh(false), 0);
    write_keys(path, "[{\"key\": \"two\", \"consumer\": \"a\"}]");
    assert_int_equal(refresh(false), 1);
    assert_true(has("two"));
    assert_false(has("one"));
    assert_string_equal(key_source_path(source), path);
}

static void keeps_what_it_had_while_the_file_is_wrong(void **state)
{
    (void)state;
    write_keys(path, "[{\"key\": \"one\", \"consumer\": \"a\"}]");
    assert_int_equal(refresh(true), 1);
    write_keys(path, "[\n{\"key\": \"two\"}]");
    assert_int_equal(refresh(false), -1);
    assert_non_null(strstr(heard.text, "2 entry 1: no \"consumer\""));
    assert_true(has("one"));
    /* told once, but to whoever asks */
    assert_int_equal(refresh(false), 0);
    assert_int_equal(refresh(true), -1);
    assert_int_equal(refresh(true), -1);
    write_keys(path, "[{\"key\": \"one\", \"consumer\": \"a\"}]");
    assert_int_equal(refresh(false), 1);
    assert_true(has("one"));
}

static void keeps_what_it_had_while_the_file_is_away(void **state)
{
    (void)state;
    assert_int_equal(refresh(true), -1);
    assert_null(key_source_table(source));
    write_keys(path, "[{\"key\": \"one\", \"consumer\": \"a\"}]");
    assert_int_equal(refresh(false), 1);
    unlink(path);
    assert_int_equal(refresh(false), -1);
    assert_string_equal(heard.text, "0 No such file or directory\n");
    assert_int_equal(refresh(false), 0);
    assert_int_equal(refresh(true), -1);
    assert_true(has("one"));
    write_keys(path, "[{\"key\": \"one\", \"consumer\": \"a\"}]");
    assert_int_equal(refresh(false), 1);
}

static void refuses_a_key_that_stands_twice(void **state)
{
    (void)state;
    write_keys(
        path,
        "[{\"key\": \"one\", \"consumer\": \"a\"},{\"key\": \"one\", \"consumer\": \"b\"}]");
    assert_int_equal(refresh(true), -1);
    assert_non_null(strstr(heard.text, "the same key as entry 1"));
}

static void knows_who_may_read_it(void **state)
{
    (void)state;
    write_keys(path, "[]");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(refresh(true), 1);
    assert_false(key_source_is_open(source));
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(refresh(true), 0);
    assert_true(key_source_is_open(source));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(follows_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_what_it_had_while_the_file_is_wrong, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(keeps_what_it_had_while_the_file_is_away, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(refuses_a_key_that_stands_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(knows_who_may_read_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
