#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "http/h1_chunk.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct result {
    char data[2048];
    size_t n;     /* of data */
    size_t taken; /* bytes of input; up to the bad one when bad */
    bool is_bad;
};

/* All of [p, p + n) given at once, from memory that ends there. */
static void feed(struct h1_chunk *chunk, const char *p, size_t n, struct result *result)
{
    char *copy = malloc(n ? n : 1);
    size_t at = 0;

    memcpy(copy, p, n);
    while (!result->is_bad) {
        struct str data;
        size_t bad = 0;
        long taken = h1_chunk_read(chunk, copy + at, n - at, &data, &bad);
        if (taken < 0) {
            result->is_bad = true;
            result->taken = bad;
            break;
        }
        if (taken == 0)
            break;
        if (data.n) {
            assert_ptr_equal(data.p + data.n,
                             copy + at + taken); /* the last of what was taken */
            memcpy(result->data + result->n, data.p, data.n);
            result->n += data.n;
        }
        at += (size_t)taken;
    }
    if (!result->is_bad)
        result->taken += at;
    free(copy);
}

/* In two pieces, cut at `cut`. */
static struct result read_cut(struct str s, size_t cut, struct h1_chunk *chunk)
{
    struct result result = {.n = 0};
    h1_chunk_init(chunk);
    feed(chunk, s.p, cut, &result);
    if (!result.is_bad && result.taken == cut)
        feed(chunk, s.p + cut, s.n - cut, &result);
    return result;
}

/* Whole, cut at every byte and byte by byte: all alike. */
static struct result read_all(struct str s, struct h1_chunk *chunk)
{
    struct result whole = read_cut(s, s.n, chunk), bytes = {.n = 0};
    struct h1_chunk other;

    for (size_t cut = 0; cut < s.n; cut++) {
        struct result result = read_cut(s, cut, &other);
        assert_int_equal(result.is_bad, whole.is_bad);
        assert_int_equal(result.taken, whole.taken);
        assert_int_equal(result.n, whole.n);
        assert_memory_equal(result.data, whole.data, whole.n);
        assert_int_equal(other.state, chunk->state);
    }
    h1_chunk_init(&other);
    for (size_t i = 0; i < s.n && !bytes.is_bad && bytes.taken == i; i++)
        feed(&other, s.p + i, 1, &bytes);
    assert_int_equal(bytes.is_bad, whole.is_bad);
    assert_int_equal(bytes.taken, whole.taken);
    assert_int_equal(bytes.n, whole.n);
    return whole;
}

static void gives_the_payload_and_stops_before_the_trailers(void **state)
{
    static const struct {
        const char *text, *data;
        size_t rest; /* bytes left for the trailer section */
    } cases[] = {
        {"0\r\n\r\n", "", 2},
        {"0\r\nA: 1\r\n\r\n", "", 8},
        {"000\r\n\r\n", "", 2},
        {"3\r\nabc\r\n0\r\n\r\n", "abc", 2},
        {"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nnext", "abcde", 6},
        {"A\r\n0123456789\r\n0\r\n\r\n", "0123456789", 2},
        {"0a\r\n0123456789\r\n0\r\n\r\n", "0123456789", 2},
        {"000000000000000a\r\n0123456789\r\n0\r\n\r\n", "0123456789", 2},
        {"2\r\n\r\n\r\n0\r\n\r\n", "\r\n", 2}, /* payload is not looked at */
        {"1;a\r\nx\r\n0\r\n\r\n", "x", 2},
        {"1;a=b;c=\"d \t;\xff\"\r\nx\r\n0;e\r\n\r\n", "x", 2},
        {"1;\r\nx\r\n0\r\n\r\n", "x", 2},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct h1_chunk chunk;
        struct str s = str_of(cases[i].text);
        struct result result = read_all(s, &chunk);
        assert_false(result.is_bad);
        assert_int_equal(chunk.state, CHUNK_TRAILERS);
        assert_int_equal(s.n - result.taken, cases[i].rest);
        assert_int_equal(result.n, strlen(cases[i].data));
        assert_memory_equal(result.data, cases[i].data, result.n);
    }
}

static void refuses_what_another_might_read_otherwise(void **state)
{
    static const struct {
        struct str text;
        size_t at;
    } cases[] = {
        {STR("\r\n"), 0}, /* no digit */
        {STR(";a\r\n"), 0},
        {STR("g\r\n"), 0},
        {STR("-1\r\n"), 0},
        {STR("+1\r\n"), 0},
        {STR(" 1\r\n"), 0},
        {STR("0x1\r\n"), 1},
        {STR("1_0\r\n"), 1},
        {STR("1 \r\n"), 1},
        {STR("1 ;a\r\n"), 1},
        {STR("1\t\r\n"), 1},
        {STR("1\n"), 1},  /* bare LF */
        {STR("1\rx"), 2}, /* bare CR */
        {STR("1\r\r\n"), 2},
        {STR("1;a\nx\r\n"), 3}, /* bare LF in an extension (CVE-2025-22871) */
        {STR("1;a\rb\r\n"), 4},
        {STR("1;a\0b\r\n"), 3},
        {STR("1;\x7f\r\n"), 2},
        {STR("1\r\nxy\r\n"), 4}, /* longer than its size */
        {STR("1\r\nx\n\n"), 4},
        {STR("1\r\nx\rz"), 5},
        {STR("1\r\nxyz0\r\n"), 4}, /* two bytes of whatever are no CR LF */
        {STR("3\r\nabc0\r\n\r\n"), 6},
        {STR("8000000000000000\r\n"), 15}, /* beyond 2^63 - 1 */
        {STR("ffffffffffffffff\r\n"), 15},
        {STR("00000000000000001\r\n"), 16}, /* more than 16 digits */
        {STR("10000000000000001\r\n"), 16},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct h1_chunk chunk;
        struct result result = read_all(cases[i].text, &chunk);
        assert_true(result.is_bad);
        assert_int_equal(result.taken, cases[i].at);
        assert_int_equal(chunk.state, CHUNK_BAD);
    }
}

