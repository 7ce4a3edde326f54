#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

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

/* Release builds have neither faults on demand nor poison. */
#ifdef NDEBUG
#define NEEDS_DEBUG skip()
#else
#define NEEDS_DEBUG (void)0
#endif

static void fails_the_nth_call_once(void **state)
{
    (void)state;
    NEEDS_DEBUG;
    mem_fail_at(3);
    void *a = mem_alloc(1), *b = mem_zalloc(1);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(mem_realloc(a, 100));
    void *c = mem_realloc(a, 100);
    assert_non_null(c);
    mem_fail_at(1);
    assert_null(mem_alloc(1));
    mem_fail_at(1);
    mem_fail_at(0);
    mem_free(mem_alloc(1));
    mem_free(b);
    mem_free(c);
    mem_free(NULL);
}

/* The child's exit status: 0 when its second allocation failed. */
static int run_with_fault(const char *fault)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        setenv("POSTERN_FAULT", fault, 1);
        execl("/proc/self/exe", "test_mem", "--second-allocation-fails", (char *)NULL);
        _exit(99);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int second_allocation_fails(void)
{
    void *a = mem_alloc(1), *b = mem_alloc(1), *c = mem_alloc(1);
    int result = a && !b && c ? 0 : 1;
    mem_free(a);
    mem_free(b);
    mem_free(c);
    return result;
}

static void takes_its_fault_from_the_environment(void **state)
{
    (void)state;
    NEEDS_DEBUG;
    assert_int_equal(run_with_fault("alloc:2"), 0);
    assert_int_equal(run_with_fault("short-read,alloc:2"), 0);
    assert_int_equal(run_with_fault("alloc:3"), 1);
    assert_int_equal(run_with_fault("alloc:x"), 1);
    assert_int_equal(run_with_fault("eagain"), 1);
}

static void slab_hands_out_what_was_given_back(void **state)
{
    struct slab slab;
    (void)state;
    slab_init(&slab, 40, 1);
    void *a = slab_take(&slab), *b = slab_take(&slab);
    assert_ptr_not_equal(a, b);
    assert_int_equal((uintptr_t)a % 16, 0);
    memset(a, 1, 40);
    memset(b, 2, 40);
    assert_int_equal(slab.live, 2);
    slab_give(&slab, a);
    slab_give(&slab, b); /* one more than it keeps */
    assert_int_equal(slab.idle, 1);
    assert_int_equal(slab.live, 0);
    assert_ptr_equal(slab_take(&slab), a);
    assert_int_equal(slab.idle, 0);
    slab_give(&slab, a);
    slab_give(&slab, NULL);
    slab_done(&slab);
}

static void slab_of_tiny_objects_has_room_for_its_list(void **state)
{
    struct slab slab;
    void *p[3];
    (void)state;
    slab_init(&slab, 1, 3);
    for (int i = 0; i < 3; i++)
        p[i] = slab_take(&slab);
    for (int i = 0; i < 3; i++)
        slab_give(&slab, p[i]);
    for (int i = 2; i >= 0; i--)
        assert_ptr_equal(slab_take(&slab), p[i]);
    for (int i = 0; i < 3; i++)
        slab_give(&slab, p[i]);
    slab_done(&slab);
}

static void slab_says_when_memory_is_out(void **state)
{
    struct slab slab;
    (void)state;
    NEEDS_DEBUG;
    slab_init(&slab, 8, 1);
    mem_fail_at(1);
    assert_null(slab_take(&slab));
    assert_int_equal(slab.live, 0);
    slab_give(&slab, slab_take(&slab));
    mem_fail_at(1); /* an idle one needs no memory */
    void *p = slab_take(&slab);
    mem_fail_at(0);
    assert_non_null(p);
    slab_give(&slab, p);
    slab_done(&slab);
}

/* Whether a child that does `crime` dies of it. */
static int dies(void (*crime)(struct slab *slab))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct slab slab;
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        slab_init(&slab, 64, 4);
        crime(&slab);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void give_twice(struct slab *slab)
{
    void *p = slab_take(slab);
    slab_give(slab, p);
    slab_give(slab, p);
}

static void write_behind_give(struct slab *slab)
{
    volatile char *p = slab_take(slab);
    slab_give(slab, (void *)p);
    p[20] = 1;
    slab_take(slab);
}

static void give_to_a_stranger(struct slab *slab)
{
    struct slab other;
    slab_init(&other, 64, 4);
    slab_give(&other, slab_take(slab));
}

static void finds_objects_that_are_misused(void **state)
{
    (void)state;
    NEEDS_DEBUG;
    assert_true(dies(give_twice));
    assert_true(dies(write_behind_give));
    assert_true(dies(give_to_a_stranger));
}

