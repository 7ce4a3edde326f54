#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/addr.h"

static void writes_back_what_it_reads(void **state)
{
    static const char *const texts[] = {
        "127.0.0.1:80", "0.0.0.0:0", "255.255.255.255:65535", "[::1]:80",
        "[fd00::1]:1",  "[::]:8080", "unix:/run/x.sock",      "unix:relative",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct addr addr, again;
        char out[ADDR_TEXT];
        assert_int_equal(addr_parse(str_of(texts[i]), &addr), 0);
        assert_int_equal(addr_put(out, &addr), strlen(texts[i]));
        assert_string_equal(out, texts[i]);
        assert_int_equal(addr_parse(str_of(out), &again), 0);
        assert_true(addr_eq(&addr, &again));
    }
}

static void refuses_what_is_not_a_numeric_address(void **state)
{
    static const char *const texts[] = {
        "",
        "127.0.0.1",
        ":80",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "1.2.3:80",
        "1.2.3.4.5:80",
        "01.2.3.4:80",
        "::1:80",
        "[::1]",
        "[::1]80",
        "[127.0.0.1]:80",
        "[::g]:80",
        "localhost:80",
        "127.0.0.1:+80",
        "[::1%lo]:80",
        "unix:",
        "127.0.0.1 :80",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct addr addr;
        assert_int_equal(addr_parse(str_of(texts[i]), &addr), -EINVAL);
    }
}

static void bounds_the_path_of_a_unix_socket(void **state)
{
    char text[5 + 108 + 1] = "unix:";
    struct addr addr;
    char out[ADDR_TEXT];
    (void)state;
    memset(text + 5, 'x', 108);
    assert_int_equal(addr_parse((struct str){text, 5 + 107}, &addr), 0);
    assert_int_equal(addr_put(out, &addr), 5 + 107);
    assert_int_equal(addr_parse((struct str){text, 5 + 108}, &addr), -EINVAL);
    assert_int_equal(addr_parse((struct str){"unix:a\0b", 8}, &addr), -EINVAL);
}

static void names_a_unix_peer_without_a_path(void **state)
{
    struct addr addr = {.len = sizeof(sa_family_t), .un = {.sun_family = AF_UNIX}};
    char out[ADDR_TEXT];
    (void)state;
    addr_put(out, &addr);
    assert_string_equal(out, "unix:");
    addr_put_host(out, &addr);
    assert_string_equal(out, "unix:");
}

static void writes_the_host_alone(void **state)
{
    struct addr addr;
    char out[ADDR_TEXT];
    (void)state;
    assert_int_equal(addr_parse(STR("[fd00::1]:80"), &addr), 0);
    assert_int_equal(addr_put_host(out, &addr), 7);
    assert_string_equal(out, "fd00::1");
    assert_int_equal(addr_parse(STR("10.0.0.1:80"), &addr), 0);
    addr_put_host(out, &addr);
    assert_string_equal(out, "10.0.0.1");
}

static void tells_addresses_apart_by_family_host_and_port(void **state)
{
    static const char *const texts[] = {"10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80",
                                        "[::1]:80",    "[::2]:80",    "unix:/a",
                                        "unix:/b",     "unix:/a/b"};
    struct addr addr[8];
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(addr_parse(str_of(texts[i]), &addr[i]), 0);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            assert_int_equal(addr_eq(&addr[i], &addr[j]), i == j);
}

static void splits_a_name_from_its_port(void **state)
{
    static const char *const bad[] = {
        "",           "a",        ":80",    "a:",      "a:b",     "a..b:80",
        ".a:80",      "-a:80",    "a-:80",  "a-.b:80", "a b:80",  "a/b:80",
        "1.2.3.4:80", "1.2.3:80", "[a]:80", "a:b:80",  "a:65536", "\xc3\xa9:80",
    };
    struct str host = STR("untouched");
    uint16_t port = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(addr_split_name(str_of(bad[i]), &host, &port), -EINVAL);
    assert_true(str_eq(host, STR("untouched")));
    assert_int_equal(port, 7);
    assert_int_equal(addr_split_name(STR("users.internal:8080"), &host, &port), 0);
    assert_true(str_eq(host, STR("users.internal")));
    assert_int_equal(port, 8080);
    assert_int_equal(addr_split_name(STR("1and1.example_x.:80"), &host, &port), 0);
    assert_int_equal(addr_split_name(STR("localhost:80"), &host, &port), 0);
}

