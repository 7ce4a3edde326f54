#include "http/reason.h"

#include <string.h>

#include "base/mem.h"

#define NAME_MAX_LEN 63

struct reason_text reason_texts[REASON_MAX] = {
#define X(symbol, status, name, title) {status, name, title},
    REASONS(X)
#undef X
};

/* Titles stand in JSON and HTML as they are. */
static bool is_title(const char *title)
{
    size_t n = strlen(title);
    for (size_t i = 0; i < n; i++)
        if (title[i] < ' ' || title[i] > '~' || strchr("\"\\<>&", title[i]))
            return false;
    return n > 0 && n <= 128;
}

static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= NAME_MAX_LEN &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == n;
}

static char *copy(const char *text)
{
    size_t n = strlen(text) + 1;
    char *out = mem_alloc(n);
    return out ? memcpy(out, text, n) : NULL;
}

enum reason reason_add(const char *name, const char *title)
{
    unsigned i = R_NONE + 1;
    if (!is_name(name) || !is_title(title))
        return R_NONE;
    for (; i < REASON_MAX && reason_texts[i].name; i++)
        if (strcmp(reason_texts[i].name, name) == 0)
            return i;
    if (i == REASON_MAX)
        return R_NONE;
    char *own_name = copy(name), *own_title = copy(title);
    if (!own_name || !own_title) {
        mem_free(own_name);
        mem_free(own_title);
        return R_NONE;
    }
    reason_texts[i] = (struct reason_text){0, own_name, own_title};
    return i;
}
