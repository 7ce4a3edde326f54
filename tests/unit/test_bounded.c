#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "bounded.h"

static bool is_taken(const char *text)
{
    json_t *json = bounded_object(span_of(text));
    bool taken = json != NULL;
    json_decref(json);
    return taken;
}

static void takes_objects_only(void **state)
{
    (void)state;
    assert_true(is_taken("{}"));
    assert_true(is_taken("{\"a\":[1,{\"b\":\"}]\\\"]\"}]}"));
    assert_false(is_taken(""));
    assert_false(is_taken("[]"));
    assert_false(is_taken("1"));
    assert_false(is_taken("{\"a\":1"));
    assert_false(is_taken("{} {}"));
}

static void refuses_what_two_readers_would_read_differently(void **state)
{
    (void)state;
    assert_false(is_taken("{\"a\":1,\"a\":2}"));
    assert_false(is_taken("{\"a\":\"\\u0000\"}"));
    assert_false(is_taken("{\"a\":\"\xff\"}"));
    assert_false(is_taken("{\"a\":1e999}"));
    assert_false(is_taken("{\"a\":99999999999999999999}"));
}

static void refuses_what_is_too_deep(void **state)
{
    char text[4096] = "{\"a\":";
    (void)state;
    memset(text + 5, '[', BOUNDED_DEPTH - 1);
    memset(text + 5 + BOUNDED_DEPTH - 1, ']', BOUNDED_DEPTH - 1);
    text[5 + 2 * (BOUNDED_DEPTH - 1)] = '}';
    assert_true(is_taken(text));
    memset(text + 5, '[', 2000);
    memset(text + 2005, ']', 2000);
    text[4005] = '}';
    assert_false(is_taken(text));
    /* Not by what stands in a text. */
    assert_true(is_taken("{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"}"));
}

static void gives_strings_only(void **state)
{
    json_t *json = bounded_object(SPAN("{\"a\":\"x\",\"b\":1}"));
    (void)state;
    assert_true(span_eq(bounded_string(json, "a"), SPAN("x")));
    assert_null(bounded_string(json, "b").p);
    assert_null(bounded_string(json, "c").p);
    assert_null(bounded_string(NULL, "a").p);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_objects_only),
        cmocka_unit_test(refuses_what_two_readers_would_read_differently),
        cmocka_unit_test(refuses_what_is_too_deep),
        cmocka_unit_test(gives_strings_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
