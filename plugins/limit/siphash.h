/* SipHash-2-4: a keyed hash that nobody can aim without the key. Keys of limits are made of
 * what clients send; with a key drawn at the start they cannot choose which of them meet in a
 * table.
 *
 * A pure function over the bytes that were added; the state lives with the caller. */
#ifndef POSTERN_LIMIT_SIPHASH_H
#define POSTERN_LIMIT_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash {
    uint64_t v[4];
    uint64_t tail; /* bytes that do not fill a word yet */
    size_t total;
};

void siphash_begin(struct siphash *h, const uint64_t key[2]);
void siphash_add(struct siphash *h, const void *bytes, size_t n);
uint64_t siphash_end(struct siphash *h);

#endif
