#include "http/path.h"

#include <errno.h>

#include "base/utf8.h"
#include "http/bytes.h"

/* One walk over a path. The first walk has no `out` and only asks whether anything changes;
 * the second writes. Both meet the same faults in the same order. */
struct walk {
    struct str raw;
    size_t at; /* in raw */
    unsigned allow;
    char *out;
    size_t len;   /* bytes put out */
    bool changes; /* what is put out is not raw */

    size_t segment, raw_segment; /* where the segment under way begins, in out and in raw */
    bool has_encoded_dot;        /* in this segment */
    bool has_parameter;          /* in this segment, dropped */
    bool has_empty;              /* a segment before this one was empty */
    size_t utf8_left;            /* escapes that belong to a sequence that was looked at */
    size_t percent;              /* where the last %25 stands in raw ... */
    int after_percent;           /* ... and the hex digits put out since; -1: not following */

    unsigned bad_class;
    size_t bad_at;
};

static int refuse(struct walk *w, unsigned cls, size_t at)
{
    w->bad_class = cls;
    w->bad_at = at;
    return -EINVAL;
}

/* `cls` 0: never allowed. */
static int check(struct walk *w, unsigned cls, size_t at)
{
    return cls && (w->allow & cls) ? 0 : refuse(w, cls, at);
}

static void put(struct walk *w, char c)
{
    if (w->has_parameter) {
        w->changes = true;
        return;
    }
    if (w->out)
        w->out[w->len] = c;
    else if (w->raw.p[w->len] != c)
        w->changes = true;
    w->len++;
}

/* A byte that stands for itself. Two hexadecimal ones behind %25 would be an escape to the
 * next who decodes. */
static int put_plain(struct walk *w, char c)
{
    put(w, c);
    if (w->after_percent < 0)
        return 0;
    if (!byte_is(c, BYTE_HEX)) {
        w->after_percent = -1;
        return 0;
    }
    return ++w->after_percent == 2 ? check(w, PATH_ENCODED_DELIMITER, w->percent) : 0;
}

/* The byte that the escape at `at` stands for, or -1. */
static int unescape(struct str raw, size_t at)
{
    uint64_t value;

    if (raw.n - at < 3 || raw.p[at] != '%' ||
        str_hex_to_u64((struct str){raw.p + at + 1, 2}, 255, &value) < 0)
        return -1;
    return (int)value;
}

static unsigned class_of_escaped(int byte)
{
    switch (byte) {
    case '/':
        return PATH_ENCODED_SLASH;
    case '\\':
        return PATH_BACKSLASH;
    case 0:
        return PATH_ENCODED_NUL;
    case ';':
    case '?':
    case '#':
        return PATH_ENCODED_DELIMITER;
    default:
        return byte < 0x20 || byte == 0x7f ? PATH_ENCODED_CONTROL : 0;
    }
}

/* The first bytes of a character in more bytes than it needs, which lenient decoders take for
 * the "/" or "." that it would be in one. */
static bool is_overlong(const char *bytes, size_t n)
{
    unsigned char first = n ? (unsigned char)bytes[0] : 0;
    unsigned char second = n > 1 ? (unsigned char)bytes[1] : 0;

    if (second < 0x80 || second > 0xbf)
        return false;
    return first == 0xc0 || first == 0xc1 || (first == 0xe0 && second < 0xa0) ||
           (first == 0xf0 && second < 0x90) || (first == 0xf8 && second < 0x88) ||
           (first == 0xfc && second < 0x84);
}

/* Whether the escapes from here on are one character (RFC 3629). */
static int check_utf8(struct walk *w)
{
    char bytes[4];
    size_t n = 0, len;
    int byte;

    if (w->utf8_left) {
        w->utf8_left--;
        return 0;
    }
    while (n < 4 && w->at + 3 * n < w->raw.n && (byte = unescape(w->raw, w->at + 3 * n)) >= 0)
        bytes[n++] = (char)byte;
    len = utf8_len(bytes, n);
    if (len == 0)
        return check(w, is_overlong(bytes, n) ? PATH_OVERLONG : PATH_BAD_UTF8, w->at);
    w->utf8_left = len - 1;
    return 0;
}

static int walk_escape(struct walk *w)
{
    int byte = unescape(w->raw, w->at), err = 0;
    unsigned cls;

    if (byte < 0)
        return refuse(w, 0, w->at);
    if (byte_is((char)byte, BYTE_UNRESERVED)) {
        w->has_encoded_dot |= byte == '.';
        w->at += 3;
        return put_plain(w, (char)byte);
    }
    cls = class_of_escaped(byte);
    if (cls)
        err = check(w, cls, w->at);
    else if (byte >= 0x80)
        err = check_utf8(w);
    put(w, '%');
    put(w, "0123456789ABCDEF"[byte >> 4]);
    put(w, "0123456789ABCDEF"[byte & 15]);
    w->after_percent = byte == '%' ? 0 : -1;
    w->percent = w->at;
    w->at += 3;
    return err;
}

/* How many dots a segment is, 1 or 2, or 0 when it is something else. A parameter behind the
 * dots counts not: some backends take it off before they resolve (`..;x`). */
static unsigned dots_of(const struct walk *w, bool *ret_disguised)
{
    const char *p = (w->out ? w->out : w->raw.p) + w->segment;
    size_t n = w->len - w->segment;
    const char *semicolon = n ? memchr(p, ';', n < 3 ? n : 3) : NULL;

    if (semicolon)
        n = (size_t)(semicolon - p);
    *ret_disguised = w->has_encoded_dot || w->has_parameter || semicolon;
    if (n == 1 && p[0] == '.')
        return 1;
    return n == 2 && p[0] == '.' && p[1] == '.' ? 2 : 0;
}

