#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decision_cache.h"

#define MS UINT64_C(1000000)

static struct decision *yes(uint64_t keep_ms)
{
    struct decision *decision = calloc(1, sizeof(*decision));
    assert_non_null(decision);
    decision->status = 200;
    decision->keep_ms = keep_ms;
    return decision;
}

static void finds_by_the_whole_key_until_its_time_is_over(void **state)
{
    struct decision_cache *cache = decision_cache_new(16, 3);
    struct decision *decision = yes(10);
    (void)state;
    decision_cache_put(cache, TEXT("GET /a key"), decision, 5 * MS);
    assert_ptr_equal(decision_cache_find(cache, TEXT("GET /a key"), 15 * MS - 1), decision);
    assert_null(decision_cache_find(cache, TEXT("GET /a kez"), 5 * MS));
    assert_null(decision_cache_find(cache, TEXT("GET /a ke"), 5 * MS));
    assert_null(decision_cache_find(cache, TEXT("GET /a key\0"), 5 * MS));
    assert_null(decision_cache_find(cache, TEXT("GET /a key"), 15 * MS));
    assert_null(decision_cache_find(cache, TEXT("GET /a key"), 5 * MS)); /* for good */
    decision_cache_free(cache);
}

static void keeps_nothing_that_says_so_or_has_no_key(void **state)
{
    struct decision_cache *cache = decision_cache_new(16, 3);
    (void)state;
    decision_cache_put(cache, TEXT("a"), yes(0), 0);
    assert_null(decision_cache_find(cache, TEXT("a"), 0));
    decision_cache_put(cache, (struct postern_str){NULL, 0}, yes(10), 0);
    assert_null(decision_cache_find(cache, (struct postern_str){NULL, 0}, 0));
    decision_cache_put(NULL, TEXT("a"), yes(10), 0);
    assert_null(decision_cache_find(NULL, TEXT("a"), 0));
    decision_cache_free(cache);
    decision_cache_free(NULL);
}

static void the_later_word_counts(void **state)
{
    struct decision_cache *cache = decision_cache_new(16, 3);
    struct decision *second = yes(10);
    (void)state;
    decision_cache_put(cache, TEXT("a"), yes(10), 0);
    decision_cache_put(cache, TEXT("a"), second, 0);
    assert_ptr_equal(decision_cache_find(cache, TEXT("a"), 0), second);
    decision_cache_free(cache);
}

static void has_a_bound(void **state)
{
    struct decision_cache *cache = decision_cache_new(8, 3);
    unsigned found = 0;
    char key[16];
    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        int n = snprintf(key, sizeof(key), "%u", i);
        decision_cache_put(cache, (struct postern_str){key, (size_t)n}, yes(10), 0);
    }
    for (unsigned i = 0; i < 10000; i++) {
        int n = snprintf(key, sizeof(key), "%u", i);
        found += decision_cache_find(cache, (struct postern_str){key, (size_t)n}, 0) != NULL;
    }
    assert_in_range(found, 1, 8);
    decision_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_by_the_whole_key_until_its_time_is_over),
        cmocka_unit_test(keeps_nothing_that_says_so_or_has_no_key),
        cmocka_unit_test(the_later_word_counts),
        cmocka_unit_test(has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