#ifdef WITH_ASAN
static void hides_from_asan_what_is_not_lent(void **state)
{
    struct slab slab;
    struct arena arena;
    (void)state;
    slab_init(&slab, ARENA_CHUNK, 1);
    arena_init(&arena, &slab);
    char *p = arena_alloc(&arena, 16);
    assert_false(__asan_address_is_poisoned(p + 15));
    assert_true(__asan_address_is_poisoned(p + 16));
    arena_done(&arena);
    assert_true(__asan_address_is_poisoned(p));
    p = slab_take(&slab);
    assert_null(__asan_region_is_poisoned(p, ARENA_CHUNK));
    slab_give(&slab, p);
    assert_true(__asan_address_is_poisoned(p));
    assert_true(__asan_address_is_poisoned(p + ARENA_CHUNK - 1));
    slab_done(&slab);
}
#endif

static void arena_aligns_and_never_overlaps(void **state)
{
    struct slab slab;
    struct arena arena;
    unsigned char *p[300];
    (void)state;
    slab_init(&slab, ARENA_CHUNK, 2);
    arena_init(&arena, &slab);
    for (size_t i = 0; i < 300; i++) { /* several chunks */
        p[i] = arena_alloc(&arena, i);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 8, 0);
        memset(p[i], (int)(i & 0xff), i);
    }
    for (size_t i = 0; i < 300; i++)
        for (size_t j = 0; j < i; j++)
            assert_int_equal(p[i][j], i & 0xff);
    assert_true(arena.total >= 300 * 299 / 2);
    arena_done(&arena);
    assert_int_equal(arena.total, 0);
    assert_int_equal(slab.live, 0);
    assert_int_equal(slab.idle, 2);
    slab_done(&slab);
}

static void arena_keeps_its_chunk_when_something_large_comes(void **state)
{
    struct slab slab;
    struct arena arena;
    (void)state;
    slab_init(&slab, ARENA_CHUNK, 1);
    arena_init(&arena, &slab);
    char *a = arena_alloc(&arena, 8);
    char *large = arena_alloc(&arena, 3 * ARENA_CHUNK);
    memset(large, 7, 3 * ARENA_CHUNK);
    assert_ptr_equal(arena_alloc(&arena, 8), a + 8);
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_null(arena_alloc(&arena, SIZE_MAX - 7));
    assert_int_equal(slab.live, 1);
    arena_done(&arena);
    assert_non_null(arena_alloc(&arena, 1)); /* may be used anew */
    arena_done(&arena);
    slab_done(&slab);
}

static void arena_copies_and_joins(void **state)
{
    struct slab slab;
    struct arena arena;
    const struct str parts[] = {STR("ab"), STR(""), {NULL, 0}, STR("c")};
    (void)state;
    slab_init(&slab, ARENA_CHUNK, 1);
    arena_init(&arena, &slab);
    assert_true(str_eq(arena_copy(&arena, STR("xyz")), STR("xyz")));
    assert_non_null(arena_copy(&arena, STR("")).p); /* NULL would mean: no memory */
    assert_string_equal(arena_copyz(&arena, STR("xyz")), "xyz");
    assert_string_equal(arena_copyz(&arena, STR("")), "");
    assert_true(str_eq(arena_join(&arena, parts, 4), STR("abc")));
    assert_non_null(arena_join(&arena, NULL, 0).p);
    arena_done(&arena);
    slab_done(&slab);
}

/* Small and large allocations; false at the first that fails. */
static int use_arena(struct arena *arena)
{
    for (int i = 0; i < 12; i++)
        if (!arena_copyz(arena, STR("some text")) || !arena_alloc(arena, 1500) ||
            !arena_alloc(arena, 2 * ARENA_CHUNK))
            return 0;
    return 1;
}

static void arena_survives_the_failure_of_every_allocation(void **state)
{
    struct slab slab;
    struct arena arena;
    unsigned long n = 0;
    int done;
    (void)state;
    NEEDS_DEBUG;
    do {
        slab_init(&slab, ARENA_CHUNK, 1);
        arena_init(&arena, &slab);
        mem_fail_at(++n);
        done = use_arena(&arena);
        mem_fail_at(0);
        assert_true(use_arena(&arena)); /* one failure spoils nothing */
        arena_done(&arena);
        assert_int_equal(slab.live, 0);
        slab_done(&slab);
    } while (!done);
    assert_int_equal(n, 12 + 6 + 1); /* twelve large ones, six chunks, and then none failed */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fails_the_nth_call_once),
        cmocka_unit_test(takes_its_fault_from_the_environment),
        cmocka_unit_test(slab_hands_out_what_was_given_back),
        cmocka_unit_test(slab_of_tiny_objects_has_room_for_its_list),
        cmocka_unit_test(slab_says_when_memory_is_out),
        cmocka_unit_test(finds_objects_that_are_misused),
#ifdef WITH_ASAN
        cmocka_unit_test(hides_from_asan_what_is_not_lent),
#endif
        cmocka_unit_test(arena_aligns_and_never_overlaps),
        cmocka_unit_test(arena_keeps_its_chunk_when_something_large_comes),
        cmocka_unit_test(arena_copies_and_joins),
        cmocka_unit_test(arena_survives_the_failure_of_every_allocation),
    };
    if (argc == 2 && strcmp(argv[1], "--second-allocation-fails") == 0)
        return second_allocation_fails();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
