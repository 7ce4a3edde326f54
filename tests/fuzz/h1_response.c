#include "message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A response head, as the answer to a GET and to a HEAD. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_message(false, (const char *)data, size, M_GET);
    check_message(false, (const char *)data, size, M_HEAD);
    return 0;
}
