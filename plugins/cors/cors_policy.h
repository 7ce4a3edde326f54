/* Which origins may do what: patterns and lists, compiled once, then immutable. Pure otherwise.
 * Any thread. */
#ifndef POSTERN_CORS_CORS_POLICY_H
#define POSTERN_CORS_CORS_POLICY_H

#include <stdbool.h>
#include <stddef.h>

#include "postern_plugin.h"

struct cors_origin {
    char *scheme, *host, *port; /* in lower case; port "" is the scheme's own, "*" any */
    bool is_suffix;             /* host stands behind any labels: ".example.com" */
};

/* An origin as it is, all names below one ("*." in front of it), or all its ports (":*" behind
 * it). 0, -EINVAL or -ENOMEM. */
int cors_origin_parse(const char *text, struct cors_origin *ret);
void cors_origin_done(struct cors_origin *origin);
/* `origin` is a request's field, as it came (RFC 6454 6.2). */
bool cors_origin_is(const struct cors_origin *pattern, struct postern_str origin);

/* A list of tokens, one of which may be "*". */
struct cors_tokens {
    char **list;
    size_t count;
    bool has_any; /* "*" is among them */
    char *joined; /* "A, B" */
};

/* False: no memory. */
bool cors_tokens_make(struct cors_tokens *tokens, const char *const *texts, size_t count);
void cors_tokens_done(struct cors_tokens *tokens);
bool cors_tokens_has(const struct cors_tokens *tokens, struct postern_str token, bool any_case);
/* Each element of a field such as Access-Control-Request-Headers; false: one is no token, or is
 * not among them. */
bool cors_tokens_have_all(const struct cors_tokens *tokens, struct postern_str field);

#endif
