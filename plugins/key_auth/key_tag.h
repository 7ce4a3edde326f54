/* SipHash-2-4 with 128 bits (Aumasson and Bernstein): a keyed hash for short texts. Pure. */
#ifndef POSTERN_KEY_AUTH_KEY_TAG_H
#define POSTERN_KEY_AUTH_KEY_TAG_H

#include <stddef.h>
#include <stdint.h>

struct key_tag {
    uint64_t a, b;
};

struct key_tag key_tag_of(const uint64_t secret[2], const char *p, size_t n);

#endif
