#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/utf8.h"
#include "proxy/access.h"

static const struct access_policy json = {.sample = 1},
                                  combined = {.sample = 1, .combined = true};

static struct access_record record_of_everything(void)
{
    return (struct access_record){
        .wall_ms = 1767225600123, /* 2026-01-01T00:00:00.123Z */
        .req_id = STR("0af7651916cd43dd8448eb211c80319c"),
        .trace_id = STR("4bf92f3577b34da6a3ce929d0e0e4736"),
        .client_ip = STR("192.0.2.7"),
        .proto = STR("HTTP/1.1"),
        .sni = STR("api.example.com"),
        .method = STR("POST"),
        .host = STR("api.example.com"),
        .path = STR("/api/users/7"),
        .query = STR("page=2"),
        .route = STR("user by id"),
        .upstream = STR("users"),
        .server = STR("10.0.0.5:8080"),
        .credential = STR("alice"),
        .tls_version = STR("TLSv1.3"),
        .tls_cipher = STR("TLS_AES_128_GCM_SHA256"),
        .client_subject = STR("CN=Ann"),
        .user_agent = STR("curl/7.88.1"),
        .referer = STR("https://example.com/?token=abc&x=1"),
        .tls = true,
        .reused = true,
        .status = 503,
        .upstream_status = 502,
        .reason = R_UPSTREAM_NONE,
        .offset = 17,
        .bytes_in = 12,
        .bytes_out = UINT64_MAX,
        .dur = 1234567890,
        .gw = 12345,
        .connect = 0,
        .ttfb = UINT64_MAX,
        .attempts = 2,
        .generation = 3,
    };
}

static size_t format(char *line, const struct access_policy *policy,
                     const struct access_record *record)
{
    size_t n = access_format(line, ACCESS_LINE_MAX, policy, record);

    assert_in_range(n, 1, ACCESS_LINE_MAX);
    assert_int_equal(line[n - 1], '\n');
    assert_null(memchr(line, '\n', n - 1));
    line[n - 1] = '\0';
    return n - 1;
}

static json_t *parsed(const struct access_record *record)
{
    char *line = malloc(ACCESS_LINE_MAX); /* the heap, so that ASan sees its end */
    size_t n = format(line, &json, record);
    json_error_t error;
    json_t *object = json_loadb(
        line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);

    if (!object)
        fail_msg("%s in %s", error.text, line);
    free(line);
    return object;
}

static void writes_every_key_in_order(void **state)
{
    struct access_record record = record_of_everything();
    char line[ACCESS_LINE_MAX];

    (void)state;
    format(line, &json, &record);
    assert_string_equal(
        line,
        "{\"ts\":\"2026-01-01T00:00:00.123Z\",\"req_id\":\"0af7651916cd43dd8448eb211c80319c\","
        "\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"client_ip\":\"192.0.2.7\","
        "\"proto\":\"HTTP/1.1\",\"tls\":true,\"sni\":\"api.example.com\",\"method\":\"POST\","
        "\"host\":\"api.example.com\",\"path\":\"/api/users/7?page=2\","
        "\"route\":\"user by id\",\"status\":503,\"reason\":\"upstream.none\","
        "\"bytes_in\":12,\"bytes_out\":18446744073709551615,\"dur_ms\":1234.568,"
        "\"gw_ms\":0.012,\"connect_ms\":0.000,\"ttfb_ms\":null,\"upstream\":\"users\","
        "\"server\":\"10.0.0.5:8080\",\"upstream_status\":502,\"attempts\":2,\"reused\":true,"
        "\"credential\":\"alice\",\"user_agent\":\"curl/7.88.1\",\"generation\":3,"
        "\"tls_version\":\"TLSv1.3\",\"tls_cipher\":\"TLS_AES_128_GCM_SHA256\","
        "\"client_subject\":\"CN=Ann\","
        "\"offset\":17}");
}

static void writes_null_for_what_is_not_known(void **state)
{
    const struct access_record record = {.dur = UINT64_MAX,
                                         .gw = UINT64_MAX,
                                         .connect = UINT64_MAX,
                                         .ttfb = UINT64_MAX,
                                         .generation = 1};
    char line[ACCESS_LINE_MAX];

    (void)state;
    format(line, &json, &record);
    assert_string_equal(
        line, "{\"ts\":\"1970-01-01T00:00:00.000Z\",\"req_id\":null,\"trace_id\":null,"
              "\"client_ip\":null,\"proto\":null,\"tls\":false,\"sni\":null,\"method\":null,"
              "\"host\":null,\"path\":null,\"route\":null,\"status\":null,\"reason\":null,"
              "\"bytes_in\":0,\"bytes_out\":0,\"dur_ms\":null,\"gw_ms\":null,"
              "\"connect_ms\":null,\"ttfb_ms\":null,\"upstream\":null,\"server\":null,"
              "\"upstream_status\":null,\"attempts\":0,\"reused\":false,\"credential\":null,"
              "\"user_agent\":null,\"generation\":1}");
}

