/* As haproxy.org/download/2.6/doc/proxy-protocol.txt has it. */
#include "net/proxy_protocol.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#define LINE_MAX_V1 107 /* with CR LF: the longest that a sender may write */
#define HEAD_V2     16
#define UNIX_PATH   108

static const char signature[12] = "\r\n\r\n\0\r\nQUIT\n";

static long fault(size_t offset, size_t *ret_offset)
{
    *ret_offset = offset;
    return -EINVAL;
}

/* Whether the bytes that are there begin as `text` does; else where they differ. */
static bool begins(const char *p, size_t n, const char *text, size_t text_n, size_t *ret_offset)
{
    for (size_t i = 0; i < n && i < text_n; i++)
        if (p[i] != text[i]) {
            *ret_offset = i;
            return false;
        }
    return true;
}

/* ---- version 1: a line of text ---- */

/* The next word of the line; words are separated by exactly one space. */
static struct str next_word(struct str *rest)
{
    const char *space = rest->n ? memchr(rest->p, ' ', rest->n) : NULL;
    struct str word = {rest->p, space ? (size_t)(space - rest->p) : rest->n};
    *rest = (struct str){word.p + word.n + (space != NULL), rest->n - word.n - (space != NULL)};
    return word;
}

static bool parse_port(struct str word, uint16_t *ret)
{
    uint64_t port;
    if (str_to_u64(word, UINT16_MAX, &port) < 0 || (word.n > 1 && word.p[0] == '0'))
        return false;
    *ret = htons((uint16_t)port);
    return true;
}

static bool parse_ip(struct str word, int family, struct addr *ret)
{
    char text[INET6_ADDRSTRLEN];
    memset(ret, 0, sizeof(*ret));
    if (!word.n || word.n >= sizeof(text) || memchr(word.p, '\0', word.n))
        return false;
    memcpy(text, word.p, word.n);
    text[word.n] = '\0';
    ret->sa.sa_family = (sa_family_t)family;
    ret->len = family == AF_INET ? sizeof(ret->in4) : sizeof(ret->in6);
    void *bytes = family == AF_INET ? (void *)&ret->in4.sin_addr : &ret->in6.sin6_addr;
    return inet_pton(family, text, bytes) == 1;
}

static uint16_t *port_of(struct addr *addr)
{
    return addr->sa.sa_family == AF_INET ? &addr->in4.sin_port : &addr->in6.sin6_port;
}

/* What stands between "PROXY " and the line's end. */
static bool parse_line(struct str rest, struct proxy_header *ret, const char **ret_at)
{
    struct str words[5];
    struct proxy_header header = {.is_local = false};
    for (int i = 0; i < 5; i++)
        words[i] = next_word(&rest);
    *ret_at = words[0].p;
    if (str_eq(words[0], STR("UNKNOWN"))) { /* whatever follows */
        ret->is_local = true;
        return true;
    }
    bool is_ip4 = str_eq(words[0], STR("TCP4"));
    if (!is_ip4 && !str_eq(words[0], STR("TCP6")))
        return false;
    int family = is_ip4 ? AF_INET : AF_INET6;
    struct addr *addrs[] = {&header.source, &header.destination};
    for (int i = 0; i < 2; i++) {
        *ret_at = words[1 + i].p;
        if (!parse_ip(words[1 + i], family, addrs[i]))
            return false;
    }
    for (int i = 0; i < 2; i++) {
        *ret_at = words[3 + i].p;
        if (!parse_port(words[3 + i], port_of(addrs[i])))
            return false;
    }
    *ret_at = words[4].p + words[4].n;
    if (rest.n || words[4].p + words[4].n != rest.p)
        return false;
    *ret = header;
    return true;
}

