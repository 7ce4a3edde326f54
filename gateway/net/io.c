#include "net/io.h"

#include <stdlib.h>
#include <string.h>

#ifndef NDEBUG
enum fault { FAULT_UNKNOWN, FAULT_NONE, FAULT_SHORT, FAULT_EAGAIN };

bool io_fault(size_t *n)
{
    static _Thread_local enum fault kind;
    static _Thread_local unsigned turn;
    if (kind == FAULT_UNKNOWN) {
        const char *text = getenv("POSTERN_FAULT");
        kind = text && strcmp(text, "short-read") == 0 ? FAULT_SHORT
               : text && strcmp(text, "eagain") == 0   ? FAULT_EAGAIN
                                                       : FAULT_NONE;
    }
    if (kind == FAULT_EAGAIN && turn++ % 2 == 0) {
        errno = EAGAIN;
        return false;
    }
    if (kind == FAULT_SHORT && *n)
        *n = 1;
    return true;
}
#endif