static void takes_the_largest_size_there_is(void **state)
{
    struct h1_chunk chunk;
    (void)state;
    read_all(STR("7fffffffffffffff\r\n"), &chunk);
    assert_int_equal(chunk.state, CHUNK_DATA);
    assert_true(chunk.left == INT64_MAX);
    read_all(STR("7fffffffffffffff\r\nab"), &chunk);
    assert_true(chunk.left == INT64_MAX - 2);
}

/* `n` bytes of extension in one line. */
static bool takes_extension(struct h1_chunk *chunk, size_t n)
{
    char line[2048];
    struct result result = {.n = 0};

    memset(line, 'e', sizeof(line));
    line[0] = '1';
    line[1] = ';';
    memcpy(line + 1 + n, "\r\nx\r\n", 5);
    feed(chunk, line, 1 + n + 5, &result);
    return !result.is_bad;
}

static void reads_each_digit_for_what_it_is(void **state)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    struct h1_chunk chunk;
    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        char line[] = {'1', digits[i], '\r', '\n'};
        read_all((struct str){line, 4}, &chunk);
        assert_int_equal(chunk.state, CHUNK_DATA);
        assert_int_equal(chunk.left, 16 + i % 16);
    }
}

/* Each size has sixteen digits and so many bytes of extension for itself. */
static void counts_anew_for_each_chunk(void **state)
{
    struct result result = {.n = 0};
    struct h1_chunk chunk;
    (void)state;
    h1_chunk_init(&chunk);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(takes_extension(&chunk, H1_CHUNK_EXT_MAX));
        feed(&chunk, "0000000000000001\r\nx\r\n", 21, &result);
        assert_false(result.is_bad);
        assert_int_equal(result.n, i + 1);
    }
    feed(&chunk, "00000000000000001", 17, &result);
    assert_true(result.is_bad);
}

/* A ";" is one byte of them. */
static void counts_extensions_to_the_byte(void **state)
{
    struct h1_chunk chunk;
    (void)state;
    h1_chunk_init(&chunk);
    for (unsigned i = 0; i < H1_CHUNK_EXT_TOTAL; i++)
        assert_true(takes_extension(&chunk, 1));
    assert_false(takes_extension(&chunk, 1));
}

static void stays_bad(void **state)
{
    struct h1_chunk chunk;
    struct str data;
    size_t bad;
    (void)state;
    h1_chunk_init(&chunk);
    assert_int_equal(h1_chunk_read(&chunk, "x", 1, &data, &bad), -1);
    assert_int_equal(h1_chunk_read(&chunk, "0\r\n\r\n", 5, &data, &bad), -1);
}

static void bounds_extensions_in_a_line_and_in_a_message(void **state)
{
    struct h1_chunk chunk;
    (void)state;
    h1_chunk_init(&chunk);
    assert_true(takes_extension(&chunk, H1_CHUNK_EXT_MAX));
    h1_chunk_init(&chunk);
    assert_false(takes_extension(&chunk, H1_CHUNK_EXT_MAX + 1));
    h1_chunk_init(&chunk);
    for (unsigned i = 0; i < H1_CHUNK_EXT_TOTAL / H1_CHUNK_EXT_MAX; i++)
        assert_true(takes_extension(&chunk, H1_CHUNK_EXT_MAX));
    assert_false(takes_extension(&chunk, 1)); /* even a ";" alone */
}

static void takes_nothing_from_nothing(void **state)
{
    struct h1_chunk chunk;
    struct str data = STR("x");
    size_t bad;
    (void)state;
    h1_chunk_init(&chunk);
    assert_int_equal(h1_chunk_read(&chunk, NULL, 0, &data, &bad), 0);
    assert_int_equal(data.n, 0);
    assert_int_equal(chunk.state, CHUNK_SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_payload_and_stops_before_the_trailers),
        cmocka_unit_test(refuses_what_another_might_read_otherwise),
        cmocka_unit_test(takes_the_largest_size_there_is),
        cmocka_unit_test(reads_each_digit_for_what_it_is),
        cmocka_unit_test(counts_anew_for_each_chunk),
        cmocka_unit_test(counts_extensions_to_the_byte),
        cmocka_unit_test(stays_bad),
        cmocka_unit_test(bounds_extensions_in_a_line_and_in_a_message),
        cmocka_unit_test(takes_nothing_from_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
