#include "net/io.h"

#include "base/demand.h"

#ifndef NDEBUG
#define LONG_TURN  200 /* so that bodies of megabytes come to their end */
#define LONG_BYTES 4001

enum fault { FAULT_UNKNOWN, FAULT_NONE, FAULT_SHORT, FAULT_EAGAIN };

static _Thread_local unsigned turn;
static _Thread_local uint64_t short_every;

/* How many bytes a call may pass, when not every one is short. */
static size_t every_few(void)
{
    static const unsigned char few[] = {1, 2, 3, 1, 7, 19, 1, 64};
    return ++turn % short_every ? SIZE_MAX : few[turn / short_every % sizeof(few)];
}

bool io_fault(size_t *n)
{
    static _Thread_local enum fault kind;
    if (kind == FAULT_UNKNOWN) {
        short_every = demand("short-read");
        kind = short_every ? FAULT_SHORT : demand("eagain") ? FAULT_EAGAIN : FAULT_NONE;
    }
    if (kind == FAULT_EAGAIN && turn++ % 2 == 0) {
        errno = EAGAIN;
        return false;
    }
    if (kind == FAULT_SHORT && *n) {
        size_t most = short_every > 1 ? every_few() : ++turn % LONG_TURN ? 1 : LONG_BYTES;
        *n = *n < most ? *n : most;
    }
    return true;
}
#endif
