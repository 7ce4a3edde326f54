/* How many connections to one server are open, in all workers together, and whose turn it is to
 * open one when there are as many as there may be.
 *
 * No lock: one counter, which never stands above the limit for longer than it takes to look. A
 * worker may use what the others leave, beyond its share; but when one that has less than its
 * share is refused it says so (`wanted`), and then who has more gives back instead of keeping.
 * What is left over when the limit is divided goes around among the workers, so that each has a
 * turn even where there are fewer connections than workers. */
#ifndef POSTERN_UP_PERMITS_H
#define POSTERN_UP_PERMITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of one server; shared by all workers. */
struct permits {
    _Atomic uint32_t open;
    _Atomic uint32_t wanted; /* workers that have less than their share and were refused */
};

/* One worker's side of it; used on its thread only. */
struct permit_user {
    struct permits *permits;
    uint32_t limit;        /* 0: none */
    unsigned index, count; /* this worker, of how many */
    uint32_t open;         /* its own */
    bool wants;            /* and counts in `wanted` */
};

/* `now`: ns. Takes one; false: there are too many, or others come first. */
bool permits_take(struct permit_user *user, uint64_t now);
void permits_give(struct permit_user *user); /* gives one back */
/* Whether permits_take would get one, as far as can be seen. */
bool permits_may_take(const struct permit_user *user, uint64_t now);
/* Whether it was refused and still has somebody who waits. */
void permits_want(struct permit_user *user, uint64_t now, bool waits);
/* It has more than its share, and somebody who has less waits. */
bool permits_owes(const struct permit_user *user, uint64_t now);
/* Another server's, another limit: takes what it has open along. */
void permits_move(struct permit_user *user, struct permits *permits, uint32_t limit);

#endif
