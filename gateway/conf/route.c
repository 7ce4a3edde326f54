#include "conf/route.h"

#include <stdlib.h>
#include <sys/random.h>

#include "conf/condition.h"
#include "conf/pattern.h"
#include "conf/radix.h"

#define HOST_MAX 255 /* bytes of a host that a pattern could match */

/* One way to a route: it has as many as it has hosts. What a lookup asks is kept here, so
 * that it need not touch the route; small, for among many each is a cache miss. */
struct entry {
    uint32_t route;   /* in conf->routes */
    uint16_t methods; /* bits by enum method */
    uint8_t captures;
    uint8_t asks; /* bits: what of a request is to be looked at besides host and path */
};
enum { ASKS_METHOD = 1, ASKS_LISTENER = 2, ASKS_CONDITIONS = 4 };
_Static_assert(METHOD_COUNT <= 16, "the methods fit into an entry");
_Static_assert(sizeof(struct entry) == sizeof(uint64_t),
               "an entry fits into a node of the tree");

struct host {
    struct str name; /* ".example.org" for *.example.org; .p NULL: an empty place */
    uint32_t root;
};

struct router {
    const struct conf *conf;
    struct entry *entries; /* sorted by host, path, then best first */
    struct radix_key *keys;
    uint32_t count;
    struct radix radix;
    struct host *hosts; /* open addressing, at most half full */
    uint32_t host_mask;
    uint32_t any_host; /* root of the tree of routes without host; 0: none */
    uint64_t seed;
    uint64_t *listener_bits;
    char *key_bytes;
};

/* Hosts. The hash runs from the last byte to the first, so that one pass over a host gives
 * the hashes of all its suffixes. */
static uint64_t hash_step(uint64_t hash, char c)
{
    hash = (hash ^ (unsigned char)c) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

static const struct host *host_find(const struct router *router, struct str name, uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        const struct host *host = &router->hosts[i & router->host_mask];
        if (!host->name.p)
            return NULL;
        if (str_eq(host->name, name))
            return host;
    }
}

static void host_add(struct router *router, struct str name, uint32_t root)
{
    uint64_t i = router->seed;
    for (size_t n = name.n; n; n--)
        i = hash_step(i, name.p[n - 1]);
    while (router->hosts[i & router->host_mask].name.p)
        i++;
    router->hosts[i & router->host_mask] = (struct host){name, root};
}

/* Finding */

struct find {
    struct radix_walk walk;
    const struct router *router;
    size_t listener;
    struct str method;
    uint32_t method_bit; /* of a known one; else 0 */
    const struct head *head;
    struct entry found;
    bool is_found, wrong_method;
    struct route_match *match; /* where Allow is collected */
    FILE *explain;
};

static size_t listener_words(const struct conf *conf)
{
    return conf->listener_count / 64 + 1;
}

static const struct conf_route *route_of(const struct find *find, const struct entry *entry)
{
    return &find->router->conf->routes[entry->route];
}

static bool is_on_listener(const struct entry *entry, const struct find *find)
{
    if (!(entry->asks & ASKS_LISTENER))
        return true;
    size_t words = listener_words(find->router->conf);
    uint64_t bits = find->router->listener_bits[entry->route * words + find->listener / 64];
    return bits >> find->listener % 64 & 1;
}

static bool takes_method(const struct entry *entry, const struct find *find)
{
    if (!(entry->asks & ASKS_METHOD))
        return true;
    if (find->method_bit)
        return entry->methods & find->method_bit;
    const struct conf_strs *methods = &route_of(find, entry)->methods;
    for (size_t i = 0; i < methods->count; i++)
        if (str_eq(find->method, str_of(methods->list[i])))
            return true;
    return false;
}

/* Whether what is asked behind host and path holds, but for the method. */
static bool is_meant(const struct entry *entry, const struct find *find)
{
    return is_on_listener(entry, find) && (!(entry->asks & ASKS_CONDITIONS) ||
                                           conditions_hold(route_of(find, entry), find->head));
}

/* The first entry came along with its node: most often the others need not be looked at. */
static bool on_keys_find(struct radix_walk *walk, uint32_t first, uint32_t count,
                         uint64_t value)
{
    struct find *find = (struct find *)walk;
    struct entry entry;
    memcpy(&entry, &value, sizeof(entry));
    for (uint32_t i = first;; entry = find->router->entries[i]) {
        if (is_meant(&entry, find)) {
            if (takes_method(&entry, find)) {
                find->found = entry;
                find->is_found = true;
                return true;
            }
            find->wrong_method = true;
        }
        if (++i == first + count)
            return false;
    }
}

