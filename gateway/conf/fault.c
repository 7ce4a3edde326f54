#include <stdarg.h>
#include <stdlib.h>

#include "conf/load.h"

/* What stands in the list when there is no memory for a list. */
static char no_memory[] = "out of memory";
static struct conf_fault last_resort = {.where = {"", 0}, .message = no_memory};

static bool list_grow(struct conf_faults *faults)
{
    /* the list doubles whenever it has reached a power of two */
    if (faults->count & (faults->count - 1))
        return true;
    size_t cap = faults->count ? faults->count * 2 : 1;
    struct conf_fault *list = mem_realloc(faults->list, cap * sizeof(*list));
    if (!list)
        return false;
    faults->list = list;
    return true;
}

void conf_fault(struct conf_faults *faults, struct conf_where where, const char *fmt, ...)
{
    if (faults->list == &last_resort)
        return;
    if (!list_grow(faults)) {
        if (faults->count == 0)
            *faults = (struct conf_faults){&last_resort, 1};
        return;
    }
    struct conf_fault *fault = &faults->list[faults->count++];
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++) /* a fault is one line of a log, whatever was in the file */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    size_t n = strlen(text) + 1;
    char *message = mem_alloc(n);
    fault->message = message ? memcpy(message, text, n) : no_memory;
    n = strlen(where.file) + 1;
    char *file = mem_alloc(n);
    fault->where.file = file ? memcpy(file, where.file, n) : "";
    fault->where.line = where.line;
}

void conf_faults_done(struct conf_faults *faults)
{
    if (faults->list != &last_resort) {
        for (size_t i = 0; i < faults->count; i++) {
            if (faults->list[i].message != no_memory)
                mem_free(faults->list[i].message);
            if (faults->list[i].where.file[0])
                mem_free((char *)faults->list[i].where.file);
        }
        mem_free(faults->list);
    }
    *faults = (struct conf_faults){0};
}

struct sort_key {
    size_t file, index;
    int line;
};

static int compare_keys(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static size_t file_index(const struct conf_strs *files, const char *name)
{
    size_t i = 0;
    while (i < files->count && strcmp(files->list[i], name) != 0)
        i++;
    return i;
}

void conf_faults_sort(struct conf_faults *faults, const struct conf_strs *files)
{
    size_t n = faults->count;
    if (n < 2)
        return;
    struct sort_key *keys = mem_alloc(n * sizeof(*keys));
    struct conf_fault *sorted = mem_alloc(n * sizeof(*sorted));
    for (size_t i = 0; keys && sorted && i < n; i++) {
        const struct conf_where *where = &faults->list[i].where;
        keys[i] = (struct sort_key){file_index(files, where->file), i, where->line};
    }
    if (keys && sorted) {
        qsort(keys, n, sizeof(*keys), compare_keys);
        for (size_t i = 0; i < n; i++)
            sorted[i] = faults->list[keys[i].index];
        memcpy(faults->list, sorted, n * sizeof(*sorted));
    }
    mem_free(keys);
    mem_free(sorted);
}
