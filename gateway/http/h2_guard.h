/* What a peer may do on one HTTP/2 connection without asking for anything: resets, faults,
 * frames that carry nothing. Each kind draws from a bucket that time and honest work refill;
 * an empty one means that the peer is at war, and the connection ends with
 * ENHANCE_YOUR_CALM. Pure but for the time it is told. */
#ifndef POSTERN_HTTP_H2_GUARD_H
#define POSTERN_HTTP_H2_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* H2_FLOODS(X): X(symbol, name in metrics, bucket). */
#define H2_FLOODS(X)                                                                           \
    X(RESET, "reset", RESETS) /* the peer takes back what it asked for */                      \
    X(FAULT, "fault", FAULTS) /* it makes us reset streams */                                  \
    X(PING, "ping", FRAMES)                                                                    \
    X(SETTINGS, "settings", FRAMES)                                                            \
    X(PRIORITY, "priority", FRAMES)                                                            \
    X(WINDOW_UPDATE, "window_update", FRAMES)                                                  \
    X(EMPTY_DATA, "empty_data", FRAMES)                                                        \
    X(REFUSED, "refused", FRAMES)            /* more requests at a time than it may have */    \
    X(UNKNOWN, "unknown", FRAMES)            /* frames of no known type */                     \
    X(CONTINUATION, "continuation", NOTHING) /* at once: nghttp2 has counted */                \
    X(ACK, "ack", NOTHING)                   /* it does not read the acks it asks for */       \
    X(HPACK, "hpack", NOTHING)               /* a small header block unfolds to a huge one */

enum h2_flood {
#define X(symbol, name, bucket) H2_FLOOD_##symbol,
    H2_FLOODS(X)
#undef X
        H2_FLOOD_COUNT
};
extern const char *const h2_flood_names[H2_FLOOD_COUNT];

enum h2_bucket { H2_BUCKET_RESETS, H2_BUCKET_FAULTS, H2_BUCKET_FRAMES, H2_BUCKET_NOTHING };

struct h2_guard {
    uint16_t left[H2_BUCKET_NOTHING], full[H2_BUCKET_NOTHING];
    uint32_t at; /* ms, which may wrap: when the buckets were last refilled */
};

/* `streams`: how many requests at a time the peer may have; 0: no limit. */
void h2_guard_init(struct h2_guard *guard, uint32_t streams, uint64_t now);
/* The peer did that. False: once too often. */
bool h2_guard_spend(struct h2_guard *guard, enum h2_flood kind, uint64_t now);
/* A frame with a body went either way: what steers bodies is not idle. */
void h2_guard_earn(struct h2_guard *guard);

#endif