static bool allow_has(const char *allow, struct str method)
{
    struct str rest = str_of(allow), token;
    while (str_next_token(&rest, &token))
        if (str_eq(token, method))
            return true;
    return false;
}

static void allow_add(struct route_match *match, struct str method)
{
    size_t n = strlen(match->allow);
    if (allow_has(match->allow, method) || n + method.n + 3 > sizeof(match->allow))
        return;
    snprintf(match->allow + n, sizeof(match->allow) - n, "%s%.*s", n ? ", " : "", (int)method.n,
             method.p);
}

static bool on_keys_allow(struct radix_walk *walk, uint32_t first, uint32_t count,
                          uint64_t value)
{
    struct find *find = (struct find *)walk;
    (void)value; /* it is the first entry's */
    for (uint32_t i = first; i < first + count; i++) {
        const struct entry *entry = &find->router->entries[i];
        const struct conf_strs *methods = &route_of(find, entry)->methods;
        bool meant = is_meant(entry, find);
        for (size_t m = 0; meant && m < methods->count; m++)
            allow_add(find->match, str_of(methods->list[m]));
    }
    return false;
}

static void explain_split(const struct conf_route *route, FILE *out)
{
    static const char *const by[] = {"client_ip", "header:", "cookie:"};
    fputs("    split:", out);
    for (size_t i = 0; i < route->split.count; i++)
        fprintf(out, "%s upstream \"%s\" %u of %u", i ? "," : "",
                route->split.shares[i].upstream, route->split.shares[i].weight,
                route->split.total);
    if (route->split.sticky == HASH_NONE)
        fputs(", by turns\n", out);
    else
        fprintf(out, ", the same for the same %s%s\n", by[route->split.sticky],
                route->split.sticky_name ? route->split.sticky_name : "");
}

static void explain_action(const struct conf_route *route, FILE *out)
{
    switch (route->action) {
    case ACTION_UPSTREAM:
        fprintf(out, "    upstream \"%s\"\n", route->upstream);
        break;
    case ACTION_SPLIT:
        explain_split(route, out);
        break;
    case ACTION_RESPOND:
        fprintf(out, "    answered here with %u\n", route->respond.status);
        break;
    case ACTION_REDIRECT:
        fprintf(out, "    redirected with %u\n", route->redirect.status);
        break;
    }
}

static void explain_taken(const struct conf_route *route, const struct str *captures, FILE *out)
{
    for (size_t i = 0; i < route->condition_count; i++) {
        fputs("    has ", out);
        condition_put(&route->conditions[i], out);
        fputc('\n', out);
    }
    for (size_t c = 0; c < route->capture_count; c++)
        fprintf(out, "    {%s} is \"%.*s\"\n", route->captures[c], (int)captures[c].n,
                captures[c].p);
    explain_action(route, out);
}

static bool on_keys_explain(struct radix_walk *walk, uint32_t first, uint32_t count,
                            uint64_t value)
{
    struct find *find = (struct find *)walk;
    (void)value;
    for (uint32_t i = first; i < first + count; i++) {
        const struct entry *entry = &find->router->entries[i];
        const struct conf_route *route = route_of(find, entry);
        const struct conf_condition *failed = conditions_failed(route, find->head);
        const char *why = !is_on_listener(entry, find) ? "is not on this listener"
                          : failed                     ? "asks for more: "
                          : !takes_method(entry, find) ? "does not take this method"
                                                       : NULL;
        fprintf(find->explain, "  route \"%s\" (%s:%d) with path %s %s", route->name,
                route->where.file, route->where.line, route->path, why ? why : "is taken");
        if (failed && is_on_listener(entry, find))
            condition_put(failed, find->explain);
        fputc('\n', find->explain);
        if (!why) {
            explain_taken(route, walk->captures, find->explain);
            find->is_found = true;
            return true;
        }
    }
    return false;
}

static bool find_in(struct find *find, const struct host *host, struct str path)
{
    if (find->explain)
        fprintf(find->explain, "host %s%.*s\n", host->name.p[0] == '.' ? "*" : "",
                (int)host->name.n, host->name.p);
    return radix_find(&find->router->radix, host->root, path, &find->walk);
}

