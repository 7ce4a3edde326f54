/* What who decides is asked, and under which key the decision is remembered. */
#ifndef FORWARD_AUTH_QUESTION_H
#define FORWARD_AUTH_QUESTION_H

#include "forward_auth.h"

#define QUESTION_HEADERS 128 /* at most; a request with more is not asked about */
#define QUESTION_KEY_MAX 16384

/* Fills `headers` and the call; both point into the request. False: too many headers, or no
 * memory. */
bool question_call(const struct forward_auth *auth, const struct postern_api *api,
                   struct postern_request *r, struct postern_header headers[QUESTION_HEADERS],
                   struct postern_call *ret);

/* All that the decision hangs on, with lengths before the parts so that no two mean the same.
 * In the request's memory. .p NULL: there is no cache, no memory, or it would be too long. */
struct postern_str question_key(const struct forward_auth *auth, const struct postern_api *api,
                                struct postern_request *r);

#endif
