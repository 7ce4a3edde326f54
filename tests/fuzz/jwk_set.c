/* What a URL or a file of keys may have in it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "keyset.h"
#include "signature.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

static void use(const struct keyset *set)
{
    const struct jwk *found[KEYSET_TRIES];
    struct postern_str none = {NULL, 0};

    for (unsigned alg = 0; alg < ALG_COUNT; alg++) {
        size_t n = keyset_find(set, none, (enum alg)alg, 0, found);

        REQUIRE(n <= KEYSET_TRIES);
        for (size_t i = 0; i < n; i++) {
            REQUIRE(jwk_fits(found[i], (enum alg)alg));
            REQUIRE(!signature_is_good(found[i], (enum alg)alg, SPAN("input"), SPAN("AAAA")));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct postern_str text = {(const char *)data, size};
    struct keyset *set, *merged;
    const char *wrong = NULL;
    size_t skipped = 0;
    struct jwk key;

    if (!jwk_from_pem(text, &key))
        jwk_done(&key);
    set = keyset_from_json(text, size & 1, &skipped, &wrong);
    REQUIRE(set || wrong);
    if (!set)
        return 0;
    REQUIRE(set->count > 0 && set->count + skipped <= KEYSET_MAX);
    use(set);
    merged = keyset_merge(set, set, 1, 2);
    REQUIRE(merged && merged->count == set->count);
    keyset_free(merged);
    keyset_free(set);
    return 0;
}