static void splits_a_service_from_its_name(void **state)
{
    static const char *const bad[] = {
        "",         "_http",           "_http._tcp",    "_http._tcp.",    "_http.a.test",
        "a._tcp.b", "_http._tcp.a:80", "_http._tcp..a", "_http._tcp.1.2", "_http._tcp.a b",
    };
    struct str name = {NULL, 0};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(addr_split_service(str_of(bad[i]), &name));
    assert_true(addr_split_service(STR("_http._tcp.users.internal"), &name));
    assert_true(str_eq(name, STR("users.internal")));
    assert_true(addr_split_service(STR("_a._b.c."), &name));
    assert_true(str_eq(name, STR("c.")));
}

static void matches_ranges_to_the_bit(void **state)
{
    static const struct {
        const char *range, *addr;
        int is_in;
    } cases[] = {
        {"10.0.0.0/8", "10.255.255.255:1", 1},
        {"10.0.0.0/8", "11.0.0.0:1", 0},
        {"10.1.2.3/8", "10.9.9.9:1", 1}, /* bits behind the prefix count not */
        {"192.168.1.128/25", "192.168.1.128:1", 1},
        {"192.168.1.128/25", "192.168.1.127:1", 0},
        {"192.168.1.4/31", "192.168.1.5:1", 1},
        {"192.168.1.4/31", "192.168.1.6:1", 0},
        {"192.168.1.4", "192.168.1.4:1", 1},
        {"192.168.1.4", "192.168.1.5:1", 0},
        {"0.0.0.0/0", "8.8.8.8:1", 1},
        {"0.0.0.0/0", "[::1]:1", 0},
        {"0.0.0.0/0", "[::ffff:8.8.8.8]:1", 1}, /* IPv4 on a dual-stack socket */
        {"10.0.0.0/8", "[::ffff:10.0.0.1]:1", 1},
        {"10.0.0.0/8", "[::ffff:11.0.0.1]:1", 0},
        {"fd00::/8", "[fdff::1]:1", 1},
        {"fd00::/8", "[fe00::1]:1", 0},
        {"fd00::/8", "10.0.0.1:1", 0},
        {"::1", "[::1]:1", 1},
        {"::1", "[::2]:1", 0},
        {"::/0", "[::2]:1", 1},
        {"unix:", "unix:/run/x", 1},
        {"unix:", "127.0.0.1:1", 0},
        {"0.0.0.0/0", "unix:/run/x", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct addr_range range;
        struct addr addr;
        assert_int_equal(addr_range_parse(str_of(cases[i].range), &range), 0);
        assert_int_equal(addr_parse(str_of(cases[i].addr), &addr), 0);
        assert_int_equal(addr_in_range(&addr, &range), cases[i].is_in);
    }
}

static void refuses_what_is_not_a_range(void **state)
{
    static const char *const bad[] = {"",       "/8",      "10.0.0.0/",   "10.0.0.0/33",
                                      "::/129", "10.0/8",  "10.0.0.0/8 ", "10.0.0.0/-1",
                                      "name/8", "unix:/x", "10.0.0.0/8/8"};
    struct addr_range range;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(addr_range_parse(str_of(bad[i]), &range), -EINVAL);
}

static void reads_the_addresses_of_forwarded_fields(void **state)
{
    static const struct {
        const char *text, *host;
    } cases[] = {
        {"1.2.3.4", "1.2.3.4"}, {"1.2.3.4:80", "1.2.3.4"}, {"::1", "::1"},
        {"[::1]", "::1"},       {"[::1]:80", "::1"},       {"fd00::80", "fd00::80"},
    };
    static const char *const bad[] = {"",     "unknown",    "_hidden", "1.2.3.4:x", "[::1",
                                      "::1]", "1.2.3.4, 5", "unix:/x", "[1.2.3.4]"};
    struct addr addr;
    char out[ADDR_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(addr_parse_ip(str_of(cases[i].text), &addr), 0);
        addr_put_host(out, &addr);
        assert_string_equal(out, cases[i].host);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(addr_parse_ip(str_of(bad[i]), &addr), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_back_what_it_reads),
        cmocka_unit_test(refuses_what_is_not_a_numeric_address),
        cmocka_unit_test(bounds_the_path_of_a_unix_socket),
        cmocka_unit_test(names_a_unix_peer_without_a_path),
        cmocka_unit_test(writes_the_host_alone),
        cmocka_unit_test(tells_addresses_apart_by_family_host_and_port),
        cmocka_unit_test(splits_a_name_from_its_port),
        cmocka_unit_test(splits_a_service_from_its_name),
        cmocka_unit_test(matches_ranges_to_the_bit),
        cmocka_unit_test(refuses_what_is_not_a_range),
        cmocka_unit_test(reads_the_addresses_of_forwarded_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
