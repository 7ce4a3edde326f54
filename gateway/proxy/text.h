/* Texts of the configuration with variables in them, filled in for one request. */
#ifndef POSTERN_PROXY_TEXT_H
#define POSTERN_PROXY_TEXT_H

#include "proxy/exchange.h"

/* Each variable is written as its part's `escape` says; a literal text alone is not copied.
 * .p NULL: no memory. */
struct str text_fill(struct exchange *ex, const struct template *text);

/* A text of ours with bytes of strangers in it. .p NULL: no memory. */
struct str text_escape(struct arena *arena, struct str s, enum escape escape);

#endif
