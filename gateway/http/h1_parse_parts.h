/* What the search for a head's end and the reading of one have in common: how a fault is told.
 */
#ifndef POSTERN_HTTP_H1_PARSE_PARTS_H
#define POSTERN_HTTP_H1_PARSE_PARTS_H

#include "http/bytes.h"
#include "http/h1_parse.h"

#define H1_METHOD_MAX 32

static const struct str h1_no_field = {NULL, 0};

/* Always -1. */
static inline int h1_fail(struct h1_fault *fault, bool request, enum reason reason,
                          size_t offset, struct str field)
{
    *fault = (struct h1_fault){
        .reason = request ? reason : R_UPSTREAM_PROTOCOL,
        .offset = offset,
        .field = field,
    };
    return -1;
}

static inline int h1_fail_limit(struct h1_fault *fault, bool request, enum reason reason,
                                size_t offset, struct str field, uint64_t limit,
                                uint64_t actual)
{
    h1_fail(fault, request, reason, offset, field);
    fault->limit = limit;
    fault->actual = actual;
    return -1;
}

/* Whether the search for a head's end that judges each byte has nothing against these: false
 * with *ret_fault filled, as h1_head_end would have when they come one by one. */
bool h1_head_judge(bool request, const char *p, size_t n, const struct h1_limits *limits,
                   struct h1_fault *ret_fault);

#endif
