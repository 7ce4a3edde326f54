#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>

#include "up/grpc_health.h"

static void the_whole_server_is_an_empty_message(void **state)
{
    (void)state;
    char out[GRPC_HEALTH_ASK];
    assert_int_equal(grpc_health_ask(out, STR("")), 5);
    assert_memory_equal(out, "\0\0\0\0\0", 5);
}

static void a_service_is_named(void **state)
{
    (void)state;
    char out[GRPC_HEALTH_ASK];
    assert_int_equal(grpc_health_ask(out, STR("a.B")), 10);
    assert_memory_equal(out, "\0\0\0\0\5\x0a\3a.B", 10);
}

static void long_names_have_long_lengths(void **state)
{
    (void)state;
    static const size_t lengths[] = {127, 128, 255, GRPC_HEALTH_SERVICE};
    char name[GRPC_HEALTH_SERVICE], out[GRPC_HEALTH_ASK];
    memset(name, 'x', sizeof(name));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t n = lengths[i], tag = n > 127 ? 3 : 2;
        assert_int_equal(grpc_health_ask(out, (struct str){name, n}), 5 + tag + n);
        assert_int_equal((uint8_t)out[3] << 8 | (uint8_t)out[4], tag + n);
        size_t said = (uint8_t)out[6] & 0x7f;
        if (n > 127)
            said |= (size_t)(uint8_t)out[7] << 7;
        assert_int_equal(said, n);
        assert_memory_equal(out + 5 + tag, name, n);
    }
}

static int read_bytes(const char *bytes, size_t n, uint64_t *status)
{
    *status = 99;
    return grpc_health_read((struct str){bytes, n}, status);
}

#define READ(bytes, status) read_bytes(bytes, sizeof(bytes) - 1, status)

static void reads_a_status(void **state)
{
    (void)state;
    uint64_t status;
    assert_int_equal(READ("\0\0\0\0\2\x08\1", &status), 0);
    assert_int_equal(status, GRPC_SERVING);
    assert_int_equal(READ("\0\0\0\0\2\x08\2", &status), 0);
    assert_int_equal(status, GRPC_NOT_SERVING);
    assert_int_equal(READ("\0\0\0\0\0", &status), 0); /* what is 0 is not written */
    assert_int_equal(status, GRPC_UNKNOWN);
    assert_int_equal(READ("\0\0\0\0\4\x08\1\x08\2", &status), 0); /* the last one counts */
    assert_int_equal(status, GRPC_NOT_SERVING);
    assert_int_equal(READ("\0\0\0\0\3\x08\xac\2", &status), 0);
    assert_int_equal(status, 300);
}

static void fields_that_it_does_not_know_are_passed_over(void **state)
{
    (void)state;
    uint64_t status;
    assert_int_equal(READ("\0\0\0\0\x1a"
                          "\x10\x96\1" /* 2: a number */
                          "\x19"
                          "12345678"  /* 3: eight bytes */
                          "\x22\3abc" /* 4: a text */
                          "\x08\1"    /* the status */
                          "\x2d"
                          "1234"    /* 5: four bytes */
                          "\x10\1", /* 2 again */
                          &status),
                     0);
    assert_int_equal(status, GRPC_SERVING);
}

static void refuses_what_is_no_message(void **state)
{
    (void)state;
    static const struct str bad[] = {
        STR(""),
        STR("\0\0\0\0"),
        STR("\1\0\0\0\2\x08\1"),   /* compressed */
        STR("\0\0\0\0\3\x08\1"),   /* cut short */
        STR("\0\0\0\0\1\x08\1"),   /* two of them */
        STR("\0\0\0\0\1\x08"),     /* a tag without its value */
        STR("\0\0\0\0\2\x08\x81"), /* a number without its end */
        STR("\0\0\0\0\2\x0b\1"),   /* a group */
        STR("\0\0\0\0\2\x00\1"),   /* field 0 */
        STR("\0\0\0\0\2\x12\2"),   /* longer than all there is */
        STR("\0\0\0\0\6\x12\xff\xff\xff\xff\x0f"),
        STR("\0\0\0\0\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"),
        STR("\0\0\0\0\4\x19"
            "123"),
        STR("\0\0\0\0\4\x15"
            "123"),
    };
    uint64_t status = 99;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (grpc_health_read(bad[i], &status) != -EBADMSG)
            fail_msg("case %zu was read as %u", i, (unsigned)status);
    assert_int_equal(status, 99); /* untouched */
}

static void no_cut_of_a_message_is_read_beyond_its_end(void **state)
{
    (void)state;
    static const char whole[] = "\0\0\0\0\x0b\x22\3abc\x08\1\x2d"
                                "123";
    uint64_t status;
    for (size_t n = 0; n < sizeof(whole) - 1; n++) {
        char *copy = test_malloc(n + 1);
        memcpy(copy, whole, n);
        if (n > 4)
            copy[4] = (char)(n - 5);
        (void)grpc_health_read((struct str){copy, n}, &status);
        test_free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_server_is_an_empty_message),
        cmocka_unit_test(a_service_is_named),
        cmocka_unit_test(long_names_have_long_lengths),
        cmocka_unit_test(reads_a_status),
        cmocka_unit_test(fields_that_it_does_not_know_are_passed_over),
        cmocka_unit_test(refuses_what_is_no_message),
        cmocka_unit_test(no_cut_of_a_message_is_read_beyond_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
