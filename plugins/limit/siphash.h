/* SipHash-2-4: a keyed hash that nobody can aim without the key. Keys of limits are made of
 * what clients send; with a key drawn at the start they cannot choose which of them meet in a
 * table.
 *
 * A pure function over the bytes that were added; the state lives with the caller, in
 * registers where all of it is seen at once: that is why it stands in a header. */
#ifndef POSTERN_LIMIT_SIPHASH_H
#define POSTERN_LIMIT_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct siphash {
    uint64_t v[4];
    uint64_t tail; /* bytes that do not fill a word yet */
    size_t total;
};

static inline uint64_t siphash_rotated(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static inline void siphash_turn(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = siphash_rotated(v[1], 13) ^ v[0];
    v[3] = siphash_rotated(v[3], 16) ^ v[2];
    v[0] = siphash_rotated(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = siphash_rotated(v[1], 17) ^ v[2];
    v[3] = siphash_rotated(v[3], 21) ^ v[0];
    v[2] = siphash_rotated(v[2], 32);
}

static inline void siphash_word(struct siphash *h, uint64_t m)
{
    h->v[3] ^= m;
    siphash_turn(h->v);
    siphash_turn(h->v);
    h->v[0] ^= m;
}

/* At most eight bytes, the first one lowest on every machine. */
static inline uint64_t siphash_word_of(const uint8_t *p, size_t n)
{
    uint64_t w = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t low, high;
    if (n == 8) {
        memcpy(&w, p, 8);
        return w;
    }
    if (n >= 4) { /* the two halves overlap, and agree where they do */
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        return low | (uint64_t)high << 8 * (n - 4);
    }
#endif
    for (size_t i = 0; i < n; i++)
        w |= (uint64_t)p[i] << 8 * i;
    return w;
}

static inline void siphash_begin(struct siphash *h, const uint64_t key[2])
{
    /* "somepseudorandomlygeneratedbytes", as the paper has it */
    h->v[0] = key[0] ^ 0x736f6d6570736575;
    h->v[1] = key[1] ^ 0x646f72616e646f6d;
    h->v[2] = key[0] ^ 0x6c7967656e657261;
    h->v[3] = key[1] ^ 0x7465646279746573;
    h->tail = 0;
    h->total = 0;
}

static inline void siphash_add(struct siphash *h, const void *bytes, size_t n)
{
    const uint8_t *p = (const uint8_t *)bytes;
    size_t have = h->total & 7;
    h->total += n;
    if (have) {
        size_t part = n < 8 - have ? n : 8 - have;
        h->tail |= siphash_word_of(p, part) << 8 * have;
        if (have + part < 8)
            return;
        siphash_word(h, h->tail);
        p += part;
        n -= part;
    }
    for (; n >= 8; p += 8, n -= 8)
        siphash_word(h, siphash_word_of(p, 8));
    h->tail = siphash_word_of(p, n);
}

static inline uint64_t siphash_end(struct siphash *h)
{
    siphash_word(h, h->tail | (uint64_t)h->total << 56);
    h->v[2] ^= 0xff;
    for (unsigned i = 0; i < 4; i++)
        siphash_turn(h->v);
    return h->v[0] ^ h->v[1] ^ h->v[2] ^ h->v[3];
}

#endif
