/* The messages of gRPC's health protocol (grpc.health.v1.Health/Check), as they stand in the
 * bodies of a request and its answer: one length-prefixed message of protocol buffers each.
 * Pure functions over bytes. */
#ifndef POSTERN_UP_GRPC_HEALTH_H
#define POSTERN_UP_GRPC_HEALTH_H

#include <stdint.h>

#include "base/str.h"

#define GRPC_HEALTH_PATH    "/grpc.health.v1.Health/Check"
#define GRPC_HEALTH_SERVICE 256 /* the longest name of a service */
#define GRPC_HEALTH_ASK     (GRPC_HEALTH_SERVICE + 8)
#define GRPC_HEALTH_ANSWER  256 /* the longest answer; the usual one has 7 bytes */

enum grpc_serving {
    GRPC_UNKNOWN,
    GRPC_SERVING,
    GRPC_NOT_SERVING,
    GRPC_SERVICE_UNKNOWN,
    GRPC_SERVINGS,
};
extern const char *const grpc_serving_names[GRPC_SERVINGS];

/* What asks for a service; at most GRPC_HEALTH_SERVICE bytes of it, "" stands for the whole
 * server. Returns its length. */
size_t grpc_health_ask(char out[GRPC_HEALTH_ASK], struct str service);

/* A complete body. 0 with the status, which may be one that has no name, or -EBADMSG. */
int grpc_health_read(struct str body, uint64_t *ret_status);

#endif
