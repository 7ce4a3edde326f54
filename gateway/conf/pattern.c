/* Path patterns: "/api/users/{id}", "/files/{rest...}", "*". */
#include <errno.h>

#include "conf/load.h"
#include "http/path.h"

bool pattern_next(struct str *rest, enum segment_kind *ret_kind, struct str *ret_text)
{
    if (rest->n == 0)
        return false;
    struct str text = {rest->p + 1, rest->n - 1};
    const char *slash = memchr(text.p, '/', text.n);
    if (slash)
        text.n = (size_t)(slash - text.p);
    *rest = (struct str){text.p + text.n, rest->n - 1 - text.n};
    *ret_kind = SEGMENT_LITERAL;
    if (text.n >= 2 && text.p[0] == '{' && text.p[text.n - 1] == '}') {
        text = (struct str){text.p + 1, text.n - 2};
        *ret_kind = SEGMENT_ONE;
        if (text.n >= 3 && memcmp(text.p + text.n - 3, "...", 3) == 0) {
            text.n -= 3;
            *ret_kind = SEGMENT_REST;
        }
    }
    *ret_text = text;
    return true;
}

bool pattern_is_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return s.n > 0;
}

size_t pattern_key(struct str pattern, char *out)
{
    enum segment_kind kind;
    struct str text;
    size_t n = 0;
    if (pattern.p[0] != '/') { /* "*" */
        memcpy(out, pattern.p, pattern.n);
        return pattern.n;
    }
    while (pattern_next(&pattern, &kind, &text)) {
        out[n++] = '/';
        if (kind == SEGMENT_LITERAL) {
            memcpy(out + n, text.p, text.n);
            n += text.n;
        } else {
            out[n++] = kind == SEGMENT_ONE ? PATTERN_ONE : PATTERN_REST;
        }
    }
    return n;
}

static const char *bind_name(struct load *load, struct str name, struct conf_route *route)
{
    static const char *const taken[] = {"client_ip", "request_id", "host", "path"};
    if (!pattern_is_name(name))
        return "a name in braces is made of letters, digits and _, and begins with no digit";
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
        if (str_eq(name, str_of(taken[i])))
            return "client_ip, request_id, host and path are taken, choose another name";
    for (size_t i = 0; i < route->capture_count; i++)
        if (str_eq(name, str_of(route->captures[i])))
            return "each name stands once";
    if (route->capture_count == ROUTE_CAPTURES)
        return "at most 16 names in braces";
    route->captures[route->capture_count] = load_copy(load, name);
    route->capture_count += route->captures[route->capture_count] != NULL;
    return NULL;
}

static const char *segments_fault(struct load *load, struct conf_route *route)
{
    struct str rest = str_of(route->path), text;
    enum segment_kind kind;
    const char *fault;
    while (pattern_next(&rest, &kind, &text)) {
        if (kind == SEGMENT_LITERAL) {
            if (memchr(text.p, '{', text.n) || memchr(text.p, '}', text.n))
                return "{name} takes a whole segment between two slashes";
        } else {
            if (kind == SEGMENT_REST && rest.n)
                return "{name...} stands last";
            fault = bind_name(load, text, route);
            if (fault)
                return fault;
        }
    }
    return NULL;
}

/* Requests are looked up by their normal form: a literal that has another never matches. */
static const char *normal_fault(struct load *load, const char *path)
{
    struct str literal = str_of(path), normal;
    char *plain = load_copy(load, literal);
    unsigned cls;
    size_t offset;
    if (!plain)
        return NULL;
    for (char *p = plain; *p; p++) {
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || strchr("?#\"<>\\^`|", *p))
            return "a path is made of the bytes of RFC 3986 3.3, others as %XX";
        if (*p == '{' || *p == '}')
            *p = 'x';
    }
    literal.p = plain;
    int err =
        path_normalise(literal, PATH_ALLOW_PATTERN, &load->conf->arena, &normal, &cls, &offset);
    if (err == -EINVAL)
        return "a path with bad or ambiguous escapes never matches";
    load->no_memory |= err != 0;
    if (err == 0 && !str_eq(literal, normal))
        return "a path stands in normal form: no . and .. segments, escapes in upper case and "
               "only where needed";
    return NULL;
}

/* For who knows such patterns from elsewhere. */
static bool has_star_segment(const char *path)
{
    for (const char *p = path; (p = strstr(p, "/*")); p++)
        if (p[2] == '\0' || p[2] == '/')
            return true;
    return false;
}

void pattern_compile(struct load *load, int line, struct conf_route *route)
{
    const char *fault = NULL;
    if (strcmp(route->path, "*") == 0)
        return;
    if (strlen(route->path) > PATTERN_MAX)
        fault = "a path has at most 2048 bytes";
    else if (route->path[0] != '/')
        fault = "a path begins with / (or is * for OPTIONS *)";
    if (!fault)
        fault = segments_fault(load, route);
    if (!fault)
        fault = normal_fault(load, route->path);
    if (fault)
        load_fault(load, line, "route.path is \"%.200s\": %s", route->path, fault);
    else if (has_star_segment(route->path))
        conf_fault(&load->conf->warnings, load_where(load, line),
                   "route.path is \"%.200s\": * stands for itself; any one segment is {name}, "
                   "all the rest {name...}",
                   route->path);
}
