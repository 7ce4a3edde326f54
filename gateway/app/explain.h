/* --explain "METHOD URL": which listener, route and upstream a request would get, and why. */
#ifndef POSTERN_APP_EXPLAIN_H
#define POSTERN_APP_EXPLAIN_H

#include "conf/conf.h"

/* Prints to standard output. The exit status: 0, or 2 when `request` cannot be read. */
int explain(const struct conf *conf, const char *request);

#endif