/* The trees that a host leads to, the best first, until one of them has it. */
static void find_by_host(struct find *find, struct str host, struct str path)
{
    const struct router *router = find->router;
    uint64_t hashes[HOST_MAX / 2 + 2], hash = router->seed;
    uint8_t dots[HOST_MAX / 2 + 2];
    unsigned count = 0;
    bool name = router->host_mask && host.n && host.n <= HOST_MAX && host.p[0] != '.';
    for (size_t i = host.n; name && i-- > 0;) {
        hash = hash_step(hash, host.p[i]);
        if (host.p[i] != '.')
            continue;
        if (count == sizeof(dots)) /* more dots than a name without empty labels has */
            name = false;
        else {
            dots[count] = (uint8_t)i;
            hashes[count++] = hash;
        }
    }
    const struct host *known = name ? host_find(router, host, hash) : NULL;
    if (known && find_in(find, known, path))
        return;
    while (name && count-- > 0) {
        struct str suffix = {host.p + dots[count], host.n - dots[count]};
        known = host_find(router, suffix, hashes[count]);
        if (known && find_in(find, known, path))
            return;
    }
    if (!router->any_host)
        return;
    if (find->explain)
        fputs("any host\n", find->explain);
    radix_find(&router->radix, router->any_host, path, &find->walk);
}

/* Field by field: the captures need no zeroing, and this is done for each request. */
static void find_init(struct find *find, const struct router *router, size_t listener,
                      struct str method, const struct head *head)
{
    enum method known = method_of(method);
    find->router = router;
    find->listener = listener;
    find->method = method;
    find->method_bit = known == M_OTHER ? 0 : 1u << known;
    find->head = head;
    find->is_found = false;
    find->wrong_method = false;
    find->match = NULL;
    find->explain = NULL;
}

void router_find(const struct router *router, size_t listener, struct str host, struct str path,
                 struct str method, const struct head *head, struct route_match *ret)
{
    struct find find;
    find_init(&find, router, listener, method, head);
    find.walk.on_keys = on_keys_find;
    find_by_host(&find, host, path);
    ret->route = NULL;
    ret->wrong_method = false;
    ret->allow[0] = '\0';
    if (find.is_found) {
        ret->index = find.found.route;
        ret->route = &router->conf->routes[ret->index];
        memcpy(ret->captures, find.walk.captures, find.found.captures * sizeof(*ret->captures));
    } else if (find.wrong_method) {
        ret->wrong_method = true;
        find.match = ret;
        find.walk.on_keys = on_keys_allow;
        find_by_host(&find, host, path);
    }
}

void router_explain(const struct router *router, size_t listener, struct str host,
                    struct str path, struct str method, const struct head *head, FILE *out)
{
    struct find find;
    find_init(&find, router, listener, method, head);
    find.walk.on_keys = on_keys_explain;
    find.explain = out;
    find_by_host(&find, host, path);
    if (find.is_found)
        return;
    struct route_match match;
    router_find(router, listener, host, path, method, head, &match);
    if (match.wrong_method)
        fprintf(out, "no route takes this method: 405 with Allow: %s\n", match.allow);
    else
        fputs("no route matches: 404\n", out);
}

/* Building */

/* An entry before it is sorted. */
struct draft {
    struct str host; /* empty: any */
    struct radix_key key;
    const struct conf_route *route;
    const uint64_t *listeners; /* bits; NULL: all */
};

static int compare_bytes(const char *a, size_t na, const char *b, size_t nb)
{
    size_t n = na < nb ? na : nb;
    int order = n ? memcmp(a, b, n) : 0;
    return order ? order : na < nb ? -1 : na > nb;
}

static unsigned condition_count(const struct conf_route *route)
{
    return (unsigned)route->condition_count + (route->methods.count != 0);
}

static int compare_drafts(const void *a, const void *b)
{
    const struct draft *x = a, *y = b;
    int order = compare_bytes(x->host.p, x->host.n, y->host.p, y->host.n);
    if (!order)
        order = radix_compare(&x->key, &y->key);
    if (!order) /* the one with more conditions first */
        order = (int)condition_count(y->route) - (int)condition_count(x->route);
    if (!order)
        order = x->route < y->route ? -1 : x->route > y->route;
    return order;
}

