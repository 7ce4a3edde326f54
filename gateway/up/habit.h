/* How long a server lets a connection be idle: by what it says, and by what it does. Plain
 * values; whoever holds them says which thread. */
#ifndef POSTERN_UP_HABIT_H
#define POSTERN_UP_HABIT_H

#include <stdint.h>

struct habit {
    uint32_t said_s;     /* Keep-Alive: timeout= of the server, 0: none */
    uint32_t hung_up_ms; /* idle age at which it hung up last, and when that was (ms) */
    uint64_t hung_up_at;
    uint32_t learned_ms; /* 0: nothing learned */
};

/* When we leave, ms: before the server does, and at `limit` (0: none) at the latest. */
uint64_t habit_idle_ms(const struct habit *habit, uint64_t limit);
/* It hung up on a connection that was idle for `age`. Twice after about the same time is a
 * habit, and from then on we leave before it. */
void habit_hung_up(struct habit *habit, uint64_t now_ms, uint64_t age_ms);
/* What it did was no habit: it went down. */
void habit_unlearn(struct habit *habit);

#endif
