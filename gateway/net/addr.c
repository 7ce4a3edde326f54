#include "net/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#define UNIX_PREFIX "unix:"

static bool starts_unix(struct str text)
{
    return text.n >= 5 && memcmp(text.p, UNIX_PREFIX, 5) == 0;
}

/* inet_pton wants a NUL behind the text and none inside it. */
static int parse_numeric(int family, struct str text, void *ret)
{
    char z[INET6_ADDRSTRLEN];

    if (text.n == 0 || text.n >= sizeof(z) || memchr(text.p, 0, text.n))
        return -EINVAL;
    memcpy(z, text.p, text.n);
    z[text.n] = '\0';
    return inet_pton(family, z, ret) == 1 ? 0 : -EINVAL;
}

static int make_ip4(struct str host, uint16_t port, struct addr *ret)
{
    struct addr addr = {.len = sizeof(addr.in4), .in4 = {.sin_family = AF_INET}};

    if (parse_numeric(AF_INET, host, &addr.in4.sin_addr) < 0)
        return -EINVAL;
    addr.in4.sin_port = htons(port);
    *ret = addr;
    return 0;
}

static int make_ip6(struct str host, uint16_t port, struct addr *ret)
{
    struct addr addr = {.len = sizeof(addr.in6), .in6 = {.sin6_family = AF_INET6}};

    if (parse_numeric(AF_INET6, host, &addr.in6.sin6_addr) < 0)
        return -EINVAL;
    addr.in6.sin6_port = htons(port);
    *ret = addr;
    return 0;
}

static int make_unix(struct str path, struct addr *ret)
{
    struct addr addr = {.un = {.sun_family = AF_UNIX}};

    if (path.n == 0 || path.n >= sizeof(addr.un.sun_path) || memchr(path.p, 0, path.n))
        return -EINVAL;
    memcpy(addr.un.sun_path, path.p, path.n);
    addr.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.n + 1);
    *ret = addr;
    return 0;
}

/* "host:port" or "[host]:port". `*ret_bracketed`: the host stood in brackets, which are off. */
static int split_port(struct str text, struct str *ret_host, uint16_t *ret_port,
                      bool *ret_bracketed)
{
    const char *colon = text.n ? memrchr(text.p, ':', text.n) : NULL;
    struct str host;
    uint64_t port;

    if (!colon)
        return -EINVAL;
    host = (struct str){text.p, (size_t)(colon - text.p)};
    if (str_to_u64((struct str){colon + 1, text.n - host.n - 1}, UINT16_MAX, &port) < 0)
        return -EINVAL;
    *ret_bracketed = host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']';
    if (*ret_bracketed)
        host = (struct str){host.p + 1, host.n - 2};
    *ret_host = host;
    *ret_port = (uint16_t)port;
    return 0;
}

int addr_parse(struct str text, struct addr *ret)
{
    struct str host;
    uint16_t port;
    bool is_bracketed;

    if (starts_unix(text))
        return make_unix((struct str){text.p + 5, text.n - 5}, ret);
    if (split_port(text, &host, &port, &is_bracketed) < 0)
        return -EINVAL;
    return is_bracketed ? make_ip6(host, port, ret) : make_ip4(host, port, ret);
}

