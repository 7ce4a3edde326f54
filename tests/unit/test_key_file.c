#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>

#include "keys_test.h"

#define HASH "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef"

static struct heard heard;

static struct key_file *good(const char *text)
{
    struct key_file *file = parse_keys(text, &heard);
    if (!file)
        fail_msg("refused: %s", heard.text);
    return file;
}

/* The text is refused, and one of the faults is this one. */
static void bad(const char *text, const char *fault)
{
    struct key_file *file = parse_keys(text, &heard);
    if (file)
        fail_msg("took: %s", text);
    if (!strstr(heard.text, fault))
        fail_msg("%s\nexpected the fault: %s\nbut it said: %s", text, fault, heard.text);
}

static void bad_entry(const char *members, const char *fault)
{
    char text[4096];
    snprintf(text, sizeof(text), "{\"keys\": [\n{\"key\": \"k\", \"consumer\": \"a\", %s}\n]}",
             members);
    bad(text, fault);
}

static void takes_the_plain_form(void **state)
{
    (void)state;
    struct key_file *file =
        good("{\"keys\": [{\"key\": \"secret\", \"consumer\": \"alice\"}]}");
    assert_int_equal(file->count, 1);
    assert_int_equal(file->plain_count, 1);
    assert_string_equal(file->entries[0].key, "secret");
    assert_string_equal(file->entries[0].consumer, "alice");
    assert_null(file->entries[0].id);
    assert_null(file->entries[0].scope);
    assert_true(file->entries[0].enabled);
    assert_true(file->entries[0].expires_ms == KEY_NEVER);
    assert_int_equal(file->salt_count, 0);
    key_file_free(file);
}

