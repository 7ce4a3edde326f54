#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/proxy_protocol.h"

#define SIGNATURE      "\r\n\r\n\0\r\nQUIT\n"
#define BYTES(literal) literal, sizeof(literal) - 1

/* Reads `n` bytes, each beginning of them too: a header must stay incomplete until its last
 * byte, and a fault must show at the byte at fault at the latest. From exact copies, so that a
 * read behind the end is seen. */
static long read_all(const char *p, size_t n, struct proxy_header *ret, size_t *ret_offset)
{
    long rc = 0;
    for (size_t cut = 0; cut <= n; cut++) {
        struct proxy_header header;
        size_t offset = SIZE_MAX;
        char *exact = malloc(cut ? cut : 1);
        memcpy(exact, p, cut);
        long now = proxy_protocol_read(exact, cut, &header, &offset);
        free(exact);
        if (rc > 0) /* bytes behind the header change nothing */
            assert_int_equal(now, rc);
        else if (rc < 0)
            assert_int_equal(now, rc);
        else if (now > 0)
            assert_int_equal(now, cut);
        if (now < 0)
            assert_true(offset < cut);
        rc = now;
        *ret = header;
        *ret_offset = offset;
    }
    return rc;
}

static void check_good(const char *p, size_t n, size_t length, const char *source,
                       const char *destination)
{
    struct proxy_header header;
    size_t offset;
    char text[ADDR_TEXT];
    assert_int_equal(read_all(p, n, &header, &offset), length);
    assert_int_equal(header.is_local, source == NULL);
    if (!source)
        return;
    addr_put(text, &header.source);
    assert_string_equal(text, source);
    addr_put(text, &header.destination);
    assert_string_equal(text, destination);
}

static void check_bad(const char *p, size_t n, size_t at)
{
    struct proxy_header header;
    size_t offset;
    if (read_all(p, n, &header, &offset) >= 0)
        fail_msg("%.*s must be malformed", (int)n, p);
    if (offset != at)
        fail_msg("%.*s: malformed at byte %zu, not at %zu", (int)n, p, offset, at);
}

static void reads_version_1(void **state)
{
    (void)state;
    check_good(BYTES("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\nGET /"), 45,
               "192.0.2.1:56324", "198.51.100.2:443");
    check_good(BYTES("PROXY TCP6 2001:db8::1 ::ffff:1.2.3.4 0 65535\r\n"), 47,
               "[2001:db8::1]:0", "[::ffff:1.2.3.4]:65535");
    check_good(BYTES("PROXY UNKNOWN\r\nx"), 15, NULL, NULL);
    check_good(BYTES("PROXY UNKNOWN ffff:f...f:ffff a b c d e f g h\r\n"), 47, NULL, NULL);
    char line[108] = "PROXY UNKNOWN ";
    memset(line + 14, 'x', 91);
    memcpy(line + 105, "\r\n", 2);
    check_good(line, 107, 107, NULL, NULL);
}

static void refuses_what_is_not_quite_version_1(void **state)
{
    (void)state;
    check_bad(BYTES("GET / HTTP/1.1\r\n"), 0);
    check_bad(BYTES("PROXZ"), 4);
    check_bad(BYTES("PROXY\r\n"), 5);
    check_bad(BYTES("proxy TCP4"), 0);
    check_bad(BYTES("PROXY \r\n"), 6);
    check_bad(BYTES("PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n"), 6);
    check_bad(BYTES("PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n"), 6);
    check_bad(BYTES("PROXY UNKNOWNS\r\n"), 6);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n"), 30);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\rx"), 31);
    check_bad(BYTES("PROXY TCP4 ::1 1.2.3.4 1 2\r\n"), 11);
    check_bad(BYTES("PROXY TCP6 ::1 1.2.3.4 1 2\r\n"), 15);
    check_bad(BYTES("PROXY TCP4 1.2.3.04 1.2.3.4 1 2\r\n"), 11);
    check_bad(BYTES("PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n"), 19);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n"), 27);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n"), 29);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 -2\r\n"), 29);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n"), 28);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n"), 30);
    check_bad(BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n"), 30);
    check_bad(BYTES("PROXY TCP4 1.2.3.4\0 1.2.3.4 1 2\r\n"), 18);
    char line[109] = "PROXY UNKNOWN ";
    memset(line + 14, 'x', 94);
    check_bad(line, 108, 105);
}

#define V4 "\x0a\x01\x02\x03\xc0\x00\x02\x09\xdc\x04\x01\xbb"
#define V6                                                                                     \
    "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\x30\x39\0" \
    "\x50"

static void reads_version_2(void **state)
{
    (void)state;
    check_good(BYTES(SIGNATURE "\x21\x11\0\x0c" V4 "GET"), 28, "10.1.2.3:56324",
               "192.0.2.9:443");
    check_good(BYTES(SIGNATURE "\x21\x21\0\x24" V6), 52, "[2001:db8::1]:12345", "[fd00::2]:80");
    check_good(BYTES(SIGNATURE "\x21\x11\0\x16" V4 "\x02\0\x03one\x04\0\x01x"), 38,
               "10.1.2.3:56324", "192.0.2.9:443");
    check_good(BYTES(SIGNATURE "\x20\0\0\0"), 16, NULL, NULL);
    check_good(BYTES(SIGNATURE "\x20\x11\0\x03"
                               "abcGET"),
               19, NULL, NULL);
    check_good(BYTES(SIGNATURE "\x21\0\0\x03"
                               "abc"),
               19, NULL, NULL);
}