static bool is_label(struct str label)
{
    for (size_t i = 0; i < label.n; i++) {
        char c = ascii_lower(label.p[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_')
            return false;
    }
    return label.n >= 1 && label.n <= 63 && label.p[0] != '-' && label.p[label.n - 1] != '-';
}

/* RFC 1123 2.1: labels of letters, digits and "-", here with "_" too, as many internal names
 * have it. The last label is not a number: that would be a mistyped IPv4 address. */
bool addr_is_name(struct str host)
{
    struct str label = {host.p, 0};
    uint64_t number;

    if (host.n && host.p[host.n - 1] == '.')
        host.n--;
    if (host.n > 253)
        return false;
    for (const char *p = host.p, *end = p + host.n; p <= end; p++) {
        if (p < end && *p != '.')
            continue;
        label.n = (size_t)(p - label.p);
        if (!is_label(label))
            return false;
        if (p < end)
            label.p = p + 1;
    }
    return str_to_u64(label, UINT64_MAX, &number) < 0;
}

int addr_split_name(struct str text, struct str *ret_host, uint16_t *ret_port)
{
    struct str host;
    uint16_t port;
    bool is_bracketed;

    if (split_port(text, &host, &port, &is_bracketed) < 0 || is_bracketed ||
        !addr_is_name(host))
        return -EINVAL;
    *ret_host = host;
    *ret_port = port;
    return 0;
}

bool addr_split_service(struct str text, struct str *ret_name)
{
    struct str rest = text;

    for (int i = 0; i < 2; i++) {
        const char *dot = rest.n && rest.p[0] == '_' ? memchr(rest.p, '.', rest.n) : NULL;
        if (!dot)
            return false;
        rest = (struct str){dot + 1, rest.n - (size_t)(dot + 1 - rest.p)};
    }
    *ret_name = rest;
    return rest.n && addr_is_name(text);
}

bool addr_eq(const struct addr *a, const struct addr *b)
{
    if (a->sa.sa_family != b->sa.sa_family)
        return false;
    switch (a->sa.sa_family) {
    case AF_INET:
        return a->in4.sin_port == b->in4.sin_port &&
               a->in4.sin_addr.s_addr == b->in4.sin_addr.s_addr;
    case AF_INET6:
        return a->in6.sin6_port == b->in6.sin6_port &&
               a->in6.sin6_scope_id == b->in6.sin6_scope_id &&
               memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, 16) == 0;
    case AF_UNIX:
        return a->len == b->len && memcmp(a->un.sun_path, b->un.sun_path,
                                          a->len - offsetof(struct sockaddr_un, sun_path)) == 0;
    default:
        return false;
    }
}

/* The path of a unix socket as the kernel gives it: up to its NUL or the address's end; none
 * for the other side of a connection that was never bound. */
static size_t unix_path_length(const struct addr *addr)
{
    size_t start = offsetof(struct sockaddr_un, sun_path);
    return addr->len > start ? strnlen(addr->un.sun_path, addr->len - start) : 0;
}

size_t addr_put(char out[ADDR_TEXT], const struct addr *addr)
{
    char host[ADDR_TEXT];
    int n;

    switch (addr->sa.sa_family) {
    case AF_INET:
        addr_put_host(host, addr);
        n = snprintf(out, ADDR_TEXT, "%s:%u", host, ntohs(addr->in4.sin_port));
        break;
    case AF_INET6:
        addr_put_host(host, addr);
        n = snprintf(out, ADDR_TEXT, "[%s]:%u", host, ntohs(addr->in6.sin6_port));
        break;
    case AF_UNIX:
        n = snprintf(out, ADDR_TEXT, UNIX_PREFIX "%.*s", (int)unix_path_length(addr),
                     addr->un.sun_path);
        break;
    default:
        n = snprintf(out, ADDR_TEXT, "-");
        break;
    }
    return (size_t)n;
}

size_t addr_put_host(char out[ADDR_TEXT], const struct addr *addr)
{
    switch (addr->sa.sa_family) {
    case AF_INET:
        inet_ntop(AF_INET, &addr->in4.sin_addr, out, ADDR_TEXT);
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &addr->in6.sin6_addr, out, ADDR_TEXT);
        break;
    case AF_UNIX:
        memcpy(out, UNIX_PREFIX, sizeof(UNIX_PREFIX));
        break;
    default:
        memcpy(out, "-", 2);
        break;
    }
    return strlen(out);
}

/* "10.1.2.3/8" means 10.0.0.0/8, as everywhere. */
static void clear_behind(uint8_t *bytes, unsigned bits, unsigned total)
{
    for (unsigned i = bits; i < total; i++)
        bytes[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
}

int addr_range_parse(struct str text, struct addr_range *ret)
{
    struct addr_range range = {.family = AF_UNIX};
    const char *slash = text.n ? memchr(text.p, '/', text.n) : NULL;
    struct str host = {text.p, slash ? (size_t)(slash - text.p) : text.n};
    unsigned total;
    uint64_t bits;

    if (str_eq(text, STR(UNIX_PREFIX))) {
        *ret = range;
        return 0;
    }
    range.family = host.n && memchr(host.p, ':', host.n) ? AF_INET6 : AF_INET;
    bits = total = range.family == AF_INET6 ? 128 : 32;
    if (parse_numeric(range.family, host, range.bytes) < 0)
        return -EINVAL;
    if (slash && str_to_u64((struct str){slash + 1, text.n - host.n - 1}, total, &bits) < 0)
        return -EINVAL;
    clear_behind(range.bytes, (unsigned)bits, total);
    range.bits = (uint8_t)bits;
    *ret = range;
    return 0;
}

bool addr_in_range(const struct addr *addr, const struct addr_range *range)
{
    sa_family_t family = addr->sa.sa_family;
    const uint8_t *bytes = addr->in6.sin6_addr.s6_addr;
    unsigned whole = range->bits / 8, rest = range->bits % 8;

    if (family == AF_UNIX)
        return range->family == AF_UNIX;
    if (family == AF_INET) {
        bytes = (const uint8_t *)&addr->in4.sin_addr;
    } else if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr) &&
               range->family == AF_INET) {
        family = AF_INET;
        bytes += 12;
    }
    return family == range->family && memcmp(bytes, range->bytes, whole) == 0 &&
           (rest == 0 || (bytes[whole] ^ range->bytes[whole]) >> (8 - rest) == 0);
}

int addr_parse_ip(struct str text, struct addr *ret)
{
    struct str host = text;
    uint16_t port = 0;
    bool is_bracketed = false;

    if (make_ip4(text, 0, ret) == 0 || make_ip6(text, 0, ret) == 0)
        return 0;
    if (text.n >= 2 && text.p[0] == '[' && text.p[text.n - 1] == ']')
        return make_ip6((struct str){text.p + 1, text.n - 2}, 0, ret);
    if (split_port(text, &host, &port, &is_bracketed) < 0)
        return -EINVAL;
    return is_bracketed ? make_ip6(host, port, ret) : make_ip4(host, port, ret);
}
