#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "token_cache.h"

static const struct grant_rules rules = {.credential = {"sub", 3}};

static struct grant *a_grant(void)
{
    json_t *claims = bounded_object(SPAN("{\"sub\":\"ann\"}"));
    struct grant *grant = NULL;
    assert_int_equal(grant_new(&rules, claims, &grant), REFUSAL_NONE);
    json_decref(claims);
    return grant;
}

/* Tokens that differ in one byte, at the front or in the tail. */
static struct postern_str token(char out[64], size_t at, char c)
{
    memset(out, 'a', 63);
    out[63] = '\0';
    out[at] = c;
    return (struct postern_str){out, 63};
}

static void finds_what_was_put(void **state)
{
    struct token_cache *cache = token_cache_new(16, 7);
    struct grant *grant = a_grant();
    char text[64];
    (void)state;
    token_cache_put(cache, token(text, 0, 'a'), grant, 1000, 1);
    assert_ptr_equal(token_cache_find(cache, token(text, 0, 'a'), 999, 1), grant);
    for (size_t at = 0; at < 63; at++)
        assert_null(token_cache_find(cache, token(text, at, 'b'), 999, 1));
    assert_null(token_cache_find(cache, (struct postern_str){text, 62}, 999, 1));
    token_cache_free(cache);
}

/* Two that agree in all that is hashed are still two. */
static void never_trusts_a_hash(void **state)
{
    struct token_cache *cache = token_cache_new(16, 7);
    struct grant *one = a_grant(), *two = a_grant();
    char a[64], b[64];
    (void)state;
    token_cache_put(cache, token(a, 0, 'x'), one, 1000, 1);
    assert_null(token_cache_find(cache, token(b, 0, 'y'), 0, 1));
    token_cache_put(cache, token(b, 0, 'y'), two, 1000, 1);
    assert_ptr_equal(token_cache_find(cache, token(a, 0, 'x'), 0, 1), one);
    assert_ptr_equal(token_cache_find(cache, token(b, 0, 'y'), 0, 1), two);
    token_cache_free(cache);
}

static void forgets_at_the_expiry(void **state)
{
    struct token_cache *cache = token_cache_new(16, 7);
    char text[64];
    (void)state;
    token_cache_put(cache, token(text, 0, 'a'), a_grant(), 1000, 1);
    assert_non_null(token_cache_find(cache, token(text, 0, 'a'), 999, 1));
    assert_null(token_cache_find(cache, token(text, 0, 'a'), 1000, 1));
    assert_null(token_cache_find(cache, token(text, 0, 'a'), 999, 1)); /* for good */
    token_cache_free(cache);
}

static void forgets_when_the_keys_change(void **state)
{
    struct token_cache *cache = token_cache_new(16, 7);
    char text[64];
    (void)state;
    token_cache_put(cache, token(text, 0, 'a'), a_grant(), 1000, 1);
    assert_null(token_cache_find(cache, token(text, 0, 'a'), 0, 2));
    token_cache_free(cache);
}

static void has_a_bound_and_drops_who_was_used_least(void **state)
{
    struct token_cache *cache = token_cache_new(4, 7); /* one set of four */
    char text[64];
    (void)state;
    for (char c = 'b'; c < 'f'; c++)
        token_cache_put(cache, token(text, 0, c), a_grant(), 1000, 1);
    assert_non_null(token_cache_find(cache, token(text, 0, 'b'), 0, 1));
    token_cache_put(cache, token(text, 0, 'f'), a_grant(), 1000, 1);
    assert_non_null(token_cache_find(cache, token(text, 0, 'b'), 0, 1));
    assert_null(token_cache_find(cache, token(text, 0, 'c'), 0, 1));
    for (unsigned i = 0; i < 10000; i++) {
        memset(text, 'a', sizeof(text));
        snprintf(text + 40, 24, "%022u", i);
        token_cache_put(cache, (struct postern_str){text, 62}, a_grant(), 1000, 1);
    }
    token_cache_free(cache);
}

static void works_without_memory_or_for_short_ones(void **state)
{
    struct token_cache *cache = token_cache_new(4, 7);
    (void)state;
    token_cache_put(NULL, SPAN("x"), a_grant(), 1000, 1);
    assert_null(token_cache_find(NULL, SPAN("x"), 0, 1));
    token_cache_put(cache, SPAN("x"), a_grant(), 1000, 1);
    assert_null(token_cache_find(cache, SPAN("x"), 0, 1));
    token_cache_free(cache);
    token_cache_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_put),
        cmocka_unit_test(never_trusts_a_hash),
        cmocka_unit_test(forgets_at_the_expiry),
        cmocka_unit_test(forgets_when_the_keys_change),
        cmocka_unit_test(has_a_bound_and_drops_who_was_used_least),
        cmocka_unit_test(works_without_memory_or_for_short_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
