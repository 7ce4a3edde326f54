#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/h2_fields.h"

static struct slab chunks;
static struct arena arena;
static struct h2_section section;
static struct h1_limits limits;

static int set_up(void **state)
{
    (void)state;
    slab_init(&chunks, ARENA_CHUNK, 16);
    arena_init(&arena, &chunks);
    limits = (struct h1_limits){.header_bytes = 4096, .headers = 10, .target_bytes = 64};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mem_fail_at(0);
    arena_done(&arena);
    slab_done(&chunks);
    return 0;
}

/* Fields as "name=value" up to NULL. */
static void gather(const char *const *fields)
{
    h2_section_begin(&section, &arena);
    for (; *fields; fields++) {
        const char *equals = strchr(*fields, '=');
        struct str name = {*fields, (size_t)(equals - *fields)};
        h2_section_add(&section, name, str_of(equals + 1), &limits);
    }
}

#define GATHER(...) gather((const char *const[]){__VA_ARGS__, NULL})
#define GET         ":method=GET", ":scheme=http", ":authority=a.example", ":path=/p?q=1"

static void expect_reason(enum reason reason, bool ended)
{
    assert_null(h2_section_request(&section, ended, &limits));
    assert_string_equal(reason_texts[section.fault.reason].name, reason_texts[reason].name);
}

#define REFUSED(reason, ...)                                                                   \
    do {                                                                                       \
        GATHER(__VA_ARGS__);                                                                   \
        expect_reason(reason, true);                                                           \
    } while (0)

static void expect_str(struct str s, const char *text)
{
    assert_int_equal(s.n, strlen(text));
    assert_memory_equal(s.p, text, s.n);
}

static void a_request_is_what_http_1_would_have_made_of_it(void **state)
{
    (void)state;
    GATHER(GET, "user-agent=x", "x-own=1", "te=trailers");
    struct head *head = h2_section_request(&section, true, &limits);
    assert_non_null(head);
    assert_true(head->h2);
    assert_int_equal(head->method, M_GET);
    expect_str(head->target, "/p?q=1");
    expect_str(head->path, "/p");
    expect_str(head->query, "q=1");
    expect_str(head->authority, "a.example");
    expect_str(head_find(head, F_HOST)->value, "a.example");
    expect_str(head_find(head, F_USER_AGENT)->name, "User-Agent");
    expect_str(head_find_name(head, STR("x-own"))->value, "1");
    assert_int_equal(head->framing, FRAMING_NONE);
}