static void reads_unix_addresses(void **state)
{
    (void)state;
    char bytes[16 + 216] = SIGNATURE "\x21\x31\0\xd8";
    strcpy(bytes + 16, "/run/client.sock");
    memset(bytes + 16 + 108, 'x', 108); /* all of its place */
    struct proxy_header header;
    size_t offset;
    assert_int_equal(read_all(bytes, sizeof(bytes), &header, &offset), sizeof(bytes));
    char text[ADDR_TEXT];
    addr_put(text, &header.source);
    assert_string_equal(text, "unix:/run/client.sock");
    assert_int_equal(addr_put(text, &header.destination), 5 + 108);
}

static void refuses_what_is_not_quite_version_2(void **state)
{
    (void)state;
    check_bad(BYTES("\r\n\r\n\0\r\nQUIX\n"), 10);
    check_bad(BYTES("\r\n\r\nGET /"), 4);
    check_bad(BYTES(SIGNATURE "\x11"), 12);
    check_bad(BYTES(SIGNATURE "\x22\x11\0\x0c" V4), 12);
    check_bad(BYTES(SIGNATURE "\x21\x12\0\x0c" V4), 13);
    check_bad(BYTES(SIGNATURE "\x21\x41\0\x0c" V4), 13);
    check_bad(BYTES(SIGNATURE "\x21\x01\0\x0c" V4), 13);
    check_bad(BYTES(SIGNATURE "\x21\x11\0\x0b" V4), 14);
    check_bad(BYTES(SIGNATURE "\x21\x21\0\x0c" V4), 14);
    check_bad(BYTES(SIGNATURE "\x21\x11\xff\xff"), 14);
    check_bad(BYTES(SIGNATURE "\x20\x11\x0f\xf1"), 14);
    check_bad(BYTES(SIGNATURE "\x21\x11\0\x0d" V4 "\x02"), 28);
    check_bad(BYTES(SIGNATURE "\x21\x11\0\x0f" V4 "\x02\0\x01"), 28);
    check_bad(BYTES(SIGNATURE "\x21\x11\0\x14" V4 "\x02\0\x01x\x02\0\x02x"), 32);
}

static void takes_the_longest_header_there_may_be(void **state)
{
    (void)state;
    char bytes[4096] = SIGNATURE "\x20\0\x0f\xf0";
    struct proxy_header header;
    size_t offset;
    assert_int_equal(proxy_protocol_read(bytes, 4095, &header, &offset), 0);
    assert_int_equal(proxy_protocol_read(bytes, 4096, &header, &offset), 4096);
}

static struct addr addr(const char *text)
{
    struct addr out;
    assert_int_equal(addr_parse(str_of(text), &out), 0);
    return out;
}

static void writes_version_1(void **state)
{
    (void)state;
    char out[PROXY_PROTOCOL_WRITE + 1];
    struct addr four = addr("10.1.2.3:5"), six = addr("[fd00::1]:6"), path = addr("unix:/s");
    out[proxy_protocol_write(out, 1, &four, &four)] = '\0';
    assert_string_equal(out, "PROXY TCP4 10.1.2.3 10.1.2.3 5 5\r\n");
    out[proxy_protocol_write(out, 1, &six, &four)] = '\0';
    assert_string_equal(out, "PROXY TCP6 fd00::1 :: 6 0\r\n");
    out[proxy_protocol_write(out, 1, &four, NULL)] = '\0';
    assert_string_equal(out, "PROXY TCP4 10.1.2.3 0.0.0.0 5 0\r\n");
    out[proxy_protocol_write(out, 1, &path, &four)] = '\0';
    assert_string_equal(out, "PROXY UNKNOWN\r\n");
    out[proxy_protocol_write(out, 1, NULL, &four)] = '\0';
    assert_string_equal(out, "PROXY UNKNOWN\r\n");
}

/* What is written is read as the same. */
static void writes_version_2(void **state)
{
    (void)state;
    static const char *const texts[] = {"10.1.2.3:5", "[fd00::1]:6", "unix:/run/a.sock"};
    char out[PROXY_PROTOCOL_WRITE];
    for (int i = 0; i < 3; i++) {
        struct addr source = addr(texts[i]), other = addr(texts[(i + 1) % 3]);
        size_t n = proxy_protocol_write(out, 2, &source, &source);
        check_good(out, n, n, texts[i], texts[i]);
        n = proxy_protocol_write(out, 2, &source, &other);
        assert_true(n <= sizeof(out));
        check_good(out, n, n, texts[i], i == 0 ? "0.0.0.0:0" : i == 1 ? "[::]:0" : "unix:");
    }
    size_t n = proxy_protocol_write(out, 2, NULL, NULL);
    check_good(out, n, 16, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_version_1),
        cmocka_unit_test(refuses_what_is_not_quite_version_1),
        cmocka_unit_test(reads_version_2),
        cmocka_unit_test(reads_unix_addresses),
        cmocka_unit_test(refuses_what_is_not_quite_version_2),
        cmocka_unit_test(takes_the_longest_header_there_may_be),
        cmocka_unit_test(writes_version_1),
        cmocka_unit_test(writes_version_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
