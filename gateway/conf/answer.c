/* What a route answers by itself: respond and redirect. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "conf/load.h"
#include "http/head.h"

#define FILE_BYTES_MAX (1u << 20)

/* ---- respond ---- */

static bool has(struct str s, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= s.n; i++)
        if (str_eq_nocase((struct str){s.p + i, n}, (struct str){part, n}))
            return true;
    return false;
}

/* application/xml and image/svg+xml, but not the packed files of office programs. */
static bool is_xml(struct str type)
{
    return type.n > 4 && (type.p[type.n - 4] == '/' || type.p[type.n - 4] == '+') &&
           str_eq_nocase((struct str){type.p + type.n - 3, 3}, STR("xml"));
}

/* What a media type asks of strangers' bytes in its texts; its parameters do not count (RFC
 * 9110 8.3.1). `*ret_is_text`: it has texts. */
static enum escape escape_for(struct str type, bool *ret_is_text)
{
    const char *end = type.n ? memchr(type.p, ';', type.n) : NULL;
    type = str_trim((struct str){type.p, end ? (size_t)(end - type.p) : type.n});
    enum escape escape = has(type, "json")                                    ? ESCAPE_JSON
                         : has(type, "html") || is_xml(type)                  ? ESCAPE_HTML
                         : has(type, "javascript") || has(type, "ecmascript") ? ESCAPE_SCRIPT
                         : has(type, "x-www-form-urlencoded")                 ? ESCAPE_QUERY
                                                                              : ESCAPE_NONE;
    *ret_is_text = escape != ESCAPE_NONE ||
                   (type.n > 5 && str_eq_nocase((struct str){type.p, 5}, STR("text/")));
    return escape;
}

static void file_compile(struct load *load, const struct value *value, enum escape escape,
                         struct conf_route *route)
{
    char *path = include_path(load, load_where(load, value->line).file, str_of(value->text));
    struct str text;
    if (!path)
        return;
    int err = include_read(path, FILE_BYTES_MAX, &text);
    if (err) {
        load_fault(load, value->line, "respond.file: cannot read %s: %s", path,
                   include_why(err));
        return;
    }
    char absolute[PATH_MAX], what[PATH_MAX + 64];
    route->respond.file = load_copy(load, str_of(realpath(path, absolute) ? absolute : path));
    snprintf(what, sizeof(what), "respond.file %s (sent as it is with template = false)", path);
    if (route->respond.filled)
        template_compile(load, value->line,
                         &(struct template_place){what, TEMPLATE_ALL, escape}, text, route,
                         &route->respond.body);
    else
        template_plain(load, text, &route->respond.body);
    mem_free((char *)text.p);
}

static void body_compile(struct load *load, cfg_t *sec, struct conf_route *route)
{
    const struct value *body = value_get(sec, "body"), *file = value_get(sec, "file");
    bool is_text;
    enum escape escape = escape_for(str_of(route->respond.type), &is_text);
    route->respond.filled = body || is_text;
    value_bool(load, sec, "template", &route->respond.filled);
    if (body && file)
        load_fault(load, file->line, "respond has both body and file, expected one of them");
    else if (file)
        file_compile(load, file, escape, route);
    else if (body && route->respond.filled)
        template_compile(load, body->line,
                         &(struct template_place){"respond.body", TEMPLATE_ALL, escape},
                         str_of(body->text), route, &route->respond.body);
    else if (body)
        template_plain(load, str_of(body->text), &route->respond.body);
    else if (value_get(sec, "template"))
        load_fault(load, value_get(sec, "template")->line,
                   "respond.template has no effect without a body or file");
}

static void respond_compile(struct load *load, cfg_t *sec, struct conf_route *route)
{
    const struct value *body = value_get(sec, "body"), *file = value_get(sec, "file"),
                       *type = value_get(sec, "type");
    uint32_t status = 200;
    value_number(load, sec, "status", 200, 599, &status);
    route->respond.status = (uint16_t)status;
    value_text(load, sec, "type", &route->respond.type);
    if (type && route->respond.type && !head_is_field_value(str_of(route->respond.type)))
        load_fault(load, type->line,
                   "respond.type is no header value, expected e.g. text/plain");
    if (!route->respond.type)
        route->respond.type = load_copy(load, STR("text/plain"));
    if (route->respond.type)
        body_compile(load, sec, route);
    if ((body || file) && (status == 204 || status == 205 || status == 304))
        load_fault(load, (body ? body : file)->line,
                   "respond has a body, but an answer with status %u has none", status);
}

/* ---- redirect ---- */

