#include "up/permits.h"

#define TURN_NS (100ull * 1000 * 1000) /* for which the odd ones stay with the same workers */

static uint32_t share_at(const struct permit_user *user, uint64_t now)
{
    uint64_t place = (user->index + now / TURN_NS) % user->count;
    return user->limit / user->count + (place < user->limit % user->count);
}

static bool comes_second(const struct permit_user *user, uint64_t now)
{
    return atomic_load_explicit(&user->permits->wanted, memory_order_relaxed) &&
           user->open >= share_at(user, now);
}

bool permits_may_take(const struct permit_user *user, uint64_t now)
{
    return !user->limit ||
           (atomic_load_explicit(&user->permits->open, memory_order_relaxed) < user->limit &&
            !comes_second(user, now));
}

bool permits_take(struct permit_user *user, uint64_t now)
{
    if (!permits_may_take(user, now))
        return false;
    uint32_t before = atomic_fetch_add_explicit(&user->permits->open, 1, memory_order_relaxed);
    if (user->limit && before >= user->limit) {
        atomic_fetch_sub_explicit(&user->permits->open, 1, memory_order_relaxed);
        return false;
    }
    user->open++;
    return true;
}

void permits_give(struct permit_user *user)
{
    user->open--;
    atomic_fetch_sub_explicit(&user->permits->open, 1, memory_order_relaxed);
}

static void set_wants(struct permit_user *user, bool wants)
{
    if (wants == user->wants)
        return;
    user->wants = wants;
    if (wants)
        atomic_fetch_add_explicit(&user->permits->wanted, 1, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(&user->permits->wanted, 1, memory_order_relaxed);
}

void permits_want(struct permit_user *user, uint64_t now, bool waits)
{
    set_wants(user, waits && user->limit && user->open < share_at(user, now));
}

bool permits_owes(const struct permit_user *user, uint64_t now)
{
    return user->limit && atomic_load_explicit(&user->permits->wanted, memory_order_relaxed) &&
           user->open > share_at(user, now);
}

void permits_move(struct permit_user *user, struct permits *permits, uint32_t limit)
{
    user->limit = limit;
    if (permits == user->permits)
        return;
    bool wants = user->wants;
    set_wants(user, false);
    atomic_fetch_sub_explicit(&user->permits->open, user->open, memory_order_relaxed);
    atomic_fetch_add_explicit(&permits->open, user->open, memory_order_relaxed);
    user->permits = permits;
    set_wants(user, wants);
}