static long read_v1(const char *p, size_t n, struct proxy_header *ret, size_t *ret_offset)
{
    static const struct str start = STR("PROXY ");
    size_t end = 0, at;
    if (!begins(p, n, start.p, start.n, &at))
        return fault(at, ret_offset);
    while (end < n && p[end] != '\r') {
        if (p[end] == '\n' || p[end] == '\0' || end == LINE_MAX_V1 - 2)
            return fault(end, ret_offset);
        end++;
    }
    if (end + 1 >= n) /* the LF is missing, or more */
        return 0;
    if (p[end + 1] != '\n')
        return fault(end + 1, ret_offset);
    const char *where = p;
    if (end < start.n || !parse_line((struct str){p + start.n, end - start.n}, ret, &where))
        return fault((size_t)(where - p), ret_offset);
    return (long)end + 2;
}

/* ---- version 2: binary ---- */

static void take_ip4(const char *ip, const char *port, struct addr *ret)
{
    *ret = (struct addr){.len = sizeof(ret->in4), .in4 = {.sin_family = AF_INET}};
    memcpy(&ret->in4.sin_addr, ip, 4);
    memcpy(&ret->in4.sin_port, port, 2);
}

static void take_ip6(const char *ip, const char *port, struct addr *ret)
{
    *ret = (struct addr){.len = sizeof(ret->in6), .in6 = {.sin6_family = AF_INET6}};
    memcpy(&ret->in6.sin6_addr, ip, 16);
    memcpy(&ret->in6.sin6_port, port, 2);
}

static void take_unix(const char *path, struct addr *ret)
{
    size_t n = strnlen(path, UNIX_PATH);
    *ret = (struct addr){.un = {.sun_family = AF_UNIX}};
    memcpy(ret->un.sun_path, path, n);
    ret->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

static unsigned u16(const char *p)
{
    return (unsigned)(uint8_t)p[0] << 8 | (uint8_t)p[1];
}

/* Behind the addresses: TYPE, LENGTH (2), VALUE; nothing that is used here, but whole. Where
 * one reaches over the end, or 0. */
static size_t broken_tlv(const char *p, size_t at, size_t end)
{
    while (at < end) {
        if (end - at < 3 || end - at - 3 < u16(p + at + 1))
            return at;
        at += 3 + u16(p + at + 1);
    }
    return 0;
}

static long take_addresses(const char *p, size_t total, struct proxy_header *ret,
                           size_t *ret_offset)
{
    const char *block = p + HEAD_V2;
    size_t used, bad;
    struct proxy_header header = {.is_local = false};
    switch ((uint8_t)p[13]) {
    case 0x11: /* TCP over IPv4 */
        used = 12;
        break;
    case 0x21: /* TCP over IPv6 */
        used = 36;
        break;
    case 0x31: /* a unix stream */
        used = 2 * UNIX_PATH;
        break;
    default: /* datagrams, and what there is not: nothing that could have come here */
        return fault(13, ret_offset);
    }
    if (total - HEAD_V2 < used)
        return fault(14, ret_offset);
    if (used == 12) {
        take_ip4(block, block + 8, &header.source);
        take_ip4(block + 4, block + 10, &header.destination);
    } else if (used == 36) {
        take_ip6(block, block + 32, &header.source);
        take_ip6(block + 16, block + 34, &header.destination);
    } else {
        take_unix(block, &header.source);
        take_unix(block + UNIX_PATH, &header.destination);
    }
    bad = broken_tlv(p, HEAD_V2 + used, total);
    if (bad)
        return fault(bad, ret_offset);
    *ret = header;
    return (long)total;
}

static long read_v2(const char *p, size_t n, struct proxy_header *ret, size_t *ret_offset)
{
    size_t at;
    if (!begins(p, n, signature, sizeof(signature), &at))
        return fault(at, ret_offset);
    if (n > 12 && (uint8_t)p[12] != 0x20 && (uint8_t)p[12] != 0x21)
        return fault(12, ret_offset);
    if (n < HEAD_V2)
        return 0;
    size_t total = HEAD_V2 + u16(p + 14);
    if (total > PROXY_PROTOCOL_MAX)
        return fault(14, ret_offset);
    if (n < total)
        return 0;
    if ((uint8_t)p[12] == 0x21 && p[13] != 0)
        return take_addresses(p, total, ret, ret_offset);
    ret->is_local = true; /* LOCAL, or the balancer does not know: what follows is skipped */
    return (long)total;
}

long proxy_protocol_read(const char *p, size_t n, struct proxy_header *ret, size_t *ret_offset)
{
    if (!n)
        return 0;
    return p[0] == signature[0] ? read_v2(p, n, ret, ret_offset)
                                : read_v1(p, n, ret, ret_offset);
}

/* ---- writing ---- */

/* An address of that family, all zeros when `addr` is none. */
static struct addr of_family(const struct addr *addr, sa_family_t family)
{
    struct addr out = {0};
    if (addr && addr->sa.sa_family == family)
        return *addr;
    out.sa.sa_family = family;
    out.len = family == AF_INET    ? sizeof(out.in4)
              : family == AF_INET6 ? sizeof(out.in6)
                                   : offsetof(struct sockaddr_un, sun_path);
    return out;
}

static size_t write_v1(char out[PROXY_PROTOCOL_WRITE], const struct addr *source,
                       const struct addr *destination)
{
    char from[ADDR_TEXT], to[ADDR_TEXT];
    sa_family_t family = source ? source->sa.sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6)
        return (size_t)snprintf(out, PROXY_PROTOCOL_WRITE, "PROXY UNKNOWN\r\n");
    struct addr a = *source, b = of_family(destination, family);
    addr_put_host(from, &a);
    addr_put_host(to, &b);
    return (size_t)snprintf(out, PROXY_PROTOCOL_WRITE, "PROXY %s %s %s %u %u\r\n",
                            family == AF_INET ? "TCP4" : "TCP6", from, to, ntohs(*port_of(&a)),
                            ntohs(*port_of(&b)));
}

