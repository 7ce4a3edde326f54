#include "up/grpc_health.h"

#include <assert.h>
#include <errno.h>

#define PREFIX       5    /* compressed or not, and the length of what follows */
#define TAG_SERVICE  0x0a /* field 1, a length and so many bytes */
#define TAG_STATUS   0x08 /* field 1, a number */
#define VARINT_BYTES 10

const char *const grpc_serving_names[GRPC_SERVINGS] = {"UNKNOWN", "SERVING", "NOT_SERVING",
                                                       "SERVICE_UNKNOWN"};

size_t grpc_health_ask(char out[GRPC_HEALTH_ASK], struct str service)
{
    size_t n = 0;
    assert(service.n <= GRPC_HEALTH_SERVICE);
    if (service.n) {
        out[PREFIX] = TAG_SERVICE;
        n = 2;
        out[PREFIX + 1] = (char)(service.n & 0x7f);
        if (service.n > 0x7f) {
            out[PREFIX + 1] = (char)(service.n | 0x80);
            out[PREFIX + 2] = (char)(service.n >> 7);
            n = 3;
        }
        memcpy(out + PREFIX + n, service.p, service.n);
        n += service.n;
    }
    memset(out, 0, PREFIX);
    out[3] = (char)(n >> 8);
    out[4] = (char)n;
    return PREFIX + n;
}

static bool take(struct str *in, uint64_t n)
{
    if (n > in->n)
        return false;
    in->p += n;
    in->n -= n;
    return true;
}

static bool take_varint(struct str *in, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < VARINT_BYTES && i < in->n; i++) {
        uint8_t byte = (uint8_t)in->p[i];
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte & 0x80)
            continue;
        *ret = value;
        return take(in, i + 1);
    }
    return false;
}

/* A field that this version of the protocol does not know. */
static bool skip_field(struct str *in, unsigned wire_type)
{
    uint64_t n;
    switch (wire_type) {
    case 0:
        return take_varint(in, &n);
    case 1:
        return take(in, 8);
    case 2:
        return take_varint(in, &n) && take(in, n);
    case 5:
        return take(in, 4);
    default:
        return false;
    }
}

int grpc_health_read(struct str body, uint64_t *ret_status)
{
    uint64_t status = GRPC_UNKNOWN, tag; /* what is not said is 0 */
    struct str in = body;
    if (body.n < PREFIX || body.p[0] != 0) /* we have offered no compression */
        return -EBADMSG;
    uint64_t length = 0;
    for (unsigned i = 1; i < PREFIX; i++)
        length = length << 8 | (uint8_t)body.p[i];
    (void)take(&in, PREFIX);
    if (in.n != length) /* one message is all that an unary call has */
        return -EBADMSG;
    while (in.n) {
        if (!take_varint(&in, &tag) || tag >> 3 == 0)
            return -EBADMSG;
        bool read =
            tag == TAG_STATUS ? take_varint(&in, &status) : skip_field(&in, (unsigned)tag & 7);
        if (!read)
            return -EBADMSG;
    }
    *ret_status = status;
    return 0;
}
