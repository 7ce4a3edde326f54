/* Texts with {name} in them. "{{" stands for one "{"; a brace that begins no name is itself,
 * so that JSON needs no care. */
#include "conf/load.h"
#include "http/head.h"

static const struct {
    const char *name;
    enum template_var var;
} variables[] = {
    {"client_ip", VAR_CLIENT_IP},
    {"request_id", VAR_REQUEST_ID},
    {"host", VAR_HOST},
    {"path", VAR_PATH},
};
#define VARIABLES      (sizeof(variables) / sizeof(*variables))
#define NAME_MAX_BYTES 256 /* of what stands between braces */

/* What is between `p`, a brace, and the closing one, when that is a variable's name. */
static bool is_variable(struct str at, struct str *ret_name)
{
    const char *close = memchr(at.p, '}', at.n < NAME_MAX_BYTES ? at.n : NAME_MAX_BYTES);
    if (!close)
        return false;
    struct str name = {at.p + 1, (size_t)(close - at.p) - 1};
    bool header = name.n >= 7 && memcmp(name.p, "header:", 7) == 0;
    if (header ? !head_is_token((struct str){name.p + 7, name.n - 7}) : !pattern_is_name(name))
        return false;
    *ret_name = name;
    return true;
}

static bool resolve(struct str name, const struct conf_route *route, struct template_part *ret)
{
    *ret = (struct template_part){0};
    for (size_t i = 0; i < route->capture_count; i++)
        if (str_eq(name, str_of(route->captures[i]))) {
            ret->var = VAR_CAPTURE;
            ret->capture = (unsigned)i;
            return true;
        }
    for (size_t i = 0; i < VARIABLES; i++)
        if (str_eq(name, str_of(variables[i].name))) {
            ret->var = variables[i].var;
            return true;
        }
    if (name.n > 7 && memcmp(name.p, "header:", 7) == 0) {
        ret->var = VAR_HEADER;
        ret->text = (struct str){name.p + 7, name.n - 7};
        return true;
    }
    return false;
}

static void put_part(struct load *load, struct template *template, struct template_part part)
{
    if (part.var == VAR_LITERAL && part.text.n == 0)
        return;
    if (part.text.n) {
        const char *copy = load_copy(load, part.text);
        if (!copy)
            return;
        part.text.p = copy;
    }
    template->parts[template->count++] = part;
}

/* Parts cannot outnumber this: each is a name, or ends at one or at "{{", or is the last. A
 * file may be full of other braces. */
static size_t parts_bound(struct str text)
{
    size_t n = 1;
    for (size_t i = 0; i < text.n; i++) {
        struct str name;
        if (text.p[i] != '{')
            continue;
        if (i + 1 < text.n && text.p[i + 1] == '{')
            i++, n++;
        else if (is_variable((struct str){text.p + i, text.n - i}, &name))
            n += 2;
    }
    return n;
}

/* A field that says how its message is framed, or belongs to its connection: it is gone when
 * texts are filled in. */
static bool is_gone(const struct template_part *part)
{
    enum field_id id = part->var == VAR_HEADER ? field_id_of(part->text) : F_OTHER;
    return head_is_codecs(id) || head_is_hop(id);
}

static void fault_name(struct load *load, int line, const char *what, struct str name,
                       const struct conf_route *route, bool known)
{
    char bound[256] = "";
    for (size_t i = 0; i < route->capture_count; i++) {
        size_t n = strlen(bound);
        snprintf(bound + n, sizeof(bound) - n, "%s, ", route->captures[i]);
    }
    if (known)
        load_fault(load, line, "%s uses {%.*s}, which cannot stand there", what, (int)name.n,
                   name.p);
    else
        load_fault(load, line,
                   "%s uses {%.*s}, which the path does not bind, expected one of %sclient_ip, "
                   "request_id, host, path or header:NAME (write {{ for a plain brace)",
                   what, (int)name.n, name.p, bound);
}

void template_compile(struct load *load, int line, const struct template_place *place,
                      struct str text, const struct conf_route *route, struct template *ret)
{
    ret->parts = load_alloc(load, parts_bound(text), sizeof(*ret->parts));
    if (!ret->parts)
        return;
    size_t from = 0, i = 0;
    while (i < text.n) {
        struct str at = {text.p + i, text.n - i}, name;
        struct template_part literal = {.text = {text.p + from, i - from}}, part;
        if (text.p[i] != '{') {
            i++;
        } else if (at.n > 1 && at.p[1] == '{') {
            literal.text.n++; /* with the first of the two */
            put_part(load, ret, literal);
            from = i += 2;
        } else if (is_variable(at, &name)) {
            bool known = resolve(name, route, &part);
            if (!known || !(place->allow & 1u << part.var) || is_gone(&part))
                fault_name(load, line, place->what, name, route, known);
            part.escape = place->escape;
            put_part(load, ret, literal);
            put_part(load, ret, part);
            from = i += name.n + 2;
        } else {
            i++;
        }
    }
    put_part(load, ret, (struct template_part){.text = {text.p + from, text.n - from}});
}

void template_plain(struct load *load, struct str text, struct template *ret)
{
    ret->parts = load_alloc(load, 1, sizeof(*ret->parts));
    if (ret->parts)
        put_part(load, ret, (struct template_part){.text = text});
}

static void put_literal(struct str text, bool more, FILE *out)
{
    for (size_t i = 0; i < text.n; i++) {
        char next = i + 1 < text.n ? text.p[i + 1] : more ? '{' : '\0';
        bool plain =
            text.p[i] != '{' || (next != '{' && !pattern_is_name((struct str){&next, 1}));
        fputs(plain ? "" : "{", out);
        fputc(text.p[i], out);
    }
}

void template_put(const struct template *template, const struct conf_route *route, FILE *out)
{
    for (size_t i = 0; i < template->count; i++) {
        const struct template_part *part = &template->parts[i];
        /* a literal is cut behind "{{": a brace at its end must stay doubled */
        bool more = i + 1 < template->count;
        switch (part->var) {
        case VAR_LITERAL:
            put_literal(part->text, more, out);
            break;
        case VAR_CAPTURE:
            fprintf(out, "{%s}", route->captures[part->capture]);
            break;
        case VAR_HEADER:
            fprintf(out, "{header:%.*s}", (int)part->text.n, part->text.p);
            break;
        default:
            for (size_t v = 0; v < VARIABLES; v++)
                if (variables[v].var == part->var)
                    fprintf(out, "{%s}", variables[v].name);
        }
    }
}
