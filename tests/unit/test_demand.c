#include "base/demand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void finds_words_and_their_numbers_in_a_list(void **state)
{
    static const struct {
        const char *list, *word;
        unsigned n;
    } cases[] = {
        {"eagain", "eagain", 1},
        {"connect:7", "connect", 7},
        {"eagain,connect:7", "connect", 7},
        {"eagain, connect:7", "eagain", 1},
        {"eagain", "eag", 0},
        {"eag", "eagain", 0},
        {"connect:", "connect", 0},
        {"connect:x", "connect", 0},
        {"connect:0", "connect", 0},
        {"connect:-1", "connect", 0},
        {"", "eagain", 0},
        {"connect:99999999999", "connect", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        setenv("POSTERN_FAULT", cases[i].list, 1);
#ifdef NDEBUG
        assert_int_equal(demand(cases[i].word), 0);
#else
        assert_int_equal(demand(cases[i].word), cases[i].n);
#endif
    }
    unsetenv("POSTERN_FAULT");
    assert_int_equal(demand("eagain"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_words_and_their_numbers_in_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
