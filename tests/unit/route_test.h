/* For the tests of the router: routes from lines, and requests to look up. */
#ifndef ROUTE_TEST_H
#define ROUTE_TEST_H

#include "conf_test.h"

#include "conf/route.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Routes from lines "NAME OPTIONS"; each answers by itself. */
static inline struct conf *routes_of(const char *const *lines, size_t n)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fputs("listener \"one\" { listen = \"127.0.0.1:1\" paths { double_slash = keep } } "
          "listener \"two\" { listen = \"127.0.0.1:2\" paths { double_slash = keep } }\n",
          out);
    for (size_t i = 0; i < n; i++) {
        int name = (int)strcspn(lines[i], " ");
        fprintf(out, "route \"%.*s\" {%s respond {} }\n", name, lines[i], lines[i] + name);
    }
    fclose(out);
    struct conf *conf = conf_of(text);
    free(text);
    return conf;
}

struct lookup {
    const char *host, *path, *method, *expected; /* a route; "!ALLOW" for 405; NULL for 404 */
    size_t listener;
    const char *field, *query; /* "NAME=VALUE" and what is behind "?"; NULL: none */
};

/* The request's head as far as conditions look at it; `field` has room for one. */
static inline struct head head_of(const char *text, const char *query, struct field *field)
{
    struct head head = {.fields = field, .cap = 1, .query = str_of(query)};
    const char *equals = text ? strchr(text, '=') : NULL;
    if (!equals)
        return head;
    *field =
        (struct field){.name = {text, (size_t)(equals - text)}, .value = str_of(equals + 1)};
    head.count = 1;
    return head;
}

#endif
