/* For the tests of conf/: configurations from texts, and their faults as one text. */
#ifndef CONF_TEST_H
#define CONF_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conf/load.h"

/* What a test is not about. */
#define LISTENER "listener \"l\" { listen = \"127.0.0.1:1\" }\n"
#define UPSTREAM "upstream \"u\" { server \"127.0.0.1:2\" {} }\n"
#define ROUTE    "route \"r\" { upstream = u }\n"

/* The same on one line, for check_option. */
#define FIRST                                                                                  \
    "listener \"l\" { listen = \"127.0.0.1:1\" } upstream \"u\" { server \"a:1\" {} } "

/* "FILE:LINE: MESSAGE\n" for each, malloc'ed. */
static inline char *faults_text(const struct conf_faults *faults)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    for (size_t i = 0; i < faults->count; i++)
        fprintf(out, "%s:%d: %s\n", faults->list[i].where.file, faults->list[i].where.line,
                faults->list[i].message);
    fclose(out);
    return text;
}

/* Must load; the caller frees it. */
static inline struct conf *conf_of(const char *text)
{
    struct conf_faults faults = {0};
    struct conf *conf = conf_load_text("t", str_of(text), &faults);
    if (!conf)
        fail_msg("%s\nhas faults:\n%s", text, faults_text(&faults));
    assert_int_equal(faults.count, 0);
    return conf;
}

/* All faults of a text that must have some; free() it. */
static inline char *faults_of(const char *text)
{
    struct conf_faults faults = {0};
    struct conf *conf = conf_load_text("t", str_of(text), &faults);
    if (conf)
        fail_msg("%s\nloads, but must not", text);
    assert_true(faults.count > 0);
    char *said = faults_text(&faults);
    conf_faults_done(&faults);
    return said;
}

/* The text has exactly these faults. */
static inline void expect_faults(const char *text, const char *expected)
{
    char *said = faults_of(text);
    assert_string_equal(said, expected);
    free(said);
}

/* One option in its place: `before`, `option`, `after` load, and give `expected` when it is
 * not NULL (a part of the one fault), on line 2. */
static inline void check_option(const char *before, const char *option, const char *after,
                                const char *expected)
{
    char text[4096];
    snprintf(text, sizeof(text), "%s\n%s\n%s", before, option, after);
    if (!expected) {
        conf_free(conf_of(text));
        return;
    }
    char *said = faults_of(text);
    if (strncmp(said, "t:2: ", 5) != 0 || !strstr(said, expected) ||
        strchr(said, '\n')[1] != '\0')
        fail_msg("%s\nmust have one fault on line 2 with: %s\nbut has: %s", text, expected,
                 said);
    free(said);
}

struct option_case {
    const char *option;
    const char *expected; /* NULL: it is right */
};

#define CHECK_OPTIONS(before, after, cases)                                                    \
    do {                                                                                       \
        for (size_t i_ = 0; i_ < sizeof(cases) / sizeof(*(cases)); i_++)                       \
            check_option(before, (cases)[i_].option, after, (cases)[i_].expected);             \
    } while (0)

#endif
