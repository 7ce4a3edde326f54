#include "limit/siphash.h"

#include <string.h>

static uint64_t rotated(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static void turn(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotated(v[1], 13) ^ v[0];
    v[3] = rotated(v[3], 16) ^ v[2];
    v[0] = rotated(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotated(v[1], 17) ^ v[2];
    v[3] = rotated(v[3], 21) ^ v[0];
    v[2] = rotated(v[2], 32);
}

static void word(struct siphash *h, uint64_t m)
{
    h->v[3] ^= m;
    turn(h->v);
    turn(h->v);
    h->v[0] ^= m;
}

/* At most eight bytes, the first one lowest on every machine. */
static uint64_t word_of(const uint8_t *p, size_t n)
{
    uint64_t w = 0;
    if (n == 8) {
        memcpy(&w, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        w = __builtin_bswap64(w);
#endif
        return w;
    }
    for (size_t i = 0; i < n; i++)
        w |= (uint64_t)p[i] << 8 * i;
    return w;
}

void siphash_begin(struct siphash *h, const uint64_t key[2])
{
    /* "somepseudorandomlygeneratedbytes", as the paper has it */
    h->v[0] = key[0] ^ 0x736f6d6570736575;
    h->v[1] = key[1] ^ 0x646f72616e646f6d;
    h->v[2] = key[0] ^ 0x6c7967656e657261;
    h->v[3] = key[1] ^ 0x7465646279746573;
    h->tail = 0;
    h->total = 0;
}

void siphash_add(struct siphash *h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t have = h->total & 7;
    h->total += n;
    if (have) {
        size_t part = n < 8 - have ? n : 8 - have;
        h->tail |= word_of(p, part) << 8 * have;
        if (have + part < 8)
            return;
        word(h, h->tail);
        p += part;
        n -= part;
    }
    for (; n >= 8; p += 8, n -= 8)
        word(h, word_of(p, 8));
    h->tail = word_of(p, n);
}

uint64_t siphash_end(struct siphash *h)
{
    word(h, h->tail | (uint64_t)h->total << 56);
    h->v[2] ^= 0xff;
    for (unsigned i = 0; i < 4; i++)
        turn(h->v);
    return h->v[0] ^ h->v[1] ^ h->v[2] ^ h->v[3];
}
