#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "limit/siphash.h"

static const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

static uint64_t hash(const uint8_t *bytes, size_t n)
{
    struct siphash h;
    siphash_begin(&h, key);
    siphash_add(&h, bytes, n);
    return siphash_end(&h);
}

/* The authors' own: the key 00 01 .. 0f, and 00 01 .. of each length. */
static void gives_what_the_paper_says(void **state)
{
    static const struct {
        size_t n;
        uint64_t hash;
    } cases[] = {
        {0, 0x726fdb47dd0e0e31},
        {1, 0x74f839c593dc67fd},
        {8, 0x93f5f5799a932462},
        {15, 0xa129ca6149be45e5},
    };
    uint8_t bytes[16];
    (void)state;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(hash(bytes, cases[i].n) == cases[i].hash);
}

static void does_not_care_how_the_bytes_come(void **state)
{
    uint8_t bytes[40];
    (void)state;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37);
    for (size_t n = 0; n <= sizeof(bytes); n++)
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b++) {
                struct siphash h;
                siphash_begin(&h, key);
                siphash_add(&h, bytes, a);
                siphash_add(&h, bytes + a, b - a);
                siphash_add(&h, bytes + b, n - b);
                assert_true(siphash_end(&h) == hash(bytes, n));
            }
}

static void another_key_gives_another_hash(void **state)
{
    static const uint64_t other[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0909};
    struct siphash h;
    (void)state;
    siphash_begin(&h, other);
    assert_false(siphash_end(&h) == hash(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_what_the_paper_says),
        cmocka_unit_test(does_not_care_how_the_bytes_come),
        cmocka_unit_test(another_key_gives_another_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
