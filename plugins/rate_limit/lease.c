#include "rate_limit/lease.h"

#include <stdlib.h>

#define WAYS      4
#define HOLD_NS   UINT64_C(5000000)    /* let some gather before asking again */
#define REFUSE_NS UINT64_C(1000000000) /* and ask again after a while in any case */

struct leases {
    const struct gcra *gcra;
    struct lease *list;
    size_t sets;
    uint64_t hold_ns;
    uint32_t most; /* to pay for in advance */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct leases *leases_new(const struct gcra *gcra, size_t keys)
{
    struct leases *leases = calloc(1, sizeof(*leases));
    if (!leases)
        return NULL;
    leases->gcra = gcra;
    leases->sets = keys / WAYS ? keys / WAYS : 1;
    leases->list = calloc(leases->sets * WAYS, sizeof(*leases->list));
    if (!leases->list) {
        free(leases);
        return NULL;
    }
    uint64_t most = UINT32_MAX / 2, hold = HOLD_NS;
    for (unsigned i = 0; i < gcra->count; i++) {
        const struct gcra_window *w = &gcra->windows[i];
        most = least(most, w->burst / gcra->cost / 4);
        most = least(most, gcra_time(LEASE_NS) / w->take);
        hold = least(hold, w->tolerance / GCRA_UNITS / 2);
    }
    leases->most = (uint32_t)most;
    leases->hold_ns = hold;
    return leases;
}

void leases_free(struct leases *leases)
{
    if (leases) {
        free(leases->list);
        free(leases);
    }
}

static bool is_of_use(const struct lease *lease, uint64_t now)
{
    return (lease->left && lease->good_until > now) || lease->refuse_until > now;
}

struct lease *leases_find(struct leases *leases, uint64_t hash, uint64_t now)
{
    size_t set = (size_t)((unsigned __int128)hash * leases->sets >> 64);
    struct lease *list = leases->list + set * WAYS, *room = NULL;
    for (unsigned i = 0; i < WAYS; i++)
        if (list[i].last && list[i].hash == hash) {
            list[i].last = now;
            return &list[i];
        }
    for (unsigned i = 0; i < WAYS; i++) {
        if (list[i].trip)
            continue;
        bool useless = !is_of_use(&list[i], now);
        if (!room || (useless && is_of_use(room, now)) ||
            (useless == !is_of_use(room, now) && list[i].last < room->last))
            room = &list[i];
    }
    if (room)
        *room = (struct lease){.hash = hash, .last = now};
    return room;
}

/* A verdict that was passed already, in numbers. `unused` is paid for and still to be had. Who
 * is refused is not told that something is left: it is, for others, or once `wait` is over. */
static void judge(const struct gcra *gcra, uint64_t ahead[GCRA_MAX], uint32_t unused,
                  bool allowed, uint64_t wait, struct gcra_verdict *ret)
{
    for (unsigned i = 0; i < gcra->count; i++)
        ahead[i] -= least(ahead[i], unused * gcra->windows[i].take);
    gcra_judge(gcra, ahead, ret);
    ret->allowed = allowed;
    if (allowed) {
        ret->wait = 0;
    } else if (ret->wait < wait) {
        const struct gcra_window *w = &gcra->windows[ret->met];
        ret->wait = wait;
        ret->ahead[ret->met] = wait + w->tolerance - w->take;
    }
}

static void judge_now(const struct gcra *gcra, const struct lease *lease, uint64_t now,
                      bool allowed, struct gcra_verdict *ret)
{
    uint64_t ahead[GCRA_MAX] = {0}, time = gcra_time(now);
    uint64_t wait = allowed ? 0 : gcra_time(lease->refuse_until - now);
    for (unsigned i = 0; i < gcra->count; i++)
        ahead[i] = lease->tats[i] > time ? lease->tats[i] - time : 0;
    judge(gcra, ahead, allowed ? lease->left : 0, allowed, wait, ret);
}

enum lease_says lease_say(const struct leases *leases, struct lease *lease, uint64_t now,
                          struct gcra_verdict *ret)
{
    lease->asked++;
    if (lease->left && now < lease->good_until) {
        lease->left--;
        judge_now(leases->gcra, lease, now, true, ret);
        return LEASE_ALLOWS;
    }
    lease->back += lease->left;
    lease->left = 0;
    if (now < lease->refuse_until) {
        judge_now(leases->gcra, lease, now, false, ret);
        return LEASE_REFUSES;
    }
    return lease->trip ? LEASE_JOIN : LEASE_ASK;
}

uint32_t lease_want(const struct leases *leases, struct lease *lease, uint32_t waiting,
                    uint64_t now, uint32_t *ret_back)
{
    uint64_t time = now - lease->asked_from, lately = lease->asked;
    uint64_t soon = time < LEASE_NS ? lately * 2 : lately * LEASE_NS / time;
    lease->asked = 0;
    lease->asked_from = now;
    *ret_back = lease->back;
    lease->back = 0;
    return waiting + (uint32_t)least(soon, leases->most);
}

void lease_got(const struct leases *leases, struct lease *lease, uint64_t now,
               const struct lease_reply *reply, uint32_t used)
{
    uint64_t wait = reply->wait_us * 1000, hold = leases->hold_ns;
    lease->trip = NULL;
    lease->back += lease->left;
    lease->left = reply->granted - used;
    lease->good_until = now + LEASE_NS;
    if (reply->granted < reply->wanted)
        wait = wait > hold ? wait : hold;
    lease->refuse_until = wait ? now + least(wait, REFUSE_NS) : 0;
    for (unsigned i = 0; i < leases->gcra->count; i++)
        lease->tats[i] = gcra_time(now + reply->ahead_us[i] * 1000);
}

void lease_verdict(const struct gcra *gcra, const struct lease_reply *reply, bool allowed,
                   uint32_t left, struct gcra_verdict *ret)
{
    uint64_t ahead[GCRA_MAX] = {0};
    for (unsigned i = 0; i < gcra->count; i++)
        ahead[i] = gcra_time(reply->ahead_us[i] * 1000);
    uint64_t wait = reply->wait_us ? gcra_time(reply->wait_us * 1000) : 1;
    judge(gcra, ahead, allowed ? left : 0, allowed, wait, ret);
}
