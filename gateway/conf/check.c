/* What only shows when all sections are there: two things with one name or address, and
 * names that refer to nothing. */
#include <stdlib.h>

#include "conf/load.h"
#include "http/path.h"

/* A thing with a text that no other of its kind may have. */
struct named {
    const char *text;
    const char *owner; /* for addresses: whose; else NULL */
    struct conf_where where;
    size_t order;
};

struct names {
    struct named *list;
    size_t count;
};

static int compare_named(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    if (order)
        return order;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void names_add(struct names *names, const char *text, const char *owner,
                      struct conf_where where)
{
    names->list[names->count] = (struct named){text, owner, where, names->count};
    names->count++;
}

/* Sorted, equal ones are neighbours, the first in the file before the others. */
static void names_check(struct load *load, struct names *names, const char *kind)
{
    if (names->count)
        qsort(names->list, names->count, sizeof(*names->list), compare_named);
    const struct named *first = names->list;
    for (size_t i = 1; i < names->count; i++) {
        const struct named *named = &names->list[i];
        if (strcmp(named->text, first->text) != 0) {
            first = named;
            continue;
        }
        const char *of = named->owner ? named->owner : "";
        conf_fault(load->faults, named->where, "%s \"%s\"%s%s stands twice, first at %s:%d",
                   kind, named->text, *of ? " of " : "", of, first->where.file,
                   first->where.line);
    }
    *names = (struct names){names->list, 0};
}

static void check_names(struct load *load, struct names *names)
{
    const struct conf *conf = load->conf;
    for (size_t i = 0; i < conf->listener_count; i++)
        names_add(names, conf->listeners[i].name, NULL, conf->listeners[i].where);
    names_check(load, names, "listener");
    for (size_t i = 0; i < conf->upstream_count; i++)
        names_add(names, conf->upstreams[i].name, NULL, conf->upstreams[i].where);
    names_check(load, names, "upstream");
    for (size_t i = 0; i < conf->route_count; i++)
        names_add(names, conf->routes[i].name, NULL, conf->routes[i].where);
    names_check(load, names, "route");
}

static void add_address(struct load *load, struct names *names, const struct addr *addr,
                        const char *owner, struct conf_where where)
{
    char text[ADDR_TEXT];
    size_t n = addr_put(text, addr);
    const char *copy = load_copy(load, (struct str){text, n});
    if (copy)
        names_add(names, copy, owner, where);
}

static void check_addresses(struct load *load, struct names *names)
{
    const struct conf *conf = load->conf;
    for (size_t i = 0; i < conf->listener_count; i++) {
        const struct conf_listener *listener = &conf->listeners[i];
        for (size_t a = 0; a < listener->addr_count; a++)
            add_address(load, names, &listener->addrs[a], listener->name, listener->where);
    }
    if (conf->has_admin)
        add_address(load, names, &conf->admin, "admin", conf->admin_where);
    names_check(load, names, "listen address");
}

static const char *nearest_name(const char *name, const struct names *names)
{
    const char *best = NULL;
    for (size_t i = 0; i < names->count && !best; i++)
        best = value_nearest(name, &names->list[i].text, 1);
    return best;
}

static void fault_reference(struct load *load, const struct conf_route *route, int line,
                            const char *kind, const char *name, const struct names *names)
{
    const char *nearest = nearest_name(name, names);
    load_fault(load, line, "route \"%s\" names %s \"%s\", which there is not%s%s%s",
               route->name, kind, name, nearest ? ", did you mean \"" : "",
               nearest ? nearest : "", nearest ? "\"?" : "");
}

static int compare_text(const void *key, const void *named)
{
    return strcmp(key, ((const struct named *)named)->text);
}

static const struct named *find(const struct names *names, const char *text)
{
    if (!names->count)
        return NULL;
    return bsearch(text, names->list, names->count, sizeof(*names->list), compare_text);
}

static void refer(struct load *load, const struct conf_route *route, int line,
                  const char *upstream, const struct names *names, size_t *ret_index)
{
    const struct named *named = find(names, upstream);
    if (named)
        *ret_index = named->order;
    else
        fault_reference(load, route, line, "upstream", upstream, names);
}

static void check_upstreams(struct load *load, struct names *names)
{
    struct conf *conf = load->conf;
    for (size_t i = 0; i < conf->upstream_count; i++)
        names_add(names, conf->upstreams[i].name, NULL, conf->upstreams[i].where);
    if (names->count)
        qsort(names->list, names->count, sizeof(*names->list), compare_named);
    for (size_t i = 0; i < conf->route_count; i++) {
        struct conf_route *route = &conf->routes[i];
        if (route->upstream)
            refer(load, route, route->upstream_line, route->upstream, names,
                  &route->upstream_index);
        for (size_t k = 0; k < route->split.count; k++) {
            struct conf_share *share = &route->split.shares[k];
            refer(load, route, share->line, share->upstream, names, &share->upstream_index);
        }
    }
    names->count = 0;
}

static void check_listeners(struct load *load, struct names *names)
{
    struct conf *conf = load->conf;
    for (size_t i = 0; i < conf->listener_count; i++)
        names_add(names, conf->listeners[i].name, NULL, conf->listeners[i].where);
    if (names->count)
        qsort(names->list, names->count, sizeof(*names->list), compare_named);
    else
        conf_fault(load->faults, (struct conf_where){conf->file, 1},
                   "there is no listener, expected at least one: "
                   "listener \"http\" { listen = {\"127.0.0.1:8080\"} }");
    for (size_t i = 0; i < conf->route_count; i++) {
        const struct conf_route *route = &conf->routes[i];
        for (size_t l = 0; l < route->listeners.count; l++)
            if (!find(names, route->listeners.list[l]))
                fault_reference(load, route, route->listeners_line, "listener",
                                route->listeners.list[l], names);
    }
    names->count = 0;
}

static bool is_on(const struct conf_route *route, const struct conf_listener *listener)
{
    bool on = !route->listeners.count;
    for (size_t i = 0; i < route->listeners.count && !on; i++)
        on = strcmp(route->listeners.list[i], listener->name) == 0;
    return on;
}

/* A path with what all of the route's listeners take away, or refuse, before they compare. */
static void check_reading(struct load *load, const struct conf_route *route, const char *what,
                          enum path_class class, unsigned drops, const char *option)
{
    const struct conf *conf = load->conf;
    bool some = false;
    if (route->faulty || !strstr(route->path, what))
        return;
    for (size_t i = 0; i < conf->listener_count; i++) {
        unsigned allow = conf->listeners[i].path_allow;
        if (!is_on(route, &conf->listeners[i]))
            continue;
        if (allow & class && !(allow & drops))
            return;
        some = true;
    }
    if (some)
        conf_fault(
            load->faults, route->where,
            "route \"%s\" would never match: its path has \"%s\", which no listener of it "
            "keeps (paths.%s)",
            route->name, what, option);
}

static void check_paths(struct load *load)
{
    for (size_t i = 0; i < load->conf->route_count; i++) {
        const struct conf_route *route = &load->conf->routes[i];
        check_reading(load, route, "//", PATH_DOUBLE_SLASH, PATH_MERGE_SLASHES, "double_slash");
        check_reading(load, route, ";", PATH_PARAMETER, PATH_DROP_PARAMETERS, "parameter");
    }
}

void check_all(struct load *load)
{
    const struct conf *conf = load->conf;
    size_t room = 1 + conf->listener_count + conf->upstream_count + conf->route_count;
    for (size_t i = 0; i < conf->listener_count; i++)
        room += conf->listeners[i].addr_count;
    struct names names = {mem_alloc(room * sizeof(*names.list)), 0};
    if (!names.list) {
        load->no_memory = true;
        return;
    }
    check_names(load, &names);
    check_addresses(load, &names);
    check_upstreams(load, &names);
    check_listeners(load, &names);
    check_paths(load);
    mem_free(names.list);
}
