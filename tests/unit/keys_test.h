/* What tests of keys files share: faults as one text, and a file in a folder of its own. */
#ifndef POSTERN_TESTS_KEYS_TEST_H
#define POSTERN_TESTS_KEYS_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "key_file.h"

struct heard {
    char text[16384];
};

static void hear(void *arg, unsigned line, const char *text)
{
    struct heard *heard = arg;
    size_t n = strlen(heard->text);
    snprintf(heard->text + n, sizeof(heard->text) - n, "%u %s\n", line, text);
}

/* Parses an exact copy, so that a read behind the text shows. */
static inline struct key_file *parse_keys(const char *text, struct heard *heard)
{
    struct key_report report = {.say = hear, .arg = heard};
    size_t n = strlen(text);
    char *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, text, n);
    heard->text[0] = '\0';
    struct key_file *file = key_file_parse(exact, n, &report);
    free(exact);
    assert_true((file == NULL) == (report.count > 0));
    assert_true((file == NULL) == (heard->text[0] != '\0'));
    return file;
}

static inline void write_keys(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

#endif