static void takes_all_members(void **state)
{
    (void)state;
    struct key_file *file = good(
        "{\"comment\": \"x\", \"salt\": \"pepper\", \"keys\": [{\"hash\": \"sha256:" HASH
        "\",\n"
        "\"name\": \"bob\", \"id\": \"7\", \"scopes\": [\"read\", \"write\"], \"expires\": "
        "1801353600,\n"
        "\"enabled\": false, \"comment\": [1], \"created\": \"today\",\n"
        "\"metadata\": {\"plan\": \"gold\", \"seats\": 12, \"beta\": true, \"rate\": 0.5}}]}");
    const struct key_entry *entry = &file->entries[0];
    static const uint8_t start[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    assert_null(entry->key);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(entry->hash + 8 * i, start, 8);
    assert_string_equal(entry->consumer, "bob");
    assert_string_equal(entry->id, "7");
    assert_string_equal(entry->scope, "read write");
    assert_int_equal(entry->expires_ms, 1801353600000);
    assert_false(entry->enabled);
    assert_int_equal(entry->meta_count, 4);
    assert_string_equal(entry->meta[0].name, "plan");
    assert_string_equal(entry->meta[0].value, "gold");
    assert_string_equal(entry->meta[1].value, "12");
    assert_string_equal(entry->meta[2].value, "true");
    assert_string_equal(entry->meta[3].value, "0.5");
    assert_int_equal(file->salt_count, 1);
    assert_string_equal(file->salts[entry->salt], "pepper");
    key_file_free(file);
}

static void is_tolerant_of_shapes(void **state)
{
    (void)state;
    struct key_file *file = good(
        "[{\"sha256\": \"" HASH
        "\", \"salt\": \"a\", \"consumer\": \"x\", \"scope\": \" read  write \"},\n"
        " {\"hash\": \"" HASH
        "\", \"salt\": \"b\", \"consumer\": \"y\", \"disabled\": false},\n"
        " {\"hash\": \"" HASH
        "\", \"salt\": \"a\", \"consumer\": \"z\", \"disabled\": true, \"expires\": null},\n"
        " {\"hash\": \"" HASH
        "\", \"consumer\": \"w\", \"scopes\": [], \"expires\": \"2027-01-31\"}]");
    assert_int_equal(file->count, 4);
    assert_int_equal(file->salt_count, 3);
    assert_string_equal(file->salts[file->entries[0].salt], "a");
    assert_string_equal(file->salts[file->entries[1].salt], "b");
    assert_int_equal(file->entries[2].salt, file->entries[0].salt);
    assert_string_equal(file->salts[file->entries[3].salt], "");
    assert_string_equal(file->entries[0].scope, "read write");
    assert_true(file->entries[1].enabled);
    assert_false(file->entries[2].enabled);
    assert_true(file->entries[2].expires_ms == KEY_NEVER);
    assert_null(file->entries[3].scope);
    assert_int_equal(file->entries[3].expires_ms, 1801353600000);
    assert_int_equal(file->entries[2].line, 3);
    key_file_free(file);
    key_file_free(good("{\"keys\": []}"));
    key_file_free(good("[]"));
}

static void says_what_is_no_json(void **state)
{
    (void)state;
    bad("", "no JSON");
    bad("{\"keys\": [\n{\"key\": \"k\",,}]}", "2 no JSON");
    bad("{\"keys\": [], \"keys\": []}", "no JSON: duplicate object key");
    bad("{\"keys\": []} x", "no JSON");
    bad("{\"keys\": [{\"key\": \"secret\x01\"}]}", "no JSON");
}

/* jansson quotes what stands before a syntax error. */
static void tells_no_secret(void **state)
{
    (void)state;
    bad("{\"keys\": [{\"key\": \"topsecret\" \"consumer\": 1}]}", "no JSON");
    assert_null(strstr(heard.text, "topsecret"));
    bad("{\"keys\": [{\"consumer\": \"a\", \"key\": topsecret}]}", "no JSON");
    assert_null(strstr(heard.text, "topsecret"));
    bad("{\"keys\": [{\"consumer\": \"a\", \"key\": \"top secret\"}]}", "visible ASCII");
    assert_null(strstr(heard.text, "top secret"));
    bad("{\"keys\": [{\"consumer\": \"a\", \"hash\": \"topsecret\"}]}", "64 hexadecimal");
    assert_null(strstr(heard.text, "topsecret"));
}

static void says_what_is_no_keys_file(void **state)
{
    (void)state;
    bad("{}", "1 expected {\"keys\": [");
    bad("{\"keys\": {\"alice\": \"secret\"}}", "1 expected {\"keys\": [");
    bad("{\"keys\": [], \"slat\": \"x\"}", "unknown member \"slat\"");
    bad("{\"keys\": [], \"salt\": 7}", "salt: expected");
    bad("{\"keys\": [], \"salt\": \"\"}", "salt: expected");
    bad("{\"keys\": [\"secret\"]}", "entry 1: expected an object");
}

static void names_line_and_entry(void **state)
{
    (void)state;
    bad("{\"keys\": [\n"
        "{\"key\": \"a\", \"consumer\": \"a\"},\n"
        "{\"key\": \"b\", \"consumer\": \"b\", \"expire\": 1},\n"
        "{\"key\": \"c\"},\n"
        "{\"consumer\": \"d\"}\n"
        "]}",
        "3 entry 2: unknown member \"expire\"; expected key or hash,");
    assert_non_null(strstr(heard.text, "\n4 entry 3: no \"consumer\""));
    assert_non_null(strstr(heard.text, "\n5 entry 4: no \"hash\" and no \"key\""));
}

static void refuses_what_means_nothing(void **state)
{
    char text[8192], key[1100] = "";
    (void)state;
    bad_entry("\"hash\": \"" HASH "\"", "both \"key\" and \"hash\"");
    bad_entry("\"name\": \"b\"", "stands twice");
    bad_entry("\"enabled\": 1", "enabled: expected true or false");
    bad_entry("\"expires\": \"tomorrow\"", "expires: expected a time");
    bad_entry("\"expires\": 1801353600000000", "expires: expected a time");
    bad_entry("\"expires\": -1", "expires: expected a time");
    bad_entry("\"expires\": 1.5", "expires: expected a time");
    bad_entry("\"scopes\": [\"a b\"]", "scopes: expected");
    bad_entry("\"scopes\": [\"\"]", "scopes: expected");
    bad_entry("\"scopes\": [1]", "scopes: expected");
    bad_entry("\"scope\": \"a\\\\\"", "scope: expected");
    bad_entry("\"scope\": true", "scope: expected");
    bad_entry("\"metadata\": []", "metadata: expected an object");
    bad_entry("\"metadata\": {\"a\": {}}", "metadata: member \"a\"");
    bad_entry("\"metadata\": {\"a\": \"\"}", "metadata: member \"a\"");
    bad_entry("\"metadata\": {\"a\": \"x\\r\\nY: z\"}", "metadata: member \"a\"");
    bad_entry("\"id\": 7", "id: expected a text");
    bad("[{\"key\": \"\", \"consumer\": \"a\"}]", "key: expected");
    bad("[{\"key\": 5, \"consumer\": \"a\"}]", "key: expected");
    bad("[{\"key\": \"s\xc3\xa9same\", \"consumer\": \"a\"}]", "key: expected");
    bad("[{\"key\": \"k\", \"consumer\": \"\"}]", "consumer: expected");
    bad("[{\"key\": \"k\", \"consumer\": \" a\"}]", "consumer: expected");
    bad("[{\"key\": \"k\", \"consumer\": \"a \"}]", "consumer: expected");
    bad("[{\"key\": \"k\", \"consumer\": \"a\\u0007\"}]", "consumer: expected");
    bad("[{\"hash\": \"md5:" HASH "\", \"consumer\": \"a\"}]", "hash: expected");
    bad("[{\"hash\": \"" HASH "0\", \"consumer\": \"a\"}]", "hash: expected");
    bad("[{\"hash\": \"g" HASH "\", \"consumer\": \"a\"}]", "hash: expected");
    bad("[{\"hash\": \"" HASH "\", \"sha256\": \"" HASH "\", \"consumer\": \"a\"}]",
        "second hash");
    bad("[{\"hash\": \"" HASH "\", \"salt\": \"\", \"consumer\": \"a\"}]", "salt: expected");
    memset(key, 'k', 1025);
    snprintf(text, sizeof(text), "[{\"key\": \"%s\", \"consumer\": \"a\"}]", key);
    bad(text, "1 to 1024");
    key[1024] = '\0';
    snprintf(text, sizeof(text), "[{\"key\": \"%s\", \"consumer\": \"a\"}]", key);
    key_file_free(good(text));
}

static void bounds_the_number_of_salts(void **state)
{
    char text[8192] = "[";
    (void)state;
    for (unsigned i = 0; i < KEY_SALTS; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "%s{\"hash\": \"" HASH "\", \"salt\": \"s%u\", \"consumer\": \"a\"}",
                 i ? ",\n" : "", i);
    size_t n = strlen(text);
    snprintf(text + n, sizeof(text) - n, "]");
    key_file_free(good(text));
    snprintf(text + n, sizeof(text) - n,
             ",\n{\"hash\": \"" HASH "\", \"salt\": \"one more\", \"consumer\": \"a\"}]");
    bad(text, "17 entry 17: salt: more than 16 different ones");
}

static void says_only_so_many_faults(void **state)
{
    char text[4096] = "[1";
    struct key_report report = {.say = hear, .arg = &heard};
    unsigned lines = 0;
    (void)state;
    for (int i = 0; i < 99; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ",1");
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "]");
    heard.text[0] = '\0';
    assert_null(key_file_parse(text, strlen(text), &report));
    for (const char *p = heard.text; (p = strchr(p, '\n')); p++)
        lines++;
    assert_int_equal(lines, KEY_FAULTS);
    assert_int_equal(report.count, 100);
}

