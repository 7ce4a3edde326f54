#include <errno.h>
#include <stdlib.h>

#include "conf/load.h"
#include "http/head.h"
#include "http/path.h"

static bool is_label(struct str label)
{
    if (label.n < 1 || label.n > 63 || label.p[0] == '-' || label.p[label.n - 1] == '-')
        return false;
    for (size_t i = 0; i < label.n; i++) {
        char c = label.p[i];
        if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_')
            return false;
    }
    return true;
}

/* A name, an IPv4 address, an IPv6 address in brackets, or "*." and a name. */
static bool is_host_pattern(struct str host)
{
    struct addr addr;
    if (host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        return addr_parse_ip((struct str){host.p + 1, host.n - 2}, &addr) == 0 &&
               addr.sa.sa_family == AF_INET6;
    if (host.n > 2 && host.p[0] == '*' && host.p[1] == '.')
        host = (struct str){host.p + 2, host.n - 2};
    if (host.n > 253)
        return false;
    for (;;) {
        const char *dot = memchr(host.p, '.', host.n);
        size_t n = dot ? (size_t)(dot - host.p) : host.n;
        if (!is_label((struct str){host.p, n}))
            return false;
        if (!dot)
            return true;
        host = (struct str){dot + 1, host.n - n - 1};
    }
}

/* A list of texts, each once. */
static void list_compile(struct load *load, cfg_t *sec, const char *name, bool fold,
                         struct conf_strs *ret)
{
    size_t count = value_count(sec, name);
    ret->list = load_alloc(load, count, sizeof(*ret->list));
    for (size_t i = 0; ret->list && i < count; i++) {
        const struct value *value = value_at(sec, name, i);
        char *copy = load_copy(load, str_of(value->text));
        if (!copy)
            return;
        for (char *p = copy; fold && *p; p++)
            *p = ascii_lower(*p);
        for (size_t j = 0; j < ret->count; j++)
            if (strcmp(ret->list[j], copy) == 0)
                load_fault(load, value->line, "route.%s has \"%s\" twice, expected once", name,
                           copy);
        ret->list[ret->count++] = copy;
    }
    cfg_opt_t *option = cfg_getopt(sec, name);
    if (count == 0 && option->flags & CFGF_MODIFIED)
        load_fault(load, value_line(sec),
                   "route.%s is empty: nothing would match, leave it out for all", name);
}

/* As requests' are compared: one spelling for each address. */
static void host_normalise(struct load *load, char **host)
{
    struct str normal = str_of(*host);
    if (head_host(normal, &load->conf->arena, &normal) < 0)
        load->no_memory = true;
    char *copy = load_copy(load, normal);
    if (copy)
        *host = copy;
}

static void hosts_compile(struct load *load, cfg_t *sec, struct conf_route *ret)
{
    list_compile(load, sec, "host", true, &ret->hosts);
    for (size_t i = 0; i < ret->hosts.count; i++)
        if (is_host_pattern(str_of(ret->hosts.list[i])))
            host_normalise(load, &ret->hosts.list[i]);
        else
            load_fault(
                load, value_at(sec, "host", i)->line,
                "route.host has \"%s\", expected a name or IP address without port "
                "(api.example.com, [::1]) or *. and a name (*.example.org); a route without "
                "host is for all",
                ret->hosts.list[i]);
}

static void methods_compile(struct load *load, cfg_t *sec, struct conf_route *ret)
{
    list_compile(load, sec, "methods", false, &ret->methods);
    for (size_t i = 0; i < ret->methods.count; i++) {
        struct str method = str_of(ret->methods.list[i]);
        const struct value *value = value_at(sec, "methods", i);
        const char *known = NULL;
        for (int m = M_OTHER + 1; m < METHOD_COUNT; m++)
            if (str_eq_nocase(method, method_names[m]) && method_of(method) != (enum method)m)
                known = method_names[m].p;
        if (known)
            load_fault(load, value->line, "route.methods has \"%s\", did you mean %s?",
                       value->text, known);
        else if (!head_is_token(method) || method.n > 32)
            load_fault(load, value->line,
                       "route.methods has \"%s\", expected methods such as GET or POST",
                       value->text);
        else if (method_of(method) == M_CONNECT)
            load_fault(load, value->line, "route.methods has CONNECT, which is always refused");
    }
}

/* Literals in a request's target: path bytes of RFC 3986 3.3. A `?` would be a query. */
static bool is_path_text(struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c <= ' ' || c >= 0x7f || strchr("?#\"<>\\^`{|}", c))
            return false;
        uint64_t byte;
        if (c == '%' &&
            (text.n - i < 3 || str_hex_to_u64((struct str){text.p + i + 1, 2}, 255, &byte)))
            return false;
    }
    return true;
}

/* Whether paths that match `pattern` can begin with the segments of `prefix`. */
static bool may_begin_with(struct str pattern, struct str prefix)
{
    enum segment_kind kind, prefix_kind;
    struct str text, want;
    while (pattern_next(&prefix, &prefix_kind, &want)) {
        if (!pattern_next(&pattern, &kind, &text))
            return false;
        if (kind == SEGMENT_REST)
            return true;
        if (kind == SEGMENT_LITERAL && !str_eq(text, want))
            return false;
    }
    return true;
}

