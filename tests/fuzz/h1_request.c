#include "message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A request head, and what may follow it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_message(true, (const char *)data, size, M_OTHER);
    return 0;
}
