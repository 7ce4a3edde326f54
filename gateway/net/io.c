#include "net/io.h"

#include "base/demand.h"

#ifndef NDEBUG
#define LONG_TURN  200 /* so that bodies of megabytes come to their end */
#define LONG_BYTES 4001

enum fault { FAULT_UNKNOWN, FAULT_NONE, FAULT_SHORT, FAULT_EAGAIN };

bool io_fault(size_t *n)
{
    static _Thread_local enum fault kind;
    static _Thread_local unsigned turn;
    if (kind == FAULT_UNKNOWN) {
        kind = demand("short-read") ? FAULT_SHORT
               : demand("eagain")   ? FAULT_EAGAIN
                                    : FAULT_NONE;
    }
    if (kind == FAULT_EAGAIN && turn++ % 2 == 0) {
        errno = EAGAIN;
        return false;
    }
    if (kind == FAULT_SHORT && *n) {
        size_t most = ++turn % LONG_TURN ? 1 : LONG_BYTES;
        *n = *n < most ? *n : most;
    }
    return true;
}
#endif
