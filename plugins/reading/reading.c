#include "reading/reading.h"

#include <stdlib.h>
#include <string.h>

struct note {
    struct note *next;
    size_t n;
    char text[];
};

const struct postern_value *reading_one(const struct reading *reading, int option)
{
    static const struct postern_value nothing;
    const struct postern_values *values = &reading->values[option];

    return values->count ? &values->list[0] : &nothing;
}

bool reading_has(const struct reading *reading, int option)
{
    return reading_one(reading, option)->text.p;
}

struct postern_str reading_keep(struct reading *reading, struct postern_str text)
{
    struct note *note = malloc(sizeof(*note) + text.n + 1);

    if (!note) {
        READING_FAULT(reading, -1, 0, "out of memory");
        return (struct postern_str){"", 0};
    }
    note->n = text.n;
    if (text.n > 0)
        memcpy(note->text, text.p, text.n);
    note->text[text.n] = '\0';
    note->next = *reading->notes;
    *reading->notes = note;
    return (struct postern_str){note->text, text.n};
}

struct postern_str reading_keep_option(struct reading *reading, int option)
{
    return reading_has(reading, option)
               ? reading_keep(reading, reading_one(reading, option)->text)
               : (struct postern_str){NULL, 0};
}

void *reading_array(struct reading *reading, size_t count, size_t size)
{
    void *array = calloc(count ? count : 1, size);

    if (!array)
        READING_FAULT(reading, -1, 0, "out of memory");
    return array;
}

void notes_free(struct note *notes)
{
    while (notes) {
        struct note *note = notes;

        notes = note->next;
        explicit_bzero(note->text, note->n);
        free(note);
    }
}
