/* What a line of the access log costs the worker, formatting alone.
 *
 *   meson compile -C build perf/bench_access && build/perf/bench_access [rounds]
 *   valgrind --tool=callgrind --toggle-collect=access_format build/perf/bench_access 1000 */
#include <stdlib.h>

#include "base/clock.h"
#include "proxy/access.h"

static const struct access_record record = {
    .wall_ms = 1767225600123,
    .req_id = STR("0af7651916cd43dd8448eb211c80319c"),
    .trace_id = STR("4bf92f3577b34da6a3ce929d0e0e4736"),
    .client_ip = STR("192.0.2.77"),
    .proto = STR("HTTP/1.1"),
    .method = STR("GET"),
    .host = STR("api.example.com"),
    .path = STR("/api/users/4711/orders"),
    .query = STR("page=2&sort=created&token=abcdefgh"),
    .route = STR("user by id"),
    .upstream = STR("users"),
    .server = STR("10.0.0.5:8080"),
    .user_agent = STR("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    .reused = true,
    .status = 200,
    .upstream_status = 200,
    .bytes_out = 12345,
    .dur = 2345678,
    .gw = 34567,
    .connect = UINT64_MAX,
    .ttfb = 1234567,
    .attempts = 1,
    .generation = 3,
};

static void run(const char *name, const struct access_policy *policy, unsigned long rounds)
{
    static char line[ACCESS_LINE_MAX];
    uint64_t began = clock_ns(), took;
    size_t n = 0;

    for (unsigned long i = 0; i < rounds; i++)
        n = access_format(line, sizeof(line), policy, &record);
    took = clock_ns() - began;
    printf("%-8s %3zu bytes  %.0f ns a line\n", name, n, (double)took / (double)rounds);
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;

    if (rounds == 0) {
        fprintf(stderr, "usage: %s [rounds]\n", argv[0]);
        return 2;
    }
    run("json", &(struct access_policy){.sample = 1}, rounds);
    run("combined", &(struct access_policy){.sample = 1, .combined = true}, rounds);
    return 0;
}