/* RFC 3986 5.2.4. At a "/" or the end; `*ret_resolved`: the segment is gone, and the "/"
 * before it is the last byte put out. */
static int end_segment(struct walk *w, bool *ret_resolved)
{
    bool is_disguised;
    unsigned dots = dots_of(w, &is_disguised);
    int err;

    *ret_resolved = dots > 0;
    if (dots == 0)
        return 0;
    if (is_disguised && (err = check(w, PATH_ENCODED_DOT, w->raw_segment)) < 0)
        return err;
    if ((err = check(w, PATH_DOT_SEGMENT, w->raw_segment)) < 0)
        return err;
    w->changes = true;
    w->len = w->segment;
    if (dots == 2) {
        if (w->has_empty && (err = check(w, PATH_DOTS_BEHIND_EMPTY, w->raw_segment)) < 0)
            return err;
        if (w->len <= 1)
            return refuse(w, 0, w->raw_segment);
        for (w->len--; w->out && w->out[w->len - 1] != '/'; w->len--)
            ;
    }
    return 0;
}

static int walk_slash(struct walk *w)
{
    bool was_resolved = false;
    int err = w->at ? end_segment(w, &was_resolved) : 0;

    bool is_empty = w->at && !was_resolved && w->len == w->segment;

    if (err == 0 && is_empty)
        err = check(w, PATH_DOUBLE_SLASH, w->at);
    w->has_empty |= is_empty;
    w->has_encoded_dot = w->has_parameter = false;
    if (is_empty && w->allow & PATH_MERGE_SLASHES)
        w->changes = true;
    else if (!was_resolved)
        put(w, '/');
    w->at++;
    w->segment = w->len;
    w->raw_segment = w->at;
    w->after_percent = -1;
    return err;
}

static int walk_plain(struct walk *w, char c)
{
    if (c == '\\' && check(w, PATH_BACKSLASH, w->at) < 0)
        return -EINVAL;
    if (!byte_is(c, BYTE_TARGET) || c == '?')
        return refuse(w, 0, w->at);
    if (c == ';' && check(w, PATH_PARAMETER, w->at) < 0)
        return -EINVAL;
    if (c == ';' && w->allow & PATH_DROP_PARAMETERS)
        w->has_parameter = true;
    w->at++;
    return put_plain(w, c);
}

/* Without `out` it stops as soon as something changes: the walk with `out` will see it all. */
static int walk(struct walk *w, char *out)
{
    bool was_resolved;
    int err = 0;

    w->out = out;
    w->after_percent = -1;
    while (err == 0 && w->at < w->raw.n && (out || !w->changes)) {
        char c = w->raw.p[w->at];
        if (c == '/')
            err = walk_slash(w);
        else
            err = c == '%' ? walk_escape(w) : walk_plain(w, c);
    }
    if (err == 0 && (out || !w->changes))
        err = end_segment(w, &was_resolved);
    return err;
}

/* Most paths are their own normal form, and one look tells. */
static bool is_plain(struct str raw)
{
    if (raw.n == 0 || raw.p[0] != '/')
        return false;
    for (size_t i = 1; i < raw.n; i++)
        if (!byte_is(raw.p[i], BYTE_PATH) ||
            (raw.p[i - 1] == '/' && (raw.p[i] == '/' || raw.p[i] == '.')))
            return false;
    return true;
}

int path_normalise(struct str raw, unsigned allow, struct arena *arena, struct str *ret,
                   unsigned *ret_class, size_t *ret_offset)
{
    if (is_plain(raw) || str_eq(raw, STR("*"))) {
        *ret = raw;
        return 0;
    }
    struct walk w = {.raw = raw, .allow = allow};
    int err = 0;
    if (raw.n == 0 || raw.p[0] != '/')
        err = refuse(&w, 0, 0);
    else
        err = walk(&w, NULL);
    if (err == 0 && !w.changes) {
        *ret = raw;
        return 0;
    }
    if (err == 0) {
        char *out = arena_alloc(arena, raw.n);
        if (!out)
            return -ENOMEM;
        w = (struct walk){.raw = raw, .allow = allow};
        err = walk(&w, out);
        if (err == 0)
            *ret = (struct str){out, w.len};
    }
    if (err) {
        *ret_class = w.bad_class;
        *ret_offset = w.bad_at;
    }
    return err;
}

const char *path_class_text(unsigned cls)
{
    switch (cls & -cls) { /* the lowest bit */
    case PATH_ENCODED_SLASH:
        return "an encoded slash (%2f)";
    case PATH_BACKSLASH:
        return "a backslash (\\ or %5c)";
    case PATH_ENCODED_NUL:
        return "an encoded NUL (%00)";
    case PATH_ENCODED_CONTROL:
        return "an encoded control byte (%01 to %1f, %7f)";
    case PATH_ENCODED_DOT:
        return "a disguised dot segment (%2e or ..;)";
    case PATH_ENCODED_DELIMITER:
        return "an encoded delimiter (%3b, %3f, %23 or %25 before two hex digits)";
    case PATH_DOT_SEGMENT:
        return "a dot segment (. or ..)";
    case PATH_DOUBLE_SLASH:
        return "a doubled slash (//)";
    case PATH_BAD_UTF8:
        return "escapes that are not UTF-8";
    case PATH_OVERLONG:
        return "overlong UTF-8 (%c0%af)";
    case PATH_PARAMETER:
        return "a parameter (;)";
    case PATH_DOTS_BEHIND_EMPTY:
        return "a dot segment behind a doubled slash (//..)";
    default:
        return "a broken escape or a way above the root";
    }
}
