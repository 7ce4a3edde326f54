#include "conf_test.h"

#include "http/path.h"

static unsigned allow_of(const char *paths)
{
    char text[512];
    snprintf(text, sizeof(text), "listener \"l\" { listen = \"127.0.0.1:1\" paths { %s } }",
             paths);
    struct conf *conf = conf_of(text);
    unsigned allow = conf->listeners[0].path_allow;
    conf_free(conf);
    return allow;
}

static void an_empty_section_is_the_default(void **state)
{
    (void)state;
    assert_int_equal(allow_of(""), PATH_ALLOW_DEFAULT);
}

static void each_word_switches_its_class_and_no_other(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned set, clear;
    } cases[] = {
        {"encoded_slash = pass", PATH_ENCODED_SLASH, 0},
        {"backslash = pass", PATH_BACKSLASH, 0},
        {"encoded_nul = pass", PATH_ENCODED_NUL, 0},
        {"encoded_control = pass", PATH_ENCODED_CONTROL, 0},
        {"encoded_dot = pass", PATH_ENCODED_DOT, 0},
        {"encoded_delimiter = pass", PATH_ENCODED_DELIMITER, 0},
        {"bad_utf8 = refuse", 0, PATH_BAD_UTF8},
        {"overlong_utf8 = pass", PATH_OVERLONG, 0},
        {"dot_segment = refuse", 0, PATH_DOT_SEGMENT},
        {"dots_behind_double_slash = resolve", PATH_DOTS_BEHIND_EMPTY, 0},
        {"double_slash = refuse", 0, PATH_DOUBLE_SLASH | PATH_MERGE_SLASHES},
        {"double_slash = keep", 0, PATH_MERGE_SLASHES},
        {"double_slash = merge", 0, 0},
        {"parameter = refuse", 0, PATH_PARAMETER | PATH_DROP_PARAMETERS},
        {"parameter = keep", 0, PATH_DROP_PARAMETERS},
        {"parameter = ignore", 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(allow_of(cases[i].text),
                         (PATH_ALLOW_DEFAULT | cases[i].set) & ~cases[i].clear);
}

static void says_which_words_there_are(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"encoded_slash = refuse", NULL},
        {"encoded_slash = decode", "paths.encoded_slash is decode, expected refuse or pass"},
        {"dot_segment = pass", "paths.dot_segment is pass, expected refuse or resolve"},
        {"double_slash = pass", "paths.double_slash is pass, expected refuse, keep or merge"},
        {"parameter = merge", "paths.parameter is merge, expected refuse, keep or ignore"},
        {"encoded_dots = pass", "unknown option \"encoded_dots\""},
    };
    CHECK_OPTIONS("listener \"l\" { listen = \"127.0.0.1:1\" paths {", "} }", cases);
}

/* What -T writes for every single switch loads to the same. */
static void is_written_as_it_was_read(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < PATH_CLASSES; bit++) {
        char *text = NULL;
        size_t n = 0;
        unsigned allow = PATH_ALLOW_DEFAULT ^ 1u << bit;
        if (!(allow & PATH_DOUBLE_SLASH))
            allow &= ~(unsigned)PATH_MERGE_SLASHES;
        if (!(allow & PATH_PARAMETER))
            allow &= ~(unsigned)PATH_DROP_PARAMETERS;
        FILE *out = open_memstream(&text, &n);
        paths_put(allow, out);
        fclose(out);
        char *end = strrchr(text, '}');
        *end = '\0';
        assert_int_equal(allow_of(strchr(text, '{') + 1), allow);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_section_is_the_default),
        cmocka_unit_test(each_word_switches_its_class_and_no_other),
        cmocka_unit_test(says_which_words_there_are),
        cmocka_unit_test(is_written_as_it_was_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