static void put_unix(char *out, const struct addr *addr)
{
    size_t start = offsetof(struct sockaddr_un, sun_path);
    size_t n = addr->len > start ? addr->len - start : 0;
    memset(out, 0, UNIX_PATH);
    memcpy(out, addr->un.sun_path, n < UNIX_PATH ? n : UNIX_PATH);
}

static size_t write_v2(char out[PROXY_PROTOCOL_WRITE], const struct addr *source,
                       const struct addr *destination)
{
    sa_family_t family = source ? source->sa.sa_family : AF_UNSPEC;
    struct addr a = of_family(source, family), b = of_family(destination, family);
    char *block = out + HEAD_V2;
    size_t n = 0;
    memcpy(out, signature, sizeof(signature));
    out[12] = 0x21;
    out[13] = family == AF_INET    ? 0x11
              : family == AF_INET6 ? 0x21
              : family == AF_UNIX  ? 0x31
                                   : 0;
    if (family == AF_INET) {
        memcpy(block, &a.in4.sin_addr, 4);
        memcpy(block + 4, &b.in4.sin_addr, 4);
        n = 8;
    } else if (family == AF_INET6) {
        memcpy(block, &a.in6.sin6_addr, 16);
        memcpy(block + 16, &b.in6.sin6_addr, 16);
        n = 32;
    } else if (family == AF_UNIX) {
        put_unix(block, &a);
        put_unix(block + UNIX_PATH, &b);
        n = 2 * UNIX_PATH;
    }
    if (family == AF_INET || family == AF_INET6) {
        memcpy(block + n, port_of(&a), 2);
        memcpy(block + n + 2, port_of(&b), 2);
        n += 4;
    }
    out[14] = (char)(n >> 8);
    out[15] = (char)n;
    return HEAD_V2 + n;
}

size_t proxy_protocol_write(char out[PROXY_PROTOCOL_WRITE], unsigned version,
                            const struct addr *source, const struct addr *destination)
{
    return version == 1 ? write_v1(out, source, destination)
                        : write_v2(out, source, destination);
}
