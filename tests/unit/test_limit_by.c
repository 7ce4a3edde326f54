#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "limit/limit_by.h"

/* The plugin around it is only a frame. */
static const struct postern_option options[] = {
    {.name = "by", .type = POSTERN_TEXT, .list = true, .default_text = LIMIT_BY_DEFAULT},
    {.name = "ipv6_prefix", .type = POSTERN_NUMBER, .default_text = "64"},
};
static const struct postern_api *api;
static struct limit_by by;

static bool load(const struct postern_api *given)
{
    api = given;
    return true;
}

static bool configure(struct postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    *ret_instance = limit_by_read(api, s, 0, &values[0], 1, &values[1], &by) ? &by : NULL;
    return *ret_instance;
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .options = options,
    .option_count = 2,
    .load = load,
    .configure = configure,
};

#include "fake_host.h"

static struct postern_request request(const char *address, unsigned width)
{
    struct postern_request r = {.address_width = width, .listener = "public"};
    memcpy(r.address, address, width);
    return r;
}

static uint64_t hash(struct postern_request *r)
{
    return limit_by_hash(&by, api, r);
}

static void read_by(const char *first, const char *second, const char *bits)
{
    struct postern_setup s;
    assert_non_null(fake_configure(&s, "by", first, second ? "by" : "-", second ? second : "-",
                                   "ipv6_prefix", bits, NULL));
}

#define V6_A       "\x20\x01\x0d\xb8\0\1\0\2\0\0\0\0\0\0\0\1"
#define V6_B       "\x20\x01\x0d\xb8\0\1\0\2\xff\xff\0\0\0\0\0\2" /* the same /64 */
#define V6_C       "\x20\x01\x0d\xb8\0\1\0\3\0\0\0\0\0\0\0\1"     /* the same /48 */
#define V4_MAPPED  "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\7"
#define V4_ADDRESS "\xc0\0\2\7"

static void an_ipv6_client_is_its_network(void **state)
{
    struct postern_request a = request(V6_A, 16), b = request(V6_B, 16), c = request(V6_C, 16);
    (void)state;
    read_by("client_ip", NULL, "64");
    assert_true(hash(&a) == hash(&b));
    assert_false(hash(&a) == hash(&c));
    read_by("client_ip", NULL, "48");
    assert_true(hash(&a) == hash(&c));
    read_by("client_ip", NULL, "128");
    assert_false(hash(&a) == hash(&b));
}

static void an_ipv4_client_is_one_address_however_it_is_written(void **state)
{
    struct postern_request a = request(V4_ADDRESS, 4), b = request(V4_MAPPED, 16);
    struct postern_request c = request("\xc0\0\2\x08", 4);
    (void)state;
    read_by("client_ip", NULL, "64");
    assert_true(hash(&a) == hash(&b));
    assert_false(hash(&a) == hash(&c));
}

static void the_peers_of_a_unix_socket_are_those_of_its_listener(void **state)
{
    struct postern_request a = request("", 0), b = request("", 0), c = request("publ", 4);
    (void)state;
    read_by("client_ip", NULL, "64");
    assert_true(hash(&a) == hash(&b));
    strcpy(b.listener, "publ");
    assert_false(hash(&a) == hash(&b));
    assert_false(hash(&b) == hash(&c)); /* and no address that reads the same */
}

static void what_is_missing_is_the_address_and_marked_as_that(void **state)
{
    struct postern_request a = request(V4_ADDRESS, 4), b = request(V4_ADDRESS, 4);
    (void)state;
    read_by("header:X-Key", NULL, "64");
    uint64_t without = hash(&a);
    fake_put(&b, POSTERN_HEADER, "x-key", "192.0.2.7");
    assert_false(hash(&b) == without);
    fake_put(&a, POSTERN_HEADER, "X-Key", V4_ADDRESS);
    assert_false(hash(&a) == without);
    read_by("client_ip", NULL, "64");
    assert_true(hash(&a) == without);
    read_by("credential", NULL, "64");
    assert_true(hash(&a) == without);
    strcpy(a.credential, "alice");
    assert_false(hash(&a) == without);
}

static void parts_do_not_run_into_each_other(void **state)
{
    struct postern_request a = request("", 0), b = request("", 0);
    (void)state;
    read_by("path", "route", "64");
    strcpy(a.path, "/ab");
    strcpy(a.route, "c");
    strcpy(b.path, "/a");
    strcpy(b.route, "bc");
    assert_false(hash(&a) == hash(&b));
    strcpy(b.path, "/ab");
    strcpy(b.route, "c");
    assert_true(hash(&a) == hash(&b));
}

static void its_name_says_what_counts_alike(void **state)
{
    char name[64], small[12];
    (void)state;
    read_by("client_ip", "header:X-Tenant", "56");
    limit_by_name(&by, name, sizeof(name));
    assert_string_equal(name, "client_ip,header:x-tenant/56");
    limit_by_name(&by, small, sizeof(small));
    assert_string_equal(small, "client_ip,h");
}

static void what_is_no_part_is_a_fault(void **state)
{
    static const char *const cases[] = {
        "",
        "ip",
        "client_ip ",
        "credentials",
        "header",
        "header:",
        "header:a b",
        "header:\xc3\xa4",
        "header:0123456789012345678901234567890123456789012345678901234567890123",
        "CLIENT_IP",
    };
    struct postern_setup s;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(fake_configure(&s, "by", "path", "by", cases[i], NULL));
        assert_int_equal(s.option, 0);
        assert_int_equal(s.at, 1);
    }
    assert_null(fake_configure(&s, "by", "header:A", "by", "header:a", NULL));
    assert_non_null(strstr(s.text, "twice"));
    assert_null(fake_configure(&s, "by", "path", "by", "route", "by", "client_ip", "by",
                               "credential", "by", "header:a", NULL));
    assert_null(fake_configure(&s, "ipv6_prefix", "60", NULL));
    assert_int_equal(s.option, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ipv6_client_is_its_network),
        cmocka_unit_test(an_ipv4_client_is_one_address_however_it_is_written),
        cmocka_unit_test(the_peers_of_a_unix_socket_are_those_of_its_listener),
        cmocka_unit_test(what_is_missing_is_the_address_and_marked_as_that),
        cmocka_unit_test(parts_do_not_run_into_each_other),
        cmocka_unit_test(its_name_says_what_counts_alike),
        cmocka_unit_test(what_is_no_part_is_a_fault),
    };
    fake_load();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
