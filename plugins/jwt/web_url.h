/* An absolute http or https URL, split where a request needs it. Pure. */
#ifndef JWT_WEB_URL_H
#define JWT_WEB_URL_H

#include "span.h"

#define WEB_URL_MAX 2048

struct web_url {
    struct postern_str origin; /* "https://host:8443" */
    struct postern_str target; /* "/keys?version=2"; empty: the URL ends behind the origin */
};

/* False: longer than WEB_URL_MAX, not such a URL, or one with a user, a fragment, blanks or
 * control bytes. */
bool web_url_split(struct postern_str url, struct web_url *ret);

/* Whether both origins are one: case of scheme and host and the default port do not matter. */
bool web_url_same_origin(struct postern_str a, struct postern_str b);

/* Over https, or to this machine: nobody on the way can replace what comes back. */
bool web_url_is_safe(const struct web_url *url);

#endif