static bool is_same_place(const struct draft *a, const struct draft *b)
{
    return str_eq(a->host, b->host) && radix_compare(&a->key, &b->key) == 0;
}

static bool has_listeners_of(const struct draft *a, const struct draft *b, size_t words)
{
    if (!a->listeners || !b->listeners)
        return !a->listeners;
    for (size_t i = 0; i < words; i++)
        if (b->listeners[i] & ~a->listeners[i])
            return false;
    return true;
}

static bool has_methods_of(const struct conf_strs *a, const struct conf_strs *b)
{
    if (!a->count || !b->count)
        return a->count == b->count; /* the one with methods has more conditions */
    for (size_t j = 0; j < b->count; j++) {
        size_t i = 0;
        while (i < a->count && strcmp(a->list[i], b->list[j]) != 0)
            i++;
        if (i == a->count)
            return false;
    }
    return true;
}

/* An entry before drafts[i], of the same host and path, that takes all of its requests. */
static const struct draft *shadow_of(const struct router *router, const struct draft *drafts,
                                     uint32_t i)
{
    const struct draft *b = &drafts[i];
    for (const struct draft *a = b; a-- > drafts && is_same_place(a, b);)
        if (a->route != b->route && has_listeners_of(a, b, listener_words(router->conf)) &&
            has_methods_of(&a->route->methods, &b->route->methods) &&
            conditions_include(a->route, b->route))
            return a;
    return NULL;
}

/* A route that another one leaves no request to, at none of its hosts, is a mistake. `open`
 * counts the hosts at which each route has requests left. */
static void check_twins(const struct router *router, const struct draft *drafts, uint32_t *open,
                        struct conf_faults *faults)
{
    const struct conf_route *routes = router->conf->routes;
    for (uint32_t i = 0; i < router->count; i++)
        open[drafts[i].route - routes] += shadow_of(router, drafts, i) == NULL;
    for (uint32_t i = 0; i < router->count; i++) {
        const struct conf_route *route = drafts[i].route;
        if (open[route - routes]++)
            continue; /* it has some, or is reported */
        const struct conf_route *first = shadow_of(router, drafts, i)->route;
        conf_fault(faults, route->where,
                   "route \"%s\" can never be told apart from route \"%s\" (%s:%d), which "
                   "takes all requests of its host, path, listeners, methods and conditions",
                   route->name, first->name, first->where.file, first->where.line);
    }
}

static const uint64_t *listener_bits(const struct router *router,
                                     const struct conf_route *route, uint64_t *bits)
{
    const struct conf *conf = router->conf;
    if (route->listeners.count == 0)
        return NULL;
    for (size_t i = 0; i < conf->listener_count; i++)
        for (size_t l = 0; l < route->listeners.count; l++)
            if (strcmp(conf->listeners[i].name, route->listeners.list[l]) == 0)
                bits[i / 64] |= 1ull << i % 64;
    return bits;
}

static uint16_t method_bits(const struct conf_route *route)
{
    unsigned bits = 0;
    for (size_t i = 0; i < route->methods.count; i++) {
        enum method method = method_of(str_of(route->methods.list[i]));
        if (method != M_OTHER)
            bits |= 1u << method;
    }
    return (uint16_t)bits;
}

static void make_drafts(struct router *router, struct draft *drafts)
{
    const struct conf *conf = router->conf;
    char *key = router->key_bytes;
    for (size_t i = 0; i < conf->route_count; i++) {
        const struct conf_route *route = &conf->routes[i];
        if (route->faulty)
            continue;
        struct draft draft = {
            .key = {key, (uint32_t)pattern_key(str_of(route->path), key), 0},
            .route = route,
            .listeners =
                listener_bits(router, route, &router->listener_bits[i * listener_words(conf)]),
        };
        key += draft.key.n;
        if (route->hosts.count == 0)
            drafts[router->count++] = draft;
        for (size_t h = 0; h < route->hosts.count; h++) {
            draft.host = str_of(route->hosts.list[h]);
            if (draft.host.p[0] == '*')
                draft.host = (struct str){draft.host.p + 1, draft.host.n - 1};
            drafts[router->count++] = draft;
        }
    }
}

