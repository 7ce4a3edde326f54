/* A table of fixed size from keys to a few 64-bit words, which many threads use without a lock.
 *
 * A key is a 64-bit hash; keys with the same hash are the same key. It can only lie in one of
 * the eight slots of its set. A slot has a name word, which says whose it is, and value words,
 * which belong to the user of the table. There is never a second slot of a key.
 *
 * How to use a slot so that nothing is lost: slots_take() finds or makes it; change the values
 * by atomic steps; then slots_holds() must be true. If it is not, the slot was given to another
 * key meanwhile: take the change back by as much (not by storing an old value), and start
 * again. Who takes a slot away marks it first and looks at the values then, so one of both sees
 * the other.
 *
 * The table belongs to who made it. All functions but new and free: any thread. */
#ifndef POSTERN_LIMIT_SLOTS_H
#define POSTERN_LIMIT_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOTS_WAYS      8
#define SLOTS_WORDS_MAX 4

struct slots;

/* What the values mean. */
struct slots_rule {
    /* How much would be lost if the slot were given away at `now`; 0: nothing. */
    uint64_t (*owed)(const _Atomic uint64_t *values, unsigned words, uint64_t now);
    /* Makes the values owe nothing. NULL: a slot that owes something is never given away. */
    void (*forgive)(_Atomic uint64_t *values, unsigned words, uint64_t now);
};

struct slots_place {
    _Atomic uint64_t *values;
    const _Atomic uint64_t *name;
    uint64_t seen; /* the name word it was found under */
};

enum slots_result {
    SLOTS_FOUND,
    SLOTS_MADE,      /* in a free slot, or in one that owed nothing */
    SLOTS_DISPLACED, /* all eight owed something: made in the one that owed least */
    SLOTS_SHARED,    /* the same, but nothing is given away: another key's slot, used by both */
};

/* Room for `keys` keys: with so many, and all of them live, about one in a hundred meets a full
 * set. NULL: no memory. */
struct slots *slots_new(size_t keys, unsigned words);
void slots_free(struct slots *t);          /* NULL is fine */
size_t slots_bytes(const struct slots *t); /* what it takes when all of it is used */

enum slots_result slots_take(struct slots *t, uint64_t hash, uint64_t now,
                             const struct slots_rule *rule, struct slots_place *ret_place);

static inline bool slots_holds(const struct slots_place *place)
{
    return atomic_load(place->name) == place->seen;
}

#endif
