/* Requests refused because an upstream has too many: each is counted; the log is told when it
 * begins and when it is over, not of each. Worker's thread. */
#ifndef POSTERN_PROXY_SHED_H
#define POSTERN_PROXY_SHED_H

#include "proxy/exchange.h"

/* One more request for its upstream. False: it was refused, and the exchange has its answer. */
bool shed_admit(struct exchange *ex);
void shed_leave(struct exchange *ex); /* harmless when it was not admitted */
/* A request, or a call of a plugin's, fails for an overflow. */
void shed_note(struct context *cx, struct fleet *fleet, const struct leg_fault *fault);
/* The fleet ends; the deadline and what it would tell go with it. */
void shed_done(struct context *cx, struct fleet *fleet);

#endif
