#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base64url.h"

static bool decode(const char *text, const char *expected)
{
    uint8_t out[64] = {0};
    struct postern_str s = span_of(text);
    if (!base64url_decode(s, out))
        return false;
    assert_int_equal(base64url_size(s.n), strlen(expected));
    assert_memory_equal(out, expected, strlen(expected));
    assert_int_equal(out[strlen(expected)], 0);
    return true;
}

static void decodes_every_length(void **state)
{
    (void)state;
    assert_true(decode("", ""));
    assert_true(decode("Zg", "f"));
    assert_true(decode("Zm8", "fo"));
    assert_true(decode("Zm9v", "foo"));
    assert_true(decode("Zm9vYg", "foob"));
    assert_true(decode("-_-_", "\xfb\xff\xbf"));
}

static void refuses_what_is_no_base64url(void **state)
{
    static const char *const bad[] = {"Z",    "Zm9vY", "Zg==",  "Zm8=",   "Zm9+",
                                      "Zm9/", "Zm 9",  "Zm9\n", "\xffm9v"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (decode(bad[i], ""))
            fail_msg("%s was decoded", bad[i]);
}

/* Else a token would have several spellings, and who keeps a list of tokens would miss some. */
static void refuses_bits_that_belong_to_no_byte(void **state)
{
    (void)state;
    assert_false(decode("Zh", "f"));
    assert_false(decode("Zm9", "fo"));
}

static void knows_each_character(void **state)
{
    unsigned known = 0;
    (void)state;
    for (unsigned c = 1; c < 256; c++) {
        char text[] = {(char)c, 'A', 'A', 'A', 0};
        uint8_t out[3];
        known += base64url_decode(span_of(text), out);
    }
    assert_int_equal(known, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_every_length),
        cmocka_unit_test(refuses_what_is_no_base64url),
        cmocka_unit_test(refuses_bits_that_belong_to_no_byte),
        cmocka_unit_test(knows_each_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
