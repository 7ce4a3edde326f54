#include "rate_limit/gcra.h"

bool gcra_window_set(struct gcra_window *w, uint64_t number, uint64_t per_ms, uint64_t burst,
                     uint64_t cost)
{
    if (per_ms > GCRA_TOLERANCE / GCRA_MS)
        return false;
    uint64_t step = (per_ms * GCRA_MS + number - 1) / number;
    if (step < GCRA_UNITS * 10 || burst > GCRA_TOLERANCE / step)
        return false;
    *w = (struct gcra_window){
        .number = number,
        .per_ms = per_ms,
        .step = step,
        .burst = burst,
        .take = cost * step,
        .tolerance = burst * step,
    };
    return true;
}

uint64_t gcra_burst(uint64_t number)
{
    uint64_t burst = number / 100 > 10 ? number / 100 : 10;
    return burst < number ? burst : number;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* How long a window with TAT - now = `ahead` must be waited for; 0: it lets through. */
static uint64_t wait_for(const struct gcra_window *w, uint64_t ahead)
{
    return ahead + w->take > w->tolerance ? ahead + w->take - w->tolerance : 0;
}

void gcra_judge(const struct gcra *g, const uint64_t ahead[GCRA_MAX], struct gcra_verdict *ret)
{
    ret->allowed = true;
    ret->met = 0;
    ret->wait = 0;
    for (unsigned i = 0; i < g->count; i++) {
        uint64_t wait = wait_for(&g->windows[i], ahead[i]);
        if (wait > ret->wait) {
            ret->allowed = false;
            ret->met = i;
            ret->wait = wait;
        }
        ret->ahead[i] = ahead[i];
    }
}

static bool take_one(const struct gcra_window *w, _Atomic uint64_t *tat, uint64_t now,
                     uint64_t *ret_ahead)
{
    uint64_t old = atomic_load(tat), next;
    do {
        next = later(old, now) + w->take;
        if (next - now > w->tolerance)
            return false;
    } while (!atomic_compare_exchange_weak(tat, &old, next));
    *ret_ahead = next - now;
    return true;
}

static void give_back_one(const struct gcra_window *w, _Atomic uint64_t *tat)
{
    uint64_t old = atomic_load(tat);
    while (!atomic_compare_exchange_weak(tat, &old, old > w->take ? old - w->take : 0)) {
    }
}

/* One window, which is what most limits have: nothing to look at twice. */
static void take_only(const struct gcra_window *w, _Atomic uint64_t *tat, uint64_t now,
                      struct gcra_verdict *ret)
{
    uint64_t old = atomic_load(tat), next;
    ret->met = 0;
    do {
        next = later(old, now) + w->take;
        if (next - now > w->tolerance) {
            ret->allowed = false;
            ret->ahead[0] = next - now - w->take;
            ret->wait = next - now - w->tolerance;
            return;
        }
    } while (!atomic_compare_exchange_weak(tat, &old, next));
    ret->allowed = true;
    ret->wait = 0;
    ret->ahead[0] = next - now;
}

void gcra_take(const struct gcra *g, _Atomic uint64_t *tats, uint64_t now,
               struct gcra_verdict *ret)
{
    if (g->count == 1) {
        take_only(&g->windows[0], tats, now, ret);
        return;
    }
    uint64_t ahead[GCRA_MAX] = {0};
    unsigned i = 0;
    /* One look first: whom any window refuses must not touch the others. */
    for (; i < g->count; i++)
        ahead[i] = later(atomic_load(&tats[i]), now) - now;
    gcra_judge(g, ahead, ret);
    if (!ret->allowed)
        return;
    for (i = 0; i < g->count; i++)
        if (!take_one(&g->windows[i], &tats[i], now, &ahead[i]))
            break;
    bool all = i == g->count;
    if (!all) {
        while (i-- > 0)
            give_back_one(&g->windows[i], &tats[i]);
        for (i = 0; i < g->count; i++)
            ahead[i] = later(atomic_load(&tats[i]), now) - now;
    }
    gcra_judge(g, ahead, ret);
    if (!all && ret->allowed) { /* what was in the way went while we looked */
        ret->met = 0;
        ret->wait = 1;
    }
    ret->allowed = all;
    if (all)
        ret->wait = 0;
}

void gcra_give_back(const struct gcra *g, _Atomic uint64_t *tats)
{
    for (unsigned i = 0; i < g->count; i++)
        give_back_one(&g->windows[i], &tats[i]);
}

uint64_t gcra_left(const struct gcra_window *w, uint64_t ahead)
{
    return ahead < w->tolerance ? (w->tolerance - ahead) / w->step : 0;
}

uint64_t gcra_more(const struct gcra_window *w, uint64_t ahead)
{
    uint64_t wait = wait_for(w, ahead);
    if (wait || !ahead)
        return wait;
    return ahead - (w->burst - gcra_left(w, ahead) - 1) * w->step;
}

uint64_t gcra_seconds(uint64_t time)
{
    const uint64_t second = 1000 * GCRA_MS;
    return (time + second - 1) / second;
}
