#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "key_edit.h"
#include "key_table.h"
#include "keys_test.h"

static struct heard heard;

static json_t *json(const char *text)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

/* The document as the gateway would take it. */
static struct key_table *table_of(const json_t *root)
{
    struct key_report report = {.say = hear, .arg = &heard};
    char *text = json_dumps(root, 0);
    struct key_file *file = parse_keys(text, &heard);
    free(text);
    if (!file)
        fail_msg("refused: %s", heard.text);
    struct key_table *table = key_table_new(file, &report);
    assert_non_null(table);
    return table;
}

static bool opens(const json_t *root, const char *key, const char *consumer)
{
    struct key_table *table = table_of(root);
    struct key_hasher *hasher = key_hasher_new();
    const struct key_entry *entry = key_table_known(table, key, strlen(key));
    if (!entry)
        entry = key_table_verify(table, hasher, key, strlen(key));
    bool does = entry && strcmp(entry->consumer, consumer) == 0;
    key_hasher_free(hasher);
    key_table_free(table);
    return does;
}

static void add(json_t *root, const char *consumer, const char *key)
{
    json_t *entry = json_pack("{s:s}", "consumer", consumer);
    assert_int_equal(key_edit_set_hash(root, entry, key), 0);
    assert_int_equal(json_array_append_new(key_edit_entries(root), entry), 0);
}

static const char *salt_of(const json_t *object)
{
    return json_string_value(json_object_get(object, "salt"));
}

static void makes_keys_that_differ(void **state)
{
    char a[KEY_NEW_BYTES], b[KEY_NEW_BYTES];
    (void)state;
    assert_true(key_edit_random("postern_", a));
    assert_true(key_edit_random("postern_", b));
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 8 + 43);
    assert_memory_equal(a, "postern_", 8);
    assert_int_equal(
        strspn(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
        strlen(a));
    assert_false(key_edit_random("a prefix that leaves no room", a));
}

static void a_new_document_takes_keys(void **state)
{
    (void)state;
    json_t *root = key_edit_new();
    assert_int_equal(strlen(salt_of(root)), 43);
    add(root, "alice", "one");
    add(root, "bob", "two");
    assert_true(opens(root, "one", "alice"));
    assert_true(opens(root, "two", "bob"));
    assert_false(opens(root, "three", "bob"));
    assert_null(salt_of(json_array_get(key_edit_entries(root), 0)));
    json_decref(root);
}

static void a_bare_array_has_its_salt_in_the_entries(void **state)
{
    (void)state;
    json_t *root = json("[]");
    add(root, "alice", "one");
    add(root, "bob", "two");
    assert_true(opens(root, "one", "alice"));
    assert_true(opens(root, "two", "bob"));
    assert_string_equal(salt_of(json_array_get(root, 0)), salt_of(json_array_get(root, 1)));
    json_decref(root);
}

/* printf one | sha256sum */
static void a_salt_for_the_file_does_not_change_older_hashes(void **state)
{
    (void)state;
    json_t *root =
        json("{\"keys\": [{\"consumer\": \"old\", \"hash\": "
             "\"7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\"}]}");
    add(root, "new", "two");
    assert_null(salt_of(root));
    assert_true(opens(root, "one", "old"));
    assert_true(opens(root, "two", "new"));
    json_decref(root);
}

static void hashes_all_plain_keys(void **state)
{
    (void)state;
    json_t *root = json("{\"keys\": [{\"consumer\": \"a\", \"key\": \"one\"},"
                        "{\"consumer\": \"b\", \"key\": \"two\", \"salt\": \"own\"},"
                        "{\"consumer\": \"c\", \"hash\": \"sha256:"
                        "0000000000000000000000000000000000000000000000000000000000000000\","
                        " \"salt\": \"s\"}]}");
    assert_int_equal(key_edit_hash_all(root), 2);
    char *text = json_dumps(root, 0);
    assert_null(strstr(text, "\"key\""));
    assert_null(strstr(text, "one"));
    free(text);
    assert_true(opens(root, "one", "a"));
    assert_true(opens(root, "two", "b"));
    assert_non_null(salt_of(root));
    assert_int_equal(key_edit_hash_all(root), 0);
    json_decref(root);
}

static void changes_the_entries_that_are_meant(void **state)
{
    (void)state;
    json_t *root = json("{\"keys\": [{\"consumer\": \"a\", \"key\": \"1\", \"id\": \"x\"},"
                        "{\"name\": \"a\", \"key\": \"2\", \"disabled\": true},"
                        "{\"consumer\": \"b\", \"key\": \"3\", \"id\": \"a\"}]}");
    json_t *entries = key_edit_entries(root);
    assert_int_equal(key_edit_each(entries, "nobody", true, key_edit_revoke), 0);
    assert_int_equal(key_edit_each(entries, "#1", false, key_edit_revoke), 0);
    assert_int_equal(key_edit_each(entries, "#2", false, key_edit_enable), 1);
    assert_true(opens(root, "2", "a"));
    struct key_table *table = table_of(root);
    assert_true(key_table_file(table)->entries[1].enabled);
    key_table_free(table);
    assert_int_equal(key_edit_each(entries, "a", false, key_edit_disable), 1);
    table = table_of(root);
    assert_true(key_table_file(table)->entries[0].enabled);
    assert_false(key_table_file(table)->entries[2].enabled);
    key_table_free(table);
    assert_int_equal(key_edit_each(entries, "a", true, key_edit_revoke), 2);
    assert_int_equal(json_array_size(entries), 1);
    assert_true(opens(root, "3", "b"));
    json_decref(root);
}

static void finds_no_entries_elsewhere(void **state)
{
    (void)state;
    json_t *root = json("{\"keys\": {}}");
    assert_null(key_edit_entries(root));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_keys_that_differ),
        cmocka_unit_test(a_new_document_takes_keys),
        cmocka_unit_test(a_bare_array_has_its_salt_in_the_entries),
        cmocka_unit_test(a_salt_for_the_file_does_not_change_older_hashes),
        cmocka_unit_test(hashes_all_plain_keys),
        cmocka_unit_test(changes_the_entries_that_are_meant),
        cmocka_unit_test(finds_no_entries_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
