#include "conf/radix.h"

#include "conf/pattern.h"

_Static_assert(sizeof(struct radix_node) <= CACHE_LINE, "a node is one cache line");

/* Segments: with the slash before them. Whatever a path begins with is its first one. */

static uint32_t segment_end(const char *p, uint32_t n, uint32_t at)
{
    if (at >= n)
        return n;
    const char *slash = memchr(p + at + 1, '/', n - at - 1);
    return slash ? (uint32_t)(slash - p) : n;
}

static uint64_t load(const char *p, size_t n)
{
    uint64_t word = 0;
    memcpy(&word, p, n);
    return word;
}

/* Only the configuration's segments are in a table, so nobody can fill one from outside. */
static uint32_t segment_hash(const char *p, size_t n)
{
    uint64_t hash = n;
    for (; n >= 8; p += 8, n -= 8)
        hash = (hash ^ load(p, 8)) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 32;
    if (n & 4)
        hash ^= load(p, 4), p += 4;
    if (n & 2)
        hash ^= load(p, 2) << 32, p += 2;
    if (n & 1)
        hash ^= load(p, 1) << 48;
    hash *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(hash >> 32);
}

/* Building */

/* Of the byte at `i`, or of the end. A segment is {x}, {x...}, empty or longer, in this order.
 */
static unsigned rank(const struct radix_key *key, uint32_t i)
{
    if (i == key->n)
        return PATTERN_REST + 1;
    if (key->p[i] == '/')
        return PATTERN_REST + 2;
    return (unsigned char)key->p[i] <= PATTERN_REST
               ? (unsigned char)key->p[i]
               : PATTERN_REST + 2u + (unsigned char)key->p[i];
}

int radix_compare(const struct radix_key *a, const struct radix_key *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && a->p[i] == b->p[i])
        i++;
    return (int)rank(a, i) - (int)rank(b, i);
}

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

/* Room for the children of `node`, at most half full. False: no memory. */
static bool slots_take(struct radix *radix, struct radix_node *node, uint32_t kids)
{
    uint8_t bits = 1;
    while (1u << bits < kids * 2)
        bits++;
    uint32_t n = 1u << bits;
    if (radix->slot_count == 0)
        radix->slot_count = 1;
    if (radix->slot_count + n > radix->slot_cap) {
        uint32_t cap = (radix->slot_count + n) * 2;
        struct radix_slot *slots = mem_realloc(radix->slots, cap * sizeof(*slots));
        if (!slots)
            return false;
        radix->slots = slots;
        radix->slot_cap = cap;
    }
    memset(&radix->slots[radix->slot_count], 0, n * sizeof(*radix->slots));
    node->slots = radix->slot_count;
    node->slot_bits = bits;
    radix->slot_count += n;
    return true;
}

static void slot_put(struct radix *radix, const struct radix_node *node, uint32_t hash,
                     uint32_t kid)
{
    uint32_t mask = (1u << node->slot_bits) - 1, i = hash;
    while (radix->slots[node->slots + (i & mask)].node)
        i++;
    radix->slots[node->slots + (i & mask)] = (struct radix_slot){hash, kid};
}

static bool is_variable(const struct radix_key *key, uint32_t at, char variable)
{
    return at + 1 < key->n && key->p[at] == '/' && key->p[at + 1] == variable;
}

/* The keys behind `from` whose segment at `at` is the same. */
static uint32_t run_end(const struct radix_key *keys, uint32_t from, uint32_t to, uint32_t at)
{
    uint32_t end = segment_end(keys[from].p, keys[from].n, at), i = from + 1;
    while (i < to && segment_end(keys[i].p, keys[i].n, at) == end &&
           memcmp(keys[i].p + at, keys[from].p + at, end - at) == 0)
        i++;
    return i;
}

/* Where the whole segments end that all keys have from `at` on, {x...} excepted. Sorted, their
 * first and last have what they all have. */
static uint32_t common_end(const struct radix_key *first, const struct radix_key *last,
                           uint32_t at)
{
    while (at < first->n && !is_variable(first, at, PATTERN_REST)) {
        uint32_t end = segment_end(first->p, first->n, at);
        if (segment_end(last->p, last->n, at) != end ||
            memcmp(first->p + at, last->p + at, end - at) != 0)
            break;
        at = end;
    }
    return at;
}

static void label_set(struct radix_node *node, const char *label, uint32_t n)
{
    node->label_n = (uint16_t)n;
    if (n && memchr(label, PATTERN_ONE, n))
        node->flags |= RADIX_VARIABLE;
    if (n <= RADIX_LABEL)
        memcpy(node->label.inside, label, n);
    else
        node->label.outside = label;
}

static bool build(struct radix *radix, uint32_t index, const struct radix_key *keys,
                  uint32_t from, uint32_t to, uint32_t at);

/* The literal segments behind a node: keys[from] to keys[to - 1], none of them a variable. */
static bool build_kids(struct radix *radix, struct radix_node *node,
                       const struct radix_key *keys, uint32_t from, uint32_t to, uint32_t at)
{
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i = run_end(keys, i, to, at))
        count++;
    if (count == 0)
        return true;
    uint32_t kid = nodes_take(radix, count);
    if (!kid || !slots_take(radix, node, count))
        return false;
    for (uint32_t i = from, end; i < to; i = end, kid++) {
        end = run_end(keys, i, to, at);
        uint32_t n = segment_end(keys[i].p, keys[i].n, at) - at;
        slot_put(radix, node, segment_hash(keys[i].p + at, n), kid);
        if (!build(radix, kid, keys, i, end, at))
            return false;
    }
    return true;
}

static void set_keys(struct radix_node *node, const struct radix_key *keys, uint32_t first,
                     uint32_t end)
{
    node->first = first;
    node->count = end - first;
    node->value = first < end ? keys[first].value : 0;
}

