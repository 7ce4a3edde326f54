#include "key_tag.h"

#include <endian.h>
#include <string.h>

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static inline void mix(struct sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 = rotate(s->v0, 32) + s->v3;
    s->v2 += s->v1;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static inline void take_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    mix(s);
    mix(s);
    s->v0 ^= word;
}

static inline uint64_t finish(struct sip *s)
{
    mix(s);
    mix(s);
    mix(s);
    mix(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

struct key_tag key_tag_of(const uint64_t secret[2], const char *p, size_t n)
{
    /* "somepseudorandomlygeneratedbytes", as its authors have it */
    struct sip s = {secret[0] ^ 0x736f6d6570736575, secret[1] ^ 0x646f72616e646f6d ^ 0xee,
                    secret[0] ^ 0x6c7967656e657261, secret[1] ^ 0x7465646279746573};
    uint64_t word, last = (uint64_t)n << 56;
    size_t whole = n & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        memcpy(&word, p + i, 8);
        take_word(&s, le64toh(word));
    }
    for (size_t i = whole; i < n; i++)
        last |= (uint64_t)(unsigned char)p[i] << (8 * (i - whole));
    take_word(&s, last);
    struct key_tag tag;
    s.v2 ^= 0xee;
    tag.a = finish(&s);
    s.v1 ^= 0xdd;
    tag.b = finish(&s);
    return tag;
}