static void wipes_plain_keys(void **state)
{
    (void)state;
    struct key_file *file = good("[{\"key\": \"secret\", \"consumer\": \"alice\"}]");
    key_file_wipe(file);
    assert_null(file->entries[0].key);
    assert_string_equal(file->entries[0].consumer, "alice");
    key_file_free(file);
    key_file_free(NULL);
}

static void reads_a_regular_file_only(void **state)
{
    char folder[] = "/tmp/test_key_file.XXXXXX", path[64], *text;
    size_t n;
    struct stat st;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys.json", folder);
    assert_int_equal(key_file_read(path, &text, &n, &st), -ENOENT);
    assert_int_equal(key_file_read(folder, &text, &n, &st), -EINVAL);
    write_keys(path, "");
    assert_int_equal(key_file_read(path, &text, &n, &st), 0);
    assert_int_equal(n, 0);
    free(text);
    write_keys(path, "[]");
    assert_int_equal(key_file_read(path, &text, &n, &st), 0);
    assert_int_equal(n, 2);
    assert_memory_equal(text, "[]", 2);
    assert_int_equal(st.st_size, 2);
    free(text);
    assert_int_equal(truncate(path, (off_t)KEY_FILE_BYTES + 1), 0);
    assert_int_equal(key_file_read(path, &text, &n, &st), -EFBIG);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(key_file_read(path, &text, &n, &st), -EINVAL);
    unlink(path);
    rmdir(folder);
}

/* ---- memory ---- */

static long allocations_left = -1; /* before one fails; negative: none does */

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
char *__wrap_strdup(const char *text);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);

static bool fails_now(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails_now() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    return fails_now() ? NULL : __real_calloc(count, n);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails_now() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = __wrap_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

static void survives_any_failing_allocation(void **state)
{
    static const char text[] = "{\"salt\": \"s\", \"keys\": [{\"key\": \"k\", \"consumer\": "
                               "\"a\", \"scopes\": [\"x\", \"y\"],"
                               "\"metadata\": {\"a\": 1, \"b\": \"c\"}}, {\"hash\": \"" HASH
                               "\", \"id\": \"i\", \"consumer\": \"b\"}]}";
    struct key_report report = {.say = hear, .arg = &heard};
    struct key_file *file = NULL;
    long n = 0;
    (void)state;
    json_set_alloc_funcs(__wrap_malloc, free);
    for (; !file; n++) {
        report.count = 0;
        heard.text[0] = '\0';
        allocations_left = n;
        file = key_file_parse(text, sizeof(text) - 1, &report);
        allocations_left = -1;
        assert_true((file == NULL) == (report.count > 0));
    }
    assert_true(n > 10);
    key_file_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_plain_form),
        cmocka_unit_test(takes_all_members),
        cmocka_unit_test(is_tolerant_of_shapes),
        cmocka_unit_test(says_what_is_no_json),
        cmocka_unit_test(tells_no_secret),
        cmocka_unit_test(says_what_is_no_keys_file),
        cmocka_unit_test(names_line_and_entry),
        cmocka_unit_test(refuses_what_means_nothing),
        cmocka_unit_test(bounds_the_number_of_salts),
        cmocka_unit_test(says_only_so_many_faults),
        cmocka_unit_test(wipes_plain_keys),
        cmocka_unit_test(reads_a_regular_file_only),
        cmocka_unit_test(survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
