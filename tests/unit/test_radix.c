#include "conf_test.h"

#include "conf/radix.h"

static char found[256];
static bool values; /* the keys have their number, from 1, as value */

static bool note(struct radix_walk *walk, uint32_t first, uint32_t count, uint64_t value)
{
    size_t n = strlen(found);
    (void)walk;
    assert_int_equal(value, values ? first + 1 : 0);
    snprintf(found + n, sizeof(found) - n, "%u+%u ", first, count);
    return false;
}

static bool stop(struct radix_walk *walk, uint32_t first, uint32_t count, uint64_t value)
{
    note(walk, first, count, value);
    return true;
}

#define KEY(literal)                                                                           \
    {                                                                                          \
        literal, sizeof(literal) - 1, 0                                                        \
    }

static void gives_the_best_first_and_goes_back(void **state)
{
    (void)state;
    /* sorted by radix_compare, as radix_add wants them */
    struct radix_key keys[] = {
        KEY("/\x01"),   KEY("/\x01/b"), KEY("/\x02"), KEY("/a"),          KEY("/a"),
        KEY("/a/\x01"), KEY("/a/\x02"), KEY("/a/bc"), KEY("/abc/\x01/x"),
    };
    for (size_t i = 1; i < sizeof(keys) / sizeof(*keys); i++)
        assert_true(radix_compare(&keys[i - 1], &keys[i]) <= 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        keys[i].value = i + 1;
    values = true;
    static const struct {
        const char *path, *found;
    } cases[] = {
        {"/a", "3+2 0+1 2+1 "},
        {"/", "2+1 "},
        {"/a/b", "5+1 6+1 1+1 2+1 "},
        {"/a/bc", "7+1 5+1 6+1 2+1 "},
        {"/a/", "6+1 2+1 "},
        {"/abc/1/x", "8+1 2+1 "},
        {"/abc//x", "2+1 "},
        {"/abc/1/y", "2+1 "},
        {"/zz", "0+1 2+1 "},
        {"/zz/b", "1+1 2+1 "},
        {"", ""},
        {"*", ""},
        {"/ab", "0+1 2+1 "},
    };
    struct radix radix = {0};
    struct radix_walk walk = {.on_keys = note};
    uint32_t root = radix_add(&radix, keys, 0, sizeof(keys) / sizeof(*keys));
    assert_int_not_equal(root, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        found[0] = '\0';
        assert_false(radix_find(&radix, root, str_of(cases[i].path), &walk));
        assert_string_equal(found, cases[i].found);
    }
    walk.on_keys = stop;
    found[0] = '\0';
    assert_true(radix_find(&radix, root, STR("/a/b"), &walk));
    assert_string_equal(found, "5+1 ");
    assert_true(str_eq(walk.captures[0], STR("b")));
    radix_done(&radix);
    values = false;
}

static int compare(const void *a, const void *b)
{
    return radix_compare(a, b);
}

/* `kids` children under a label of `label` bytes: on both sides of what a node holds inside. */
static void check_node(int kids, int label)
{
    struct radix_key keys[200];
    char bytes[200][128];
    struct radix radix = {0};
    struct radix_walk walk = {.on_keys = note};
    for (int i = 0; i < kids; i++) {
        int n = snprintf(bytes[i], sizeof(bytes[i]), "/%.*s/kid%d/%.*s", label - 1,
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", i, label,
                         "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
        keys[i] = (struct radix_key){bytes[i], (uint32_t)n, 0};
    }
    qsort(keys, (size_t)kids, sizeof(*keys), compare);
    uint32_t root = radix_add(&radix, keys, 0, (uint32_t)kids);
    assert_int_not_equal(root, 0);
    for (int i = 0; i < kids; i++) {
        char expected[16];
        struct str path = {keys[i].p, keys[i].n};
        snprintf(expected, sizeof(expected), "%d+1 ", i);
        found[0] = '\0';
        radix_find(&radix, root, path, &walk);
        assert_string_equal(found, expected);
        for (size_t at = 1; at < path.n; at++) { /* with another byte, and cut */
            char other[128];
            memcpy(other, path.p, path.n);
            other[at] = other[at] == '!' ? '"' : '!';
            found[0] = '\0';
            radix_find(&radix, root, (struct str){other, path.n}, &walk);
            radix_find(&radix, root, (struct str){path.p, at}, &walk);
            assert_string_equal(found, "");
        }
    }
    assert_int_equal((uintptr_t)radix.nodes % CACHE_LINE, 0);
    radix_done(&radix);
}

static void keeps_labels_inside_and_outside(void **state)
{
    static const int kids[] = {2, 3, 17, 200};
    static const int labels[] = {2, RADIX_LABEL - 1, RADIX_LABEL, RADIX_LABEL + 1, 50};
    (void)state;
    for (size_t k = 0; k < sizeof(kids) / sizeof(*kids); k++)
        for (size_t l = 0; l < sizeof(labels) / sizeof(*labels); l++)
            check_node(kids[k], labels[l]);
}

/* Bytes below "/" in a segment, and segments that are empty, do not part what belongs together.
 */
static void keeps_segments_together(void **state)
{
    struct radix_key keys[] = {
        KEY("/a-b"),      KEY("/a/c"), KEY("/a"),    KEY("/a/\x01/d"), KEY("/a/"), KEY("/a//d"),
        KEY("/a-b/\x02"), KEY("/a!"),  KEY("/a/c!"), KEY("/a/c/"),     KEY("*"),   KEY("/"),
    };
    static const char *const paths[] = {"/a-b",     "/a/c", "/a",    "/a/1/d", "/a/", "/a//d",
                                        "/a-b/x/y", "/a!",  "/a/c!", "/a/c/",  "*",   "/"};
    size_t n = sizeof(keys) / sizeof(*keys);
    struct radix_key sorted[sizeof(keys) / sizeof(*keys)];
    struct radix radix = {0};
    struct radix_walk walk = {.on_keys = stop};
    (void)state;
    memcpy(sorted, keys, sizeof(keys));
    qsort(sorted, n, sizeof(*sorted), compare);
    uint32_t root = radix_add(&radix, sorted, 0, (uint32_t)n);
    assert_int_not_equal(root, 0);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = UINT32_MAX;
        found[0] = '\0';
        assert_true(radix_find(&radix, root, str_of(paths[i]), &walk));
        assert_int_equal(sscanf(found, "%u+1", &at), 1);
        assert_ptr_equal(sorted[at].p, keys[i].p);
    }
    assert_false(radix_find(&radix, root, STR("/a-"), &walk));
    assert_false(radix_find(&radix, root, STR("/a-b!"), &walk));
    assert_false(radix_find(&radix, root, STR("//"), &walk));
    radix_done(&radix);
}

static void says_when_there_is_no_memory(void **state)
{
    (void)state;
    static const struct radix_key keys[] = {KEY("/a"), KEY("/b"), KEY("/b/\x01")};
    for (unsigned long n = 1; n < 3; n++) {
        struct radix radix = {0};
        mem_fail_at(n);
        uint32_t root = radix_add(&radix, keys, 0, 3);
        mem_fail_at(0);
        assert_true(root == 0 || n > 1);
        radix_done(&radix);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_best_first_and_goes_back),
        cmocka_unit_test(keeps_labels_inside_and_outside),
        cmocka_unit_test(keeps_segments_together),
        cmocka_unit_test(says_when_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
