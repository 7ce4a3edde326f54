/* The one normal form of a path, used for routing, authentication and limits alike.
 *
 * The target itself is forwarded as it came unless a route rewrites it; what the two could
 * disagree about is refused. Pure but for the arena. */
#ifndef POSTERN_HTTP_PATH_H
#define POSTERN_HTTP_PATH_H

#include "base/mem.h"

/* Classes of ambiguity; each bit set in `allow` lets that class pass. 0 refuses them all. */
enum path_class {
    PATH_ENCODED_SLASH = 1 << 0,      /* %2f */
    PATH_BACKSLASH = 1 << 1,          /* \ and %5c */
    PATH_ENCODED_NUL = 1 << 2,        /* %00 */
    PATH_ENCODED_CONTROL = 1 << 3,    /* %01-%1f, %7f */
    PATH_ENCODED_DOT = 1 << 4,        /* a dot segment spelt with %2e */
    PATH_ENCODED_DELIMITER = 1 << 5,  /* %3b %3f %23 and %25 followed by two hex digits */
    PATH_DOT_SEGMENT = 1 << 6,        /* "." and ".." segments: refused, else resolved */
    PATH_DOUBLE_SLASH = 1 << 7,       /* "//": refused, else an empty segment */
    PATH_BAD_UTF8 = 1 << 8,           /* escapes that do not decode to UTF-8 */
    PATH_OVERLONG = 1 << 9,           /* UTF-8 longer than need be: %c0%af is "/" to some */
    PATH_PARAMETER = 1 << 10,         /* ";" in a segment: refused, else part of it */
    PATH_DOTS_BEHIND_EMPTY = 1 << 11, /* "..", which takes back another segment when the "//"
                                         before it is merged than when it is not */
    PATH_CLASSES = 12,

    /* Readings of what passes. Guarding a path holds for backends that read it like this and
     * for those that do not, as far as what is open lies not within what is guarded. */
    PATH_MERGE_SLASHES = 1 << 16,   /* empty segments are not there */
    PATH_DROP_PARAMETERS = 1 << 17, /* what follows ";" in a segment is not there */
};

/* What passes unless a listener says otherwise: dot segments are resolved, doubled slashes are
 * one, parameters do not count. */
#define PATH_ALLOW_DEFAULT                                                                     \
    (PATH_DOT_SEGMENT | PATH_DOUBLE_SLASH | PATH_BAD_UTF8 | PATH_PARAMETER |                   \
     PATH_MERGE_SLASHES | PATH_DROP_PARAMETERS)
/* For the patterns of a configuration, which may be meant for listeners that keep both. */
#define PATH_ALLOW_PATTERN                                                                     \
    (PATH_ALLOW_DEFAULT & ~(unsigned)(PATH_MERGE_SLASHES | PATH_DROP_PARAMETERS))

/* `raw`: head->path. Percent-escapes of unreserved bytes are decoded, other escapes keep
 * their upper-case form, dot segments are resolved (above the root: refused always). When
 * nothing changes *ret is `raw` itself and nothing is allocated.
 * Returns 0, -ENOMEM, or -EINVAL with *ret_class the class refused (0: a broken escape or a
 * path that climbs above the root) and *ret_offset where. */
int path_normalise(struct str raw, unsigned allow, struct arena *arena, struct str *ret,
                   unsigned *ret_class, size_t *ret_offset);

/* "an encoded slash (%2f)": for messages. */
const char *path_class_text(unsigned cls);

#endif
