#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/block.h"

/* gcc defines the one, clang has the other. */
#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

#ifdef WITH_ASAN
static void hides_idle_blocks_from_asan(void **state)
{
    struct block_pool pool;
    (void)state;
    block_pool_init(&pool);
    struct block *block = block_take(&pool, BLOCK_LARGE);
    block_unref(block);
    assert_true(__asan_address_is_poisoned(&block->refs));
    assert_true(__asan_address_is_poisoned(block->data));
    assert_true(__asan_address_is_poisoned(block->data + BLOCK_LARGE - 1));
    assert_ptr_equal(block_take(&pool, BLOCK_LARGE), block);
    assert_null(__asan_region_is_poisoned(block->data, BLOCK_LARGE));
    block_unref(block);
    block_pool_done(&pool);
}
#endif

static void lends_the_same_block_again(void **state)
{
    struct block_pool pool;
    (void)state;
    block_pool_init(&pool);
    struct block *small = block_take(&pool, BLOCK_SMALL);
    struct block *large = block_take(&pool, BLOCK_LARGE);
    memset(small->data, 1, BLOCK_SMALL);
    memset(large->data, 2, BLOCK_LARGE);
    assert_int_equal(pool.live, 2);
    block_unref(small);
    block_unref(large);
    assert_int_equal(pool.live, 0);
    assert_int_equal(pool.idle_small, 1);
    assert_int_equal(pool.idle_large, 1);
    assert_ptr_equal(block_take(&pool, BLOCK_LARGE), large);
    assert_ptr_equal(block_take(&pool, BLOCK_SMALL), small);
    assert_int_equal(small->cap, BLOCK_SMALL);
    assert_int_equal(large->cap, BLOCK_LARGE);
    assert_int_equal(small->refs, 1);
    memset(small->data, 3, BLOCK_SMALL); /* and all of it may be written again */
    memset(large->data, 4, BLOCK_LARGE);
    assert_int_equal(pool.idle_small + pool.idle_large, 0);
    block_unref(small);
    block_unref(large);
    block_pool_done(&pool);
}

static void lives_until_its_last_slice_is_dropped(void **state)
{
    struct block_pool pool;
    (void)state;
    block_pool_init(&pool);
    struct block *block = block_take(&pool, BLOCK_SMALL);
    struct slice a = {block_ref(block), block->data, 4};
    struct slice b = {block_ref(block), block->data + 4, 4};
    struct slice literal = {NULL, "x", 1};
    block_unref(block);
    slice_drop(&a);
    assert_int_equal(pool.live, 1);
    assert_int_equal(block->refs, 1);
    slice_drop(&b);
    assert_int_equal(pool.live, 0);
    assert_null(b.block);
    assert_int_equal(b.n, 0);
    slice_drop(&b); /* dropping nothing is fine */
    slice_drop(&literal);
    block_pool_done(&pool);
}

static void keeps_no_more_idle_blocks_than_its_bounds(void **state)
{
    static struct block *blocks[300];
    struct block_pool pool;
    (void)state;
    block_pool_init(&pool);
    for (int i = 0; i < 300; i++)
        blocks[i] = block_take(&pool, BLOCK_SMALL);
    for (int i = 0; i < 300; i++)
        block_unref(blocks[i]);
    assert_int_equal(pool.idle_small, 256);
    for (int i = 0; i < 70; i++)
        blocks[i] = block_take(&pool, BLOCK_LARGE);
    for (int i = 0; i < 70; i++)
        block_unref(blocks[i]);
    assert_int_equal(pool.idle_large, 64);
    block_pool_done(&pool);
    assert_null(pool.small);
    assert_null(pool.large);
}

static void says_when_memory_is_out(void **state)
{
    struct block_pool pool;
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    block_pool_init(&pool);
    mem_fail_at(1);
    assert_null(block_take(&pool, BLOCK_SMALL));
    assert_int_equal(pool.live, 0);
    block_unref(block_take(&pool, BLOCK_SMALL));
    mem_fail_at(1); /* an idle one needs no memory */
    struct block *block = block_take(&pool, BLOCK_SMALL);
    assert_non_null(block);
    mem_fail_at(0);
    block_unref(block);
    block_pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WITH_ASAN
        cmocka_unit_test(hides_idle_blocks_from_asan),
#endif
        cmocka_unit_test(lends_the_same_block_again),
        cmocka_unit_test(lives_until_its_last_slice_is_dropped),
        cmocka_unit_test(keeps_no_more_idle_blocks_than_its_bounds),
        cmocka_unit_test(says_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
