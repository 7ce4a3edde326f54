/* Socket addresses as people write them, and ranges of them.
 *
 * Text forms: "127.0.0.1:80", "[::1]:80", "unix:/run/x.sock", "name:80" (name resolved by
 * the caller). Pure; any thread. */
#ifndef POSTERN_NET_ADDR_H
#define POSTERN_NET_ADDR_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/str.h"

struct addr {
    socklen_t len;
    union {
        struct sockaddr sa;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    };
};

/* A numeric address with port, or unix:PATH. 0, or -EINVAL (not one; perhaps a name). */
int addr_parse(struct str text, struct addr *ret);
/* "host:port" with a host that is a DNS name. 0 with both parts, or -EINVAL. */
int addr_split_name(struct str text, struct str *ret_host, uint16_t *ret_port);
bool addr_is_name(struct str host); /* of DNS */
/* "_SERVICE._PROTOCOL.NAME", which has SRV records: the NAME. False: it is none. */
bool addr_split_service(struct str text, struct str *ret_name);
bool addr_eq(const struct addr *a, const struct addr *b);

#define ADDR_TEXT 128
/* "127.0.0.1:80", "[::1]:80", "unix:/run/x.sock" with NUL; returns the length. */
size_t addr_put(char out[ADDR_TEXT], const struct addr *addr);
/* The host alone, without port and brackets; "unix:" for a unix socket. */
size_t addr_put_host(char out[ADDR_TEXT], const struct addr *addr);

/* A range: "10.0.0.0/8", "fd00::/8", one address, or "unix:" for every unix socket. */
struct addr_range {
    sa_family_t family;
    uint8_t bits;
    uint8_t bytes[16];
};
int addr_range_parse(struct str text, struct addr_range *ret); /* 0 or -EINVAL */
/* IPv4-mapped IPv6 addresses match IPv4 ranges. */
bool addr_in_range(const struct addr *addr, const struct addr_range *range);
/* A bare IP as in X-Forwarded-For ("1.2.3.4", "::1", "[::1]:80", "1.2.3.4:80"). 0 or -EINVAL */
int addr_parse_ip(struct str text, struct addr *ret);

#endif
