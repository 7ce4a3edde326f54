/* Spans of text as the gateway hands them over: helpers for struct postern_str. Pure. */
#ifndef JWT_SPAN_H
#define JWT_SPAN_H

#include <string.h>

#include "postern_plugin.h"

#define SPAN(literal) ((struct postern_str){(literal), sizeof(literal) - 1})

static inline struct postern_str span_of(const char *z)
{
    return (struct postern_str){z, z ? strlen(z) : 0};
}

static inline bool span_eq(struct postern_str a, struct postern_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

#endif
