#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <netdb.h>

#include "up/resolve.h"

static struct addr found[RESOLVE_MAX];
static const char *why;

static void addresses_are_themselves(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.0.0.1:80", "[::1]:8080", "unix:/run/x.sock"};
    for (size_t i = 0; i < 3; i++) {
        char text[ADDR_TEXT];
        assert_int_equal(resolve_server(str_of(texts[i]), found, &why), 1);
        addr_put(text, &found[0]);
        assert_string_equal(text, texts[i]);
    }
}

static void localhost_has_its_loopback_addresses_in_order(void **state)
{
    (void)state;
    size_t n = resolve_server(STR("localhost:8123"), found, &why);
    bool four = false;
    assert_true(n >= 1);
    for (size_t i = 0; i < n; i++) {
        struct addr expected;
        addr_parse(STR("127.0.0.1:8123"), &expected);
        four |= addr_eq(&found[i], &expected);
        for (size_t k = 0; k < i; k++)
            assert_false(addr_eq(&found[k], &found[i])); /* each once */
        if (i)
            assert_true(found[i - 1].sa.sa_family <= found[i].sa.sa_family);
    }
    assert_true(four);
}

static void what_is_no_server_says_why(void **state)
{
    (void)state;
    static const char *const texts[] = {"",       "localhost",       ":80",
                                        "a b:80", "localhost:65536", "localhost:http"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        why = NULL;
        assert_int_equal(resolve_server(str_of(texts[i]), found, &why), 0);
        assert_string_equal(why, "not an address, unix:PATH or NAME:PORT");
    }
}

static void a_name_that_nobody_knows_says_so(void **state)
{
    (void)state;
    why = NULL;
    assert_int_equal(resolve_server(STR("no-such-host.invalid:80"), found, &why), 0);
    assert_non_null(why);
    assert_true(*why != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_themselves),
        cmocka_unit_test(localhost_has_its_loopback_addresses_in_order),
        cmocka_unit_test(what_is_no_server_says_why),
        cmocka_unit_test(a_name_that_nobody_knows_says_so),
    };
    return cmocka_run_group_tests_name("resolve", tests, NULL, NULL);
}
