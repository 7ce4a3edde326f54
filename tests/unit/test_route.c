#include "conf_test.h"

#include "conf/route.h"

/* Routes from lines "NAME OPTIONS"; each answers by itself. */
static struct conf *routes_of(const char *const *lines, size_t n)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fputs("listener \"one\" { listen = \"127.0.0.1:1\" } listener \"two\" { listen = "
          "\"127.0.0.1:2\" }\n",
          out);
    for (size_t i = 0; i < n; i++) {
        int name = (int)strcspn(lines[i], " ");
        fprintf(out, "route \"%.*s\" {%s respond {} }\n", name, lines[i], lines[i] + name);
    }
    fclose(out);
    struct conf *conf = conf_of(text);
    free(text);
    return conf;
}

struct lookup {
    const char *host, *path, *method, *expected; /* a route; "!ALLOW" for 405; NULL for 404 */
    size_t listener;
};

static void check_lookup(const struct router *router, const struct lookup *lookup)
{
    struct route_match match;
    router_find(router, lookup->listener, str_of(lookup->host), str_of(lookup->path),
                str_of(lookup->method), &match);
    const char *got = match.route ? match.route->name : match.wrong_method ? match.allow : NULL;
    const char *expected = lookup->expected;
    bool allow = expected && expected[0] == '!';
    if (match.wrong_method != allow || !got != !expected ||
        (got && strcmp(got, expected + allow) != 0))
        fail_msg("%s %s%s: expected %s, got %s", lookup->method, lookup->host, lookup->path,
                 expected ? expected : "none", got ? got : "none");
    assert_string_equal(match.allow, allow ? expected + 1 : "");
}

