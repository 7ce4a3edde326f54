/* A section as configure reads it: its options as one list, its values by number, copies of the
 * texts that an instance keeps, and whether anything was wrong. Main thread.
 *
 * The list is a macro OPTIONS(X) of X(symbol, type, name, list, required, default, min, max,
 * words, help), from which come the numbers (OPT_symbol) and the plugin's table. */
#ifndef POSTERN_READING_READING_H
#define POSTERN_READING_READING_H

#include "postern_plugin.h"

#define READING_NUMBER(symbol, ...) OPT_##symbol,
#define READING_OPTION(symbol, t, n, l, r, d, lo, hi, w, h)                                    \
    {.name = (n),                                                                              \
     .type = POSTERN_##t,                                                                      \
     .list = (l),                                                                              \
     .required = (r),                                                                          \
     .default_text = (d),                                                                      \
     .min = (lo),                                                                              \
     .max = (hi),                                                                              \
     .words = (w),                                                                             \
     .help = (h)},

/* A copy of text. */
struct note;

struct reading {
    const struct postern_api *api;
    struct postern_setup *s;
    const struct postern_values *values;
    void *self;          /* the instance that is made of it */
    struct note **notes; /* all texts that it keeps */
    bool failed;         /* there was a fault */
};

/* A fault, as api->fault has it. */
#define READING_FAULT(reading, option, i, ...)                                                 \
    do {                                                                                       \
        (reading)->api->fault((reading)->s, option, i, __VA_ARGS__);                           \
        (reading)->failed = true;                                                              \
    } while (0)

/* The value of an option that is no list; one that was left out is 0 and .text.p NULL. */
const struct postern_value *reading_one(const struct reading *reading, int option);
bool reading_has(const struct reading *reading, int option); /* a text is there */

/* A copy with a NUL behind it; "" and a fault when there is no memory. */
struct postern_str reading_keep(struct reading *reading, struct postern_str text);
/* So of an option; .p NULL: it was left out. */
struct postern_str reading_keep_option(struct reading *reading, int option);
/* For so many, all 0; NULL and a fault when there is no memory. The caller frees it. */
void *reading_array(struct reading *reading, size_t count, size_t size);

/* Texts may be secrets, so they are overwritten. NULL is fine. */
void notes_free(struct note *notes);

#endif
