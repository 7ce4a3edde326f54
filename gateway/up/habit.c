#include "up/habit.h"

#define LEARN_MIN_MS 200  /* idle ages below this teach nothing: servers restart */
#define APART_MS     1000 /* closer together it is one event, of many connections */

uint64_t habit_idle_ms(const struct habit *habit, uint64_t limit)
{
    if (habit->learned_ms && (!limit || habit->learned_ms < limit))
        limit = habit->learned_ms;
    uint64_t said = habit->said_s > 1 ? (habit->said_s - 1) * 1000ull : habit->said_s * 500ull;
    return said && (!limit || said < limit) ? said : limit;
}

void habit_hung_up(struct habit *habit, uint64_t now_ms, uint64_t age_ms)
{
    if (age_ms < LEARN_MIN_MS || age_ms > UINT32_MAX || now_ms - habit->hung_up_at < APART_MS)
        return; /* it may have restarted */
    uint64_t before = habit->hung_up_ms;
    uint64_t apart = age_ms > before ? age_ms - before : before - age_ms;
    if (before && apart <= age_ms / 10)
        habit->learned_ms = (uint32_t)((age_ms < before ? age_ms : before) * 9 / 10);
    habit->hung_up_ms = (uint32_t)age_ms;
    habit->hung_up_at = now_ms;
}

void habit_unlearn(struct habit *habit)
{
    habit->learned_ms = habit->hung_up_ms = 0;
}
