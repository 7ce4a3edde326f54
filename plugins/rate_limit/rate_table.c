#include "rate_limit/rate_table.h"

static uint64_t tats_owed(const _Atomic uint64_t *tats, unsigned words, uint64_t now)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < words; i++) {
        uint64_t tat = atomic_load(&tats[i]);
        if (tat > now && tat - now > most)
            most = tat - now;
    }
    return most;
}

static void tats_forgive(_Atomic uint64_t *tats, unsigned words, uint64_t now)
{
    for (unsigned i = 0; i < words; i++)
        atomic_store(&tats[i], now);
}

enum slots_result rate_table_take(struct slots *table, const struct gcra *g, uint64_t hash,
                                  uint64_t now, struct gcra_verdict *ret)
{
    static const struct slots_rule rule = {.owed = tats_owed, .forgive = tats_forgive};
    for (;;) {
        struct slots_place place;
        enum slots_result result = slots_take(table, hash, now, &rule, &place);
        gcra_take(g, place.values, now, ret);
        if (slots_holds(&place))
            return result;
        if (ret->allowed)
            gcra_give_back(g, place.values);
    }
}
