#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "http/bytes.h"
#include "http/head.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct fixture {
    struct slab slab;
    struct arena arena;
    struct head head;
};

static int open_fixture(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    slab_init(&f->slab, ARENA_CHUNK, 1);
    arena_init(&f->arena, &f->slab);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;
    arena_done(&f->arena);
    slab_done(&f->slab);
    free(f);
    return 0;
}

static void add(struct fixture *f, const char *name, const char *value)
{
    assert_int_equal(head_add(&f->head, &f->arena, str_of(name), str_of(value)), 0);
}

/* "Name=value;" for each field. */
static void assert_fields(const struct head *head, const char *want)
{
    char out[1024];
    size_t n = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        const struct field *field = &head->fields[i];
        memcpy(out + n, field->name.p, field->name.n);
        n += field->name.n;
        out[n++] = '=';
        memcpy(out + n, field->value.p, field->value.n);
        n += field->value.n;
        out[n++] = ';';
    }
    out[n] = '\0';
    assert_string_equal(out, want);
}

static void knows_its_fields_in_any_case(void **state)
{
    (void)state;
    for (int id = F_OTHER + 1; id < FIELD_COUNT; id++) {
        char name[32];
        struct str canonical = field_names[id];
        assert_int_equal(field_id_of(canonical), id);
        for (size_t i = 0; i < canonical.n; i++)
            name[i] = ascii_lower(canonical.p[i]);
        assert_int_equal(field_id_of((struct str){name, canonical.n}), id);
        for (size_t i = 0; i < canonical.n; i++)
            if (name[i] >= 'a' && name[i] <= 'z')
                name[i] = (char)(name[i] - 0x20);
        assert_int_equal(field_id_of((struct str){name, canonical.n}), id);
    }
}

/* Every byte of every name replaced by every other byte: nothing but its other case is it. */
static void takes_no_other_name_for_a_field_it_knows(void **state)
{
    (void)state;
    for (int id = F_OTHER + 1; id < FIELD_COUNT; id++) {
        char name[32];
        size_t n = field_names[id].n;
        memcpy(name, field_names[id].p, n);
        for (size_t i = 0; i < n; i++) {
            for (int c = 0; c < 256; c++) {
                name[i] = (char)c;
                if (ascii_lower((char)c) == ascii_lower(field_names[id].p[i]))
                    continue;
                assert_int_not_equal(field_id_of((struct str){name, n}), id);
            }
            name[i] = field_names[id].p[i];
        }
        assert_int_equal(field_id_of((struct str){name, n - 1}), F_OTHER);
    }
    assert_int_equal(field_id_of(STR("")), F_OTHER);
    assert_int_equal(field_id_of(STR("X-Something-Quite-Different")), F_OTHER);
}

static void knows_methods_by_case_and_whether_they_repeat_safely(void **state)
{
    (void)state;
    for (int m = M_OTHER + 1; m < METHOD_COUNT; m++)
        assert_int_equal(method_of(method_names[m]), m);
    assert_int_equal(method_of(STR("get")), M_OTHER);
    assert_int_equal(method_of(STR("GETS")), M_OTHER);
    assert_int_equal(method_of(STR("GE")), M_OTHER);
    assert_int_equal(method_of(STR("")), M_OTHER);
    assert_true(method_is_idempotent(M_GET));
    assert_true(method_is_idempotent(M_PUT));
    assert_true(method_is_idempotent(M_DELETE));
    assert_false(method_is_idempotent(M_POST));
    assert_false(method_is_idempotent(M_PATCH));
    assert_false(method_is_idempotent(M_OTHER));
}

static void finds_the_first_of_equal_names(void **state)
{
    struct fixture *f = *state;
    add(f, "A", "1");
    add(f, "host", "2");
    add(f, "HOST", "3");
    add(f, "a", "4");
    assert_true(str_eq(head_find(&f->head, F_HOST)->value, STR("2")));
    assert_true(str_eq(head_find_name(&f->head, STR("Host"))->value, STR("2")));
    assert_true(str_eq(head_find_name(&f->head, STR("a"))->value, STR("1")));
    assert_null(head_find(&f->head, F_DATE));
    assert_null(head_find(&f->head, F_OTHER)); /* not a field */
    assert_null(head_find_name(&f->head, STR("b")));
}

