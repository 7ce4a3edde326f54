#include "up/outlier.h"

#include "up/health.h"

/* The window, two halves of it: | epoch : 24 | requests : 20 | failures : 20 |. When a half is
 * full the other begins; what was counted in the one before it counts too, so a window is
 * between half and all of its length. */
#define COUNT_BITS 20
#define COUNT_MAX  ((1u << COUNT_BITS) - 1)
#define EPOCH_MASK 0xffffffu

static uint64_t pack(uint32_t epoch, uint32_t requests, uint32_t failures)
{
    return (uint64_t)(epoch & EPOCH_MASK) << (2 * COUNT_BITS) |
           (uint64_t)requests << COUNT_BITS | failures;
}
static uint32_t epoch_of(uint64_t window)
{
    return (uint32_t)(window >> (2 * COUNT_BITS)) & EPOCH_MASK;
}
static uint32_t requests_of(uint64_t window)
{
    return (uint32_t)(window >> COUNT_BITS) & COUNT_MAX;
}
static uint32_t failures_of(uint64_t window)
{
    return (uint32_t)window & COUNT_MAX;
}

/* One more request; a full count is halved, which leaves the share as it is. */
static uint64_t plus(uint64_t window, bool failed)
{
    uint32_t requests = requests_of(window), failures = failures_of(window);
    if (requests == COUNT_MAX) {
        requests /= 2;
        failures /= 2;
    }
    return pack(epoch_of(window), requests + 1, failures + failed);
}

/* Counts a request; what the window has then. */
static void count(struct vitals *vitals, const struct outlier_policy *policy, bool failed,
                  uint64_t now, uint32_t *ret_requests, uint32_t *ret_failures)
{
    uint64_t half = policy->window / 2 * NS_PER_MS;
    uint32_t epoch = (uint32_t)(now / half) & EPOCH_MASK;
    uint64_t old = atomic_load_explicit(&vitals->window, memory_order_relaxed), new;
    do {
        /* a clock of another thread may be a little behind: its request counts in this half */
        bool is_next =
            epoch_of(old) != epoch && ((epoch - epoch_of(old)) & EPOCH_MASK) < EPOCH_MASK / 2;
        new = plus(is_next ? pack(epoch, 0, 0) : old, failed);
    } while (!atomic_compare_exchange_weak_explicit(
        &vitals->window, &old, new, memory_order_relaxed, memory_order_relaxed));
    if (epoch_of(old) != epoch_of(new))
        atomic_store_explicit(&vitals->window_before, old, memory_order_relaxed);
    uint64_t before = atomic_load_explicit(&vitals->window_before, memory_order_relaxed);
    bool counts = ((epoch_of(new) - epoch_of(before)) & EPOCH_MASK) == 1;
    *ret_requests = requests_of(new) + (counts ? requests_of(before) : 0);
    *ret_failures = failures_of(new) + (counts ? failures_of(before) : 0);
}

/* One of the places of those who may be ejected at a time. */
static bool take_place(struct ward *ward, uint32_t limit)
{
    uint32_t n = atomic_load_explicit(&ward->ejected, memory_order_relaxed);
    do {
        if (n >= limit)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &ward->ejected, &n, n + 1, memory_order_acq_rel, memory_order_relaxed));
    return true;
}

static void give_place(struct ward *ward)
{
    atomic_fetch_sub_explicit(&ward->ejected, 1, memory_order_acq_rel);
}

#define NOT_EJECTED_TWICE (VITAL_EJECTED | VITAL_GONE | VITAL_DOWN | VITAL_DRAINING)

static bool eject(const struct cluster *cluster, struct vitals *vitals,
                  const struct verdict *verdict)
{
    uint32_t limit = (uint32_t)((uint64_t)cluster->count *
                                cluster->watch.outlier.max_ejected_permille / 1000);
    uint32_t word = vitals_word(vitals);
    if ((word & NOT_EJECTED_TWICE) || !take_place(vitals->ward, limit))
        return false;
    do {
        if (word & NOT_EJECTED_TWICE) { /* somebody else was faster */
            give_place(vitals->ward);
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&vitals->word, &word, word | VITAL_EJECTED,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed));
    vitals->verdict = *verdict;
    health_tell(vitals);
    return true;
}

bool outlier_note(const struct cluster *cluster, unsigned server, unsigned what, uint64_t now)
{
    const struct outlier_policy *policy = &cluster->watch.outlier;
    struct vitals *vitals = cluster->servers[server].vitals;
    if (!policy->on)
        return false;
    what &= policy->counts;
    struct verdict verdict = {.what = what};
    bool too_many = false;
    if (policy->share_permille) {
        uint32_t requests, failures;
        count(vitals, policy, what != 0, now, &requests, &failures);
        too_many = what && requests >= policy->requests &&
                   (uint64_t)failures * 1000 >= (uint64_t)requests * policy->share_permille;
        verdict.requests = requests;
        verdict.failures = failures;
    }
    if (!what) {
        if (atomic_load_explicit(&vitals->streak, memory_order_relaxed))
            atomic_store_explicit(&vitals->streak, 0, memory_order_relaxed);
        return false;
    }
    uint32_t streak = atomic_fetch_add_explicit(&vitals->streak, 1, memory_order_relaxed) + 1;
    if (policy->failures && streak >= policy->failures) {
        too_many = true;
        verdict.requests = 0;
        verdict.failures = streak;
    }
    return too_many && eject(cluster, vitals, &verdict);
}

unsigned outlier_status(unsigned status)
{
    unsigned bits = status >= 500 ? OUTLIER_5XX : 0;
    switch (status) {
    case 500:
        return bits | OUTLIER_500;
    case 502:
        return bits | OUTLIER_502;
    case 503:
        return bits | OUTLIER_503;
    case 504:
        return bits | OUTLIER_504;
    default:
        return bits;
    }
}

void outlier_return(struct vitals *vitals)
{
    atomic_store_explicit(&vitals->streak, 0, memory_order_relaxed);
    atomic_store_explicit(&vitals->window, 0, memory_order_relaxed);
    atomic_store_explicit(&vitals->window_before, 0, memory_order_relaxed);
    if (vitals_change(vitals, VITAL_EJECTED, 0) & VITAL_EJECTED)
        give_place(vitals->ward);
}

uint32_t outlier_sentence(const struct outlier_policy *policy, unsigned times)
{
    uint64_t ms = policy->eject;
    for (unsigned i = 0; i < times && ms < policy->max_eject; i++)
        ms *= 2;
    return (uint32_t)(ms < policy->max_eject ? ms : policy->max_eject);
}

unsigned outlier_decay(unsigned times, uint32_t sentence, uint64_t since)
{
    uint64_t served = sentence ? since / sentence : since;
    return served < times ? times - (unsigned)served : 0;
}