static struct entry make_entry(const struct router *router, const struct draft *draft)
{
    const struct conf_route *route = draft->route;
    unsigned asks = (route->methods.count ? ASKS_METHOD : 0) |
                    (draft->listeners ? ASKS_LISTENER : 0) |
                    (route->condition_count ? ASKS_CONDITIONS : 0);
    return (struct entry){(uint32_t)(route - router->conf->routes), method_bits(route),
                          (uint8_t)route->capture_count, (uint8_t)asks};
}

static bool make_trees(struct router *router, const struct draft *drafts)
{
    for (uint32_t i = 0; i < router->count; i++) {
        router->entries[i] = make_entry(router, &drafts[i]);
        router->keys[i] = drafts[i].key;
        memcpy(&router->keys[i].value, &router->entries[i], sizeof(struct entry));
    }
    for (uint32_t from = 0, to; from < router->count; from = to) {
        to = from + 1;
        while (to < router->count && str_eq(drafts[to].host, drafts[from].host))
            to++;
        uint32_t root = radix_add(&router->radix, router->keys, from, to);
        if (!root)
            return false;
        if (drafts[from].host.n)
            host_add(router, drafts[from].host, root);
        else
            router->any_host = root;
    }
    return true;
}

static bool make_room(struct router *router, size_t *ret_drafts)
{
    const struct conf *conf = router->conf;
    size_t drafts = 0, hosts = 0, bytes = 0, table = 1;
    for (size_t i = 0; i < conf->route_count; i++) {
        const struct conf_route *route = &conf->routes[i];
        hosts += route->hosts.count;
        drafts += route->hosts.count ? route->hosts.count : 1;
        bytes += strlen(route->path);
    }
    while (hosts && table <= hosts * 2)
        table *= 2;
    router->host_mask = (uint32_t)table - 1;
    router->hosts = mem_zalloc(table * sizeof(*router->hosts));
    router->entries = mem_alloc((drafts + 1) * sizeof(*router->entries));
    router->keys = mem_alloc((drafts + 1) * sizeof(*router->keys));
    router->listener_bits =
        mem_zalloc((conf->route_count + 1) * listener_words(conf) * sizeof(uint64_t));
    router->key_bytes = mem_alloc(bytes + 1);
    *ret_drafts = drafts;
    return router->hosts && router->entries && router->keys && router->listener_bits &&
           router->key_bytes;
}

/* All routes in their order; reports those that get no request. NULL: no memory. */
static struct draft *draft_routes(struct router *router, struct conf_faults *faults)
{
    size_t count;
    if (!make_room(router, &count))
        return NULL;
    struct draft *drafts = mem_alloc((count + 1) * sizeof(*drafts));
    uint32_t *open = mem_zalloc((router->conf->route_count + 1) * sizeof(*open));
    if (drafts && open) {
        make_drafts(router, drafts);
        qsort(drafts, router->count, sizeof(*drafts), compare_drafts);
        check_twins(router, drafts, open, faults);
    } else {
        mem_free(drafts);
        drafts = NULL;
    }
    mem_free(open);
    return drafts;
}

struct router *router_new(const struct conf *conf, struct conf_faults *faults)
{
    struct router *router = mem_zalloc(sizeof(*router));
    struct draft *drafts = NULL;
    size_t before = faults->count;
    if (!router)
        goto fail;
    router->conf = conf;
    if (getrandom(&router->seed, sizeof(router->seed), 0) < 0)
        router->seed = (uintptr_t)router;
    drafts = draft_routes(router, faults);
    if (!drafts || faults->count > before || !make_trees(router, drafts))
        goto fail;
    mem_free(drafts);
    return router;
fail:
    if (faults->count == before)
        conf_fault(faults, (struct conf_where){conf->file, 0}, "out of memory for the routes");
    mem_free(drafts);
    router_free(router);
    return NULL;
}

void router_check(const struct conf *conf, struct conf_faults *faults)
{
    struct router *router = mem_zalloc(sizeof(*router));
    if (!router)
        return;
    router->conf = conf;
    mem_free(draft_routes(router, faults));
    router_free(router);
}

void router_free(struct router *router)
{
    if (!router)
        return;
    radix_done(&router->radix);
    mem_free(router->hosts);
    mem_free(router->entries);
    mem_free(router->keys);
    mem_free(router->listener_bits);
    mem_free(router->key_bytes);
    mem_free(router);
}
