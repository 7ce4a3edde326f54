#include "app/explain.h"

#include <errno.h>
#include <stdio.h>

#include "conf/route.h"
#include "http/path.h"

struct question {
    struct str method, host;
    struct str path; /* as written: each listener has its own rules for it */
    struct arena *arena;
    struct head head; /* what conditions look at: fields and query */
    bool has_scheme, tls;
    unsigned port; /* 0: the URL names none */
};

static bool cut_scheme(struct str *rest, struct question *ret)
{
    static const struct str http = STR("http://"), https = STR("https://");
    const struct str *scheme =
        rest->n > https.n && memcmp(rest->p, https.p, https.n) == 0 ? &https
        : rest->n > http.n && memcmp(rest->p, http.p, http.n) == 0  ? &http
                                                                    : NULL;
    if (!scheme)
        return false;
    ret->has_scheme = true;
    ret->tls = scheme == &https;
    rest->p += scheme->n;
    rest->n -= scheme->n;
    return true;
}

static size_t span_until(struct str s, const char *stops)
{
    size_t n = 0;
    while (n < s.n && !strchr(stops, s.p[n]))
        n++;
    return n;
}

/* The lines behind the first: "Name: value". */
static bool parse_fields(struct str rest, struct arena *arena, struct head *head)
{
    while (rest.n) {
        size_t n = span_until(rest, "\n");
        struct str line = str_trim((struct str){rest.p, n});
        rest = (struct str){rest.p + n + (n < rest.n), rest.n - n - (n < rest.n)};
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        if (!line.n)
            continue;
        size_t colon = span_until(line, ":");
        struct str name = {line.p, colon};
        if (colon == line.n || !head_is_token(name))
            return false;
        struct str value = str_trim((struct str){line.p + colon + 1, line.n - colon - 1});
        if (!head_is_field_value(value) || head_add(head, arena, name, value) < 0)
            return false;
    }
    return true;
}

/* "GET https://host:port/path?query"; a bare path leaves the host open. Header fields may
 * follow, each on a line of its own. */
static bool parse(const char *text, struct arena *arena, struct question *ret)
{
    struct str all = str_of(text);
    size_t line = span_until(all, "\n");
    struct str rest = {all.p, line && all.p[line - 1] == '\r' ? line - 1 : line};
    if (!parse_fields((struct str){all.p + line, all.n - line}, arena, &ret->head))
        return false;
    size_t n = span_until(rest, " ");
    ret->method = (struct str){rest.p, n};
    if (!head_is_token(ret->method) || n == rest.n)
        return false;
    rest = str_trim((struct str){rest.p + n, rest.n - n});
    struct str authority = STR("");
    if (cut_scheme(&rest, ret)) {
        authority = (struct str){rest.p, span_until(rest, "/?#")};
        rest.p += authority.n;
        rest.n -= authority.n;
        if (!head_is_authority(authority))
            return false;
    }
    size_t colon = authority.n && authority.p[0] == '[' ? span_until(authority, "]") + 1
                                                        : span_until(authority, ":");
    uint64_t port = 0;
    if (colon < authority.n)
        str_to_u64((struct str){authority.p + colon + 1, authority.n - colon - 1}, 65535,
                   &port);
    ret->port = (unsigned)port;
    if (head_host(authority, arena, &ret->host) < 0)
        return false;
    struct str path = {rest.p, span_until(rest, "?#")};
    if (path.n < rest.n && rest.p[path.n] == '?') {
        struct str query = {rest.p + path.n + 1, rest.n - path.n - 1};
        ret->head.query = (struct str){query.p, span_until(query, "#")};
    }
    ret->path = path.n ? path : STR("/");
    ret->arena = arena;
    return ret->path.p[0] == '/' || str_eq(ret->path, STR("*"));
}

static unsigned port_of(const struct addr *addr)
{
    return addr->sa.sa_family == AF_INET    ? ntohs(addr->in4.sin_port)
           : addr->sa.sa_family == AF_INET6 ? ntohs(addr->in6.sin6_port)
                                            : 0;
}

static bool listens_on(const struct conf_listener *listener, unsigned port)
{
    for (size_t i = 0; i < listener->addr_count; i++)
        if (port_of(&listener->addrs[i]) == port)
            return true;
    return false;
}

/* Whether that URL leads to it. */
static bool fits(const struct conf_listener *listener, const struct question *question)
{
    return (!question->port || listens_on(listener, question->port)) &&
           (!question->has_scheme || question->tls == (listener->tls != NULL));
}

/* Plugins see requests that no route takes, too. */
static void print_plugins(const struct conf *conf, const struct conf_listener *listener,
                          size_t index, struct str path, const struct router *router,
                          const struct question *question)
{
    static struct route_match match;
    router_find(router, index, question->host, path, question->method, &question->head, &match);
    const struct phases *phases = conf_phases(conf, listener, match.route);
    for (unsigned i = 0; phases && i < phases->count; i++) {
        const struct instance *instance = phases->instances[i];
        printf("    plugin %s of %s\n", instance->plugin->def.name,
               instance->place[0] ? instance->place : "the top level");
    }
}

static void print_listener(const struct conf *conf, size_t index, const struct router *router,
                           const struct question *question)
{
    const struct conf_listener *listener = &conf->listeners[index];
    struct str path = question->path;
    unsigned class = 0;
    size_t offset = 0;
    printf("listener \"%s\" (%s:%d)\n", listener->name, listener->where.file,
           listener->where.line);
    int err = path.p[0] == '/' ? path_normalise(path, listener->path_allow, question->arena,
                                                &path, &class, &offset)
                               : 0;
    if (err == -ENOMEM)
        printf("  out of memory\n");
    else if (err)
        printf("  refused with 400 %s: the path has %s at byte %zu\n",
               reason_texts[R_BAD_PATH].name, path_class_text(class), offset);
    else {
        router_explain(router, index, question->host, path, question->method, &question->head,
                       stdout);
        print_plugins(conf, listener, index, path, router, question);
    }
}

static void print(const struct conf *conf, const struct router *router,
                  const struct question *question)
{
    const char *tls = !question->has_scheme ? "" : question->tls ? " with TLS" : " without TLS";
    bool some = false;
    for (size_t i = 0; i < conf->listener_count; i++)
        some |= fits(&conf->listeners[i], question);
    if (!some && question->port)
        printf("no listener%s has port %u; this is what each listener would do\n", tls,
               question->port);
    else if (!some)
        printf("there is no listener%s; this is what each listener would do\n", tls);
    for (size_t i = 0; i < conf->listener_count; i++) {
        if (some && !fits(&conf->listeners[i], question))
            continue;
        print_listener(conf, i, router, question);
    }
}

int explain(const struct conf *conf, const char *request)
{
    struct slab chunks;
    struct arena arena;
    struct question question = {0};
    struct conf_faults faults = {0};
    slab_init(&chunks, ARENA_CHUNK, 0);
    arena_init(&arena, &chunks);
    int status = 2;
    struct router *router = router_new(conf, &faults);
    if (!parse(request, &arena, &question)) {
        fprintf(stderr,
                "postern: --explain \"%s\": expected \"METHOD URL\", as in "
                "\"GET http://example.com/path\", header fields on lines behind it\n",
                request);
    } else if (router) {
        print(conf, router, &question);
        status = 0;
    }
    for (size_t i = 0; i < faults.count; i++)
        fprintf(stderr, "%s:%d: %s\n", faults.list[i].where.file, faults.list[i].where.line,
                faults.list[i].message);
    conf_faults_done(&faults);
    router_free(router);
    arena_done(&arena);
    slab_done(&chunks);
    return status;
}
