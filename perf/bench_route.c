/* What finding a route costs: nanoseconds and allocations per lookup.
 *
 * Every figure is CPU time, the best of many short runs: most end before somebody else gets the
 * processor, and its caches, so that what else the machine does counts least. */
#include <malloc.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "conf/route.h"

#define LOOKUPS 8192u
#define RUNS    1000
#define PATHS   4096u

static unsigned long allocations;

/* The C library's own, under the names that its malloc() is built from. */
void *__libc_malloc(size_t n);
void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}

/* Of this thread. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

struct bench {
    struct conf *conf;
    struct router *router;
};

static void fail(const struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        fprintf(stderr, "%s:%d: %s\n", faults->list[i].where.file, faults->list[i].where.line,
                faults->list[i].message);
    exit(EXIT_FAILURE);
}

static struct bench bench_load(const char *text, size_t n)
{
    struct conf_faults faults = {0};
    struct bench bench = {conf_load_text("bench.conf", (struct str){text, n}, &faults), NULL};
    if (bench.conf)
        bench.router = router_new(bench.conf, &faults);
    if (!bench.router)
        fail(&faults);
    conf_faults_done(&faults);
    return bench;
}

static void bench_done(struct bench *bench)
{
    router_free(bench->router);
    conf_free(bench->conf);
}

/* `routes` routes over a tree of resources: a third literal, a third each with one and with
 * three parameters. */
static struct bench bench_make(unsigned routes)
{
    static const char *const shapes[] = {"/api/v1/team%u/resource%u", "/api/v1/team%u/r%u/{id}",
                                         "/api/v1/team%u/s%u/{a}/x/{b}/y/{c}"};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    fputs("listener \"l\" { listen = \"127.0.0.1:1\" }\n", out);
    for (unsigned i = 0; i < routes; i++) {
        fprintf(out, "route \"r%u\" { path = \"", i);
        fprintf(out, shapes[i % 3], i / 3 % 100, i / 3);
        fputs("\" respond { } }\n", out);
    }
    fclose(out);
    struct bench bench = bench_load(text, n);
    free(text);
    return bench;
}

/* A path for route `i` of bench_make, of the shape that it has. */
static struct str path_make(unsigned i)
{
    static const char *const shapes[] = {"/api/v1/team%u/resource%u", "/api/v1/team%u/r%u/42",
                                         "/api/v1/team%u/s%u/alpha/x/beta/y/gamma"};
    char *text = NULL;
    if (asprintf(&text, shapes[i % 3], i / 3 % 100, i / 3) < 0)
        exit(EXIT_FAILURE);
    return str_of(text);
}

/* `shape`: which of the three, or 3 for all of them by turns. */
static double bench_run(const struct bench *bench, unsigned routes, unsigned shape)
{
    static struct str paths[PATHS];
    static struct route_match match;
    double best = 1e9;
    for (unsigned i = 0; i < PATHS; i++) {
        unsigned route = (unsigned)rand() % routes;
        if (shape < 3)
            route = route / 3 * 3 + shape < routes ? route / 3 * 3 + shape : shape;
        paths[i] = path_make(route);
    }
    allocations = 0;
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = cpu_ns();
        for (unsigned i = 0; i < LOOKUPS; i++) {
            router_find(bench->router, 0, STR("api.example.com"), paths[i % PATHS], STR("GET"),
                        NULL, &match);
            if (!match.route)
                exit(EXIT_FAILURE);
        }
        double ns = (double)(cpu_ns() - start) / LOOKUPS;
        best = ns < best ? ns : best;
    }
    for (unsigned i = 0; i < PATHS; i++)
        free((char *)paths[i].p);
    return best;
}

/* A request that meets one condition on its way. */
static void bench_condition(const char *name, const char *condition)
{
    static struct route_match match;
    struct field fields[] = {
        {.name = STR("Accept"), .value = STR("*/*")},
        {.name = STR("User-Agent"), .value = STR("bench/1.0")},
        {.name = STR("X-Version"), .value = STR("v12")},
    };
    struct head head = {
        .fields = fields, .count = 3, .cap = 3, .query = STR("a=1&version=v12")};
    char text[512];
    int n = snprintf(text, sizeof(text),
                     "listener \"l\" { listen = \"127.0.0.1:1\" }\n"
                     "route \"r\" { path = \"/api/{id}\" %s respond { } }\n",
                     condition);
    struct bench bench = bench_load(text, (size_t)n);
    double best = 1e9;
    allocations = 0;
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = cpu_ns();
        for (unsigned i = 0; i < LOOKUPS; i++) {
            router_find(bench.router, 0, STR("api.example.com"), STR("/api/42"), STR("GET"),
                        &head, &match);
            if (!match.route)
                exit(EXIT_FAILURE);
        }
        double ns = (double)(cpu_ns() - start) / LOOKUPS;
        best = ns < best ? ns : best;
    }
    printf("%-8u %-18s %10.1f %14.3f\n", 1, name, best,
           (double)allocations / ((double)LOOKUPS * RUNS));
    bench_done(&bench);
}

int main(void)
{
    static const char *const names[] = {"static", "one parameter", "three parameters", "mixed"};
    static const unsigned sizes[] = {10, 10000};
    srand(1);
    printf("%-8s %-18s %10s %14s %12s\n", "routes", "path", "ns/lookup", "allocs/lookup",
           "load ms");
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        uint64_t start = cpu_ns();
        struct bench bench = bench_make(sizes[s]);
        double load_ms = (double)(cpu_ns() - start) / NS_PER_MS;
        for (unsigned shape = 0; shape < 4; shape++) {
            double ns = bench_run(&bench, sizes[s], shape);
            printf("%-8u %-18s %10.1f %14.3f %12.1f\n", sizes[s], names[shape], ns,
                   (double)allocations / ((double)LOOKUPS * RUNS), load_ms);
        }
        bench_done(&bench);
    }
    bench_condition("no condition", "");
    bench_condition("header equals", "match_header \"X-Version\" { equals = \"v12\" }");
    bench_condition("header regex", "match_header \"X-Version\" { regex = '^v[0-9]+$' }");
    bench_condition("query equals", "match_query \"version\" { equals = \"v12\" }");
    bench_condition("query regex", "match_query \"version\" { regex = '^v[0-9]+$' }");
    return EXIT_SUCCESS;
}
