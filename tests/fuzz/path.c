#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

static bool holds(struct str s, const char *text)
{
    return memmem(s.p, s.n, text, strlen(text));
}

static bool ends_in(struct str s, const char *text)
{
    size_t n = strlen(text);
    return s.n >= n && memcmp(s.p + s.n - n, text, n) == 0;
}

/* What routing and authentication rely on. */
static void check_normal(struct str path, unsigned allow)
{
    REQUIRE(path.n > 0 && (path.p[0] == '/' || str_eq(path, STR("*"))));
    REQUIRE(!holds(path, "/./") && !holds(path, "/../"));
    REQUIRE(!ends_in(path, "/.") && !ends_in(path, "/.."));
    REQUIRE((allow & PATH_DOUBLE_SLASH && !(allow & PATH_MERGE_SLASHES)) || !holds(path, "//"));
    REQUIRE((allow & PATH_PARAMETER && !(allow & PATH_DROP_PARAMETERS)) || !holds(path, ";"));
    REQUIRE((allow & PATH_BACKSLASH) || (!holds(path, "\\") && !holds(path, "%5C")));
    REQUIRE((allow & PATH_ENCODED_SLASH) || !holds(path, "%2F"));
    REQUIRE((allow & PATH_ENCODED_NUL) || !holds(path, "%00"));
    REQUIRE((allow & PATH_ENCODED_DELIMITER) ||
            (!holds(path, "%3B") && !holds(path, "%3F") && !holds(path, "%23")));
    for (size_t i = 0; i < path.n; i++) {
        uint64_t byte;
        if (path.p[i] != '%')
            continue;
        REQUIRE(i + 3 <= path.n);
        REQUIRE(str_hex_to_u64((struct str){path.p + i + 1, 2}, 255, &byte) == 0);
        REQUIRE(!(path.p[i + 1] >= 'a') && !(path.p[i + 2] >= 'a')); /* upper-case */
        REQUIRE(!byte || !strchr("abcXYZ019-._~", (int)byte));       /* nothing unreserved */
    }
}

/* Two bytes of what is allowed, then the path. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slab slab;
    struct arena arena;
    struct str raw, normal = {NULL, 0}, again;
    unsigned allow, cls = 0;
    size_t at = 0, total;

    if (size < 2)
        return 0;
    allow = (data[0] | (unsigned)data[1] << 8) & 0xfff;
    if (data[0] & data[1] & 0x80) /* readings, when they can matter */
        allow |= PATH_MERGE_SLASHES | PATH_DROP_PARAMETERS;
    raw = (struct str){(const char *)data + 2, size - 2};
    slab_init(&slab, ARENA_CHUNK, 1);
    arena_init(&arena, &slab);
    if (path_normalise(raw, allow, &arena, &normal, &cls, &at) < 0) {
        REQUIRE(!normal.p && at <= raw.n);
        REQUIRE((cls & allow) == 0 && (cls & (cls - 1)) == 0);
    } else {
        check_normal(normal, allow);
        REQUIRE(normal.n <= raw.n);
        total = arena.total;
        allow &= ~(unsigned)PATH_DOTS_BEHIND_EMPTY; /* there are no dots any more */
        REQUIRE(path_normalise(normal, allow, &arena, &again, &cls, &at) == 0);
        REQUIRE(again.p == normal.p && again.n == normal.n && arena.total == total);
    }
    arena_done(&arena);
    slab_done(&slab);
    return 0;
}
