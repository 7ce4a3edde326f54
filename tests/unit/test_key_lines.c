#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "key_lines.h"

/* The lines as one number, a decimal digit each; 0 where none was found. */
static unsigned lines_of(const char *text, size_t count)
{
    unsigned lines[8] = {0}, digits = 0;
    size_t n = strlen(text);
    char *exact = calloc(1, n ? n : 1); /* so that a read behind it shows */
    assert_non_null(exact);
    memcpy(exact, text, n);
    key_lines(exact, n, lines, count);
    free(exact);
    for (size_t i = 0; i < count; i++)
        digits = digits * 10 + lines[i];
    return digits;
}

static void finds_each_entry(void **state)
{
    (void)state;
    assert_int_equal(lines_of("[{},{},{}]", 3), 111);
    assert_int_equal(lines_of("[\n{},\n\n{\n},{}]", 3), 245);
    assert_int_equal(lines_of("{\"keys\":[\n1,\n\"2\"\n,\n[3]]}", 3), 235);
    assert_int_equal(lines_of("\n\n[\t1 ]\n", 1), 3);
}

static void looks_into_nothing(void **state)
{
    (void)state;
    assert_int_equal(lines_of("[{\"a\":[1,2,\n{\"b\":3}]},\n4]", 2), 13);
    assert_int_equal(lines_of("[\"a,[{\\\"\\\\\",\n2,\n\"\\\\\",\n4]", 4), 1234);
}

static void finds_the_outer_member_only(void **state)
{
    (void)state;
    assert_int_equal(
        lines_of("{\"salt\":\"keys\",\"x\":{\"keys\":[8,9]},\n\"keys\" :\n[1\n,2]}", 2), 34);
    assert_int_equal(lines_of("{\"x\":[0],\"keys\":[\n1]}", 1), 2);
    assert_int_equal(lines_of("{\"keys\":{\"keys\":[1]}}", 1), 0);
    assert_int_equal(lines_of("{\"nokeys\":[1]}", 1), 0);
}

static void stops_where_the_text_does(void **state)
{
    static const char text[] =
        "{\"salt\": \"s\\\"\", \"keys\": [\n{\"a\": \"b\"},\n [1, 2]\n]}";
    (void)state;
    assert_int_equal(lines_of("", 2), 0);
    assert_int_equal(lines_of("[1]", 3), 100); /* there are not so many */
    for (size_t n = 0; n < sizeof(text); n++) {
        char cut[sizeof(text)] = "";
        memcpy(cut, text, n);
        lines_of(cut, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_each_entry),
        cmocka_unit_test(looks_into_nothing),
        cmocka_unit_test(finds_the_outer_member_only),
        cmocka_unit_test(stops_where_the_text_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