static void check_lookups(const char *const *lines, size_t n, const struct lookup *lookups,
                          size_t count)
{
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(lines, n);
    struct router *router = router_new(conf, &faults);
    if (!router)
        fail_msg("%s", faults_text(&faults));
    for (size_t i = 0; i < count; i++)
        check_lookup(router, &lookups[i]);
    router_free(router);
    conf_free(conf);
}

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void the_longest_literal_host_wins(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "any path = /x",
        "wild host = \"*.example.org\" path = /x",
        "deep host = \"*.eu.example.org\" path = /x",
        "exact host = {a.eu.example.org, h} path = /x",
        "other host = a.eu.example.org path = /only-here",
        "rest host = \"*.example.org\" path = /y",
        "six host = \"[::1]\" path = /x",
    };
    static const struct lookup lookups[] = {
        {"a.eu.example.org", "/x", "GET", "exact", 0},
        {"h", "/x", "GET", "exact", 0},
        {"b.eu.example.org", "/x", "GET", "deep", 0},
        {"a.b.eu.example.org", "/x", "GET", "deep", 0},
        {"eu.example.org", "/x", "GET", "wild", 0},
        {"a.example.org", "/x", "GET", "wild", 0},
        {"example.org", "/x", "GET", "any", 0},
        {"evilexample.org", "/x", "GET", "any", 0},
        {".example.org", "/x", "GET", "any", 0},
        {"", "/x", "GET", "any", 0},
        {"a.eu.example.org", "/y", "GET", "rest", 0},
        {"a.eu.example.org", "/z", "GET", NULL, 0},
        {"b.eu.example.org", "/only-here", "GET", NULL, 0},
        {"[::1]", "/x", "GET", "six", 0},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void a_host_longer_than_any_name_matches_no_pattern(void **state)
{
    (void)state;
    static const char *const routes[] = {"wild host = \"*.a\"", "any"};
    char host[4096];
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(routes, 2);
    struct router *router = router_new(conf, &faults);
    for (size_t n = 2; n < sizeof(host) - 1; n += n < 600 ? 2 : 1000) {
        memset(host, 0, sizeof(host));
        for (size_t i = 0; i < n; i += 2)
            memcpy(host + i, "a.", 2);
        host[n] = 'a';
        struct lookup lookup = {host, "/", "GET", n + 1 <= 255 ? "wild" : "any", 0};
        check_lookup(router, &lookup);
    }
    check_lookup(router, &(struct lookup){"..........a", "/", "GET", "any", 0});
    memset(host, '.', 255);
    host[0] = 'x';
    host[255] = '\0';
    check_lookup(router, &(struct lookup){host, "/", "GET", "any", 0});
    router_free(router);
    conf_free(conf);
}

static void the_most_specific_path_wins_segment_by_segment(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "rest path = \"/{r...}\"",
        "users path = /users",
        "id path = \"/users/{id}\"",
        "me path = /users/me",
        "posts path = \"/users/{id}/posts\"",
        "tree path = \"/users/{all...}\"",
        "dir path = /dir",
        "slash path = \"/dir/\"",
        "mid path = \"/{a}/x/y\"",
        "lit path = \"/lit/{b...}\"",
        "v1 path = \"/v1/{r...}\"",
        "star path = \"*\"",
    };
    static const struct lookup lookups[] = {
        {"h", "/", "GET", "rest", 0},
        {"h", "/users", "GET", "users", 0},
        {"h", "/users/7", "GET", "id", 0},
        {"h", "/users/me", "GET", "me", 0},
        {"h", "/users/men", "GET", "id", 0},
        {"h", "/users/m", "GET", "id", 0},
        {"h", "/users/7/posts", "GET", "posts", 0},
        {"h", "/users/me/posts", "GET", "posts", 0},
        {"h", "/users/7/8", "GET", "tree", 0},
        {"h", "/users/me/", "GET", "tree", 0},
        {"h", "/users/", "GET", "tree", 0},
        {"h", "/users//posts", "GET", "tree", 0},
        {"h", "/dir", "GET", "dir", 0},
        {"h", "/dir/", "GET", "slash", 0},
        {"h", "/dirx", "GET", "rest", 0},
        {"h", "/q/x/y", "GET", "mid", 0},
        {"h", "/lit/x/y", "GET", "lit", 0},
        {"h", "/lit", "GET", "rest", 0},
        {"h", "/q/x/z", "GET", "rest", 0},
        {"h", "/v1/", "GET", "v1", 0},
        {"h", "/v1", "GET", "rest", 0},
        {"h", "/v1/a/b", "GET", "v1", 0},
        {"h", "*", "OPTIONS", "star", 0},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void a_star_only_matches_its_own(void **state)
{
    (void)state;
    static const char *const routes[] = {"rest"};
    static const struct lookup lookups[] = {{"h", "*", "OPTIONS", NULL, 0}};
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void methods_come_before_none_and_then_file_order(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "any path = /x",
        "get path = /x methods = GET",
        "first path = /y methods = {GET, PUT}",
        "second path = /y methods = {GET, POST}",
        "purge path = /z methods = {PURGE, get2}",
        "less path = \"/{a...}\" methods = DELETE",
    };
    static const struct lookup lookups[] = {
        {"h", "/x", "GET", "get", 0},     {"h", "/x", "PUT", "any", 0},
        {"h", "/x", "BREW", "any", 0},    {"h", "/y", "GET", "first", 0},
        {"h", "/y", "POST", "second", 0}, {"h", "/y", "HEAD", "!GET, PUT, POST, DELETE", 0},
        {"h", "/z", "PURGE", "purge", 0}, {"h", "/z", "purge", "!PURGE, get2, DELETE", 0},
        {"h", "/z", "DELETE", "less", 0}, {"h", "/q", "GET", "!DELETE", 0},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void listeners_keep_their_routes_to_themselves(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "one path = /x listener = one",
        "two path = /x listener = {two}",
        "both path = /b",
        "secret path = /s listener = two methods = GET",
        "more path = \"/s\" listener = one methods = PUT",
    };
    static const struct lookup lookups[] = {
        {"h", "/x", "GET", "one", 0},  {"h", "/x", "GET", "two", 1},
        {"h", "/b", "GET", "both", 0}, {"h", "/b", "GET", "both", 1},
        {"h", "/s", "GET", "!PUT", 0}, {"h", "/s", "GET", "secret", 1},
        {"h", "/s", "PUT", "!GET", 1},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void allow_is_collected_over_all_hosts_and_bounded(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "a host = h path = /x methods = GET",
        "b path = /x methods = {PUT, GET}",
        "c path = \"/{y}\" methods = {AVERYLONGMETHODNAMEOFTHIRTYTWO01, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO02, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO03, AVERYLONGMETHODNAMEOFTHIRTYTWO04, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO05, AVERYLONGMETHODNAMEOFTHIRTYTWO06, "
        "AVERYLONGMETHODNAMEOFTHIRTYTWO07, AVERYLONGMETHODNAMEOFTHIRTYTWO08, POST}",
    };
    static const struct lookup lookups[] = {
        {"h", "/x", "HEAD",
         "!GET, PUT, AVERYLONGMETHODNAMEOFTHIRTYTWO01, AVERYLONGMETHODNAMEOFTHIRTYTWO02, "
         "AVERYLONGMETHODNAMEOFTHIRTYTWO03, AVERYLONGMETHODNAMEOFTHIRTYTWO04, "
         "AVERYLONGMETHODNAMEOFTHIRTYTWO05, AVERYLONGMETHODNAMEOFTHIRTYTWO06, "
         "AVERYLONGMETHODNAMEOFTHIRTYTWO07, POST",
         0},
    };
    check_lookups(routes, COUNT(routes), lookups, COUNT(lookups));
}

static void captures_are_spans_of_the_path(void **state)
{
    (void)state;
    static const char *const routes[] = {"r path = \"/{a}/x/{b}/{rest...}\"",
                                         "q path = \"/{a...}\""};
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(routes, 2);
    struct router *router = router_new(conf, &faults);
    struct str path = STR("/1/x/two/3/4/");
    struct route_match match;
    router_find(router, 0, STR("h"), path, STR("GET"), &match);
    assert_int_equal(match.index, 0);
    assert_ptr_equal(match.captures[0].p, path.p + 1);
    assert_true(str_eq(match.captures[0], STR("1")));
    assert_true(str_eq(match.captures[1], STR("two")));
    assert_true(str_eq(match.captures[2], STR("3/4/")));
    router_find(router, 0, STR("h"), STR("/1/x/two"), STR("GET"), &match);
    assert_int_equal(match.index, 1);
    assert_true(str_eq(match.captures[0], STR("1/x/two")));
    router_find(router, 0, STR("h"), STR("/1/x/2/"), STR("GET"), &match);
    assert_int_equal(match.index, 0);
    assert_int_equal(match.captures[2].n, 0);
    router_free(router);
    conf_free(conf);
}

static void expect_twins(const char *a, const char *b, const char *expected)
{
    const char *const lines[] = {a, b};
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(lines, 2);
    struct router *router = router_new(conf, &faults);
    char *said = faults_text(&faults);
    if (expected ? router || faults.count != 1 || !strstr(said, expected) : !router)
        fail_msg("%s | %s: expected %s, got %s", a, b, expected ? expected : "none", said);
    free(said);
    conf_faults_done(&faults);
    router_free(router);
    conf_free(conf);
}

static void a_route_without_requests_is_a_fault_that_names_both(void **state)
{
    (void)state;
    const char *second = "t:3: route \"b\" can never be told apart from route \"a\" (t:2)";
    expect_twins("a path = /x", "b path = /x", second);
    expect_twins("a path = \"/{x}\"", "b path = \"/{y}\"", second);
    expect_twins("a path = \"/{x...}\"", "b path = \"/{y...}\"", second);
    expect_twins("a host = {h, i}", "b host = H", second);
    expect_twins("a methods = {GET, PUT}", "b methods = PUT", second);
    expect_twins("a", "b listener = two", second);
    expect_twins("a listener = {one, two}", "b listener = two", second);
    expect_twins("a path = /x", "b path = /y", NULL);
    expect_twins("a path = /x", "b path = \"/x/\"", NULL);
    expect_twins("a path = \"/{x}\"", "b path = \"/{x...}\"", NULL);
    expect_twins("a host = h", "b", NULL);
    expect_twins("a host = h", "b host = {h, i}", NULL);
    expect_twins("a host = a.b", "b host = \"*.b\"", NULL);
    expect_twins("a methods = GET", "b", NULL);
    expect_twins("a", "b methods = GET", NULL);
    expect_twins("a methods = GET", "b methods = {GET, PUT}", NULL);
    expect_twins("a listener = one", "b listener = two", NULL);
    expect_twins("a listener = one", "b", NULL);
}

static void explains_what_it_does(void **state)
{
    (void)state;
    static const char *const routes[] = {"get host = h path = \"/{x}\" methods = GET",
                                         "wild path = \"/{rest...}\" methods = PUT"};
    struct conf_faults faults = {0};
    struct conf *conf = routes_of(routes, 2);
    struct router *router = router_new(conf, &faults);
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    router_explain(router, 0, STR("h"), STR("/a"), STR("PUT"), out);
    router_explain(router, 0, STR("h"), STR("/a"), STR("HEAD"), out);
    router_explain(router, 0, STR("h"), STR("*"), STR("GET"), out);
    fclose(out);
    assert_string_equal(
        text, "host h\n  route \"get\" (t:2) with path /{x} does not take this method\n"
              "any host\n  route \"wild\" (t:3) with path /{rest...} is taken\n"
              "    {rest} is \"a\"\n"
              "host h\n  route \"get\" (t:2) with path /{x} does not take this method\n"
              "any host\n  route \"wild\" (t:3) with path /{rest...} does not take this "
              "method\nno route takes this method: 405 with Allow: GET, PUT\n"
              "host h\nany host\nno route matches: 404\n");
    free(text);
    router_free(router);
    conf_free(conf);
}

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

static const struct conf_route *slow_find(const struct conf *conf, const char *listener,
                                          const char *host, const char *path,
                                          const char *method, bool *ret_wrong)
{
    const struct conf_route *best = NULL;
    size_t best_host = 0;
    char best_rank[64] = "";
    *ret_wrong = false;
    for (size_t i = 0; i < conf->route_count; i++) {
        const struct conf_route *route = &conf->routes[i];
        char rank[64] = "";
        size_t rank_host = slow_host(route, host);
        if (!rank_host || !slow_has(&route->listeners, listener) ||
            !slow_path(str_of(route->path), str_of(path), rank))
            continue;
        if (!slow_has(&route->methods, method)) {
            *ret_wrong = true;
            continue;
        }
        int order = best ? strcmp(rank, best_rank) : 0;
        if (!best || rank_host > best_host ||
            (rank_host == best_host &&
             (order < 0 || (order == 0 && route->methods.count && !best->methods.count)))) {
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
        snprintf(bytes[i], sizeof(bytes[i]), "r%zu path = \"%s\" %s %s %s", i, path,
                 pick(host_options, COUNT(host_options)),
                 pick(method_options, COUNT(method_options)),
                 pick(listener_options, COUNT(listener_options)));
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
    for (int set = 0; set < 60; set++) {
        struct conf *conf = random_routes();
        struct router *router = router_without_twins(conf);
        for (int i = 0; i < 300; i++) {
            char path[64];
            bool wrong_method;
            random_path(path, false);
            size_t listener = (size_t)rand() % 2;
            const char *host = pick(hosts, COUNT(hosts)),
                       *method = pick(methods, COUNT(methods));
            const struct conf_route *slow = slow_find(conf, conf->listeners[listener].name,
                                                      host, path, method, &wrong_method);
            struct route_match match;
            router_find(router, listener, str_of(host), str_of(path), str_of(method), &match);
            if (match.route != slow || match.wrong_method != wrong_method)
                fail_msg("%s %s%s: expected %s, got %s", method, host, path,
                         slow ? slow->path : "none", match.route ? match.route->path : "none");
            assert_int_equal(match.wrong_method, match.allow[0] != '\0');
            found += slow != NULL;
            wrong += wrong_method;
        }
        router_free(router);
        conf_free(conf);
    }
    assert_in_range(found, 1000, 17000);
    assert_in_range(wrong, 200, 17000);
}

static void says_when_there_is_no_memory(void **state)
{
    (void)state;
    static const char *const routes[] = {"a host = {h, \"*.h\"} path = \"/{x}/y\"",
                                         "b path = /b"};
    struct conf *conf = routes_of(routes, 2);
    for (unsigned long n = 1;; n++) {
        struct conf_faults faults = {0};
        mem_fail_at(n);
        struct router *router = router_new(conf, &faults);
        mem_fail_at(0);
        assert_true(router || faults.count > 0);
        router_free(router);
        conf_faults_done(&faults);
        if (router)
            break;
        assert_true(n < 100);
    }
    conf_free(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_literal_host_wins),
        cmocka_unit_test(a_host_longer_than_any_name_matches_no_pattern),
        cmocka_unit_test(the_most_specific_path_wins_segment_by_segment),
        cmocka_unit_test(a_star_only_matches_its_own),
        cmocka_unit_test(methods_come_before_none_and_then_file_order),
        cmocka_unit_test(listeners_keep_their_routes_to_themselves),
        cmocka_unit_test(allow_is_collected_over_all_hosts_and_bounded),
        cmocka_unit_test(captures_are_spans_of_the_path),
        cmocka_unit_test(a_route_without_requests_is_a_fault_that_names_both),
        cmocka_unit_test(explains_what_it_does),
        cmocka_unit_test(agrees_with_the_obvious_router),
        cmocka_unit_test(says_when_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
