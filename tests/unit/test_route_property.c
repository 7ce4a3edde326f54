/* The router against one that is slow and obvious, on random sets of routes. */
#include "route_test.h"

/* The obvious router: every route is tried, and the best of those that match is kept. */
static bool slow_path(struct str pattern, struct str path, char *rank)
{
    for (;; rank++) {
        struct str p = {0}, s = {0};
        if (pattern.n == 0 || path.n == 0)
            return pattern.n == path.n;
        p = (struct str){pattern.p + 1, strcspn(pattern.p + 1, "/")};
        const char *slash = memchr(path.p + 1, '/', path.n - 1);
        s = (struct str){path.p + 1, slash ? (size_t)(slash - path.p) - 1 : path.n - 1};
        *rank = p.n == 0 || p.p[0] != '{' ? 'a' : p.p[p.n - 2] == '.' ? 'c' : 'b';
        if (*rank == 'c')
            return true;
        if (*rank == 'a' ? !str_eq(p, s) : s.n == 0)
            return false;
        pattern = (struct str){p.p + p.n, pattern.n - p.n - 1};
        path = (struct str){s.p + s.n, path.n - s.n - 1};
    }
}

/* 0: does not match, else the longer the better. */
static size_t slow_host(const struct conf_route *route, const char *host)
{
    size_t best = route->hosts.count ? 0 : 1;
    for (size_t i = 0; i < route->hosts.count; i++) {
        const char *pattern = route->hosts.list[i];
        size_t n = strlen(pattern), have = strlen(host), rank = 0;
        if (pattern[0] != '*')
            rank = strcmp(pattern, host) == 0 ? 10000 : 0;
        else if (have > n - 1 && strcmp(host + have - (n - 1), pattern + 1) == 0)
            rank = 1 + n;
        best = rank > best ? rank : best;
    }
    return best;
}

static bool slow_has(const struct conf_strs *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->list[i], text) == 0)
            return true;
    return list->count == 0;
}

/* Conditions as random_routes makes them, asked of the texts that head_of made a head of. */
static bool slow_holds(const struct conf_condition *condition, const char *field,
                       const char *query)
{
    const char *text = condition->query ? query : field;
    const char *value = text ? strchr(text, '=') + 1 : NULL;
    if (text && ((size_t)(value - text) != strlen(condition->name) + 1 ||
                 strncasecmp(text, condition->name, strlen(condition->name)) != 0))
        value = NULL;
    switch (condition->test) {
    case CONDITION_EQUALS:
        return value && strcmp(value, condition->text) == 0;
    case CONDITION_REGEX: /* ^1 */
        return value && value[0] == condition->text[1];
    case CONDITION_PRESENT:
        return value != NULL;
    case CONDITION_ABSENT:
        return value == NULL;
    }
    return false;
}

static bool slow_all_hold(const struct conf_route *route, const char *field, const char *query)
{
    bool all = true;
    for (size_t i = 0; i < route->condition_count; i++)
        all &= slow_holds(&route->conditions[i], field, query);
    return all;
}

static size_t slow_conditions(const struct conf_route *route)
{
    return (route->methods.count > 0) + route->condition_count;
}

static const struct conf_route *slow_find(const struct conf *conf, const char *listener,
                                          const struct lookup *lookup, bool *ret_wrong)
{
    const struct conf_route *best = NULL;
    size_t best_host = 0;
    char best_rank[64] = "";
    *ret_wrong = false;
    for (size_t i = 0; i < conf->route_count; i++) {
        const struct conf_route *route = &conf->routes[i];
        char rank[64] = "";
        size_t rank_host = slow_host(route, lookup->host);
        if (!rank_host || !slow_has(&route->listeners, listener) ||
            !slow_path(str_of(route->path), str_of(lookup->path), rank) ||
            !slow_all_hold(route, lookup->field, lookup->query))
            continue;
        if (!slow_has(&route->methods, lookup->method)) {
            *ret_wrong = true;
            continue;
        }
        int order = best ? strcmp(rank, best_rank) : 0;
        if (!best || rank_host > best_host ||
            (rank_host == best_host &&
             (order < 0 || (order == 0 && slow_conditions(route) > slow_conditions(best))))) {
            best = route;
            best_host = rank_host;
            memcpy(best_rank, rank, sizeof(rank));
        }
    }
    *ret_wrong = *ret_wrong && !best;
    return best;
}

static const char *pick(const char *const *list, size_t n)
{
    return list[(size_t)rand() % n];
}

