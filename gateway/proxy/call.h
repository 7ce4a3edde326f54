/* HTTP requests that plugins make: over the pools of an upstream, with one deadline for all of
 * it and a bound on what is taken of the answer. One worker's thread. */
#ifndef POSTERN_PROXY_CALL_H
#define POSTERN_PROXY_CALL_H

#include "proxy/context.h"

void call_fill(struct postern_api *api);
void calls_begin(struct context *cx);
/* The worker ends: those under way fail. */
void calls_end(struct context *cx);

#endif
