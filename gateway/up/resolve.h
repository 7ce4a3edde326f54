/* Names to addresses, for the servers of an upstream. */
#ifndef POSTERN_UP_RESOLVE_H
#define POSTERN_UP_RESOLVE_H

#include "net/addr.h"

#define RESOLVE_MAX 32 /* addresses of one name that are used */

/* `text`: "127.0.0.1:80", "[::1]:80", "unix:/path" or "name:80". A name is looked up as the
 * system does it (/etc/hosts, DNS) and may take seconds: main thread only. All its addresses
 * come back, sorted so that the order never depends on the answer's. Returns how many, or 0
 * with *ret_why a text that says why. */
size_t resolve_server(struct str text, struct addr ret[RESOLVE_MAX], const char **ret_why);

#endif
