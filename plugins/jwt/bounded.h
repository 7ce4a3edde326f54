/* JSON from outside, by jansson, with bounds: an object, at most 16 levels deep, no name twice,
 * UTF-8, no NUL. How long it may be is for the caller to say. Pure. */
#ifndef JWT_BOUNDED_H
#define JWT_BOUNDED_H

#include <jansson.h>

#include "span.h"

#define BOUNDED_DEPTH 16

/* NULL: it is not such an object, or no memory. For json_decref(). */
json_t *bounded_object(struct postern_str text);
/* A member that is a string; .p NULL: there is none, or it is something else. */
struct postern_str bounded_string(const json_t *object, const char *name);

#endif
