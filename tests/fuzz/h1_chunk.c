#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/h1_chunk.h"
#include "http/h1_write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

struct result {
    struct h1_chunk chunk;
    char *data;
    size_t n, taken;
    bool is_bad;
};

/* Reads `n` bytes given in pieces of at most `step`. */
static struct result read_in_steps(const char *p, size_t n, size_t step)
{
    struct result r = {.data = malloc(n ? n : 1)};
    size_t given = 0;

    REQUIRE(r.data);
    h1_chunk_init(&r.chunk);
    while (given < n && !r.is_bad && r.taken == given) {
        given = n - given < step ? n : given + step;
        for (;;) {
            struct str data;
            size_t bad = 0;
            long taken = h1_chunk_read(&r.chunk, p + r.taken, given - r.taken, &data, &bad);
            if (taken < 0) {
                REQUIRE(bad >= r.taken && bad < given && r.chunk.state == CHUNK_BAD);
                r.is_bad = true;
                r.taken = bad;
            }
            if (taken <= 0)
                break;
            r.taken += (size_t)taken;
            REQUIRE(r.taken <= given);
            REQUIRE(data.n == 0 || data.p + data.n == p + r.taken);
            if (data.n)
                memcpy(r.data + r.n, data.p, data.n);
            r.n += data.n;
        }
    }
    return r;
}

/* The payload, framed by us, is read as the same payload. */
static void check_again(const struct result *r)
{
    char *out = malloc(r->n + 2 * H1_CHUNK_LINE_MAX + 2);
    struct result again;
    size_t n = 0;

    REQUIRE(out);
    if (r->n) {
        n = h1_write_chunk_line(out, r->n);
        memcpy(out + n, r->data, r->n);
        n += r->n;
        memcpy(out + n, "\r\n", 2);
        n += 2;
    }
    n += h1_write_chunk_line(out + n, 0);
    again = read_in_steps(out, n, n);
    REQUIRE(again.chunk.state == CHUNK_TRAILERS && again.taken == n);
    REQUIRE(again.n == r->n && memcmp(again.data, r->data, r->n) == 0);
    free(again.data);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = {1, 2, 3, 7};
    const char *p = (const char *)data;
    struct result whole = read_in_steps(p, size, size);

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct result r = read_in_steps(p, size, steps[i]);
        REQUIRE(r.is_bad == whole.is_bad && r.taken == whole.taken && r.n == whole.n);
        REQUIRE(memcmp(r.data, whole.data, r.n) == 0);
        REQUIRE(r.chunk.state == whole.chunk.state && r.chunk.left == whole.chunk.left);
        free(r.data);
    }
    REQUIRE(whole.chunk.ext_total <= size);
    if (whole.chunk.state == CHUNK_TRAILERS)
        check_again(&whole);
    free(whole.data);
    return 0;
}
