/* Answers of our own: errors that explain themselves, `respond` and `redirect`. */
#ifndef POSTERN_PROXY_REPLY_H
#define POSTERN_PROXY_REPLY_H

#include "proxy/exchange.h"

/* application/problem+json (RFC 9457), or HTML, plain text or a gRPC status for who asks for
 * that. Sends head, body and end on the down leg; the state is EX_REPLY already. */
void reply_error(struct exchange *ex, const struct leg_fault *fault);
void reply_respond(struct exchange *ex);
void reply_redirect(struct exchange *ex);
/* A plugin's answer, as it made it. `body` lives as long as the exchange. */
void reply_plain(struct exchange *ex, unsigned status, struct str type, struct str body);

#endif