static const char *const hosts[] = {"a.com", "b.a.com", "c.b.a.com", "x.com", "com"};
static const char *const host_options[] = {"",
                                           "",
                                           "host = a.com",
                                           "host = \"*.a.com\"",
                                           "host = {\"*.b.a.com\", x.com}",
                                           "host = \"*.com\""};
static const char *const method_options[] = {"", "", "methods = GET", "methods = {PUT, GET}",
                                             "methods = {ODD, POST}"};
static const char *const listener_options[] = {"", "", "listener = one", "listener = two"};
static const char *const condition_options[] = {
    "",
    "",
    "",
    "match_header X { equals = 1 }",
    "match_header X { present = true }",
    "match_header X { present = false }",
    "match_header Y { regex = '^1' }",
    "match_query x { equals = 12 } match_header X { equals = 1 }",
    "match_query x { regex = '^1' }",
    "match_query x { present = false }"};
static const char *const fields[] = {NULL, "X=1", "x=12", "Y=1", "y=2"};
static const char *const queries[] = {NULL, "x=1", "x=12", "x=2", "y=1"};
static const char *const methods[] = {"GET", "PUT", "ODD", "HEAD"};
static const char *const segments[] = {"a", "b", "ab", "abc", ""};

/* A pattern or, without variables, a path. */
static void random_path(char *out, bool variables)
{
    int count = 1 + rand() % 4;
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        int kind = variables ? rand() % 6 : 0;
        if (kind == 5 && i == count - 1)
            n += (size_t)sprintf(out + n, "/{r%d...}", i);
        else if (kind >= 4)
            n += (size_t)sprintf(out + n, "/{s%d}", i);
        else
            n += (size_t)sprintf(out + n, "/%s", pick(segments, COUNT(segments)));
    }
}

static struct conf *random_routes(void)
{
    char bytes[24][256];
    const char *lines[24];
    size_t n = 1 + (size_t)rand() % 24;
    for (size_t i = 0; i < n; i++) {
        char path[64];
        random_path(path, true);
        snprintf(bytes[i], sizeof(bytes[i]), "r%zu path = \"%s\" %s %s %s %s", i, path,
                 pick(host_options, COUNT(host_options)),
                 pick(method_options, COUNT(method_options)),
                 pick(listener_options, COUNT(listener_options)),
                 pick(condition_options, COUNT(condition_options)));
        lines[i] = bytes[i];
    }
    return routes_of(lines, n);
}

/* Takes away the routes that the router refuses as twins. */
static struct router *router_without_twins(struct conf *conf)
{
    for (;;) {
        struct conf_faults faults = {0};
        struct router *router = router_new(conf, &faults);
        if (router)
            return router;
        assert_true(faults.count > 0);
        size_t i = 0;
        while (conf->routes[i].where.line != faults.list[0].where.line)
            i++;
        memmove(&conf->routes[i], &conf->routes[i + 1],
                (--conf->route_count - i) * sizeof(*conf->routes));
        conf_faults_done(&faults);
    }
}

static void agrees_with_the_obvious_router(void **state)
{
    (void)state;
    unsigned found = 0, wrong = 0;
    srand(7);
    for (int set = 0; set < 120; set++) {
        struct conf *conf = random_routes();
        struct router *router = router_without_twins(conf);
        for (int i = 0; i < 300; i++) {
            char path[64];
            bool wrong_method;
            random_path(path, false);
            struct lookup lookup = {pick(hosts, COUNT(hosts)),
                                    path,
                                    pick(methods, COUNT(methods)),
                                    NULL,
                                    (size_t)rand() % 2,
                                    pick(fields, COUNT(fields)),
                                    pick(queries, COUNT(queries))};
            const struct conf_route *slow =
                slow_find(conf, conf->listeners[lookup.listener].name, &lookup, &wrong_method);
            struct field field;
            struct head head = head_of(lookup.field, lookup.query, &field);
            struct route_match match;
            router_find(router, lookup.listener, str_of(lookup.host), str_of(path),
                        str_of(lookup.method), &head, &match);
            if (match.route != slow || match.wrong_method != wrong_method)
                fail_msg("%s %s%s?%s %s: expected %s, got %s", lookup.method, lookup.host, path,
                         lookup.query, lookup.field, slow ? slow->path : "none",
                         match.route ? match.route->path : "none");
            assert_int_equal(match.wrong_method, match.allow[0] != '\0');
            found += slow != NULL;
            wrong += wrong_method;
        }
        router_free(router);
        conf_free(conf);
    }
    assert_in_range(found, 2000, 34000);
    assert_in_range(wrong, 400, 34000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_obvious_router),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
