#include "base/sip.h"

#include <endian.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void mix(struct state *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 = rotate(s->v2, 32);
}

static inline void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    mix(s);
    mix(s);
    s->v0 ^= word;
}

uint64_t sip_hash(const struct sip_key *key, struct str text)
{
    struct state s = {0x736f6d6570736575ull ^ key->k0, 0x646f72616e646f6dull ^ key->k1,
                      0x6c7967656e657261ull ^ key->k0, 0x7465646279746573ull ^ key->k1};
    size_t whole = text.n & ~(size_t)7;
    uint64_t word;
    for (size_t i = 0; i < whole; i += 8) {
        memcpy(&word, text.p + i, 8);
        absorb(&s, le64toh(word));
    }
    word = (uint64_t)text.n << 56;
    for (size_t i = whole; i < text.n; i++)
        word |= (uint64_t)(unsigned char)text.p[i] << 8 * (i - whole);
    absorb(&s, word);
    s.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        mix(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

struct sip_key sip_key_of(struct str secret)
{
    static const struct sip_key first = {1, 2}, second = {3, 4};
    return (struct sip_key){sip_hash(&first, secret), sip_hash(&second, secret)};
}