static void rounds_milliseconds_to_three_decimals(void **state)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {0, "0.000"},      {499, "0.000"},
        {500, "0.001"},    {999499, "0.999"},
        {999500, "1.000"}, {12345678901, "12345.679"},
        {1000, "0.001"},   {UINT64_MAX - 1, "18446744073709.552"},
    };
    char line[ACCESS_LINE_MAX], expected[64];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct access_record record = {.gw = cases[i].ns};
        format(line, &json, &record);
        snprintf(expected, sizeof(expected), "\"gw_ms\":%s,", cases[i].text);
        assert_non_null(strstr(line, expected));
    }
}

/* What a JSON reader must get back for these bytes: bytes that are not UTF-8 as \xNN. */
static size_t readable(char *out, const char *p, size_t n)
{
    size_t len = 0;

    for (size_t i = 0, k; i < n; i += k) {
        k = utf8_len(p + i, n - i);
        if (k > 0) {
            memcpy(out + len, p + i, k);
            len += k;
        } else {
            len += (size_t)sprintf(out + len, "\\x%02x", (unsigned char)p[i]);
            k = 1;
        }
    }
    return len;
}

static void expect_user_agent(const char *p, size_t n)
{
    char expected[4 * 64], *copy = malloc(n ? n : 1); /* exact, so that ASan sees its end */
    struct access_record record = {.user_agent = {copy, n}};
    json_t *object, *value;

    memcpy(copy, p, n);
    object = parsed(&record);
    value = json_object_get(object, "user_agent");
    n = readable(expected, p, n);
    assert_int_equal(json_string_length(value), n);
    assert_memory_equal(json_string_value(value), expected, n);
    json_decref(object);
    free(copy);
}

/* Bytes on either side of each line between plain and odd stand at every place of every
 * length that the scan steps over differently; the others at a few. */
static void gives_back_every_byte_at_every_place(void **state)
{
    static const char edges[] = "\x1f \"\\~\x7f\x80\xff";
    char text[40];

    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        bool thorough = memchr(edges, (int)c, sizeof(edges)) != NULL;
        for (size_t n = 1; n <= 36; n += thorough ? 1 : 7) {
            for (size_t at = 0; at < n; at += thorough ? 1 : 3) {
                memset(text, 'a', sizeof(text));
                text[at] = (char)c;
                expect_user_agent(text, n);
            }
        }
    }
}

static void escapes_nul_and_terminal_controls(void **state)
{
    static const char bytes[] = "a\0b\x1b[2J\x7f\xc2\x9b\n";
    struct access_record record = {.user_agent = STR(bytes)};
    char line[ACCESS_LINE_MAX];

    (void)state;
    format(line, &json, &record);
    assert_non_null(strstr(line, "\"a\\u0000b\\u001b[2J\\u007f\\u009b\\u000a\""));
}

