#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sip.h"

static const struct sip_key key = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};

/* The vectors of the paper's authors: bytes 0, 1, 2 and so on under the key of bytes 0 to 15.
 */
static void gives_the_published_values(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        uint64_t hash;
    } cases[] = {
        {0, 0x726fdb47dd0e0e31ull},  {1, 0x74f839c593dc67fdull},  {2, 0x0d6c8009d9a94f5aull},
        {7, 0xab0200f58b01d137ull},  {8, 0x93f5f5799a932462ull},  {15, 0xa129ca6149be45e5ull},
        {16, 0x3f2acc7f57c29bdbull}, {63, 0x958a324ceb064572ull},
    };
    char text[64];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)i;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_true(sip_hash(&key, (struct str){text, cases[i].n}) == cases[i].hash);
}

static void each_bit_of_the_key_counts(void **state)
{
    (void)state;
    uint64_t hash = sip_hash(&key, STR("10.0.0.5:80"));
    for (unsigned bit = 0; bit < 128; bit++) {
        struct sip_key other = key;
        *(bit < 64 ? &other.k0 : &other.k1) ^= 1ull << (bit & 63);
        assert_true(sip_hash(&other, STR("10.0.0.5:80")) != hash);
    }
}

static void a_secret_makes_a_key(void **state)
{
    (void)state;
    struct sip_key a = sip_key_of(STR("one secret")), b = sip_key_of(STR("one secret"));
    struct sip_key c = sip_key_of(STR("one secres"));
    assert_true(a.k0 == b.k0 && a.k1 == b.k1);
    assert_true(a.k0 != c.k0 && a.k1 != c.k1 && a.k0 != a.k1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_values),
        cmocka_unit_test(each_bit_of_the_key_counts),
        cmocka_unit_test(a_secret_makes_a_key),
    };
    return cmocka_run_group_tests_name("sip", tests, NULL, NULL);
}
