#include "key_lines.h"

#include <stdbool.h>
#include <string.h>

struct walk {
    const char *p, *end;
    unsigned line, depth;
};

/* Moves over blank space, counting lines. False: the end. */
static bool skip_space(struct walk *w)
{
    for (; w->p < w->end && strchr(" \t\r\n", *w->p) && *w->p; w->p++)
        w->line += *w->p == '\n';
    return w->p < w->end;
}

/* From an opening quotation mark to behind the closing one. */
static void skip_string(struct walk *w)
{
    for (w->p++; w->p < w->end && *w->p != '"'; w->p++)
        w->p += *w->p == '\\' && w->p + 1 < w->end;
    w->p += w->p < w->end;
}

/* Moves over one token: a string, a bracket, or any other byte. */
static void skip_token(struct walk *w)
{
    char c = *w->p;
    if (c == '"') {
        skip_string(w);
        return;
    }
    w->depth += c == '{' || c == '[';
    w->depth -= (c == '}' || c == ']') && w->depth > 0;
    w->p++;
}

/* Stands at the array's "[": at once, or behind "keys": of the outer object. */
static bool find_array(struct walk *w)
{
    while (skip_space(w)) {
        const char *token = w->p;
        if (*token == '[' && w->depth == 0)
            return true;
        bool is_member = w->depth == 1 && *token == '"';
        skip_token(w);
        if (is_member && w->p - token == 6 && memcmp(token, "\"keys\"", 6) == 0 &&
            skip_space(w) && *w->p == ':') {
            w->p++;
            return skip_space(w) && *w->p == '[';
        }
    }
    return false;
}

void key_lines(const char *text, size_t n, unsigned *lines, size_t count)
{
    struct walk w = {text, text + n, 1, 0};
    size_t found = 0;
    bool begins = true; /* the next token is the first of an entry */
    if (!find_array(&w))
        return;
    skip_token(&w);
    for (unsigned inner = w.depth; found < count && w.depth >= inner && skip_space(&w);) {
        if (begins)
            lines[found++] = w.line;
        begins = w.depth == inner && *w.p == ',';
        skip_token(&w);
    }
}
