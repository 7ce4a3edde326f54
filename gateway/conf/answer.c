/* What a route answers by itself: respond and redirect. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "conf/load.h"
#include "http/head.h"

#define FILE_BYTES_MAX (1u << 20)

static void file_compile(struct load *load, const struct value *value, struct conf_route *route)
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
    char absolute[PATH_MAX];
    route->respond.file = load_copy(load, str_of(realpath(path, absolute) ? absolute : path));
    struct template_part *part = load_alloc(load, 1, sizeof(*part));
    char *copy = load_copy(load, text);
    if (part && copy && text.n) {
        part->text = (struct str){copy, text.n};
        route->respond.body = (struct template){part, 1};
    }
    mem_free((char *)text.p);
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
    if (body && file)
        load_fault(load, file->line, "respond has both body and file, expected one of them");
    else if (body)
        template_compile(load, body->line, "respond.body", str_of(body->text), TEMPLATE_ALL,
                         route, &route->respond.body);
    else if (file)
        file_compile(load, file, route);
    if ((body || file) && (status == 204 || status == 205 || status == 304))
        load_fault(load, (body ? body : file)->line,
                   "respond has a body, but an answer with status %u has none", status);
}

/* Literals in a Location: what may stand in a URI (RFC 3986 2). */
static bool is_uri_text(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] <= ' ' || (unsigned char)text.p[i] >= 0x7f ||
            strchr("\"<>\\^`{|}", text.p[i]))
            return false;
    return true;
}

static bool begins_as_uri(const struct template *to)
{
    if (!to->count)
        return false;
    const struct template_part *first = &to->parts[0];
    struct str text = first->text;
    if (first->var != VAR_LITERAL)
        return first->var == VAR_PATH;
    return text.p[0] == '/' || (text.n > 7 && memcmp(text.p, "http://", 7) == 0) ||
           (text.n > 8 && memcmp(text.p, "https://", 8) == 0) || str_eq(text, STR("http://")) ||
           str_eq(text, STR("https://"));
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
    template_compile(load, to->line, "redirect.to", str_of(to->text), TEMPLATE_ALL, route,
                     template);
    bool ok = begins_as_uri(template);
    for (size_t i = 0; i < template->count; i++)
        ok &= template->parts[i].var != VAR_LITERAL || is_uri_text(template->parts[i].text);
    if (!ok)
        load_fault(
            load, to->line,
            "redirect.to is \"%s\", expected a URI that begins with /, http:// or https://",
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