static void strip_compile(struct load *load, cfg_t *sec, struct conf_route *ret)
{
    const struct value *value = value_get(sec, "strip_prefix");
    if (!value)
        return;
    struct str prefix = str_of(value->text);
    bool ok = prefix.n >= 2 && prefix.p[0] == '/' && prefix.p[prefix.n - 1] != '/' &&
              is_path_text(prefix);
    if (!ok)
        load_fault(load, value->line,
                   "route.strip_prefix is \"%s\", expected a path such as /api, without a / at "
                   "the end",
                   value->text);
    else if (ret->path[0] != '/' || !may_begin_with(str_of(ret->path), prefix))
        load_fault(
            load, value->line,
            "route.strip_prefix is \"%s\", which no path that matches \"%s\" begins with",
            value->text, ret->path);
    else
        ret->strip_prefix = load_copy(load, prefix);
}

static void rewrite_compile(struct load *load, cfg_t *sec, struct conf_route *ret)
{
    const struct value *value = value_get(sec, "rewrite");
    /* what a header holds is no path: it could end the target and begin another request */
    static const struct template_place place = {"route.rewrite",
                                                1u << VAR_LITERAL | 1u << VAR_CAPTURE |
                                                    1u << VAR_PATH | 1u << VAR_REQUEST_ID |
                                                    1u << VAR_HOST | 1u << VAR_CLIENT_IP,
                                                ESCAPE_PATH};
    if (!value)
        return;
    template_compile(load, value->line, &place, str_of(value->text), ret, &ret->rewrite);
    const struct template_part *first = ret->rewrite.parts;
    bool ok = ret->rewrite.count &&
              (first->var == VAR_LITERAL ? first->text.p[0] == '/' : first->var == VAR_PATH);
    for (size_t i = 0; i < ret->rewrite.count; i++)
        ok &= first[i].var != VAR_LITERAL || is_path_text(first[i].text);
    if (!ok)
        load_fault(load, value->line,
                   "route.rewrite is \"%s\", expected a path that begins with /, without query",
                   value->text);
    if (value_get(sec, "strip_prefix"))
        load_fault(load, value->line,
                   "route has both strip_prefix and rewrite, expected one of them");
}

/* Options that only mean something with a backend. */
static void backend_only(struct load *load, cfg_t *sec, const struct conf_route *route)
{
    static const char *const names[] = {"strip_prefix", "rewrite", "timeout", "retry"};
    const char *action = route->action == ACTION_RESPOND ? "respond" : "redirect";
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (value_get(sec, names[i]))
            load_fault(load, value_get(sec, names[i])->line,
                       "route.%s has no effect with %s, expected upstream or split", names[i],
                       action);
    cfg_t *sub = value_section(sec, "request_headers");
    if (sub)
        load_fault(load, value_line(sub),
                   "route.request_headers has no effect with %s, expected upstream or split",
                   action);
}

/* It stands in split or beside it. */
static void sticky_compile(struct load *load, cfg_t *sec, cfg_t *split, struct conf_route *ret)
{
    const struct value *value = value_get(sec, "sticky");
    if (!value)
        return;
    if (!split)
        load_fault(load, value->line, "route.sticky has no effect without split");
    else if (value_get(split, "sticky"))
        load_fault(load, value->line, "route has sticky beside split and in it, expected one");
    else
        hash_on_compile(load, sec, "sticky", false, &ret->split.sticky,
                        &ret->split.sticky_name);
}

static void action_compile(struct load *load, cfg_t *sec, struct conf_route *ret)
{
    const struct value *upstream = value_get(sec, "upstream");
    cfg_t *split = value_section(sec, "split");
    int actions = (upstream != NULL) + (split != NULL) +
                  (value_section(sec, "respond") != NULL) +
                  (value_section(sec, "redirect") != NULL);
    static const char *const how_many[] = {"none", "one", "two", "three", "all four"};
    if (actions > 1 || (actions == 0 && !load->broken))
        load_fault(load, value_line(sec),
                   "route \"%s\" has %s of upstream, split, respond and redirect, expected "
                   "exactly one",
                   ret->name, how_many[actions]);
    ret->action = ACTION_UPSTREAM;
    if (upstream) {
        ret->upstream = load_copy(load, str_of(upstream->text));
        ret->upstream_line = upstream->line;
    }
    if (split)
        shares_compile(load, split, ret);
    sticky_compile(load, sec, split, ret);
    answer_compile(load, sec, ret);
    if (actions == 1 && (ret->action == ACTION_RESPOND || ret->action == ACTION_REDIRECT))
        backend_only(load, sec, ret);
}

void route_compile(struct load *load, cfg_t *sec, struct conf_route *ret)
{
    static const char *const retries[] = {"idempotent", "any", "never", NULL};
    unsigned retry = ROUTE_RETRY_IDEMPOTENT;
    const struct value *path = value_get(sec, "path");
    ret->body_bytes = UINT64_MAX;
    ret->access_log = true;
    list_compile(load, sec, "listener", false, &ret->listeners);
    if (ret->listeners.count)
        ret->listeners_line = value_get(sec, "listener")->line;
    hosts_compile(load, sec, ret);
    ret->path = load_copy(load, str_of(path ? path->text : "/{rest...}"));
    if (!ret->path)
        return;
    pattern_compile(load, path ? path->line : value_line(sec), ret);
    methods_compile(load, sec, ret);
    conditions_compile(load, sec, ret);
    action_compile(load, sec, ret);
    strip_compile(load, sec, ret);
    rewrite_compile(load, sec, ret);
    edit_compile(load, sec, ret);
    value_time(load, sec, "timeout", 0, DAY_MS, &ret->timeout);
    value_word(load, sec, "retry", retries, &retry);
    ret->retry = (enum conf_retry)retry;
    value_size(load, sec, "body_bytes", 0, BODY_BYTES_MAX, &ret->body_bytes);
    value_bool(load, sec, "access_log", &ret->access_log);
}