/* In the node itself where no key ends there. False: no memory. */
static bool build_rest(struct radix *radix, struct radix_node *node,
                       const struct radix_key *keys, uint32_t first, uint32_t end)
{
    struct radix_node rest = {.flags = RADIX_REST};
    if (!node->count) {
        node->flags |= RADIX_REST;
        set_keys(node, keys, first, end);
        return true;
    }
    node->rest = nodes_take(radix, 1);
    if (!node->rest)
        return false;
    set_keys(&rest, keys, first, end);
    radix->nodes[node->rest] = rest;
    return true;
}

/* Makes nodes[index] from keys that are equal up to `at`. */
static bool build(struct radix *radix, uint32_t index, const struct radix_key *keys,
                  uint32_t from, uint32_t to, uint32_t at)
{
    struct radix_node node = {0};
    uint32_t begin = at, first = from;
    at = common_end(&keys[from], &keys[to - 1], at);
    label_set(&node, keys[from].p + begin, at - begin);
    while (from < to && keys[from].n == at)
        from++;
    set_keys(&node, keys, first, from);
    if (from < to && is_variable(&keys[from], at, PATTERN_ONE)) {
        uint32_t end = run_end(keys, from, to, at);
        node.one = nodes_take(radix, 1);
        if (!node.one || !build(radix, node.one, keys, from, end, at))
            return false;
        from = end;
    }
    if (from < to && is_variable(&keys[from], at, PATTERN_REST)) {
        uint32_t end = run_end(keys, from, to, at);
        if (!build_rest(radix, &node, keys, from, end))
            return false;
        from = end;
    }
    if (!build_kids(radix, &node, keys, from, to, at))
        return false;
    radix->nodes[index] = node;
    return true;
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
    mem_free(radix->slots);
    *radix = (struct radix){0};
}

/* Walking */

static const char *label_of(const struct radix_node *node)
{
    return node->label_n <= RADIX_LABEL ? node->label.inside : node->label.outside;
}

/* A label with {x} against the begin of a path. The bytes used, or -1. */
static long match_variable(const char *label, size_t n, struct str path, unsigned *captures,
                           struct radix_walk *walk)
{
    size_t used = 0;
    while (n) {
        const char *one = memchr(label, PATTERN_ONE, n);
        size_t literal = one ? (size_t)(one - label) : n;
        if (path.n - used < literal || memcmp(path.p + used, label, literal) != 0)
            return -1;
        used += literal;
        label += literal;
        n -= literal;
        if (!one)
            break;
        const char *value = path.p + used;
        const char *slash = memchr(value, '/', path.n - used);
        size_t length = slash ? (size_t)(slash - value) : path.n - used;
        if (length == 0)
            return -1;
        walk->captures[(*captures)++] = (struct str){value, length};
        used += length;
        label++;
        n--;
    }
    return (long)used;
}

/* Takes the node's label off the path, and nothing less than whole segments. */
static bool take_label(const struct radix_node *node, struct str *path, unsigned *captures,
                       struct radix_walk *walk)
{
    const char *label = label_of(node);
    size_t used = node->label_n;
    if (used == 0)
        return true;
    if (node->flags & RADIX_VARIABLE) {
        long n = match_variable(label, used, *path, captures, walk);
        if (n < 0)
            return false;
        used = (size_t)n;
    } else if (path->n < used || memcmp(path->p, label, used) != 0) {
        return false;
    }
    *path = (struct str){path->p + used, path->n - used};
    return path->n == 0 || path->p[0] == '/';
}

static bool begins_with(const struct radix_node *node, struct str segment)
{
    const char *label = label_of(node);
    return node->label_n >= segment.n && memcmp(label, segment.p, segment.n) == 0 &&
           (node->label_n == segment.n || label[segment.n] == '/');
}

static uint32_t kid_of(const struct radix *radix, const struct radix_node *node,
                       struct str segment)
{
    if (!node->slots)
        return 0;
    uint32_t hash = segment_hash(segment.p, segment.n), mask = (1u << node->slot_bits) - 1;
    for (uint32_t i = hash;; i++) {
        const struct radix_slot *slot = &radix->slots[node->slots + (i & mask)];
        if (slot->node == 0 ||
            (slot->hash == hash && begins_with(&radix->nodes[slot->node], segment)))
            return slot->node;
    }
}

/* A node is entered at most once in a walk, since its depth in segments is fixed:
 * going back is bounded by the size of the tree, whatever the path. */
static bool visit(const struct radix *radix, uint32_t index, struct str path, unsigned captures,
                  struct radix_walk *walk)
{
    const struct radix_node *node = &radix->nodes[index];
    if (!take_label(node, &path, &captures, walk))
        return false;
    if (path.n == 0)
        return node->count && !(node->flags & RADIX_REST) &&
               walk->on_keys(walk, node->first, node->count, node->value);
    uint32_t end = segment_end(path.p, (uint32_t)path.n, 0);
    uint32_t kid = kid_of(radix, node, (struct str){path.p, end});
    if (kid && visit(radix, kid, path, captures, walk))
        return true;
    if (node->one && end > 1 && visit(radix, node->one, path, captures, walk))
        return true;
    if (!(node->flags & RADIX_REST))
        node = &radix->nodes[node->rest];
    if (!node->count || path.p[0] != '/') /* nodes[0] has none */
        return false;
    walk->captures[captures] = (struct str){path.p + 1, path.n - 1};
    return walk->on_keys(walk, node->first, node->count, node->value);
}

bool radix_find(const struct radix *radix, uint32_t root, struct str path,
                struct radix_walk *walk)
{
    return visit(radix, root, path, 0, walk);
}
