/* What the files of h2_client share; nobody else includes it. */
#ifndef POSTERN_HTTP_H2_CLIENT_PARTS_H
#define POSTERN_HTTP_H2_CLIENT_PARTS_H

#include "http/h2_client.h"

enum h2_trunk_state { TRUNK_CONNECTING, TRUNK_OPEN, TRUNK_CLOSED };

struct h2_trunk {
    struct stream stream;
    struct h2_trunks *trunks;
    struct h2_trunk *next, **prev;
    struct addr addr;
    nghttp2_session *session;
    enum h2_trunk_state state;
    bool leaving;  /* no lane is added any more */
    bool settled;  /* its first SETTINGS have come */
    bool broken;   /* nghttp2 has found a fault in what came */
    bool has_room; /* something was framed: queues are shorter */
    struct h2_lane *lanes;
    uint32_t lane_count, max_lanes;
    uint32_t busy;           /* lanes that are lent */
    uint32_t requests;       /* that it has had */
    struct h2_lane *in_head; /* whose field section arrives */
    struct h2_section section;
    uint64_t opened_at;
    uint16_t spread;
    uint32_t patience;        /* ms to connect, and to answer a PING */
    bool parting;             /* without lanes, and it has said goodbye */
    struct deadline due;      /* to connect, without lanes, or to part */
    struct deadline pong_due; /* something must come until then */
    struct task flush;
    struct grave grave;
};

/* h2_client.c */
/* One with room for a lane, or a new one. 0 or -errno. */
int h2_trunk_for(struct h2_trunks *trunks, const struct addr *addr, struct tls_peer *peer,
                 uint32_t connect, uint16_t spread, struct h2_trunk **ret);
/* A lane has waited in vain, and heard nothing since the trunk had read so many bytes. If
 * nobody has: when `for_long`, the trunk takes no more requests; else its server is asked
 * whether it is there. */
void h2_trunk_doubt(struct h2_trunk *trunk, uint64_t heard, bool for_long);
void h2_trunk_flush(struct h2_trunk *trunk); /* later in the turn */
void h2_trunk_end_if_over(struct h2_trunk *trunk);
/* One of its lanes is lent, or is not any more. */
void h2_trunk_begins(struct h2_trunk *trunk);
void h2_trunk_ends(struct h2_trunk *trunk);

/* h2_lane.c: what arrives on its stream */
void h2_lane_ready(struct h2_lane *lane);   /* its trunk stands */
void h2_lane_settled(struct h2_lane *lane); /* its trunk's first SETTINGS have come */
void h2_lane_head(struct h2_lane *lane, struct h2_section *section, bool ended);
void h2_lane_body(struct h2_lane *lane, struct slice slice);
void h2_lane_end(struct h2_lane *lane, struct head *trailers);
/* nghttp2 has closed its stream, before its time or for an error. */
void h2_lane_cut(struct h2_lane *lane, uint32_t error);
/* Its trunk is gone. */
void h2_lane_lost(struct h2_lane *lane, const struct leg_fault *fault);
/* nghttp2's send_data_callback. */
int h2_lane_send(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
                 size_t length, nghttp2_data_source *source, void *arg);

#endif
