/* Ranges of addresses with a verdict each; the narrowest range that holds an address decides,
 * and of two equal ones the denying.
 *
 * Made once, then immutable: sorted segments that do not overlap, found by bisection. Any
 * thread. */
#ifndef POSTERN_ACCESS_ACCESS_RANGES_H
#define POSTERN_ACCESS_ACCESS_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum access_verdict { ACCESS_UNKNOWN, ACCESS_ALLOW, ACCESS_DENY };

struct access_range {
    uint8_t first[16], last[16];
    unsigned width, bits; /* 4 or 16 bytes */
    enum access_verdict verdict;
};

/* "10.0.0.0/8", "fd00::/8", or one address; verdict is left alone. An IPv4-mapped one is IPv4.
 * 0; -EINVAL; or 1: it has bits behind its length, which are taken for 0. */
int access_range_parse(const char *text, struct access_range *ret);

struct access_ranges;
/* Sorts `list`. NULL: no memory. */
struct access_ranges *access_ranges_new(struct access_range *list, size_t count);
void access_ranges_free(struct access_ranges *ranges); /* NULL is fine */
enum access_verdict access_ranges_find(const struct access_ranges *ranges,
                                       const uint8_t *address, unsigned width);

#endif
