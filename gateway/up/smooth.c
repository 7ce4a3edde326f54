#include "up/smooth.h"

#include "base/mem.h"

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool smooth_order(const uint32_t *weights, uint32_t count, uint16_t **ret_order,
                  uint32_t *ret_len)
{
    uint32_t divisor = 0, total = 0;
    for (uint32_t i = 0; i < count; i++)
        divisor = gcd(weights[i], divisor);
    for (uint32_t i = 0; divisor && i < count; i++)
        total += weights[i] / divisor;
    uint16_t *order = mem_alloc((total ? total : 1) * sizeof(*order));
    int64_t *current = mem_zalloc((count + 1) * sizeof(*current));
    if (!order || !current) {
        mem_free(order);
        mem_free(current);
        return false;
    }
    for (uint32_t n = 0; n < total; n++) {
        uint32_t best = 0;
        for (uint32_t i = 0; i < count; i++) {
            current[i] += weights[i] / divisor;
            if (current[i] > current[best])
                best = i;
        }
        current[best] -= total;
        order[n] = (uint16_t)best;
    }
    mem_free(current);
    *ret_order = order;
    *ret_len = total;
    return true;
}
