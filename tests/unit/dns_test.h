/* For tests about names: a DNS server on a thread of its own. It knows a few names by their
 * first label, whatever the rest is, and answers with addresses that the test sets. */
#ifndef DNS_TEST_H
#define DNS_TEST_H

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/addr.h"

enum dns_says { SAYS_ADDRS, SAYS_NXDOMAIN, SAYS_SERVFAIL, SAYS_GARBAGE, SAYS_NOTHING };

static struct {
    int fd;
    struct addr addr;
    pthread_t thread;
    pthread_mutex_t lock;
    enum dns_says four, six; /* to A, to AAAA */
    char addrs[1024];        /* "10.0.0.1 b=::1", of both families, some only for names b.* */
    enum dns_says srv;       /* to SRV */
    char services[1024];     /* "PRIORITY WEIGHT PORT a.test;..." */
    size_t cut, flip;        /* of these answers: bytes at the end, and the one at - 1 */
    uint32_t ttl;
    unsigned asked;
} ns = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* Puts a record with `size` bytes of data behind those there are. */
static inline uint8_t *ns_head(uint8_t *out, uint16_t kind, size_t size)
{
    uint8_t head[12] = {0xc0,
                        12,
                        0,
                        (uint8_t)kind,
                        0,
                        1,
                        (uint8_t)(ns.ttl >> 24),
                        (uint8_t)(ns.ttl >> 16),
                        (uint8_t)(ns.ttl >> 8),
                        (uint8_t)ns.ttl,
                        (uint8_t)(size >> 8),
                        (uint8_t)size};
    memcpy(out, head, 12);
    return out + 12;
}

static inline size_t ns_services(uint8_t *out)
{
    char list[sizeof(ns.services)], *save, *word, *label, *more, name[256];
    uint8_t *at = out + 2;
    size_t count = 0;
    unsigned number[3];
    strcpy(list, ns.services);
    for (word = strtok_r(list, ";", &save); word; word = strtok_r(NULL, ";", &save)) {
        uint8_t data[300];
        size_t n = 6;
        sscanf(word, "%u %u %u %255s", &number[0], &number[1], &number[2], name);
        for (int i = 0; i < 3; i++) {
            data[2 * i] = (uint8_t)(number[i] >> 8);
            data[2 * i + 1] = (uint8_t)number[i];
        }
        for (label = strtok_r(name, ".", &more); label; label = strtok_r(NULL, ".", &more)) {
            data[n++] = (uint8_t)strlen(label);
            memcpy(data + n, label, strlen(label));
            n += strlen(label);
        }
        data[n++] = 0;
        at = ns_head(at, 33, n);
        memcpy(at, data, n);
        at += n;
        count++;
    }
    out[0] = (uint8_t)(count >> 8);
    out[1] = (uint8_t)count;
    size_t size = (size_t)(at - out) - 2;
    if (ns.flip && ns.flip <= size)
        out[1 + ns.flip] ^= 0xff;
    return size > ns.cut ? size - ns.cut : 0;
}

/* `label`: the first one of the question, with its length. */
static inline size_t ns_records(uint8_t *out, uint16_t kind, const uint8_t *label)
{
    char list[sizeof(ns.addrs)], *save, *word;
    size_t n = 0, count = 0;
    strcpy(list, ns.addrs);
    for (word = strtok_r(list, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        if (value && ((size_t)(value - word) != label[0] ||
                      strncasecmp(word, (const char *)label + 1, label[0]) != 0))
            continue;
        word = value ? value + 1 : word;
        int family = strchr(word, ':') ? AF_INET6 : AF_INET;
        if ((family == AF_INET6) != (kind == 28))
            continue;
        size_t size = family == AF_INET6 ? 16 : 4;
        inet_pton(family, word, ns_head(out + 2 + n, kind, size));
        n += 12 + size;
        count++;
    }
    out[0] = (uint8_t)(count >> 8);
    out[1] = (uint8_t)count;
    return n;
}

/* In place; returns the length, 0: no answer. */
static inline size_t ns_answer(uint8_t packet[4096], size_t n)
{
    uint16_t kind = (uint16_t)(packet[n - 4] << 8 | packet[n - 3]);
    enum dns_says says = kind == 28 ? ns.six : kind == 33 ? ns.srv : ns.four;
    uint8_t records[3500];
    packet[2] = 0x81;
    packet[3] = says == SAYS_NXDOMAIN ? 0x83 : says == SAYS_SERVFAIL ? 0x82 : 0x80;
    if (says == SAYS_NOTHING)
        return 0;
    if (says == SAYS_GARBAGE) {
        packet[7] = 3; /* answers that are not there */
        memset(packet + n, 0xc0, 7);
        return n + 7;
    }
    if (says != SAYS_ADDRS)
        return n;
    size_t len = kind == 33 ? ns_services(records) : ns_records(records, kind, packet + 12);
    memcpy(packet + 6, records, 2);
    memcpy(packet + n, records + 2, len);
    return n + len;
}

static inline void *ns_serve(void *arg)
{
    (void)arg;
    uint8_t packet[4096];
    struct addr from = {.len = sizeof(from.in4)};
    for (;;) {
        ssize_t n = recvfrom(ns.fd, packet, 512, 0, &from.sa, &from.len);
        if (n < 13) /* an empty one is the end */
            return NULL;
        pthread_mutex_lock(&ns.lock);
        ns.asked++;
        size_t len = ns_answer(packet, (size_t)n);
        pthread_mutex_unlock(&ns.lock);
        if (len)
            sendto(ns.fd, packet, len, 0, &from.sa, from.len);
    }
}

static inline void ns_say(const char *addrs, enum dns_says four, enum dns_says six)
{
    pthread_mutex_lock(&ns.lock);
    strcpy(ns.addrs, addrs);
    ns.four = four;
    ns.six = six;
    pthread_mutex_unlock(&ns.lock);
}

static inline void ns_say_services(const char *services, enum dns_says says)
{
    pthread_mutex_lock(&ns.lock);
    strcpy(ns.services, services);
    ns.srv = says;
    pthread_mutex_unlock(&ns.lock);
}

/* Spoils the next answers about services. */
static inline void ns_spoil(size_t cut, size_t flip)
{
    pthread_mutex_lock(&ns.lock);
    ns.cut = cut;
    ns.flip = flip;
    pthread_mutex_unlock(&ns.lock);
}

static inline unsigned ns_asked(void)
{
    pthread_mutex_lock(&ns.lock);
    unsigned asked = ns.asked;
    pthread_mutex_unlock(&ns.lock);
    return asked;
}

static inline int ns_start(void **state)
{
    (void)state;
    ns.ttl = 1;
    ns.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ns.addr = (struct addr){.len = sizeof(ns.addr.in4), .in4 = {.sin_family = AF_INET}};
    ns.addr.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(ns.fd, &ns.addr.sa, ns.addr.len) < 0 ||
        getsockname(ns.fd, &ns.addr.sa, &ns.addr.len) < 0)
        return -1;
    return -pthread_create(&ns.thread, NULL, ns_serve, NULL);
}

static inline int ns_stop(void **state)
{
    (void)state;
    sendto(ns.fd, "", 0, 0, &ns.addr.sa, ns.addr.len);
    pthread_join(ns.thread, NULL);
    return close(ns.fd);
}

#endif