static void lengths_make_framing(void **state)
{
    (void)state;
    static const struct {
        const char *method, *length;
        bool ended;
        enum framing framing;
    } cases[] = {
        {":method=POST", NULL, true, FRAMING_LENGTH},
        {":method=POST", NULL, false, FRAMING_CHUNKED},
        {":method=POST", "content-length=5", false, FRAMING_LENGTH},
        {":method=GET", NULL, true, FRAMING_NONE},
        {":method=GET", NULL, false, FRAMING_CHUNKED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        GATHER(cases[i].method, ":scheme=http", ":authority=a", ":path=/", cases[i].length);
        struct head *head = h2_section_request(&section, cases[i].ended, &limits);
        assert_non_null(head);
        assert_int_equal(head->framing, cases[i].framing);
        assert_int_equal(head->length, cases[i].length ? 5 : 0);
    }
}

static void crumbs_of_cookies_are_one(void **state)
{
    (void)state;
    GATHER(GET, "cookie=a=1", "x=y", "cookie=b=2", "cookie=c=3");
    struct head *head = h2_section_request(&section, true, &limits);
    assert_non_null(head);
    expect_str(head_find(head, F_COOKIE)->value, "a=1; b=2; c=3");
    assert_int_equal(head->count, 3); /* Cookie, x, Host */
}

static void a_refusal_knows_what_the_client_likes_to_read(void **state)
{
    (void)state;
    REFUSED(R_BAD_HOST, GET, "host=b", "accept=text/html");
    assert_true(str_eq(section.fault.accept, STR("text/html")));
    REFUSED(R_BAD_HOST, GET, "host=b");
    assert_null(section.fault.accept.p);
}

static void what_http_1_refuses_is_refused(void **state)
{
    (void)state;
    REFUSED(R_BAD_METHOD, ":method=G T", ":scheme=http", ":authority=a", ":path=/");
    REFUSED(R_BAD_METHOD, ":method=CONNECT", ":authority=a:1");
    REFUSED(R_BAD_TARGET, ":method=GET", ":scheme=ftp", ":authority=a", ":path=/");
    REFUSED(R_BAD_TARGET, ":method=GET", ":scheme=http", ":authority=a", ":path=x");
    REFUSED(R_BAD_TARGET, ":method=GET", ":scheme=http", ":authority=a", ":path=/a b");
    REFUSED(R_BAD_TARGET, ":method=GET", ":scheme=http", ":authority=a", ":path=/a#b");
    REFUSED(R_BAD_TARGET, ":method=GET", ":scheme=http", ":authority=a", ":path=*");
    REFUSED(R_BAD_HOST, ":method=GET", ":scheme=http", ":authority=u@a", ":path=/");
    REFUSED(R_BAD_HOST, ":method=GET", ":scheme=http", ":path=/");
    REFUSED(R_BAD_HOST, GET, "host=other.example");
    REFUSED(R_BAD_HOST, ":method=GET", ":scheme=http", ":path=/", "host=a", "host=a");
    REFUSED(R_BAD_CONNECTION, GET, "connection=close");
    REFUSED(R_BAD_CONNECTION, GET, "transfer-encoding=chunked");
    REFUSED(R_BAD_CONNECTION, GET, "upgrade=h2c");
    REFUSED(R_BAD_CONNECTION, GET, "te=gzip");
    REFUSED(R_BAD_LENGTH, GET, "content-length=+1");
    REFUSED(R_BAD_LENGTH, GET, "content-length=1", "content-length=1");
    REFUSED(R_BAD_FIELD_NAME, GET, "a b=1");
    REFUSED(R_BAD_FIELD_VALUE, GET, "a=1\r\nb: 2");
    REFUSED(R_BAD_FIELD_VALUE, GET, "a= 1");
    REFUSED(R_CLIENT_EXPECT, GET, "expect=miracle");
    REFUSED(R_BAD_FIELDS, GET, ":path=/again");
    REFUSED(R_BAD_FIELDS, ":method=GET", "a=b", ":path=/");
    REFUSED(R_BAD_FIELDS, GET, ":unknown=1");
    REFUSED(R_BAD_UPGRADE, ":method=CONNECT", ":scheme=http", ":authority=a", ":path=/",
            ":protocol=other");
}

static void limits_name_the_field(void **state)
{
    (void)state;
    limits.headers = 2;
    GATHER(GET, "a=1", "b=2", "c=3");
    expect_reason(R_CLIENT_HEADERS_TOO_LARGE, true);
    expect_str(section.fault.field, "c");
    assert_int_equal(section.fault.limit, 2);
    limits = (struct h1_limits){.header_bytes = 250, .headers = 10, .target_bytes = 64};
    GATHER(GET, "a=1", "big=0123456789012345678901234567890123456789");
    expect_reason(R_CLIENT_HEADERS_TOO_LARGE, true);
    expect_str(section.fault.field, "big");
    limits = (struct h1_limits){.header_bytes = 4096, .headers = 10, .target_bytes = 4};
    GATHER(GET);
    expect_reason(R_CLIENT_TARGET_TOO_LONG, true);
}

static void a_websocket_asks_as_on_http_1(void **state)
{
    (void)state;
    GATHER(":method=CONNECT", ":scheme=http", ":authority=a", ":path=/chat",
           ":protocol=websocket", "sec-websocket-version=13", "sec-websocket-key=mine");
    struct head *head = h2_section_request(&section, false, &limits);
    assert_non_null(head);
    expect_str(head->method_text, "GET");
    expect_str(head->upgrade, "websocket");
    assert_int_equal(head_find_name(head, STR("Sec-WebSocket-Key"))->value.n, 24);
    assert_int_equal(head->framing, FRAMING_NONE);
}

static void trailers_lose_what_steers(void **state)
{
    (void)state;
    h2_section_begin(&section, &arena);
    h2_section_add(&section, STR("x-sum"), STR("1"), &limits);
    h2_section_add(&section, STR("host"), STR("evil"), &limits);
    h2_section_add(&section, STR("x_forwarded_for"), STR("evil"), &limits);
    struct head *trailers = h2_section_trailers(&section, &arena);
    assert_non_null(trailers);
    assert_int_equal(trailers->count, 1);
    expect_str(trailers->fields[0].name, "x-sum");
}

static void responses_have_a_status(void **state)
{
    (void)state;
    static const char *const bad[] = {":status=101", ":status=99", ":status=2000",
                                      ":status=2 0", "a=b"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        GATHER(bad[i]);
        assert_null(h2_section_response(&section, true, M_GET));
        assert_int_equal(section.fault.reason, R_UPSTREAM_PROTOCOL);
    }
    GATHER(":status=200", "content-length=3");
    struct head *head = h2_section_response(&section, false, M_GET);
    assert_non_null(head);
    assert_int_equal(head->status, 200);
    assert_int_equal(head->framing, FRAMING_LENGTH);
    GATHER(":status=200", "content-length=3");
    head = h2_section_response(&section, true, M_HEAD);
    assert_int_equal(head->framing, FRAMING_NONE);
}

static void what_is_written_has_nothing_of_http_1(void **state)
{
    (void)state;
    struct field fields[40];
    struct head head = {.fields = fields, .cap = 40, .status = 200, .framing = FRAMING_LENGTH};
    head.length = 12;
    head_add(&head, &arena, STR("Connection"), STR("close"));
    head_add(&head, &arena, STR("Content-Type"), STR("a/b"));
    head_add(&head, &arena, STR("Transfer-Encoding"), STR("chunked"));
    nghttp2_nv usual[H2_NV_USUAL];
    struct h2_nv nv;
    assert_int_equal(h2_put_response(&nv, usual, &arena, &head), 0);
    assert_int_equal(nv.count, 3);
    assert_memory_equal(nv.list[0].value, "200", 3);
    assert_memory_equal(nv.list[1].name, "Content-Type", 12);
    assert_memory_equal(nv.list[2].value, "12", 2);
    for (int i = 0; i < 60; i++)
        head_add(&head, &arena, STR("X-Many"), STR("v"));
    assert_int_equal(h2_put_response(&nv, usual, &arena, &head), 0);
    assert_int_equal(nv.count, 63);
    assert_ptr_not_equal(nv.list, usual);
}

/* Whichever allocation fails: a fault, and never half a head. */
static void want_of_memory_is_a_fault(void **state)
{
    (void)state;
    struct head *head = NULL;
    for (unsigned long nth = 1; !head; nth++) {
        tear_down(state);
        set_up(state);
        mem_fail_at(nth);
        GATHER(GET, "cookie=a", "cookie=b", "x-very-own-name=value");
        head = h2_section_request(&section, true, &limits);
        mem_fail_at(0);
        if (!head)
            assert_int_equal(section.fault.reason, R_NO_MEMORY);
        assert_true(nth < 100);
    }
}

/* "name=value;" of each, names in small letters. */
static void put_text(char *out, const struct h2_nv *nv)
{
    for (size_t i = 0; i < nv->count; i++) {
        for (size_t k = 0; k < nv->list[i].namelen; k++)
            *out++ = ascii_lower((char)nv->list[i].name[k]);
        out += sprintf(out, "=%.*s;", (int)nv->list[i].valuelen, nv->list[i].value);
    }
}

static void a_request_goes_out_by_its_kind(void **state)
{
    (void)state;
    char text[512];
    nghttp2_nv usual[H2_NV_USUAL];
    struct h2_nv nv;
    struct field fields[8];
    struct head head = {.fields = fields,
                        .cap = 8,
                        .method = M_GET,
                        .method_text = STR("GET"),
                        .target = STR("/chat?x"),
                        .upgrade = STR("websocket")};
    head_add_id(&head, &arena, F_HOST, STR("a.test"));
    head_add(&head, &arena, STR("Sec-WebSocket-Key"), STR("k"));
    head_add(&head, &arena, STR("Sec-WebSocket-Version"), STR("13"));
    head_add(&head, &arena, STR("Upgrade"), STR("websocket"));
    head_add(&head, &arena, STR("TE"), STR("trailers"));
    assert_int_equal(h2_put_request(&nv, usual, &arena, &head, STR("http")), 0);
    put_text(text, &nv);
    assert_string_equal(text, ":method=GET;:scheme=http;:authority=a.test;:path=/chat?x;"
                              "sec-websocket-key=k;sec-websocket-version=13;te=trailers;");
    assert_int_equal(h2_put_connect(&nv, usual, &arena, &head, STR("https")), 0);
    put_text(text, &nv);
    assert_string_equal(text, ":method=CONNECT;:protocol=websocket;:scheme=https;"
                              ":authority=a.test;:path=/chat?x;sec-websocket-version=13;");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_request_is_what_http_1_would_have_made_of_it),
        T(lengths_make_framing),
        T(crumbs_of_cookies_are_one),
        T(a_refusal_knows_what_the_client_likes_to_read),
        T(what_http_1_refuses_is_refused),
        T(limits_name_the_field),
        T(a_websocket_asks_as_on_http_1),
        T(trailers_lose_what_steers),
        T(responses_have_a_status),
        T(what_is_written_has_nothing_of_http_1),
        T(a_request_goes_out_by_its_kind),
        T(want_of_memory_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