/* Literals in a Location: what may stand in a URI (RFC 3986 2). */
static bool is_uri_text(struct str text)
{
    uint64_t byte;
    for (size_t i = 0; i < text.n; i++) {
        if ((unsigned char)text.p[i] <= ' ' || (unsigned char)text.p[i] >= 0x7f ||
            strchr("\"<>\\^`{|}", text.p[i]))
            return false;
        if (text.p[i] == '%' &&
            (text.n - i < 3 || str_hex_to_u64((struct str){text.p + i + 1, 2}, 255, &byte)))
            return false;
    }
    return true;
}

static size_t begin_of_authority(struct str text)
{
    static const struct str starts[] = {STR("http://"), STR("https://"), STR("//")};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        if (text.n >= starts[i].n && memcmp(text.p, starts[i].p, starts[i].n) == 0)
            return starts[i].n;
    return 0;
}

/* The literals of an authority, collected; a variable in it counts as a name. */
struct authority {
    char text[320];
    size_t n;
};

static void authority_add(struct authority *authority, struct str text)
{
    for (size_t i = 0; i < text.n && authority->n < sizeof(authority->text); i++)
        authority->text[authority->n++] = text.p[i];
}

/* The part of a URI that follows a literal which begins in `place`. */
static enum escape place_behind(struct str text, enum escape place, struct authority *authority)
{
    size_t i = 0;
    while (place == ESCAPE_AUTHORITY && i < text.n && !strchr("/?#", text.p[i]))
        i++;
    if (place == ESCAPE_AUTHORITY)
        authority_add(authority, (struct str){text.p, i});
    if (i == text.n)
        return place;
    bool query = memchr(text.p + i, '?', text.n - i) || memchr(text.p + i, '#', text.n - i);
    return query ? ESCAPE_QUERY : place == ESCAPE_AUTHORITY ? ESCAPE_PATH : place;
}

/* Says of each variable in which part of the URI it stands. False: that is no place to send
 * anybody to. */
static bool place_variables(struct template *to)
{
    struct authority authority = {.n = 0};
    if (!to->count)
        return false;
    struct template_part *part = to->parts, *end = part + to->count;
    bool literal = part->var == VAR_LITERAL;
    size_t skip = literal ? begin_of_authority(part->text) : 0;
    enum escape place = skip ? ESCAPE_AUTHORITY : ESCAPE_PATH;
    if (literal ? !skip && part->text.p[0] != '/' : part->var != VAR_PATH)
        return false;
    for (; part < end; part++, skip = 0) {
        if (part->var == VAR_LITERAL) {
            struct str text = {part->text.p + skip, part->text.n - skip};
            place = place_behind(text, place, &authority);
            continue;
        }
        if (place == ESCAPE_AUTHORITY && part->var == VAR_PATH)
            place = ESCAPE_PATH; /* with the slash that it begins with */
        part->escape = place;
        if (place == ESCAPE_AUTHORITY)
            authority_add(&authority, STR("x"));
    }
    return !begin_of_authority(to->parts->var == VAR_LITERAL ? to->parts->text : STR("")) ||
           head_is_authority((struct str){authority.text, authority.n});
}

static void redirect_compile(struct load *load, cfg_t *sec, struct conf_route *route)
{
    static const char *const words[] = {"301", "302", "303", "307", "308", NULL};
    static const uint16_t statuses[] = {301, 302, 303, 307, 308};
    const struct value *to = value_get(sec, "to");
    unsigned status = 4;
    value_word(load, sec, "status", words, &status);
    route->redirect.status = statuses[status];
    if (!to && load->broken)
        return;
    if (!to) {
        load_fault(load, value_line(sec), "redirect has no to, expected where to");
        return;
    }
    struct template *template = &route->redirect.to;
    template_compile(load, to->line,
                     &(struct template_place){"redirect.to", TEMPLATE_ALL, ESCAPE_PATH},
                     str_of(to->text), route, template);
    bool ok = place_variables(template);
    for (size_t i = 0; i < template->count; i++)
        ok &= template->parts[i].var != VAR_LITERAL || is_uri_text(template->parts[i].text);
    if (!ok)
        load_fault(
            load, to->line,
            "redirect.to is \"%s\", expected a URI that begins with /, or with http:// or "
            "https:// and a host",
            to->text);
}

void answer_compile(struct load *load, cfg_t *sec, struct conf_route *route)
{
    cfg_t *sub;
    if ((sub = value_section(sec, "respond"))) {
        route->action = ACTION_RESPOND;
        respond_compile(load, sub, route);
    }
    if ((sub = value_section(sec, "redirect"))) {
        route->action = ACTION_REDIRECT;
        redirect_compile(load, sub, route);
    }
}
