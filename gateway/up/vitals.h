/* What is known of one server: whether it gets requests, and why not.
 *
 * Shared by all workers, and by every cluster of its upstream that has the server: a reload or
 * other addresses make another cluster, and the server stays as well or ill as it was. All that
 * a choice looks at is one word, read with one relaxed load. Counted by reference; any thread
 * but where it says otherwise. */
#ifndef POSTERN_UP_VITALS_H
#define POSTERN_UP_VITALS_H

#include <stdatomic.h>

#include "net/loop.h"
#include "up/permits.h"

/* Bits of the word. A server with one of VITAL_OUT gets no requests. */
enum vital {
    VITAL_DOWN = 1,     /* its health probes fail */
    VITAL_EJECTED = 2,  /* too many of its requests failed */
    VITAL_DRAINING = 4, /* an operator took it out */
    VITAL_WARMING = 8,  /* it is back, and workers open connections to it first */
    VITAL_GONE = 16,    /* the configuration in force has it no more */
};
#define VITAL_OUT (VITAL_DOWN | VITAL_EJECTED | VITAL_DRAINING | VITAL_WARMING)

/* Above the bits stands how far it has eased in: 1 to EASE_FULL - 1 of EASE_FULL parts of its
 * weight; 0 means all of it. */
#define EASE_FULL  1024u
#define EASE_SHIFT 16

/* What the servers of one upstream share, over all its clusters. */
struct ward {
    _Atomic uint32_t refs;
    _Atomic uint32_t ejected; /* servers with VITAL_EJECTED, never more than may be */
    struct health *health;    /* who is told of ejections; set once, before workers know it */
};

/* Why a server was ejected. */
struct verdict {
    unsigned what;     /* the last failure: one of enum outlier_on */
    uint32_t failures; /* in a row, or of ... */
    uint32_t requests; /* ... so many in the window; 0: in a row */
};

struct vitals {
    _Atomic uint32_t refs;
    struct ward *ward;
    struct target *target;  /* main thread: what up/health has for it; NULL: nothing */
    bool joined;            /* main thread: others of its upstream were there before it */
    struct message news;    /* on its way to the main thread while it is newly ejected */
    struct verdict verdict; /* with `news` */
    _Alignas(64) _Atomic uint32_t word;
    _Alignas(64) _Atomic uint32_t cold; /* workers that still warm it */
    /* ns: while it is out, when it may be back by itself; 0: nobody knows. */
    _Atomic uint64_t back_at;
    /* With outlier detection: failures in a row; and requests and failures of the half window
     * under way and of the one before (outlier.c). */
    _Atomic uint32_t streak;
    _Atomic uint64_t window, window_before;
    _Alignas(64) struct permits permits; /* connections to it */
};

struct ward *ward_new(void); /* NULL: no memory */
struct ward *ward_ref(struct ward *ward);
void ward_unref(struct ward *ward); /* NULL is fine */

struct vitals *vitals_new(struct ward *ward); /* up; NULL: no memory */
struct vitals *vitals_ref(struct vitals *vitals);
void vitals_unref(struct vitals *vitals); /* NULL is fine */

static inline uint32_t vitals_word(const struct vitals *vitals)
{
    return atomic_load_explicit(&vitals->word, memory_order_relaxed);
}
static inline uint32_t word_ease(uint32_t word)
{
    return word >> EASE_SHIFT ? word >> EASE_SHIFT : EASE_FULL;
}

/* Clears, then sets bits, in one step. Returns the word as it was. */
uint32_t vitals_change(struct vitals *vitals, uint32_t clear, uint32_t set);
/* How much of its weight counts: 1 to EASE_FULL. */
void vitals_ease(struct vitals *vitals, uint32_t ease);

/* It is back: `workers` of them warm it from now on. With 0 it is warm at once. */
void vitals_warm(struct vitals *vitals, uint32_t workers);
/* One worker's connections stand, or cannot be had. The last one ends VITAL_WARMING. */
void vitals_warmed(struct vitals *vitals);

#endif