static void keeps_utf8_and_escapes_what_only_looks_like_it(void **state)
{
    static const struct str cases[] = {
        STR("gr\xc3\xbc\xc3\x9f dich \xe2\x82\xac \xf0\x9f\x9a\xaa"),
        STR("\xc0\xaf overlong"),
        STR("\xe0\x80\xaf"),
        STR("\xf0\x80\x80\xaf"),
        STR("\xed\xa0\x80 surrogate"),
        STR("\xf4\x90\x80\x80 too far"),
        STR("\xf5\x80\x80\x80"),
        STR("cut \xe2\x82"),
        STR("cut \xf0\x9f\x9a"),
        STR("cut \xc3"),
        STR("\xe2(\xa1 \xff\xfe \x80\x80"),
        STR("\xc2\x80 \xc2\x9f \xc2\xa0"),
        STR("\\x41 \"quoted\" \\"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_user_agent(cases[i].p, cases[i].n);
}

static void survives_random_bytes_in_every_field(void **state)
{
    unsigned seed = 20260101;
    char noise[512];

    (void)state;
    for (int round = 0; round < 500; round++) {
        struct access_record record = record_of_everything();
        struct str *fields[] = {&record.req_id,     &record.trace_id,   &record.client_ip,
                                &record.proto,      &record.sni,        &record.method,
                                &record.host,       &record.path,       &record.query,
                                &record.route,      &record.upstream,   &record.server,
                                &record.credential, &record.user_agent, &record.referer};
        char line[ACCESS_LINE_MAX];
        size_t n;

        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (char)(rand_r(&seed) >> 8);
        for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
            size_t from = (size_t)rand_r(&seed) % sizeof(noise);
            *fields[i] =
                (struct str){noise + from, (size_t)rand_r(&seed) % (sizeof(noise) - from)};
        }
        json_decref(parsed(&record));
        n = format(line, &combined, &record);
        for (size_t i = 0, k; i < n; i += k)
            assert_int_not_equal(k = utf8_len(line + i, n - i), 0);
    }
}

static void cuts_long_values_and_stays_within_a_line(void **state)
{
    static const char *const fills[] = {"a",  "\x01",      "\xff", "\xe2\x82\xac",
                                        "\"", "a=b&key=x&"};
    size_t n = 100000;
    char *big = malloc(n), line[ACCESS_LINE_MAX];

    (void)state;
    for (size_t f = 0; f < sizeof(fills) / sizeof(*fills); f++) {
        struct str all = {big, n};
        struct access_record record = record_of_everything();
        for (size_t i = 0, k = strlen(fills[f]); i < n; i++)
            big[i] = fills[f][i % k];
        record.req_id = record.trace_id = record.client_ip = record.proto = record.sni = all;
        record.method = record.host = record.path = record.route = record.upstream = all;
        record.server = record.credential = record.user_agent = record.referer = all;
        record.tls_version = record.tls_cipher = record.client_subject = all;
        record.query = all;
        record.dur = record.gw = record.connect = record.ttfb = UINT64_MAX - 1;
        record.bytes_in = record.generation = UINT64_MAX;
        record.offset = SIZE_MAX;
        json_t *object = parsed(&record);
        const char *path = json_string_value(json_object_get(object, "path"));
        assert_string_equal(path + strlen(path) - 3, "...");
        json_decref(object);
        record.path = STR("/");
        json_decref(parsed(&record));
        format(line, &combined, &record);
    }
    free(big);
}

static const char *path_of(const char *path, const char *query, char *out)
{
    struct access_record record = {.path = str_of(path), .query = str_of(query)};
    json_t *object = parsed(&record);

    strcpy(out, json_string_value(json_object_get(object, "path")));
    json_decref(object);
    return out;
}

static void masks_values_that_carry_credentials(void **state)
{
    static const struct {
        const char *query, *expected;
    } cases[] = {
        {"", "/p?"},
        {"a=1&b=2", "/p?a=1&b=2"},
        {"key=abc", "/p?key=***"},
        {"KEY=abc&x=1", "/p?KEY=***&x=1"},
        {"x=1&access_token=abc", "/p?x=1&access_token=***"},
        {"x=1&Api-Key=abc;y=2", "/p?x=1&Api-Key=***;y=2"},
        {"%74oken=abc", "/p?%74oken=***"},
        {"user%5Bpassword%5d=hunter2&q=1", "/p?user%5Bpassword%5d=***&q=1"},
        {"user[password]=hunter2", "/p?user[password]=***"},
        {"token[]=a&token[]=b", "/p?token[]=***&token[]=***"},
        {"login.secret=a", "/p?login.secret=***"},
        {"token", "/p?token"},
        {"token=", "/p?token="},
        {"token==a=b", "/p?token=***"},
        {"&&token=a&&", "/p?&&token=***&&"},
        {"=a&token=b", "/p?=a&token=***"},
        {"keys=a&monkey=b&tokenx=c", "/p?keys=a&monkey=b&tokenx=c"},
        {"token=\"\\\n", "/p?token=***"},
        {"%=1&%7=2&%zz=3", "/p?%=1&%7=2&%zz=3"},
        {"a=1#access_token=x", "/p?a=1#access_token=***"},
    };
    char out[ACCESS_LINE_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_string_equal(path_of("/p", cases[i].query, out), cases[i].expected);
    assert_string_equal(path_of("/p", NULL, out), "/p");
}

static void masks_the_parameters_that_plugins_named(void **state)
{
    static const struct {
        const char *query, *expected;
    } cases[] = {
        {"own=a&x=1", "/p?own=***&x=1"},
        {"OWN=a&%6f%57n=b", "/p?OWN=***&%6f%57n=***"},
        {"my-key.in=a", "/p?my-key.in=***"},
        {"in=a&owner=b&ow=c&own", "/p?in=a&owner=b&ow=c&own"},
        {"token=a", "/p?token=***"},
    };
    char *names[] = {"own", "my_key.in"};
    const struct access_policy policy = {.sample = 1, .secrets = {names, 2}};
    char line[ACCESS_LINE_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct access_record record = {.path = STR("/p"), .query = str_of(cases[i].query)};
        size_t n = access_format(line, sizeof(line), &policy, &record);
        json_t *object = json_loadb(line, n, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(object, "path")),
                            cases[i].expected);
        json_decref(object);
    }
}

static void masks_each_name_that_the_interface_lists(void **state)
{
    static const char *const names[] = {
        "key",           "api_key",       "apikey",   "token",     "access_token",
        "id_token",      "refresh_token", "password", "passwd",    "pwd",
        "secret",        "client_secret", "sig",      "signature", "auth",
        "authorization", "code",          "session",  "jwt",
    };
    char query[64], expected[64], out[ACCESS_LINE_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(query, sizeof(query), "%s=v&z=1", names[i]);
        snprintf(expected, sizeof(expected), "/?%s=***&z=1", names[i]);
        assert_string_equal(path_of("/", query, out), expected);
    }
}

static void writes_the_combined_format(void **state)
{
    struct access_record record = record_of_everything();
    char line[ACCESS_LINE_MAX];

    (void)state;
    format(line, &combined, &record);
    assert_string_equal(line, "192.0.2.7 - alice [01/Jan/2026:00:00:00 +0000] "
                              "\"POST /api/users/7?page=2 HTTP/1.1\" 503 18446744073709551615 "
                              "\"https://example.com/?token=***&x=1\" \"curl/7.88.1\"");
}

static void combined_escapes_what_would_end_a_column(void **state)
{
    struct access_record record = record_of_everything();
    char line[ACCESS_LINE_MAX];

    (void)state;
    record.credential = STR("a b \"c");
    record.referer = (struct str){NULL, 0};
    record.user_agent = STR("q\" b\\ \x1b \xff \xc2\x9b \xc3\xbc");
    record.method = (struct str){NULL, 0};
    record.wall_ms = 1798761599000; /* the last second of 2026 */
    format(line, &combined, &record);
    assert_string_equal(line, "192.0.2.7 - a\\x20b\\x20\\x22c [31/Dec/2026:23:59:59 +0000] "
                              "\"-\" 503 18446744073709551615 \"-\" "
                              "\"q\\x22 b\\x5c \\x1b \\xff \\xc2\\x9b \xc3\xbc\"");
}

static void refuses_a_buffer_that_a_line_might_not_fit(void **state)
{
    struct access_record record = record_of_everything();
    char line[64];

    (void)state;
    assert_int_equal(access_format(line, sizeof(line), &json, &record), 0);
}

static void keeps_failures_and_samples_the_rest(void **state)
{
    const struct access_policy third = {.sample = 3}, slow = {.sample = 1, .slower_than = 1000};
    const struct access_record good = {.status = 200, .dur = 999}, bad = {.status = 400},
                               torn = {.status = 200, .reason = R_CLIENT_ABORT},
                               late = {.status = 200, .dur = 1000};
    uint32_t counter = 0;
    int kept = 0;

    (void)state;
    for (int i = 0; i < 300; i++)
        kept += access_wants(&third, &counter, &good);
    assert_int_equal(kept, 100);
    for (int i = 0; i < 10; i++) {
        assert_true(access_wants(&third, &counter, &bad));
        assert_true(access_wants(&third, &counter, &torn));
    }
    assert_false(access_wants(&slow, &counter, &good));
    assert_true(access_wants(&slow, &counter, &late));
    assert_true(access_wants(&slow, &counter, &bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_every_key_in_order),
        cmocka_unit_test(writes_null_for_what_is_not_known),
        cmocka_unit_test(rounds_milliseconds_to_three_decimals),
        cmocka_unit_test(gives_back_every_byte_at_every_place),
        cmocka_unit_test(escapes_nul_and_terminal_controls),
        cmocka_unit_test(keeps_utf8_and_escapes_what_only_looks_like_it),
        cmocka_unit_test(survives_random_bytes_in_every_field),
        cmocka_unit_test(cuts_long_values_and_stays_within_a_line),
        cmocka_unit_test(masks_values_that_carry_credentials),
        cmocka_unit_test(masks_the_parameters_that_plugins_named),
        cmocka_unit_test(masks_each_name_that_the_interface_lists),
        cmocka_unit_test(writes_the_combined_format),
        cmocka_unit_test(combined_escapes_what_would_end_a_column),
        cmocka_unit_test(refuses_a_buffer_that_a_line_might_not_fit),
        cmocka_unit_test(keeps_failures_and_samples_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
