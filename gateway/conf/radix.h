/* Compressed radix trees over path patterns, many of them in one array of nodes. Their alphabet
 * is not the byte but the segment ("/api"): a walk takes as many steps as a path has places
 * where routes part, however many routes there are.
 *
 *   "/api/v1" ──"/users"──▶ "/users"            {rest...}: a range of keys
 *                 │          └──{x}──▶ "/{x}/posts"
 *                 └──"/teams"──▶ "/teams/{x}"
 *
 * Built once from sorted keys, immutable afterwards; a walk neither allocates nor writes to
 * the tree. A tree's nodes lie close together, children of one node side by side. */
#ifndef POSTERN_CONF_RADIX_H
#define POSTERN_CONF_RADIX_H

#include "conf/conf.h"

struct radix_key {
    const char *p; /* pattern_key's; must outlive the tree */
    uint32_t n;
    uint64_t value; /* comes back with it */
};

/* The order of keys in an array for radix_add: bytewise, but "/" before all other bytes, so
 * that keys which begin with the same segments stand together. As memcmp. */
int radix_compare(const struct radix_key *a, const struct radix_key *b);

/* A node is one cache line, for a large tree costs a miss for each line that a walk touches:
 * nearly all labels are kept inside, and so is what the first of its keys brings along. */
#define RADIX_LABEL 32

enum { RADIX_VARIABLE = 1, RADIX_REST = 2 };

struct radix_node {
    uint16_t label_n;
    uint8_t slot_bits; /* the children's slots are 1 << slot_bits */
    uint8_t flags;     /* VARIABLE: the label has an {x} */
    uint32_t slots;    /* the first of them; 0: no children */
    uint32_t one;      /* node that begins with {x}; 0: none */
    uint32_t rest;     /* a node for those whose next segment is {x...}; 0: none */
    /* Keys that end here, or with REST those whose next segment is {x...}: a range of the
     * sorted array. */
    uint32_t first, count;
    uint64_t value; /* the first one's */
    union {         /* segments that lead here, {x} as PATTERN_ONE */
        char inside[RADIX_LABEL];
        const char *outside;
    } label;
};

/* A place in the hash table of a node's children. */
struct radix_slot {
    uint32_t hash; /* of the segment */
    uint32_t node; /* 0: empty */
};

struct radix {
    struct radix_node *nodes; /* nodes[0] is no node */
    void *nodes_memory;       /* where they are, before alignment */
    uint32_t count, cap;
    struct radix_slot *slots; /* slots[0] is nobody's */
    uint32_t slot_count, slot_cap;
};

/* Adds a tree for keys[from] to keys[to - 1], which are sorted by radix_compare. The root's
 * index, or 0 when out of memory. */
uint32_t radix_add(struct radix *radix, const struct radix_key *keys, uint32_t from,
                   uint32_t to);
void radix_done(struct radix *radix);

/* One walk. Matching keys come best first: at each segment the literal before {x} before
 * {x...}. `on_keys` gets a range of equal ones, with the value of the first, and says whether
 * to stop there. */
struct radix_walk {
    bool (*on_keys)(struct radix_walk *walk, uint32_t first, uint32_t count, uint64_t value);
    struct str captures[ROUTE_CAPTURES];
};
/* Whether on_keys stopped it. */
bool radix_find(const struct radix *radix, uint32_t root, struct str path,
                struct radix_walk *walk);

#endif
