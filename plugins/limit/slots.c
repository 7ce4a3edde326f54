#include "limit/slots.h"

#include <assert.h>
#include <stdlib.h>

/* A name word: 48 bits of the hash, 14 that change with every step, 2 of state. The set takes
 * its number from the hash's other end.
 *
 *      FREE ──▶ CLAIMED ──▶ LIVE ◀──▶ MARKED ──▶ CLAIMED (of another key)
 *        ▲         │
 *        └─────────┘  there was another claim or a live slot of that key
 *
 * CLAIMED: somebody wants to make this the slot of a key. Whoever sees it may finish the work:
 * free all other claims of that key, and with no live slot seen make it LIVE. Both sides of a
 * race claim before they look around, so one of them sees the other's claim.
 * MARKED: somebody wants to give a live slot away and is about to look whether it owes
 * something. Who needs it meanwhile makes it LIVE again. */
enum { FREE, CLAIMED, LIVE, MARKED };

#define STATE   UINT64_C(3)
#define VERSION (UINT64_C(0x3fff) << 2)
#define TAG     (~(STATE | VERSION))

struct set {
    _Atomic uint64_t names[SLOTS_WAYS]; /* one cache line */
};

struct slots {
    void *block;
    struct set *sets;
    _Atomic uint64_t *values; /* of a set: SLOTS_WAYS times `words`; 64-byte aligned as well */
    uint64_t count;           /* sets */
    unsigned words;
};

struct slots *slots_new(size_t keys, unsigned words)
{
    assert(words >= 1 && words <= SLOTS_WORDS_MAX);
    struct slots *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    /* Keys spread unevenly: with half of the slots used one set in forty is full. */
    t->count = (keys * 2 + SLOTS_WAYS - 1) / SLOTS_WAYS;
    t->count = t->count ? t->count : 1;
    t->words = words;
    /* calloc of so much is the system's zero pages: what no key uses takes no memory. */
    t->block = calloc(1, slots_bytes(t));
    if (!t->block) {
        free(t);
        return NULL;
    }
    t->sets = (struct set *)((char *)t->block + (-(uintptr_t)t->block & 63));
    t->values = (_Atomic uint64_t *)(t->sets + t->count);
    return t;
}

void slots_free(struct slots *t)
{
    if (t) {
        free(t->block);
        free(t);
    }
}

size_t slots_bytes(const struct slots *t)
{
    return t->count * sizeof(struct set) * (1 + t->words) + 63;
}

static uint64_t stepped(uint64_t word, uint64_t tag, unsigned state)
{
    return tag | ((word + 4) & VERSION) | state;
}

static bool step(_Atomic uint64_t *name, uint64_t *word, uint64_t tag, unsigned state)
{
    uint64_t next = stepped(*word, tag, state);
    if (!atomic_compare_exchange_strong(name, word, next))
        return false;
    *word = next;
    return true;
}

static unsigned state_of(uint64_t word)
{
    return word & STATE;
}

struct search {
    struct slots *t;
    struct set *set;
    _Atomic uint64_t *values; /* of the set */
    uint64_t tag, now;
    const struct slots_rule *rule;
    struct slots_place *place;
};

static _Atomic uint64_t *values_of(const struct search *s, unsigned way)
{
    return s->values + (size_t)way * s->t->words;
}

static void found(const struct search *s, unsigned way, uint64_t word)
{
    s->place->values = values_of(s, way);
    s->place->name = &s->set->names[way];
    s->place->seen = word;
}

/* The key's live slot. */
static bool look(const struct search *s)
{
    for (unsigned way = 0; way < SLOTS_WAYS; way++) {
        uint64_t word = atomic_load(&s->set->names[way]);
        while ((word & TAG) == s->tag && state_of(word) >= LIVE) {
            if (state_of(word) == LIVE || step(&s->set->names[way], &word, s->tag, LIVE)) {
                found(s, way, word);
                return true;
            }
        }
    }
    return false;
}

/* Makes the claim in `way` the key's live slot, if there is no other. */
static bool finish(const struct search *s, unsigned way, uint64_t claim)
{
    for (unsigned i = 0; i < SLOTS_WAYS; i++) {
        uint64_t word = atomic_load(&s->set->names[i]);
        if (i == way || (word & TAG) != s->tag || state_of(word) == FREE)
            continue;
        if (state_of(word) >= LIVE) {
            step(&s->set->names[way], &claim, 0, FREE);
            return false;
        }
        if (!step(&s->set->names[i], &word, 0, FREE))
            return false; /* it has become something else: look again */
    }
    if (!step(&s->set->names[way], &claim, s->tag, LIVE))
        return false;
    found(s, way, claim);
    return true;
}

