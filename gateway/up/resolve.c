#include "up/resolve.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

static int by_bytes(const void *a, const void *b)
{
    const struct addr *x = a, *y = b;
    if (x->sa.sa_family != y->sa.sa_family)
        return x->sa.sa_family < y->sa.sa_family ? -1 : 1;
    return memcmp(&x->sa, &y->sa, x->len < y->len ? x->len : y->len);
}

static size_t collect(const struct addrinfo *list, struct addr ret[RESOLVE_MAX])
{
    size_t n = 0;
    for (; list && n < RESOLVE_MAX; list = list->ai_next) {
        if (list->ai_family != AF_INET && list->ai_family != AF_INET6)
            continue;
        memset(&ret[n], 0, sizeof(ret[n]));
        memcpy(&ret[n].sa, list->ai_addr, list->ai_addrlen);
        ret[n++].len = list->ai_addrlen;
    }
    qsort(ret, n, sizeof(*ret), by_bytes);
    return n;
}

size_t resolve_server(struct str text, struct addr ret[RESOLVE_MAX], const char **ret_why)
{
    if (addr_parse(text, &ret[0]) == 0)
        return 1;
    struct str host;
    uint16_t port;
    char name[256], service[8];
    if (addr_split_name(text, &host, &port) < 0 || host.n >= sizeof(name)) {
        *ret_why = "not an address, unix:PATH or NAME:PORT";
        return 0;
    }
    memcpy(name, host.p, host.n);
    name[host.n] = '\0';
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(name, service, &hints, &list);
    if (rc) {
        *ret_why = gai_strerror(rc);
        return 0;
    }
    size_t n = collect(list, ret);
    freeaddrinfo(list);
    if (!n)
        *ret_why = "the name has no IPv4 or IPv6 address";
    return n;
}
