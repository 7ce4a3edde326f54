/* Path patterns, segment by segment: "/api/users/{id}", "/files/{rest...}". Pure. */
#ifndef POSTERN_CONF_PATTERN_H
#define POSTERN_CONF_PATTERN_H

#include "base/str.h"

#define PATTERN_MAX 2048

enum segment_kind { SEGMENT_LITERAL, SEGMENT_ONE, SEGMENT_REST };

/* Takes the next segment off `rest` (which begins with "/"); false at the end. *ret_text is
 * the literal, or the name. */
bool pattern_next(struct str *rest, enum segment_kind *ret_kind, struct str *ret_text);
bool pattern_is_name(struct str s); /* of a capture */

/* The pattern without its names, as the radix tree takes it: the same for two patterns that
 * match the same paths. `out` has room for the pattern's length; returns the key's. */
#define PATTERN_ONE  '\x01'
#define PATTERN_REST '\x02'
size_t pattern_key(struct str pattern, char *out);

#endif