/* The first claim of the key, whosever it is. */
static bool finish_first(const struct search *s)
{
    for (unsigned way = 0; way < SLOTS_WAYS; way++) {
        uint64_t word = atomic_load(&s->set->names[way]);
        if ((word & TAG) == s->tag && state_of(word) == CLAIMED)
            return finish(s, way, word);
    }
    return false;
}

static bool has_claim(const struct search *s)
{
    for (unsigned way = 0; way < SLOTS_WAYS; way++) {
        uint64_t word = atomic_load(&s->set->names[way]);
        if ((word & TAG) == s->tag && state_of(word) != FREE)
            return true;
    }
    return false;
}

/* Claims a slot that nobody would miss. */
static bool claim_idle(const struct search *s)
{
    for (unsigned way = 0; way < SLOTS_WAYS; way++) {
        _Atomic uint64_t *name = &s->set->names[way];
        uint64_t word = atomic_load(name);
        if (state_of(word) == FREE && step(name, &word, s->tag, CLAIMED))
            return true;
        if (state_of(word) < LIVE || s->rule->owed(values_of(s, way), s->t->words, s->now) != 0)
            continue;
        uint64_t old = word & TAG;
        if (!step(name, &word, old, MARKED))
            continue;
        if (s->rule->owed(values_of(s, way), s->t->words, s->now) != 0)
            step(name, &word, old, LIVE);
        else if (step(name, &word, s->tag, CLAIMED))
            return true;
    }
    return false;
}

/* The live slot that owes least; SLOTS_WAYS when others are working on all of them. */
static unsigned least(const struct search *s, uint64_t *ret_word)
{
    unsigned best = SLOTS_WAYS;
    uint64_t owed = UINT64_MAX;
    for (unsigned way = 0; way < SLOTS_WAYS; way++) {
        uint64_t word = atomic_load(&s->set->names[way]);
        uint64_t n = s->rule->owed(values_of(s, way), s->t->words, s->now);
        if (state_of(word) >= LIVE && n < owed) {
            best = way;
            owed = n;
            *ret_word = word;
        }
    }
    return best;
}

static bool displace(const struct search *s)
{
    uint64_t word = 0;
    unsigned way = least(s, &word);
    if (way == SLOTS_WAYS || !step(&s->set->names[way], &word, word & TAG, MARKED))
        return false;
    s->rule->forgive(values_of(s, way), s->t->words, s->now);
    return step(&s->set->names[way], &word, s->tag, CLAIMED);
}

/* Finishes what others have begun, so that nobody waits for a thread that does not run. False:
 * there was nothing. */
static bool help(const struct search *s)
{
    struct slots_place place;
    struct search other = *s;
    bool helped = false;
    other.place = &place;
    for (unsigned way = 0; way < SLOTS_WAYS; way++) {
        uint64_t word = atomic_load(&s->set->names[way]);
        if (state_of(word) == CLAIMED) {
            other.tag = word & TAG;
            finish(&other, way, word);
            helped = true;
        }
    }
    return helped;
}

static bool share(const struct search *s)
{
    uint64_t word = 0;
    unsigned way = least(s, &word);
    if (way == SLOTS_WAYS ||
        (state_of(word) != LIVE && !step(&s->set->names[way], &word, word & TAG, LIVE)))
        return false;
    found(s, way, word);
    return true;
}

enum slots_result slots_take(struct slots *t, uint64_t hash, uint64_t now,
                             const struct slots_rule *rule, struct slots_place *ret_place)
{
    uint64_t number = (uint64_t)((unsigned __int128)hash * t->count >> 64);
    struct set *set = &t->sets[number];
    _Atomic uint64_t *values = t->values + number * SLOTS_WAYS * t->words;
    uint64_t tag = hash << 16;
    /* Nearly always it is there, and nobody is at it. */
    for (unsigned way = 0; way < SLOTS_WAYS; way++) {
        uint64_t word = atomic_load(&set->names[way]);
        if ((word & (TAG | STATE)) == (tag | LIVE)) {
            *ret_place =
                (struct slots_place){values + (size_t)way * t->words, &set->names[way], word};
            return SLOTS_FOUND;
        }
    }
    struct search s = {
        .t = t,
        .set = set,
        .values = values,
        .tag = tag,
        .now = now,
        .rule = rule,
        .place = ret_place,
    };
    if (look(&s))
        return SLOTS_FOUND;
    for (bool displaced = false;;) {
        if (!has_claim(&s) && !claim_idle(&s) && !help(&s)) {
            if (!rule->forgive && share(&s))
                return SLOTS_SHARED;
            displaced = (rule->forgive && displace(&s)) || displaced;
        }
        if (finish_first(&s))
            return displaced ? SLOTS_DISPLACED : SLOTS_MADE;
        if (look(&s))
            return displaced ? SLOTS_DISPLACED : SLOTS_FOUND;
    }
}
