#include "up/breaker.h"

bool breaker_waits(struct breaker *breaker, uint32_t *ret_count)
{
    uint32_t before = atomic_fetch_add_explicit(&breaker->pending, 1, memory_order_relaxed);
    *ret_count = before + 1;
    return !breaker->limits.pending || before < breaker->limits.pending;
}

void breaker_waits_no_more(struct breaker *breaker, uint32_t count)
{
    atomic_fetch_sub_explicit(&breaker->pending, count, memory_order_relaxed);
}

bool breaker_begin(struct breaker *breaker, uint32_t *ret_count)
{
    uint32_t before = atomic_fetch_add_explicit(&breaker->requests, 1, memory_order_relaxed);
    *ret_count = before + 1;
    if (!breaker->limits.requests || before < breaker->limits.requests)
        return true;
    breaker_end(breaker);
    return false;
}

void breaker_end(struct breaker *breaker)
{
    atomic_fetch_sub_explicit(&breaker->requests, 1, memory_order_relaxed);
}

bool breaker_refused(struct breaker *breaker, uint64_t now)
{
    uint64_t calm = 0;
    atomic_fetch_add_explicit(&breaker->refused, 1, memory_order_relaxed);
    atomic_store_explicit(&breaker->last, now, memory_order_relaxed);
    return atomic_load_explicit(&breaker->since, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&breaker->since, &calm, now,
                                                   memory_order_relaxed, memory_order_relaxed);
}

bool breaker_is_over(struct breaker *breaker, uint64_t now, bool force, uint64_t *ret_refused,
                     uint64_t *ret_ns)
{
    uint64_t since = atomic_load_explicit(&breaker->since, memory_order_relaxed);
    uint64_t last = atomic_load_explicit(&breaker->last, memory_order_relaxed);
    if (!since || (!force && now < last + BREAKER_CALM_NS))
        return false;
    *ret_refused = atomic_exchange_explicit(&breaker->refused, 0, memory_order_relaxed);
    *ret_ns = last > since ? last - since : 0;
    atomic_store_explicit(&breaker->since, 0, memory_order_relaxed);
    return true;
}
