#include "conf_test.h"

struct words {
    struct load load;
    struct conf_faults faults;
    struct lexer lexer;
};

static void words_begin(struct words *words, const char *text, size_t n)
{
    *words = (struct words){{0}, {0}, {0}};
    words->load.faults = &words->faults;
    lex_init(&words->lexer, &words->load, "t", (struct str){text, n});
}

/* Each token as KIND RAW LINE. */
static void expect_tokens(const char *text, const char *expected)
{
    struct words words;
    char got[1024] = "";
    words_begin(&words, text, strlen(text));
    for (;;) {
        struct token token = lex_take(&words.lexer);
        size_t n = strlen(got);
        if (token.kind == TOKEN_END)
            break;
        snprintf(got + n, sizeof(got) - n, "%s%c%.*s@%d", n ? " " : "", "-ta!x"[token.kind],
                 (int)token.raw.n, token.raw.p, token.line);
    }
    assert_string_equal(got, expected);
    assert_int_equal(words.faults.count, 0);
}

static void expect_lex_fault(const char *text, size_t n, const char *expected)
{
    struct words words;
    words_begin(&words, text, n);
    while (lex_take(&words.lexer).kind != TOKEN_END)
        ;
    char *said = faults_text(&words.faults);
    if (!strstr(said, expected) || words.faults.count != 1)
        fail_msg("%s: expected %s, got %s", text, expected, said);
    free(said);
    conf_faults_done(&words.faults);
}

static void cuts_words_marks_and_texts(void **state)
{
    (void)state;
    expect_tokens("a = b", "ta@1 !=@1 tb@1");
    expect_tokens("a=b{c,d}(e)", "ta@1 !=@1 tb@1 !{@1 tc@1 !,@1 td@1 !}@1 !(@1 te@1 !)@1");
    expect_tokens("a += {}", "ta@1 a+=@1 !{@1 !}@1");
    expect_tokens("16k 20% http://x/y /ping [::1]:80",
                  "t16k@1 t20%@1 thttp://x/y@1 t/ping@1 t[::1]:80@1");
    expect_tokens("\"a b\" 'c \"d'", "ta b@1 tc \"d@1");
    expect_tokens("\"a\\\"b\"", "ta\\\"b@1");
    expect_tokens("${HOME} ${X:-y z}", "t${HOME}@1 t${X:-y z}@1");
    expect_tokens("", "");
    expect_tokens(" \t\r\n", "");
}

static void counts_lines_through_comments_and_texts(void **state)
{
    (void)state;
    expect_tokens("a # x\nb // y\nc", "ta@1 tb@2 tc@3");
    expect_tokens("/* one */ a /* two\nthree */ b", "ta@1 tb@2");
    expect_tokens("#\n##\n//\na", "ta@4");
    expect_tokens("\"x\ny\" b", "tx\ny@1 tb@2");
    expect_tokens("a\r\nb", "ta@1 tb@2");
    expect_tokens("/**/a /***/ /*/*/ b", "ta@1 tb@1");
}

static void refuses_what_libconfuse_would_step_over(void **state)
{
    (void)state;
    expect_lex_fault("a\n/* b", 6, "t:2: this comment is never closed");
    expect_lex_fault("a\n\"b\nc", 6, "t:2: this text is never closed");
    expect_lex_fault("'b", 2, "t:1: this text is never closed");
    expect_lex_fault("a\0b", 3, "unexpected byte 0x00");
    expect_lex_fault("\"a\0b\"", 5, "cannot hold a NUL byte");
    expect_lex_fault("'a\0b'", 5, "cannot hold a NUL byte");
    expect_lex_fault("\x01", 1, "unexpected byte 0x01");
    expect_lex_fault("\x7f", 1, "unexpected byte 0x7f");
    expect_lex_fault("a\rb", 3, "unexpected byte 0x0d");
    expect_lex_fault("*", 1, "unexpected '*', expected quotation marks");
    expect_lex_fault("+", 1, "unexpected '+'");
}

static void checks_escapes_between_double_quotes(void **state)
{
    (void)state;
    static const char *const bad[] = {"\\0", "\\000", "\\x0", "\\x00", "\\400", "\\8", "\\19"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char text[16];
        snprintf(text, sizeof(text), "\"%s\"", bad[i]);
        expect_lex_fault(text, strlen(text), "t:1: ");
        text[0] = text[strlen(text) - 1] = '\''; /* single quotes know none of them */
        struct words words;
        words_begin(&words, text, strlen(text));
        assert_int_equal(lex_take(&words.lexer).kind, TOKEN_TEXT);
        assert_int_equal(words.faults.count, 0);
    }
    expect_tokens("\"\\n\\t\\x41\\377\\1\"", "t\\n\\t\\x41\\377\\1@1");
}

static void shows_tokens_shortly_and_on_one_line(void **state)
{
    (void)state;
    char out[LEX_SHOW];
    struct token end = {.kind = TOKEN_END};
    struct token text = {.kind = TOKEN_TEXT, .raw = STR("a\nb")};
    struct token longer = {.kind = TOKEN_TEXT,
                           .raw = STR("0123456789012345678901234567890123456789012345")};
    assert_string_equal(lex_show(&end, out), "the end of the file");
    assert_string_equal(lex_show(&text, out), "\"a b\"");
    assert_string_equal(lex_show(&longer, out),
                        "\"0123456789012345678901234567890123456789...\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_words_marks_and_texts),
        cmocka_unit_test(counts_lines_through_comments_and_texts),
        cmocka_unit_test(refuses_what_libconfuse_would_step_over),
        cmocka_unit_test(checks_escapes_between_double_quotes),
        cmocka_unit_test(shows_tokens_shortly_and_on_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
