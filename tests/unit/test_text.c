#include "proxy/text.h"

#include "forward_test.h"

static void bytes_are_escaped_for_where_they_stand(void **state)
{
    (void)state;
    static const struct {
        enum escape escape;
        const char *out;
    } cases[] = {
        {ESCAPE_NONE, "a\"\\<&'>\t%/?=+[~\xff"},
        {ESCAPE_FIELD, "a\"\\<&'> %/?=+[~\xff"},
        {ESCAPE_JSON, "a\\u0022\\u005c<&'>\\u0009%/?=+[~\\ufffd"},
        {ESCAPE_SCRIPT, "a\\u0022\\u005c\\u003c\\u0026\\u0027\\u003e\\u0009%/?=+[~\\ufffd"},
        {ESCAPE_HTML, "a&#34;\\&lt;&amp;&#39;&gt;\t%/?=+[~\xff"},
        {ESCAPE_PATH, "a%22%5C%3C&'%3E%09%25/%3F=+%5B~%FF"},
        {ESCAPE_QUERY, "a%22%5C%3C%26'%3E%09%25/?%3D%2B%5B~%FF"},
        {ESCAPE_AUTHORITY, "a%22%5C%3C%26%27%3E%09%25%2F%3F%3D%2B%5B~%FF"},
    };
    begin("", "192.0.2.7");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_str(text_escape(&ex.arena, STR("a\"\\<&'>\t%/?=+[~\xff"), cases[i].escape),
                   cases[i].out);
    assert_str(text_escape(&ex.arena, STR("\r\nSet-Cookie: x\r\n\x7f"), ESCAPE_FIELD),
               "  Set-Cookie: x   ");
    assert_str(text_escape(&ex.arena, STR(""), ESCAPE_JSON), "");
    end();
}

/* What is not UTF-8 would make all of a JSON text unreadable. */
static void json_is_utf8_whatever_comes(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80", "\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"caf\xe9", "caf\\ufffd"},
        {"\xc3", "\\ufffd"},
        {"\xc0\xaf", "\\ufffd\\ufffd"},
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},
        {"\xe2\x82\"", "\\ufffd\\ufffd\\u0022"},
    };
    begin("", "192.0.2.7");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_str(text_escape(&ex.arena, str_of(cases[i][0]), ESCAPE_JSON), cases[i][1]);
    end();
}

/* {id} in each place: literals stay as they are, and escapes that a path has already too. */
static void a_text_is_filled_in_by_its_parts(void **state)
{
    (void)state;
    static const struct {
        enum escape escape;
        const char *out;
    } cases[] = {
        {ESCAPE_NONE, "<a%2Fb&'\"c\">"},
        {ESCAPE_PATH, "<a%2Fb&'\"c\">"},
        {ESCAPE_QUERY, "<a%2Fb%26'%22c\">"},
        {ESCAPE_AUTHORITY, "<a%2Fb%26%27%22c\">"},
        {ESCAPE_HTML, "<a%2Fb&amp;&#39;&#34;c\">"},
        {ESCAPE_JSON, "<a%2Fb&'\\u0022c\">"},
    };
    struct template_part parts[] = {{.var = VAR_LITERAL, .text = STR("<")},
                                    {.var = VAR_CAPTURE},
                                    {.var = VAR_LITERAL, .text = STR("\">")},
                                    {.var = VAR_HEADER, .text = STR("x-none")}};
    struct template text = {parts, 4};
    begin("", "192.0.2.7");
    ex.match.captures[0] = STR("a%2Fb&'\"c");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        parts[1].escape = cases[i].escape;
        assert_str(text_fill(&ex, &text), cases[i].out);
    }
    /* a literal alone costs nothing */
    text.count = 1;
    assert_ptr_equal(text_fill(&ex, &text).p, parts[0].text.p);
    end();
}

static void a_host_keeps_its_brackets_where_hosts_stand(void **state)
{
    (void)state;
    struct template_part parts[] = {{.var = VAR_LITERAL, .text = STR("https://")},
                                    {.var = VAR_HOST, .escape = ESCAPE_AUTHORITY}};
    struct template text = {parts, 2};
    begin("", "192.0.2.7");
    ex.host = STR("[2001:db8::1]");
    assert_str(text_fill(&ex, &text), "https://[2001:db8::1]");
    parts[1].escape = ESCAPE_PATH;
    assert_str(text_fill(&ex, &text), "https://%5B2001:db8::1%5D");
    end();
}

static void without_memory_there_is_no_text(void **state)
{
    (void)state;
    struct template_part parts[] = {{.var = VAR_HOST}, {.var = VAR_CLIENT_IP}};
    struct template text = {parts, 2};
    begin("", "192.0.2.7");
    ex.host = STR("h");
    mem_fail_at(1);
    assert_null(text_fill(&ex, &text).p);
    mem_fail_at(1);
    assert_null(text_escape(&ex.arena, STR("x"), ESCAPE_JSON).p);
    mem_fail_at(0);
    assert_str(text_fill(&ex, &text), "h192.0.2.7");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_escaped_for_where_they_stand),
        cmocka_unit_test(json_is_utf8_whatever_comes),
        cmocka_unit_test(a_text_is_filled_in_by_its_parts),
        cmocka_unit_test(a_host_keeps_its_brackets_where_hosts_stand),
        cmocka_unit_test(without_memory_there_is_no_text),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
