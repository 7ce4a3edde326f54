#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "http/h1_parse.h"
#include "http/h1_write.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define F(id_, name_, value_)                                                                  \
    {                                                                                          \
        .name = STR(name_), .value = STR(value_), .id = id_                                    \
    }

static const struct h1_limits limits = {
    .header_bytes = 4096, .headers = 16, .target_bytes = 1024};

/* Writes into memory of exactly the bound, so that ASan sees every byte beyond it. */
static char *write_head(const struct head *head, bool request, enum h1_persist persist)
{
    char *out = malloc(h1_write_bound(head) + 1);
    char *exact = malloc(h1_write_bound(head));
    size_t n = request ? h1_write_request(exact, head, persist)
                       : h1_write_response(exact, head, persist);
    memcpy(out, exact, n);
    out[n] = '\0';
    free(exact);
    return out;
}

static void assert_written(const struct head *head, bool request, enum h1_persist persist,
                           const char *want)
{
    char *got = write_head(head, request, persist);
    assert_string_equal(got, want);
    free(got);
}

static struct head request_of(struct field *fields, uint32_t count)
{
    return (struct head){
        .fields = fields,
        .count = count,
        .method_text = STR("GET"),
        .target = STR("/a?b"),
    };
}

static void writes_a_request_in_one_way_only(void **state)
{
    struct field fields[] = {F(F_HOST, "Host", "h"), F(F_OTHER, "x-A", ""),
                             F(F_ACCEPT, "Accept", "a\tb \xff")};
    struct head head = request_of(fields, 3);
    (void)state;
    assert_written(&head, true, H1_PERSIST_DEFAULT,
                   "GET /a?b HTTP/1.1\r\nHost: h\r\nx-A: \r\nAccept: a\tb \xff\r\n\r\n");
}

