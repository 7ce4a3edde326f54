#include "http/h2_guard.h"

#include "base/clock.h"

#define RESETS_SPARE 32  /* above the requests that a client may give up at once */
#define RESETS_MAX   192 /* however many it may have */
#define FAULTS       50
#define FRAMES       500
#define EARNED       4 /* a receiver answers a DATA frame with two WINDOW_UPDATEs at most */

/* What comes back each second. */
static const uint32_t rates[H2_BUCKET_NOTHING] = {
    [H2_BUCKET_RESETS] = 33, [H2_BUCKET_FAULTS] = 2, [H2_BUCKET_FRAMES] = 50};

static const uint8_t buckets[H2_FLOOD_COUNT] = {
#define X(symbol, name, bucket) H2_BUCKET_##bucket,
    H2_FLOODS(X)
#undef X
};

const char *const h2_flood_names[H2_FLOOD_COUNT] = {
#define X(symbol, name, bucket) name,
    H2_FLOODS(X)
#undef X
};

static uint32_t in_ms(uint64_t now)
{
    return (uint32_t)(now / NS_PER_MS);
}

void h2_guard_init(struct h2_guard *guard, uint32_t streams, uint64_t now)
{
    bool many = !streams || streams > RESETS_MAX - RESETS_SPARE;
    uint32_t resets = many ? RESETS_MAX : streams + RESETS_SPARE;
    *guard = (struct h2_guard){
        .full = {(uint16_t)resets, FAULTS, FRAMES},
        .left = {(uint16_t)resets, FAULTS, FRAMES},
        .at = in_ms(now),
    };
}

static void add(struct h2_guard *guard, enum h2_bucket bucket, uint64_t n)
{
    uint64_t left = guard->left[bucket] + n;
    guard->left[bucket] = left < guard->full[bucket] ? (uint16_t)left : guard->full[bucket];
}

/* Every second at the earliest, so that little does not get lost in rounding. */
static void refill(struct h2_guard *guard, uint64_t now)
{
    uint32_t passed = (in_ms(now) - guard->at) / 1000;
    if (!passed)
        return;
    guard->at += passed * 1000;
    for (unsigned b = 0; b < H2_BUCKET_NOTHING; b++)
        add(guard, (enum h2_bucket)b, (uint64_t)rates[b] * passed);
}

bool h2_guard_spend(struct h2_guard *guard, enum h2_flood kind, uint64_t now)
{
    unsigned bucket = buckets[kind];
    if (bucket == H2_BUCKET_NOTHING)
        return false;
    refill(guard, now);
    if (!guard->left[bucket])
        return false;
    guard->left[bucket]--;
    return true;
}

void h2_guard_earn(struct h2_guard *guard)
{
    add(guard, H2_BUCKET_FRAMES, EARNED);
}
