#include "plugin/counter.h"

#include "base/count.h"
#include "base/mem.h"

struct counter_chunk {
    _Atomic uint64_t values[COUNTER_CHUNK];
};

struct counter {
    char *plugin, *place, *name, *help;
    unsigned next;  /* counter of the same hash + 1 */
    unsigned first; /* of that name */
    unsigned after; /* the next one of that name + 1; 0: the last */
    unsigned last;  /* of that name, and the first of another name + 1: kept at the first */
    unsigned next_name;
};

static struct {
    struct counter *list;
    unsigned count, room;
    unsigned names;  /* the first counter of some name + 1 */
    unsigned *heads; /* counter + 1, by hash; as many as there is room for */
} all;

/* ---- a worker's numbers ---- */

void counters_done(struct counters *counters)
{
    for (size_t i = 0; i < COUNTER_CHUNKS; i++)
        mem_free(atomic_load_explicit(&counters->chunks[i], memory_order_relaxed));
}

void counters_add(struct counters *counters, int counter, uint64_t n)
{
    if (counter < 0 || counter >= COUNTER_CHUNK * COUNTER_CHUNKS)
        return;
    unsigned at = (unsigned)counter;
    struct counter_chunk *_Atomic *place = &counters->chunks[at / COUNTER_CHUNK];
    struct counter_chunk *chunk = atomic_load_explicit(place, memory_order_relaxed);
    if (!chunk) {
        chunk = mem_zalloc(sizeof(*chunk));
        if (!chunk)
            return;
        atomic_store_explicit(place, chunk, memory_order_release);
    }
    count_add(&chunk->values[at % COUNTER_CHUNK], n);
}

static uint64_t sum(struct counters *const *sets, size_t count, unsigned counter)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        struct counter_chunk *chunk = atomic_load_explicit(
            &sets[i]->chunks[counter / COUNTER_CHUNK], memory_order_acquire);
        if (chunk)
            value += atomic_load_explicit(&chunk->values[counter % COUNTER_CHUNK],
                                          memory_order_relaxed);
    }
    return value;
}

/* ---- their names ---- */

static unsigned hash(const char *plugin, const char *place, const char *name)
{
    const char *const parts[] = {plugin, place, name};
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < 3; i++)
        for (const char *p = parts[i];; p++) {
            h = (h ^ (unsigned char)*p) * 1099511628211ull;
            if (!*p)
                break;
        }
    return (unsigned)(h ^ h >> 32);
}

static bool grow(void)
{
    unsigned room = all.room ? all.room * 2 : 64;
    struct counter *list = mem_realloc(all.list, room * sizeof(*list));
    if (!list)
        return false;
    all.list = list;
    unsigned *heads = mem_zalloc(room * sizeof(*heads));
    if (!heads)
        return false;
    for (unsigned i = 0; i < all.count; i++) {
        struct counter *c = &list[i];
        unsigned *head = &heads[hash(c->plugin, c->place, c->name) % room];
        c->next = *head;
        *head = i + 1;
    }
    mem_free(all.heads);
    all.heads = heads;
    all.room = room;
    return true;
}

static char *copy(const char *text)
{
    size_t n = strlen(text) + 1;
    char *out = mem_alloc(n);
    return out ? memcpy(out, text, n) : NULL;
}

static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= 64 && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

/* The first counter of that name, or the one that is about to be made. There are few names. */
static unsigned first_of(const char *name)
{
    for (unsigned i = all.names; i; i = all.list[i - 1].next_name)
        if (strcmp(all.list[i - 1].name, name) == 0)
            return i - 1;
    return all.count;
}

int counter_id(const char *plugin, const char *place, const char *name, const char *help)
{
    if (!is_name(name) || !help || strpbrk(help, "\r\n\\"))
        return -1;
    for (unsigned i = all.room ? all.heads[hash(plugin, place, name) % all.room] : 0; i;
         i = all.list[i - 1].next) {
        const struct counter *c = &all.list[i - 1];
        if (strcmp(c->plugin, plugin) == 0 && strcmp(c->place, place) == 0 &&
            strcmp(c->name, name) == 0)
            return (int)(i - 1);
    }
    if (all.count == COUNTER_CHUNK * COUNTER_CHUNKS || (all.count == all.room && !grow()))
        return -1;
    struct counter c = {.plugin = copy(plugin), copy(place), copy(name), copy(help)};
    if (!c.plugin || !c.place || !c.name || !c.help) {
        mem_free(c.plugin), mem_free(c.place), mem_free(c.name), mem_free(c.help);
        return -1;
    }
    unsigned *head = &all.heads[hash(plugin, place, name) % all.room];
    c.next = *head;
    c.first = first_of(name);
    c.last = all.count;
    c.next_name = all.names;
    all.list[all.count] = c;
    if (c.first == all.count) {
        all.names = all.count + 1;
    } else {
        struct counter *first = &all.list[c.first];
        all.list[first->last].after = all.count + 1;
        first->last = all.count;
    }
    *head = ++all.count;
    return (int)(all.count - 1);
}

void counter_each(struct counters *const *sets, size_t count,
                  void (*each)(void *arg, const struct counter_view *view), void *arg)
{
    for (unsigned i = 0; i < all.count; i++) {
        if (all.list[i].first != i)
            continue;
        for (unsigned k = i + 1; k; k = all.list[k - 1].after) {
            const struct counter *c = &all.list[k - 1];
            each(arg, &(struct counter_view){c->plugin, c->place, c->name, c->help,
                                             sum(sets, count, k - 1)});
        }
    }
}
