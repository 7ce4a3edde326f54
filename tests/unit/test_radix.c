#include "conf_test.h"

#include "conf/radix.h"

static char found[256];

static bool note(struct radix_walk *walk, uint32_t first, uint32_t count)
{
    size_t n = strlen(found);
    (void)walk;
    snprintf(found + n, sizeof(found) - n, "%u+%u ", first, count);
    return false;
}

static bool stop(struct radix_walk *walk, uint32_t first, uint32_t count)
{
    note(walk, first, count);
    return true;
}

#define KEY(literal)                                                                           \
    {                                                                                          \
        literal, sizeof(literal) - 1                                                           \
    }

static void gives_the_best_first_and_goes_back(void **state)
{
    (void)state;
    /* sorted bytewise, as radix_add wants them */
    static const struct radix_key keys[] = {
        KEY("/\x01"),   KEY("/\x01/b"), KEY("/\x02"), KEY("/a"),          KEY("/a"),
        KEY("/a/\x01"), KEY("/a/\x02"), KEY("/a/bc"), KEY("/abc/\x01/x"),
    };
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
}

/* `kids` children under a label of `label` bytes: on both sides of what a node holds inside. */
static void check_node(int kids, int label)
{
    struct radix_key keys[200];
    char bytes[200][64];
    struct radix radix = {0};
    struct radix_walk walk = {.on_keys = note};
    for (int i = 0; i < kids; i++) {
        int n = snprintf(bytes[i], sizeof(bytes[i]), "/%.*s%cz", label - 1,
                         "abcdefghijklmnopqrstuvwxyz", 33 + i);
        keys[i] = (struct radix_key){bytes[i], (uint32_t)n};
    }
    uint32_t root = radix_add(&radix, keys, 0, (uint32_t)kids);
    assert_int_not_equal(root, 0);
    for (int i = 0; i < kids; i++) {
        char expected[16];
        snprintf(expected, sizeof(expected), "%d+1 ", i);
        found[0] = '\0';
        radix_find(&radix, root, str_of(bytes[i]), &walk);
        assert_string_equal(found, expected);
        char other[64]; /* with another label */
        memcpy(other, bytes[i], sizeof(other));
        other[label - 1]++;
        found[0] = '\0';
        radix_find(&radix, root, str_of(other), &walk);
        assert_string_equal(found, "");
    }
    assert_int_equal((uintptr_t)radix.nodes % CACHE_LINE, 0);
    radix_done(&radix);
}

static void keeps_labels_and_children_inside_and_outside(void **state)
{
    static const int kids[] = {2, RADIX_KIDS - 1, RADIX_KIDS, RADIX_KIDS + 1, 200};
    static const int labels[] = {2, RADIX_LABEL - 1, RADIX_LABEL, RADIX_LABEL + 1, 27};
    (void)state;
    for (size_t k = 0; k < sizeof(kids) / sizeof(*kids); k++)
        for (size_t l = 0; l < sizeof(labels) / sizeof(*labels); l++)
            check_node(kids[k], labels[l]);
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
        cmocka_unit_test(keeps_labels_and_children_inside_and_outside),
        cmocka_unit_test(says_when_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
