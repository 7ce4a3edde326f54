#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/proxy_protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

/* What was read is written in version 2, which has words for all of it, and read again. */
static void check_again(const struct proxy_header *header)
{
    char out[PROXY_PROTOCOL_WRITE];
    struct proxy_header again;
    size_t offset, n = proxy_protocol_write(out, 2, &header->source, &header->destination);
    REQUIRE(n <= sizeof(out));
    REQUIRE(proxy_protocol_read(out, n, &again, &offset) == (long)n);
    REQUIRE(addr_eq(&again.source, &header->source) || header->source.len != again.source.len);
    REQUIRE(again.source.sa.sa_family == header->source.sa.sa_family);
    n = proxy_protocol_write(out, 1, &header->source, &header->destination);
    REQUIRE(proxy_protocol_read(out, n, &again, &offset) == (long)n);
}

/* Cut anywhere, it says the same: incomplete, until it says its one verdict for good. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxy_header header = {0};
    size_t offset = 0;
    long whole = proxy_protocol_read((const char *)data, size, &header, &offset);
    REQUIRE(whole <= (long)size && whole <= PROXY_PROTOCOL_MAX);
    REQUIRE(whole >= 0 || (whole == -EINVAL && offset < size));
    if (whole > 0 && !header.is_local)
        check_again(&header);
    size_t step = size > 512 ? size / 64 : 1;
    for (size_t cut = 0; cut < size; cut += step) {
        char *exact = malloc(cut ? cut : 1);
        if (!exact)
            return 0;
        if (cut)
            memcpy(exact, data, cut);
        size_t at = 0;
        long part = proxy_protocol_read(exact, cut, &header, &at);
        free(exact);
        REQUIRE(part == 0 || part == whole);
        REQUIRE(part >= 0 || (at == offset && at < cut));
        REQUIRE(part <= 0 || part <= (long)cut);
    }
    return 0;
}
