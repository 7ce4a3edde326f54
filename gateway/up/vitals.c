#include "up/vitals.h"

#include <stdlib.h>

#include "base/mem.h"

#define LINE 64

struct ward *ward_new(void)
{
    struct ward *ward = mem_zalloc(sizeof(*ward));
    if (ward)
        atomic_init(&ward->refs, 1);
    return ward;
}

struct ward *ward_ref(struct ward *ward)
{
    atomic_fetch_add_explicit(&ward->refs, 1, memory_order_relaxed);
    return ward;
}

void ward_unref(struct ward *ward)
{
    if (ward && atomic_fetch_sub_explicit(&ward->refs, 1, memory_order_acq_rel) == 1)
        mem_free(ward);
}

struct vitals *vitals_new(struct ward *ward)
{
    struct vitals *vitals = aligned_alloc(LINE, sizeof(*vitals));
    if (!vitals)
        return NULL;
    memset(vitals, 0, sizeof(*vitals));
    atomic_init(&vitals->refs, 1);
    vitals->ward = ward_ref(ward);
    return vitals;
}

struct vitals *vitals_ref(struct vitals *vitals)
{
    atomic_fetch_add_explicit(&vitals->refs, 1, memory_order_relaxed);
    return vitals;
}

void vitals_unref(struct vitals *vitals)
{
    if (!vitals || atomic_fetch_sub_explicit(&vitals->refs, 1, memory_order_acq_rel) != 1)
        return;
    ward_unref(vitals->ward);
    free(vitals);
}

uint32_t vitals_change(struct vitals *vitals, uint32_t clear, uint32_t set)
{
    uint32_t word = vitals_word(vitals);
    while (!atomic_compare_exchange_weak_explicit(&vitals->word, &word, (word & ~clear) | set,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
    return word;
}

void vitals_ease(struct vitals *vitals, uint32_t ease)
{
    vitals_change(vitals, UINT32_MAX << EASE_SHIFT, ease < EASE_FULL ? ease << EASE_SHIFT : 0);
}

void vitals_warm(struct vitals *vitals, uint32_t workers)
{
    atomic_store_explicit(&vitals->cold, workers, memory_order_relaxed);
    if (workers)
        vitals_change(vitals, 0, VITAL_WARMING);
    else
        vitals_change(vitals, VITAL_WARMING, 0);
}

void vitals_warmed(struct vitals *vitals)
{
    uint32_t cold = atomic_load_explicit(&vitals->cold, memory_order_relaxed);
    while (cold &&
           !atomic_compare_exchange_weak_explicit(&vitals->cold, &cold, cold - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
    if (cold == 1)
        vitals_change(vitals, VITAL_WARMING, 0);
}
