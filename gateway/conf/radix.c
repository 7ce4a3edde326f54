#include "conf/radix.h"

#include "conf/pattern.h"

_Static_assert(sizeof(struct radix_node) <= CACHE_LINE, "a node is one cache line");

/* Building */

static bool nodes_grow(struct radix *radix, uint32_t n)
{
    uint32_t cap = (radix->count + n) * 2;
    char *memory = mem_alloc(cap * sizeof(struct radix_node) + CACHE_LINE);
    if (!memory)
        return false;
    struct radix_node *nodes = (void *)(memory + -(uintptr_t)memory % CACHE_LINE);
    if (radix->count)
        memcpy(nodes, radix->nodes, radix->count * sizeof(*nodes));
    mem_free(radix->nodes_memory);
    radix->nodes_memory = memory;
    radix->nodes = nodes;
    radix->cap = cap;
    return true;
}

static uint32_t nodes_take(struct radix *radix, uint32_t n)
{
    if (radix->count == 0)
        n++; /* index 0 stands for "none" */
    if (n > radix->cap - radix->count && !nodes_grow(radix, n))
        return 0;
    uint32_t first = radix->count ? radix->count : 1;
    memset(&radix->nodes[radix->count], 0, n * sizeof(*radix->nodes));
    radix->count += n;
    return first;
}

/* Room for the first bytes of a node's children; NULL: no memory. */
static char *kid_keys_take(struct radix *radix, struct radix_node *node)
{
    uint32_t n = node->kid_count;
    if (n <= RADIX_KIDS)
        return node->keys.inside;
    if (n > radix->kid_keys_cap - radix->kid_keys_n) {
        uint32_t cap = (radix->kid_keys_n + n) * 2;
        char *kid_keys = mem_realloc(radix->kid_keys, cap);
        if (!kid_keys)
            return NULL;
        radix->kid_keys = kid_keys;
        radix->kid_keys_cap = cap;
    }
    node->keys.outside = radix->kid_keys_n;
    radix->kid_keys_n += n;
    return radix->kid_keys + node->keys.outside;
}

/* The keys behind `from` whose byte at `at` is the same. */
static uint32_t run_end(const struct radix_key *keys, uint32_t from, uint32_t to, uint32_t at)
{
    uint32_t i = from + 1;
    while (i < to && keys[i].p[at] == keys[from].p[at])
        i++;
    return i;
}

static bool is_variable(char c)
{
    return c == PATTERN_ONE || c == PATTERN_REST;
}

static bool build(struct radix *radix, uint32_t index, const struct radix_key *keys,
                  uint32_t from, uint32_t to, uint32_t at);

static bool build_kids(struct radix *radix, uint32_t index, const struct radix_key *keys,
                       uint32_t from, uint32_t to, uint32_t at)
{
    uint16_t count = 0;
    for (uint32_t i = from; i < to; i = run_end(keys, i, to, at))
        count++;
    uint32_t kid = nodes_take(radix, count);
    if (!kid)
        return false;
    struct radix_node *node = &radix->nodes[index];
    node->kids = kid;
    node->kid_count = count;
    char *first_bytes = kid_keys_take(radix, node);
    if (!first_bytes)
        return false;
    for (uint32_t i = from; i < to; i = run_end(keys, i, to, at))
        *first_bytes++ = keys[i].p[at];
    for (uint32_t i = from, end; i < to; i = end) {
        end = run_end(keys, i, to, at);
        if (!build(radix, kid++, keys, i, end, at))
            return false;
    }
    return true;
}

/* Makes nodes[index] from keys that are equal up to `at`. Sorted, their first and last have
 * the prefix that they all have; variables sort before all bytes of a path. */
static bool build(struct radix *radix, uint32_t index, const struct radix_key *keys,
                  uint32_t from, uint32_t to, uint32_t at)
{
    const struct radix_key *first = &keys[from], *last = &keys[to - 1];
    struct radix_node node = {0};
    const char *label = first->p + at;
    while (at < first->n && at < last->n && first->p[at] == last->p[at] &&
           !is_variable(first->p[at]))
        at++;
    node.label_n = (uint16_t)(first->p + at - label);
    if (node.label_n <= RADIX_LABEL)
        memcpy(node.label.inside, label, node.label_n);
    else
        node.label.outside = label;
    node.first = from;
    while (from < to && keys[from].n == at)
        from++;
    node.count = from - node.first;
    if (from < to && keys[from].p[at] == PATTERN_ONE) {
        uint32_t end = run_end(keys, from, to, at);
        node.one = nodes_take(radix, 1);
        if (!node.one || !build(radix, node.one, keys, from, end, at + 1))
            return false;
        from = end;
    }
    if (from < to && keys[from].p[at] == PATTERN_REST) {
        node.rest = from;
        from = run_end(keys, from, to, at);
        node.rest_count = from - node.rest;
    }
    radix->nodes[index] = node;
    return from == to || build_kids(radix, index, keys, from, to, at);
}

uint32_t radix_add(struct radix *radix, const struct radix_key *keys, uint32_t from,
                   uint32_t to)
{
    uint32_t root = nodes_take(radix, 1);
    return root && build(radix, root, keys, from, to, 0) ? root : 0;
}

void radix_done(struct radix *radix)
{
    mem_free(radix->nodes_memory);
    mem_free(radix->kid_keys);
    *radix = (struct radix){0};
}

/* Walking */

static uint32_t kid_of(const struct radix *radix, const struct radix_node *node, char c)
{
    const char *keys = node->keys.inside;
    if (node->kid_count > RADIX_KIDS)
        keys = radix->kid_keys + node->keys.outside;
    const char *key = node->kid_count ? memchr(keys, c, node->kid_count) : NULL;
    return key ? node->kids + (uint32_t)(key - keys) : 0;
}

/* A node is entered at most once in a walk, since its depth in segments is fixed:
 * going back is bounded by the size of the tree, whatever the path. */
static bool visit(const struct radix *radix, uint32_t index, struct str path, unsigned captures,
                  struct radix_walk *walk)
{
    const struct radix_node *node = &radix->nodes[index];
    const char *label = node->label_n <= RADIX_LABEL ? node->label.inside : node->label.outside;
    if (path.n < node->label_n || memcmp(path.p, label, node->label_n) != 0)
        return false;
    path = (struct str){path.p + node->label_n, path.n - node->label_n};
    if (path.n == 0) {
        if (node->count && walk->on_keys(walk, node->first, node->count))
            return true;
    } else {
        uint32_t kid = kid_of(radix, node, path.p[0]);
        if (kid && visit(radix, kid, path, captures, walk))
            return true;
        if (node->one && path.p[0] != '/') {
            const char *slash = memchr(path.p, '/', path.n);
            size_t n = slash ? (size_t)(slash - path.p) : path.n;
            walk->captures[captures] = (struct str){path.p, n};
            struct str behind = {path.p + n, path.n - n};
            if (visit(radix, node->one, behind, captures + 1, walk))
                return true;
        }
    }
    if (!node->rest_count)
        return false;
    walk->captures[captures] = path;
    return walk->on_keys(walk, node->rest, node->rest_count);
}

bool radix_find(const struct radix *radix, uint32_t root, struct str path,
                struct radix_walk *walk)
{
    return visit(radix, root, path, 0, walk);
}