static void removes_all_of_a_name_and_keeps_the_order(void **state)
{
    struct fixture *f = *state;
    add(f, "A", "1");
    add(f, "Via", "2");
    add(f, "B", "3");
    add(f, "via", "4");
    add(f, "a", "5");
    assert_int_equal(head_remove_name(&f->head, STR("via")), 2);
    assert_fields(&f->head, "A=1;B=3;a=5;");
    assert_int_equal(head_remove_name(&f->head, STR("a")), 2);
    assert_fields(&f->head, "B=3;");
    assert_int_equal(head_remove_name(&f->head, STR("Via")), 0);
    assert_fields(&f->head, "B=3;");
}

static void sets_one_field_in_place_of_many(void **state)
{
    struct fixture *f = *state;
    add(f, "X-A", "1");
    add(f, "B", "2");
    add(f, "x-a", "3");
    assert_int_equal(head_set(&f->head, &f->arena, STR("X-A"), STR("9")), 0);
    assert_int_equal(head_add_id(&f->head, &f->arena, F_X_REQUEST_ID, STR("8")), 0);
    assert_fields(&f->head, "B=2;X-A=9;X-Request-Id=8;");
}

static void grows_beyond_its_first_room(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 100; i++)
        add(f, "A", "");
    assert_int_equal(f->head.count, 100);
    assert_int_equal(head_remove_name(&f->head, STR("A")), 100);
}

static void loses_nothing_when_memory_is_out(void **state)
{
    struct fixture *f = *state;
#ifdef NDEBUG
    skip();
#endif
    mem_fail_at(1); /* the arena's first chunk */
    assert_int_equal(head_add(&f->head, &f->arena, STR("A"), STR("1")), -ENOMEM);
    assert_int_equal(f->head.count, 0);
    for (int i = 0; i < 64; i++) /* full: the next one needs 128 places, more than a chunk */
        add(f, "A", "1");
    assert_int_equal(f->head.count, f->head.cap);
    mem_fail_at(1);
    assert_int_equal(head_set(&f->head, &f->arena, STR("A"), STR("2")), -ENOMEM);
    mem_fail_at(0);
    assert_int_equal(f->head.count, 64);
    assert_int_equal(head_set(&f->head, &f->arena, STR("A"), STR("2")), 0);
    assert_fields(&f->head, "A=2;");
}

static void strips_what_is_for_one_hop_only(void **state)
{
    struct fixture *f = *state;
    add(f, "Host", "a");
    add(f, "Connection", "close, X-Mine,, te");
    add(f, "x-mine", "1");
    add(f, "Keep-Alive", "timeout=5");
    add(f, "Proxy-Connection", "keep-alive");
    add(f, "TE", "trailers");
    add(f, "Upgrade", "websocket");
    add(f, "HTTP2-Settings", "x");
    add(f, "Proxy-Authorization", "x");
    add(f, "Proxy-Authenticate", "x");
    add(f, "connection", "Accept");
    add(f, "Accept", "*/*");
    add(f, "X-Other", "2");
    assert_int_equal(head_strip_hop(&f->head), R_NONE);
    assert_fields(&f->head, "Host=a;Proxy-Authenticate=x;X-Other=2;");
}

static void drops_trailer_fields_that_announce_what_is_dropped(void **state)
{
    struct fixture *f = *state;
    add(f, "Trailer", "X-Sum, X-Other");
    add(f, "trailer", "X-Sum, content_length");
    add(f, "Trailer", "Transfer-Encoding");
    add(f, "Trailer", "X_Forwarded.Prefix-of-a-name-that-is-long");
    add(f, "Trailer", "Grpc-Status");
    add(f, "Accept", "*/*");
    assert_int_equal(head_strip_hop(&f->head), R_NONE);
    assert_fields(&f->head, "Trailer=X-Sum, X-Other;Trailer=Grpc-Status;Accept=*/*;");
}