static void writes_framing_from_the_model_and_never_from_fields(void **state)
{
    struct field fields[] = {F(F_CONTENT_LENGTH, "Content-Length", "7"),
                             F(F_TRANSFER_ENCODING, "Transfer-Encoding", "gzip")};
    struct head head = request_of(fields, 2);
    (void)state;
    assert_written(&head, true, H1_PERSIST_DEFAULT, "GET /a?b HTTP/1.1\r\n\r\n");
    head.framing = FRAMING_LENGTH;
    head.length = UINT64_MAX;
    assert_written(&head, true, H1_PERSIST_DEFAULT,
                   "GET /a?b HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n");
    head.framing = FRAMING_CHUNKED;
    assert_written(&head, true, H1_PERSIST_DEFAULT,
                   "GET /a?b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
}

static void marks_the_connection_as_told(void **state)
{
    struct head head = request_of(NULL, 0);
    (void)state;
    assert_written(&head, true, H1_PERSIST_CLOSE,
                   "GET /a?b HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_written(&head, true, H1_PERSIST_KEEP,
                   "GET /a?b HTTP/1.1\r\nConnection: keep-alive\r\n\r\n");
    assert_written(&head, true, H1_PERSIST_UPGRADE, ""); /* to what? */
    head.upgrade = STR("websocket");
    assert_written(&head, true, H1_PERSIST_UPGRADE,
                   "GET /a?b HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    head.upgrade = STR("a\r\nb");
    assert_written(&head, true, H1_PERSIST_UPGRADE, "");
}

static void writes_a_length_only_where_it_means_something(void **state)
{
    static const struct {
        unsigned status;
        enum framing framing;
        int has_length;
        const char *want;
    } cases[] = {
        {200, FRAMING_LENGTH, 1, "HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n"},
        {200, FRAMING_LENGTH, 0, "HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n"},
        {200, FRAMING_CHUNKED, 0, "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"},
        {200, FRAMING_CLOSE, 0, "HTTP/1.1 200 \r\n\r\n"},
        {200, FRAMING_NONE, 1, "HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n"}, /* HEAD */
        {200, FRAMING_NONE, 0, "HTTP/1.1 200 \r\n\r\n"},
        {304, FRAMING_NONE, 1, "HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n"},
        {204, FRAMING_NONE, 1, "HTTP/1.1 204 \r\n\r\n"}, /* RFC 9110 8.6 */
        {100, FRAMING_NONE, 1, "HTTP/1.1 100 \r\n\r\n"},
        {204, FRAMING_LENGTH, 1, "HTTP/1.1 204 \r\n\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct head head = {.status = (uint16_t)cases[i].status,
                            .framing = cases[i].framing,
                            .has_length = cases[i].has_length,
                            .length = 5};
        assert_written(&head, false, H1_PERSIST_DEFAULT, cases[i].want);
    }
}

static void writes_status_and_phrase(void **state)
{
    struct field fields[] = {F(F_SERVER, "Server", "x")};
    struct head head = {
        .fields = fields, .count = 1, .status = 404, .reason_phrase = STR("Not Found")};
    (void)state;
    assert_written(&head, false, H1_PERSIST_CLOSE,
                   "HTTP/1.1 404 Not Found\r\nServer: x\r\nConnection: close\r\n\r\n");
    head.status = 99;
    assert_written(&head, false, H1_PERSIST_DEFAULT, "");
    head.status = 1000;
    assert_written(&head, false, H1_PERSIST_DEFAULT, "");
}

/* Each part that comes from elsewhere, with each byte that could end it early, in a short and
 * in a long text and in every place of it. */
static void writes_nothing_that_could_split_the_message(void **state)
{
    static const char evil[] = {'\r', '\n', '\0'};
    (void)state;
    for (size_t e = 0; e < sizeof(evil); e++) {
        for (size_t at = 0; at < 40; at++) {
            char text[40];
            struct str bad = {text, at < 3 ? 3 : sizeof(text)};
            struct field field = F(F_OTHER, "A", "b");
            struct head head = request_of(&field, 1);
            memset(text, 'a', sizeof(text));
            text[at] = evil[e];
            head.method_text = bad;
            assert_written(&head, true, H1_PERSIST_DEFAULT, "");
            head = request_of(&field, 1);
            head.target = bad;
            assert_written(&head, true, H1_PERSIST_DEFAULT, "");
            head = request_of(&field, 1);
            field.name = bad;
            assert_written(&head, true, H1_PERSIST_DEFAULT, "");
            field.name = STR("A");
            field.value = bad;
            assert_written(&head, true, H1_PERSIST_DEFAULT, "");
            head.status = 200;
            assert_written(&head, false, H1_PERSIST_DEFAULT, "");
            field.value = STR("b");
            head.reason_phrase = bad;
            assert_written(&head, false, H1_PERSIST_DEFAULT, "");
        }
    }
}

static void writes_no_name_that_reads_as_another(void **state)
{
    static const char *const names[] = {"", "A:", "A B", "A: b"};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct field field = {.name = str_of(names[i]), .value = STR("v")};
        struct head head = request_of(&field, 1);
        assert_written(&head, true, H1_PERSIST_DEFAULT, "");
    }
}

static void writes_trailers(void **state)
{
    struct field fields[] = {F(F_OTHER, "X-Sum", "1"),
                             F(F_CONTENT_LENGTH, "Content-Length", "7")};
    struct head head = {.fields = fields, .count = 2};
    char out[256];
    (void)state;
    assert_true(h1_write_bound(&head) <= sizeof(out));
    assert_int_equal(h1_write_trailers(out, &head), 12);
    assert_memory_equal(out, "X-Sum: 1\r\n\r\n", 12);
    head.count = 0;
    assert_int_equal(h1_write_trailers(out, &head), 2);
    assert_memory_equal(out, "\r\n", 2);
    fields[0].value = STR("\n");
    head.count = 1;
    assert_int_equal(h1_write_trailers(out, &head), 0);
}

static void writes_chunk_lines(void **state)
{
    char out[H1_CHUNK_LINE_MAX];
    (void)state;
    assert_int_equal(h1_write_chunk_line(out, 500), 5);
    assert_memory_equal(out, "1f4\r\n", 5);
    assert_int_equal(h1_write_chunk_line(out, 0), 3);
    assert_memory_equal(out, "0\r\n", 3);
    assert_int_equal(h1_write_chunk_line(out, UINT64_MAX), H1_CHUNK_LINE_MAX);
    assert_memory_equal(out, "ffffffffffffffff\r\n", H1_CHUNK_LINE_MAX);
}

static void knows_the_phrases(void **state)
{
    (void)state;
    assert_true(str_eq(h1_phrase(200), STR("OK")));
    assert_true(str_eq(h1_phrase(404), STR("Not Found")));
    assert_true(str_eq(h1_phrase(431), STR("Request Header Fields Too Large")));
    assert_int_equal(h1_phrase(299).n, 0);
    assert_int_equal(h1_phrase(0).n, 0);
}

/* What is written reads as what was read, and is written the same again. */
static void reading_and_writing_is_a_fixed_point(void **state)
{
    static const struct {
        const char *text;
        bool request;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost:h\r\nA:\t b \r\n\r\n", true},
        {"post http://h/p?q HTTP/1.1\r\nhost: h\r\ntransfer-encoding: CHUNKED\r\n\r\n", true},
        {"PUT /%20 HTTP/1.1\r\nContent-length: 007\r\nHost: [::1]:80\r\n\r\n", true},
        {"OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", true},
        {"HTTP/1.1 200\r\nContent-Length: 05\r\nA:\r\n\r\n", false},
        {"HTTP/1.1 299 x y\r\ntransfer-encoding:chunked\r\nB: \xff\r\n\r\n", false},
        {"HTTP/1.1 500 \r\n\r\n", false},
        {"HTTP/1.1 204 No\r\nContent-Length: 1\r\n\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct field f1[16], f2[16];
        struct head a = {.fields = f1, .cap = 16}, b = {.fields = f2, .cap = 16};
        struct h1_fault fault;
        bool request = cases[i].request;
        const char *text = cases[i].text;
        assert_int_equal(
            request ? h1_parse_request(text, strlen(text), &limits, &a, &fault)
                    : h1_parse_response(text, strlen(text), &limits, M_GET, &a, &fault),
            0);
        char *once = write_head(&a, request, H1_PERSIST_DEFAULT);
        assert_int_equal(
            request ? h1_parse_request(once, strlen(once), &limits, &b, &fault)
                    : h1_parse_response(once, strlen(once), &limits, M_GET, &b, &fault),
            0);
        char *twice = write_head(&b, request, H1_PERSIST_DEFAULT);
        assert_string_equal(once, twice);
        assert_int_equal(a.framing, b.framing);
        if (a.framing == FRAMING_LENGTH)
            assert_int_equal(a.length, b.length);
        assert_int_equal(a.count, b.count);
        for (uint32_t j = 0; j < a.count; j++) {
            assert_int_equal(a.fields[j].id, b.fields[j].id);
            assert_true(str_eq(a.fields[j].name, b.fields[j].name));
            assert_true(str_eq(a.fields[j].value, b.fields[j].value));
        }
        assert_true(str_eq(a.target, b.target));
        assert_true(str_eq(a.path, b.path));
        assert_int_equal(a.keep_alive, b.keep_alive);
        free(once);
        free(twice);
    }
}

/* The obvious writer of fields. */
static size_t put_plainly(char *out, const struct head *head)
{
    size_t n = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        const struct field *field = &head->fields[i];
        if (field->id == F_CONTENT_LENGTH || field->id == F_TRANSFER_ENCODING)
            continue;
        n += (size_t)sprintf(out + n, "%.*s: %.*s\r\n", (int)field->name.n, field->name.p,
                             (int)field->value.n, field->value.p);
    }
    return n;
}

/* What another part of the gateway may do with a field that came as a line. */
static void edit(struct head *head, uint32_t at)
{
    struct field *field = &head->fields[at], other;
    switch (rand() % 7) {
    case 0: /* taken away */
        head->count--;
        memmove(field, field + 1, (head->count - at) * sizeof(*field));
        break;
    case 1: /* another value */
        field->value = STR("new");
        break;
    case 2: /* cut */
        field->value.n /= 2;
        break;
    case 3:
        field->value = str_trim((struct str){field->value.p + field->value.n / 2,
                                             field->value.n - field->value.n / 2});
        break;
    case 4: /* another name */
        field->name = STR("X-Other");
        field->id = F_OTHER;
        break;
    case 5: /* another place */
        other = head->fields[0];
        head->fields[0] = *field;
        *field = other;
        break;
    default:
        break;
    }
}

/* Fields that nobody touched are copied in runs of lines; nobody must be able to tell. */
static void runs_of_lines_are_as_one_by_one(void **state)
{
    static const char *const lines[] = {
        "Host: h\r\n",   "Accept: */*\r\n", "X-A:b\r\n",
        "X-B:  two\r\n", "X-C: blank \r\n", "Content-Length: 7\r\n",
        "X-D:\r\n",      "X-E: \r\n",       "Cookie: a=b; c=d\r\n"};
    (void)state;
    srand(1);
    for (int round = 0; round < 20000; round++) {
        char text[512] = "GET /a HTTP/1.1\r\nHost: h\r\n", want[1024];
        struct field fields[16];
        struct head head = {.fields = fields, .cap = 16};
        struct h1_fault fault;
        for (int n = rand() % 8; n > 0; n--) {
            const char *line = lines[1 + (size_t)rand() % (COUNT(lines) - 1)];
            if (strncmp(line, "Content-", 8) != 0 || !strstr(text, line))
                strcat(text, line);
        }
        strcat(text, "\r\n");
        /* of exactly its length */
        char *exact = malloc(strlen(text));
        memcpy(exact, text, strlen(text));
        assert_int_equal(h1_parse_request(exact, strlen(text), &limits, &head, &fault), 0);
        for (int n = rand() % 3; n > 0 && head.count; n--)
            edit(&head, (uint32_t)rand() % head.count);
        head.framing = FRAMING_NONE;
        size_t n = (size_t)sprintf(want, "GET /a HTTP/1.1\r\n");
        n += put_plainly(want + n, &head);
        memcpy(want + n, "\r\n", 3);
        assert_written(&head, true, H1_PERSIST_DEFAULT, want);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_request_in_one_way_only),
        cmocka_unit_test(writes_framing_from_the_model_and_never_from_fields),
        cmocka_unit_test(marks_the_connection_as_told),
        cmocka_unit_test(writes_a_length_only_where_it_means_something),
        cmocka_unit_test(writes_status_and_phrase),
        cmocka_unit_test(writes_nothing_that_could_split_the_message),
        cmocka_unit_test(writes_no_name_that_reads_as_another),
        cmocka_unit_test(writes_trailers),
        cmocka_unit_test(runs_of_lines_are_as_one_by_one),
        cmocka_unit_test(writes_chunk_lines),
        cmocka_unit_test(knows_the_phrases),
        cmocka_unit_test(reading_and_writing_is_a_fixed_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
