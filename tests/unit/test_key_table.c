#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "key_table.h"
#include "keys_test.h"

static struct heard heard;
static struct key_hasher *hasher;

/* printf %s%s salt hashed | sha256sum; printf %s%s other else | sha256sum */
#define HASHED "a29b98082456be50d4311a05add3543e45a43c29d079cbd621625786a4912fa6"
#define OTHER  "3045992b820d92a2c227b8721bfb9e76ef0eadd3124385303dc9aac31a77d3d8"

static struct key_table *try_table(const char *text)
{
    struct key_report report = {.say = hear, .arg = &heard};
    struct key_file *file = parse_keys(text, &heard);
    if (!file)
        fail_msg("refused: %s", heard.text);
    struct key_table *table = key_table_new(file, &report);
    assert_true((table == NULL) == (report.count > 0));
    return table;
}

static struct key_table *table_of(const char *text)
{
    struct key_table *table = try_table(text);
    if (!table)
        fail_msg("refused: %s", heard.text);
    return table;
}

static const char *consumer(const struct key_entry *entry)
{
    return entry ? entry->consumer : "nobody";
}

static const struct key_entry *known(const struct key_table *table, const char *key)
{
    return key_table_known(table, key, strlen(key));
}

static const struct key_entry *verify(struct key_table *table, const char *key)
{
    return key_table_verify(table, hasher, key, strlen(key));
}

static void knows_plain_keys_at_once(void **state)
{
    (void)state;
    struct key_table *table = table_of("[{\"key\": \"one\", \"consumer\": \"a\"},"
                                       "{\"key\": \"two\", \"consumer\": \"b\"}]");
    assert_string_equal(consumer(known(table, "one")), "a");
    assert_string_equal(consumer(known(table, "two")), "b");
    assert_null(known(table, "three"));
    assert_null(known(table, "on"));
    assert_null(known(table, "one "));
    assert_null(known(table, ""));
    assert_null(verify(table, "three"));
    assert_null(key_table_file(table)->entries[0].key);
    key_table_free(table);
}

static const char hashed[] =
    "{\"salt\": \"salt\", \"keys\": [{\"consumer\": \"h\", \"hash\": \"sha256:"
    "" HASHED "\"},"
    "{\"consumer\": \"o\", \"salt\": \"other\", \"hash\": \"" OTHER "\"},"
    "{\"key\": \"plain\", \"consumer\": \"p\"}]}";

static void verifies_a_hashed_key_and_knows_it_then(void **state)
{
    (void)state;
    struct key_table *table = table_of(hashed);
    assert_null(known(table, "hashed"));
    assert_string_equal(consumer(verify(table, "hashed")), "h");
    assert_string_equal(consumer(known(table, "hashed")), "h");
    assert_string_equal(consumer(verify(table, "hashed")), "h");
    assert_string_equal(consumer(verify(table, "else")), "o");
    assert_string_equal(consumer(known(table, "else")), "o");
    assert_string_equal(consumer(known(table, "plain")), "p");
    /* salt and key are not one text in which the border may move */
    assert_null(verify(table, "thashed"));
    assert_null(verify(table, "saltplain"));
    assert_null(verify(table, ""));
    key_table_free(table);
}

static void refuses_one_key_twice(void **state)
{
    (void)state;
    assert_null(try_table(
        "[{\"key\": \"one\", \"consumer\": \"a\"},\n{\"key\": \"one\", \"consumer\": \"b\"}]"));
    assert_string_equal(heard.text, "2 entry 2: the same key as entry 1\n");
    assert_null(try_table(
        "{\"salt\": \"salt\", \"keys\": [\n{\"key\": \"hashed\", \"consumer\": \"a\"},\n"
        "{\"hash\": \"" HASHED "\", \"consumer\": \"b\"}]}"));
    assert_string_equal(heard.text, "2 entry 1: the same key as entry 2\n");
    assert_null(try_table("{\"salt\": \"salt\", \"keys\": [\n{\"hash\": \"" HASHED
                          "\", \"consumer\": \"a\"},\n"
                          "{\"hash\": \"" HASHED "\", \"consumer\": \"b\"}]}"));
    assert_string_equal(heard.text, "3 entry 2: the same key as entry 1\n");
}

/* One hash under two salts is of two keys. */
static void goes_by_salt_and_hash(void **state)
{
    (void)state;
    struct key_table *table =
        table_of("[{\"salt\": \"other\", \"hash\": \"" HASHED "\", \"consumer\": \"a\"},"
                 "{\"salt\": \"salt\", \"hash\": \"" HASHED "\", \"consumer\": \"b\"}]");
    assert_string_equal(consumer(verify(table, "hashed")), "b");
    key_table_free(table);
}

static void finds_each_of_many(void **state)
{
    enum { COUNT = 3000 };
    char *text, key[32];
    size_t n;
    (void)state;
    FILE *out = open_memstream(&text, &n);
    for (int i = 0; i < COUNT; i++)
        fprintf(out, "%s{\"key\": \"key-%d\", \"consumer\": \"c%d\"}", i ? "," : "[", i, i);
    putc(']', out);
    fclose(out);
    struct key_table *table = table_of(text);
    free(text);
    for (int i = 0; i < 2 * COUNT; i++) {
        char expected[32] = "nobody";
        if (i < COUNT)
            snprintf(expected, sizeof(expected), "c%d", i);
        snprintf(key, sizeof(key), "key-%d", i);
        assert_string_equal(consumer(known(table, key)), expected);
    }
    key_table_free(table);
}

static void *verify_often(void *table)
{
    struct key_hasher *own = key_hasher_new();
    long found = 0;
    for (int i = 0; i < 500; i++) {
        const struct key_entry *entry = key_table_known(table, "hashed", 6);
        if (!entry)
            entry = key_table_verify(table, own, "hashed", 6);
        found += strcmp(consumer(entry), "h") == 0;
        found += strcmp(consumer(key_table_verify(table, own, "else", 4)), "o") == 0;
        found += key_table_verify(table, own, "wrong", 5) == NULL;
    }
    key_hasher_free(own);
    return (void *)found;
}

static void lets_many_threads_look_up(void **state)
{
    pthread_t threads[4];
    void *found;
    (void)state;
    struct key_table *table = table_of(hashed);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, verify_often, table), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], &found);
        assert_int_equal((long)found, 1500);
    }
    key_table_free(table);
}

static int setup(void **state)
{
    (void)state;
    hasher = key_hasher_new();
    return hasher ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    key_hasher_free(hasher);
    key_hasher_free(NULL);
    key_table_free(NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_plain_keys_at_once),
        cmocka_unit_test(verifies_a_hashed_key_and_knows_it_then),
        cmocka_unit_test(refuses_one_key_twice),
        cmocka_unit_test(goes_by_salt_and_hash),
        cmocka_unit_test(finds_each_of_many),
        cmocka_unit_test(lets_many_threads_look_up),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
