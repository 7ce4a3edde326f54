/* The cookie by which a client comes back to the server it had. Worker's thread. */
#ifndef POSTERN_PROXY_STICKY_H
#define POSTERN_PROXY_STICKY_H

#include "proxy/exchange.h"

/* The server that the request's cookie names, in the exchange's cluster; -1: none. */
int sticky_server(const struct exchange *ex);
/* Tells the client which server it has now, unless its cookie says so already. False: no
 * memory. */
bool sticky_tell(struct exchange *ex, struct head *head);

#endif
