#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memo/memo.h"

#define TAIL 32

static unsigned freed;

static void free_value(void *value)
{
    freed++;
    free(value);
}

static void *a_value(void)
{
    void *value = malloc(1);
    assert_non_null(value);
    return value;
}

static void *put(struct memo *memo, struct postern_str key, uint64_t until)
{
    void *value = a_value();
    assert_true(memo_put(memo, key, value, until, 1));
    return value;
}

/* Keys of the same length that differ in one byte. */
static struct postern_str key_of(char out[64], size_t at, char c)
{
    memset(out, 'a', 63);
    out[63] = '\0';
    out[at] = c;
    return (struct postern_str){out, 63};
}

static void finds_by_the_whole_key_only(void **state)
{
    static const size_t tails[] = {0, TAIL};
    char text[64];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct memo *memo = memo_new(16, 7, tails[i], free_value);
        void *value = put(memo, key_of(text, 0, 'a'), 1000);
        assert_ptr_equal(memo_find(memo, key_of(text, 0, 'a'), 999, 1), value);
        for (size_t at = 0; at < 63; at++)
            assert_null(memo_find(memo, key_of(text, at, 'b'), 999, 1));
        key_of(text, 0, 'a');
        for (size_t n = 0; n < 63; n++)
            assert_null(memo_find(memo, (struct postern_str){text, n}, 999, 1));
        memo_free(memo);
    }
}

/* Two that agree in all that is hashed are still two. */
static void never_trusts_a_hash(void **state)
{
    struct memo *memo = memo_new(16, 7, TAIL, free_value);
    char a[64], b[64];
    (void)state;
    void *one = put(memo, key_of(a, 0, 'x'), 1000);
    assert_null(memo_find(memo, key_of(b, 0, 'y'), 0, 1));
    void *two = put(memo, key_of(b, 0, 'y'), 1000);
    assert_ptr_equal(memo_find(memo, key_of(a, 0, 'x'), 0, 1), one);
    assert_ptr_equal(memo_find(memo, key_of(b, 0, 'y'), 0, 1), two);
    memo_free(memo);
}

/* Without a tail all of the key is hashed: no such two meet, and a set of four holds what it
 * can. */
static void hashes_the_whole_key_when_told(void **state)
{
    struct memo *memo = memo_new(256, 7, 0, free_value);
    unsigned found = 0;
    char text[64];
    (void)state;
    for (unsigned c = 0; c < 16; c++)
        put(memo, key_of(text, 0, (char)('a' + c)), 1000);
    for (unsigned c = 0; c < 16; c++)
        found += memo_find(memo, key_of(text, 0, (char)('a' + c)), 0, 1) != NULL;
    assert_int_equal(found, 16);
    memo_free(memo);
}

static void keys_may_be_of_any_length(void **state)
{
    static const char text[] = "0123456789abcdef0123456789abcdef0123456789abcdef";
    static const size_t tails[] = {0, TAIL};
    void *values[sizeof(text)];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct memo *memo = memo_new(1024, 7, tails[i], free_value);
        for (size_t n = 0; n < sizeof(text); n++)
            values[n] = put(memo, (struct postern_str){text, n}, 1000);
        for (size_t n = 0; n < sizeof(text); n++)
            assert_ptr_equal(memo_find(memo, (struct postern_str){text, n}, 0, 1), values[n]);
        memo_free(memo);
    }
}

static void forgets_when_the_time_comes(void **state)
{
    struct memo *memo = memo_new(16, 7, 0, free_value);
    (void)state;
    put(memo, (struct postern_str){"k", 1}, 1000);
    assert_non_null(memo_find(memo, (struct postern_str){"k", 1}, 999, 1));
    freed = 0;
    assert_null(memo_find(memo, (struct postern_str){"k", 1}, 1000, 1));
    assert_int_equal(freed, 1);
    assert_null(memo_find(memo, (struct postern_str){"k", 1}, 999, 1)); /* for good */
    memo_free(memo);
}

static void forgets_another_generation(void **state)
{
    struct memo *memo = memo_new(16, 7, 0, free_value);
    (void)state;
    put(memo, (struct postern_str){"k", 1}, 1000);
    assert_null(memo_find(memo, (struct postern_str){"k", 1}, 0, 2));
    assert_null(memo_find(memo, (struct postern_str){"k", 1}, 0, 1));
    memo_free(memo);
}

static void the_later_word_counts(void **state)
{
    struct memo *memo = memo_new(16, 7, 0, free_value);
    (void)state;
    freed = 0;
    put(memo, (struct postern_str){"k", 1}, 1000);
    void *second = put(memo, (struct postern_str){"k", 1}, 2000);
    assert_int_equal(freed, 1);
    assert_ptr_equal(memo_find(memo, (struct postern_str){"k", 1}, 1999, 1), second);
    memo_free(memo);
    assert_int_equal(freed, 2);
}

static void has_a_bound_and_drops_who_was_used_least(void **state)
{
    struct memo *memo = memo_new(4, 7, TAIL, free_value); /* one set of four */
    unsigned found = 0;
    char text[64];
    (void)state;
    for (char c = 'b'; c < 'f'; c++)
        put(memo, key_of(text, 0, c), 1000);
    assert_non_null(memo_find(memo, key_of(text, 0, 'b'), 0, 1));
    put(memo, key_of(text, 0, 'f'), 1000);
    assert_non_null(memo_find(memo, key_of(text, 0, 'b'), 0, 1));
    assert_null(memo_find(memo, key_of(text, 0, 'c'), 0, 1));
    for (unsigned i = 0; i < 10000; i++) {
        int n = snprintf(text, sizeof(text), "%u", i);
        put(memo, (struct postern_str){text, (size_t)n}, 1000);
    }
    for (unsigned i = 0; i < 10000; i++) {
        int n = snprintf(text, sizeof(text), "%u", i);
        found += memo_find(memo, (struct postern_str){text, (size_t)n}, 0, 1) != NULL;
    }
    assert_int_equal(found, 4);
    memo_free(memo);
}

static void what_is_not_kept_is_the_callers(void **state)
{
    struct memo *memo = memo_new(4, 7, 0, free_value);
    void *value = a_value();
    (void)state;
    freed = 0;
    assert_false(memo_put(NULL, (struct postern_str){"k", 1}, value, 1000, 1));
    assert_null(memo_find(NULL, (struct postern_str){"k", 1}, 0, 1));
    assert_false(memo_put(memo, (struct postern_str){NULL, 0}, value, 1000, 1));
    assert_null(memo_find(memo, (struct postern_str){NULL, 0}, 0, 1));
    memo_free(memo);
    memo_free(NULL);
    assert_int_equal(freed, 0);
    free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_by_the_whole_key_only),
        cmocka_unit_test(never_trusts_a_hash),
        cmocka_unit_test(hashes_the_whole_key_when_told),
        cmocka_unit_test(keys_may_be_of_any_length),
        cmocka_unit_test(forgets_when_the_time_comes),
        cmocka_unit_test(forgets_another_generation),
        cmocka_unit_test(the_later_word_counts),
        cmocka_unit_test(has_a_bound_and_drops_who_was_used_least),
        cmocka_unit_test(what_is_not_kept_is_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
