/* Compressed radix trees over path patterns, many of them in one array of nodes.
 *
 * Built once from sorted keys, immutable afterwards; a walk neither allocates nor writes to
 * the tree. A tree's nodes lie close together, children of one node side by side. */
#ifndef POSTERN_CONF_RADIX_H
#define POSTERN_CONF_RADIX_H

#include "conf/conf.h"

struct radix_key {
    const char *p; /* pattern_key's; must outlive the tree */
    uint32_t n;
};

/* A node is one cache line, for a large tree costs a miss for each line that a walk touches:
 * short labels and few children, nearly all of them, are kept inside. */
#define RADIX_LABEL 16
#define RADIX_KIDS  16

struct radix_node {
    uint16_t label_n, kid_count;
    uint32_t first, count;     /* keys that end here: a range of the sorted array */
    uint32_t rest, rest_count; /* keys that end in {x...} here */
    uint32_t one;              /* node behind {x}; 0: none */
    uint32_t kids;             /* the first child; the others follow it */
    union { /* literal bytes that lead here, the first one chosen by the parent */
        char inside[RADIX_LABEL];
        const char *outside;
    } label;
    union { /* the children's first bytes */
        char inside[RADIX_KIDS];
        uint32_t outside; /* in kid_keys */
    } keys;
};

struct radix {
    struct radix_node *nodes; /* nodes[0] is no node */
    void *nodes_memory;       /* where they are, before alignment */
    uint32_t count, cap;
    char *kid_keys;
    uint32_t kid_keys_n, kid_keys_cap;
};

/* Adds a tree for keys[from] to keys[to - 1], which are sorted bytewise. The root's index,
 * or 0 when out of memory. */
uint32_t radix_add(struct radix *radix, const struct radix_key *keys, uint32_t from,
                   uint32_t to);
void radix_done(struct radix *radix);

/* One walk. Matching keys come best first: at each segment the literal before {x} before
 * {x...}. `on_keys` gets a range of equal ones and says whether to stop there. */
struct radix_walk {
    bool (*on_keys)(struct radix_walk *walk, uint32_t first, uint32_t count);
    struct str captures[ROUTE_CAPTURES];
};
/* Whether on_keys stopped it. */
bool radix_find(const struct radix *radix, uint32_t root, struct str path,
                struct radix_walk *walk);

#endif
