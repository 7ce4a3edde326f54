#include "proxy/names.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sip.h"

struct name {
    struct str text; /* .p NULL: free */
    char *copy;      /* what it points to */
    unsigned users;  /* while it is not */
    unsigned next;   /* while it is: the next free one, 0: none */
};

static struct {
    struct name *list; /* by number; 0 is the empty name */
    unsigned count, room, free;
    unsigned *index; /* numbers, open addressing, a power of two; 0: empty */
    size_t index_size;
    struct sip_key key;
} names;

/* The place of the name, or the empty one where it belongs. There always is an empty one. */
static unsigned *place_of(struct str text)
{
    size_t i = sip_hash(&names.key, text) & (names.index_size - 1);
    while (names.index[i] && !str_eq(names.list[names.index[i]].text, text))
        i = (i + 1) & (names.index_size - 1);
    return &names.index[i];
}

static void index_anew(void)
{
    memset(names.index, 0, names.index_size * sizeof(*names.index));
    for (unsigned i = 1; i < names.count; i++)
        if (names.list[i].text.p)
            *place_of(names.list[i].text) = i;
}

static bool grow(void)
{
    unsigned room = names.room ? names.room * 2 : 64;
    struct name *list = mem_realloc(names.list, room * sizeof(*list));
    if (!list)
        return false;
    names.list = list;
    unsigned *index = mem_zalloc(2 * (size_t)room * sizeof(*index));
    if (!index)
        return false;
    if (!names.room) {
        if (getrandom(&names.key, sizeof(names.key), GRND_NONBLOCK) != sizeof(names.key))
            names.key = (struct sip_key){clock_ns(), (uint64_t)getpid()};
        names.list[0] = (struct name){.text = STR(""), .users = 1};
        names.count = 1;
    }
    mem_free(names.index);
    names.index = index;
    names.index_size = 2 * (size_t)room;
    names.room = room;
    index_anew();
    return true;
}

unsigned names_take(struct str name)
{
    if (!name.n || (!names.free && names.count == names.room && !grow()))
        return 0;
    unsigned *at = place_of(name);
    if (*at) {
        names.list[*at].users++;
        return *at;
    }
    char *copy = mem_alloc(name.n);
    if (!copy)
        return 0;
    memcpy(copy, name.p, name.n);
    unsigned number = names.free;
    if (number)
        names.free = names.list[number].next;
    else
        number = names.count++;
    names.list[number] = (struct name){.text = {copy, name.n}, .copy = copy, .users = 1};
    *at = number;
    return number;
}

/* Out of the index: whoever stands further along than its own place moves up. */
static void index_cut(unsigned *at)
{
    size_t mask = names.index_size - 1, hole = (size_t)(at - names.index);
    for (size_t i = (hole + 1) & mask; names.index[i]; i = (i + 1) & mask) {
        size_t home = sip_hash(&names.key, names.list[names.index[i]].text) & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        names.index[hole] = names.index[i];
        hole = i;
    }
    names.index[hole] = 0;
}

bool names_give(unsigned number)
{
    if (!number || --names.list[number].users)
        return false;
    index_cut(place_of(names.list[number].text));
    mem_free(names.list[number].copy);
    names.list[number] = (struct name){.next = names.free};
    names.free = number;
    return true;
}

struct str names_text(unsigned number)
{
    return number < names.count ? names.list[number].text : (struct str){NULL, 0};
}