static void refuses_to_let_connection_name_what_must_survive(void **state)
{
    static const char *const names[] = {
        "Host",
        "content-length",
        "Authorization",
        "Cookie",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "Forwarded",
        "X-Request-Id",
        "Content-Type",
        "Via",
        "traceparent",
    };
    struct fixture *f = *state;
    add(f, "Keep-Alive", "1");
    add(f, "Connection", "close");
    for (size_t i = 0; i < COUNT(names); i++) {
        add(f, "Connection", names[i]);
        assert_int_equal(head_strip_hop(&f->head), R_BAD_CONNECTION);
        assert_int_equal(f->head.count, 3); /* nothing removed */
        f->head.count--;
    }
    assert_int_equal(head_strip_hop(&f->head), R_NONE);
    assert_int_equal(f->head.count, 0);
}

static void bounds_how_many_fields_connection_may_name(void **state)
{
    struct fixture *f = *state;
    char options[33 * 2];
    for (size_t i = 0; i < 33; i++) {
        options[2 * i] = 'a';
        options[2 * i + 1] = ',';
    }
    add(f, "Connection", "");
    f->head.fields[0].value = (struct str){options, 32 * 2};
    f->head.count = 1;
    assert_int_equal(head_strip_hop(&f->head), R_NONE);
    add(f, "Connection", "");
    f->head.fields[0].value = (struct str){options, 33 * 2};
    assert_int_equal(head_strip_hop(&f->head), R_BAD_CONNECTION);
}

/* RFC 9110 5.6.2, spelt out once more. */
static void takes_exactly_the_bytes_of_a_token(void **state)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    (void)state;
    for (int c = 0; c < 256; c++) {
        char byte[] = {(char)c, 'x'};
        int is_tchar = c && strchr(token, c);
        assert_int_equal(head_is_token((struct str){byte, 1}), is_tchar);
        assert_int_equal(head_is_token((struct str){byte, 2}), is_tchar);
    }
    assert_false(head_is_token(STR("")));
}

static void takes_exactly_the_bytes_of_a_field_value(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        char value[40];
        int is_text = c == '\t' || (c >= 0x20 && c != 0x7f);
        for (size_t at = 0; at < sizeof(value); at++) {
            memset(value, 'a', sizeof(value));
            value[at] = (char)c;
            assert_int_equal(head_is_field_value((struct str){value, sizeof(value)}), is_text);
        }
        assert_int_equal(head_is_field_value((struct str){value + 39, 1}), is_text);
    }
    assert_true(head_is_field_value(STR("")));
    assert_true(head_is_field_value((struct str){NULL, 0}));
}

/* Each length, each place of one bad byte, at the very end of its memory. */
static void vector_scan_is_the_twin_of_the_scalar_one(void **state)
{
    (void)state;
    for (size_t n = 0; n < 70; n++) {
        char *p = malloc(n ? n : 1);
        for (size_t bad = 0; bad <= n; bad++) {
            for (int c = 0; c < 256; c++) {
                memset(p, ' ' + (int)(bad % 90), n);
                if (bad < n)
                    p[bad] = (char)c;
                const char *end = bytes_text_end_scalar(p, p + n);
                assert_ptr_equal(bytes_text_end(p, p + n), end);
                for (const char *from = p; from <= end; from++)
                    assert_ptr_equal(bytes_text_end_in(p, from, p + n), end);
                if (bad == n)
                    break;
            }
        }
        free(p);
    }
}

