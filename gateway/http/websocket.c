#include "http/websocket.h"

#include <openssl/sha.h>
#include <sys/random.h>

#define KEY_BYTES 16
#define KEY_MOST  128 /* of a client's key: more than any real one has */

static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455 1.3 */

static void put_base64(char *out, const uint8_t *in, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t)in[i] << 16;
        word |= i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0;
        word |= i + 2 < n ? in[i + 2] : 0;
        *out++ = digits[word >> 18];
        *out++ = digits[word >> 12 & 63];
        *out++ = i + 1 < n ? digits[word >> 6 & 63] : '=';
        *out++ = i + 2 < n ? digits[word & 63] : '=';
    }
}

bool websocket_key(char out[WEBSOCKET_KEY])
{
    uint8_t random[KEY_BYTES];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return false;
    put_base64(out, random, sizeof(random));
    return true;
}

bool websocket_accept(char out[WEBSOCKET_ACCEPT], struct str key)
{
    uint8_t text[KEY_MOST + sizeof(guid)], digest[SHA_DIGEST_LENGTH];
    size_t n = key.n < KEY_MOST ? key.n : KEY_MOST;
    memcpy(text, key.p, n);
    memcpy(text + n, guid, sizeof(guid) - 1);
    if (!SHA1(text, n + sizeof(guid) - 1, digest))
        return false;
    put_base64(out, digest, sizeof(digest));
    return true;
}

bool websocket_is_asked_for(const struct head *head)
{
    struct str list = head->upgrade, protocol;
    while (head->method == M_GET && list.p && str_next_token(&list, &protocol))
        if (str_eq_nocase(protocol, STR("websocket")))
            return true;
    return false;
}
