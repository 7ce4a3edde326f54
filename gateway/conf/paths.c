/* paths: which spellings of a path a listener takes. */
#include "conf/load.h"
#include "http/path.h"

#define WORDS 3

/* One option each: what each word lets pass. The words' order is that of the manual. */
static const struct {
    const char *name;
    const char *words[WORDS + 1];
    unsigned allow[WORDS];
} options[] = {
    {"encoded_slash", {"refuse", "pass"}, {0, PATH_ENCODED_SLASH}},
    {"backslash", {"refuse", "pass"}, {0, PATH_BACKSLASH}},
    {"encoded_nul", {"refuse", "pass"}, {0, PATH_ENCODED_NUL}},
    {"encoded_control", {"refuse", "pass"}, {0, PATH_ENCODED_CONTROL}},
    {"encoded_dot", {"refuse", "pass"}, {0, PATH_ENCODED_DOT}},
    {"encoded_delimiter", {"refuse", "pass"}, {0, PATH_ENCODED_DELIMITER}},
    {"bad_utf8", {"refuse", "pass"}, {0, PATH_BAD_UTF8}},
    {"overlong_utf8", {"refuse", "pass"}, {0, PATH_OVERLONG}},
    {"dot_segment", {"refuse", "resolve"}, {0, PATH_DOT_SEGMENT}},
    {"dots_behind_double_slash", {"refuse", "resolve"}, {0, PATH_DOTS_BEHIND_EMPTY}},
    {"double_slash",
     {"refuse", "keep", "merge"},
     {0, PATH_DOUBLE_SLASH, PATH_DOUBLE_SLASH | PATH_MERGE_SLASHES}},
    {"parameter",
     {"refuse", "keep", "ignore"},
     {0, PATH_PARAMETER, PATH_PARAMETER | PATH_DROP_PARAMETERS}},
};
#define OPTIONS (sizeof(options) / sizeof(*options))

/* The last word that lets no more pass than `allow` does. */
static unsigned word_of(size_t option, unsigned allow)
{
    unsigned word = 0;
    for (unsigned i = 1; i < WORDS && options[option].words[i]; i++)
        if ((options[option].allow[i] & ~allow) == 0)
            word = i;
    return word;
}

unsigned paths_compile(struct load *load, cfg_t *sec, unsigned allow)
{
    unsigned ret = 0;
    for (size_t i = 0; i < OPTIONS; i++) {
        unsigned word = word_of(i, allow);
        value_word(load, sec, options[i].name, options[i].words, &word);
        ret |= options[i].allow[word];
    }
    return ret;
}

void paths_put(unsigned allow, FILE *out)
{
    fputs("  paths {\n", out);
    for (size_t i = 0; i < OPTIONS; i++)
        fprintf(out, "    %s = %s\n", options[i].name, options[i].words[word_of(i, allow)]);
    fputs("  }\n", out);
}