static void takes_hosts_with_and_without_port(void **state)
{
    static const char *const good[] = {
        "a",
        "example.com",
        "example.com:80",
        "10.0.0.1",
        "10.0.0.1:65535",
        "[::1]",
        "[::1]:8080",
        "[fd00::1:2]",
        "my_host-1~",
        "xn--bcher-kva.example.",
        "[::ffff:1.2.3.4]:1",
        "a:0",
    };
    static const char *const bad[] = {
        "",        ":80",    "a:",          "a:65536", "a:-1",     "a:080000", "a:8x",
        "a b",     "user@a", "a/b",         "a,b",     "a?b",      "a#b",      "a%41",
        "[",       "[]",     "[::1",        "[::g]",   "[::1]x",   "[::1]:",   "[1.2.3.4]",
        "[::1%1]", "::1",    "a:80:80",     "a\tb",    "\xc3\xa4", "a\\b",     "[v1.x]",
        "a;b",     "(a)",    "[::1]:65536", "a..",     "a..b",     ".a",       ".",
        "..",      "a..:80",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++)
        assert_true(head_is_authority(str_of(good[i])));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(head_is_authority(str_of(bad[i])));
}

static void hosts_are_compared_in_one_spelling(void **state)
{
    static const char *const cases[][2] = {
        {"Example.COM", "example.com"},
        {"example.com.:8080", "example.com"},
        {"h:1", "h"},
        {"192.0.2.1:80", "192.0.2.1"},
        {"[::1]", "[::1]"},
        {"[::1]:443", "[::1]"},
        {"[0:0:0:0:0:0:0:1]:80", "[::1]"},
        {"[2001:DB8:0:0::0A]", "[2001:db8::a]"},
        {"[::ffff:192.0.2.1]", "[::ffff:192.0.2.1]"},
        {"[::ffff:c000:201]", "[::ffff:192.0.2.1]"},
        {"", ""},
    };
    struct slab chunks;
    struct arena arena;
    struct str host;
    (void)state;
    slab_init(&chunks, ARENA_CHUNK, 1);
    arena_init(&arena, &chunks);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(head_host(str_of(cases[i][0]), &arena, &host), 0);
        assert_true(str_eq(host, str_of(cases[i][1])));
    }
    arena_done(&arena);
    slab_done(&chunks);
}

/* Who may edit heads (request_headers, plugins) must not be able to frame messages. */
static void what_frames_is_the_codecs_alone(void **state)
{
    static const char *const codecs[] = {"connection", "Content-Length",   "TRANSFER-ENCODING",
                                         "Keep-Alive", "Proxy-Connection", "te",
                                         "Trailer",    "Upgrade",          "HTTP2-Settings"};
    static const char *const others[] = {"Host", "Content-Type", "Content-Encoding", "Via",
                                         "X-Content-Length"};
    (void)state;
    for (size_t i = 0; i < sizeof(codecs) / sizeof(*codecs); i++)
        assert_true(head_is_codecs(field_id_of(str_of(codecs[i]))));
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_false(head_is_codecs(field_id_of(str_of(others[i]))));
    assert_false(head_is_codecs(F_OTHER));
}

int main(void)
{
#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_compared_in_one_spelling),
        cmocka_unit_test(what_frames_is_the_codecs_alone),
        cmocka_unit_test(knows_its_fields_in_any_case),
        cmocka_unit_test(takes_no_other_name_for_a_field_it_knows),
        cmocka_unit_test(knows_methods_by_case_and_whether_they_repeat_safely),
        WITH_HEAD(finds_the_first_of_equal_names),
        WITH_HEAD(removes_all_of_a_name_and_keeps_the_order),
        WITH_HEAD(sets_one_field_in_place_of_many),
        WITH_HEAD(grows_beyond_its_first_room),
        WITH_HEAD(loses_nothing_when_memory_is_out),
        WITH_HEAD(strips_what_is_for_one_hop_only),
        WITH_HEAD(drops_trailer_fields_that_announce_what_is_dropped),
        WITH_HEAD(refuses_to_let_connection_name_what_must_survive),
        WITH_HEAD(bounds_how_many_fields_connection_may_name),
        cmocka_unit_test(takes_exactly_the_bytes_of_a_token),
        cmocka_unit_test(takes_exactly_the_bytes_of_a_field_value),
        cmocka_unit_test(vector_scan_is_the_twin_of_the_scalar_one),
        cmocka_unit_test(takes_hosts_with_and_without_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
