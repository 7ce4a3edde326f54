/* request_headers and response_headers. */
#include "conf/load.h"
#include "http/head.h"

/* `option`: "request_headers.set" and the like. */
static bool check_name(struct load *load, int line, const char *option, struct str name)
{
    bool request = strncmp(option, "request", 7) == 0;
    if (!head_is_token(name)) {
        load_fault(load, line,
                   "%s: \"%.*s\" is no header name, expected letters, digits and "
                   "!#$%%&'*+-.^_`|~",
                   option, (int)name.n, name.p);
        return false;
    }
    enum field_id id = field_id_of(name);
    bool host_set = request && strstr(option, ".set");
    bool ours = head_is_codecs(id) || id == F_EXPECT;
    if (!ours && (id != F_HOST || host_set))
        return true;
    load_fault(load, line, "%s: %.*s cannot be edited, %s", option, (int)name.n, name.p,
               id != F_HOST ? "it frames the message"
               : request    ? "a request has exactly one (use set)"
                            : "it belongs to requests");
    return false;
}

static void check_value(struct load *load, int line, const char *option, struct str name,
                        const struct template *template)
{
    for (size_t i = 0; i < template->count; i++) {
        const struct template_part *part = &template->parts[i];
        if (part->var == VAR_LITERAL && !head_is_field_value(part->text)) {
            load_fault(load, line,
                       "%s: the value of %.*s has control characters, expected none", option,
                       (int)name.n, name.p);
            return;
        }
    }
    if (field_id_of(name) != F_HOST)
        return;
    if (template->count != 1 || template->parts[0].var != VAR_LITERAL ||
        !head_is_authority(template->parts[0].text))
        load_fault(load, line, "%s: the value of Host is no HOST or HOST:PORT", option);
}

/* One "Name: value". False: a fault was reported. */
static bool field_compile(struct load *load, const struct value *value, const char *option,
                          const struct conf_route *route, struct conf_field *ret)
{
    struct str text = str_of(value->text);
    const char *colon = memchr(text.p, ':', text.n);
    if (!colon) {
        load_fault(load, value->line, "%s has \"%s\", expected \"Name: value\"", option,
                   text.p);
        return false;
    }
    struct str name = {text.p, (size_t)(colon - text.p)};
    struct str content = str_trim((struct str){colon + 1, text.n - name.n - 1});
    if (!check_name(load, value->line, option, name))
        return false;
    ret->name = load_copy(load, name);
    template_compile(load, value->line,
                     &(struct template_place){option, TEMPLATE_ALL, ESCAPE_FIELD}, content,
                     route, &ret->value);
    check_value(load, value->line, option, name, &ret->value);
    return true;
}

static struct conf_field *fields_compile(struct load *load, cfg_t *sec, const char *name,
                                         const struct conf_route *route, size_t *ret_count)
{
    char option[64];
    snprintf(option, sizeof(option), "%s.%s", sec->name, name);
    size_t count = value_count(sec, name);
    struct conf_field *fields = load_alloc(load, count, sizeof(*fields));
    for (size_t i = 0; fields && i < count; i++) {
        const struct value *value = value_at(sec, name, i);
        struct conf_field *field = &fields[*ret_count];
        if (!field_compile(load, value, option, route, field) || !field->name)
            continue;
        for (size_t j = 0; name[0] == 's' && j < *ret_count; j++)
            if (str_eq_nocase(str_of(fields[j].name), str_of(field->name)))
                load_fault(load, value->line, "%s sets %s twice, expected once (or add)",
                           option, field->name);
        ++*ret_count;
    }
    return fields;
}

static void remove_compile(struct load *load, cfg_t *sec, struct conf_strs *ret)
{
    char option[64];
    snprintf(option, sizeof(option), "%s.remove", sec->name);
    size_t count = value_count(sec, "remove");
    ret->list = load_alloc(load, count, sizeof(*ret->list));
    for (size_t i = 0; ret->list && i < count; i++) {
        const struct value *value = value_at(sec, "remove", i);
        if (check_name(load, value->line, option, str_of(value->text)))
            ret->list[ret->count++] = load_copy(load, str_of(value->text));
    }
}

static void one_edit(struct load *load, cfg_t *sec, const struct conf_route *route,
                     struct conf_edit *ret)
{
    ret->set = fields_compile(load, sec, "set", route, &ret->set_count);
    ret->add = fields_compile(load, sec, "add", route, &ret->add_count);
    remove_compile(load, sec, &ret->remove);
}

void edit_compile(struct load *load, cfg_t *sec, struct conf_route *route)
{
    cfg_t *sub;
    if ((sub = value_section(sec, "request_headers")))
        one_edit(load, sub, route, &route->request_headers);
    if ((sub = value_section(sec, "response_headers")))
        one_edit(load, sub, route, &route->response_headers);
}
