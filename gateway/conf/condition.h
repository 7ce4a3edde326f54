/* match_header and match_query: what a request must have besides host, path and method.
 *
 * Compiled when a configuration is loaded, immutable afterwards. Asking neither allocates nor
 * locks; any thread. */
#ifndef POSTERN_CONF_CONDITION_H
#define POSTERN_CONF_CONDITION_H

#include "conf/conf.h"
#include "http/head.h"

/* Whether all of the route's conditions hold for that request; NULL: one without fields and
 * query. */
bool conditions_hold(const struct conf_route *route, const struct head *head);
/* The first that does not hold, or NULL. */
const struct conf_condition *conditions_failed(const struct conf_route *route,
                                               const struct head *head);
/* Whether requests for which all of b's conditions hold are all requests for which a's do, as
 * far as that shows without understanding regular expressions. */
bool conditions_include(const struct conf_route *a, const struct conf_route *b);
/* As in the file: match_header "X" { equals = "1" }, without its values escaped. */
void condition_put(const struct conf_condition *condition, FILE *out);

#endif
