/* Questions to DNS servers and to /etc/hosts: c-ares, fitted to our loop.
 *
 * Main thread only. Many questions may run beside each other; each is answered exactly once,
 * perhaps before dns_ask returns. Without a loop nothing happens but in dns_wait. */
#ifndef POSTERN_UP_DNS_H
#define POSTERN_UP_DNS_H

#include "net/addr.h"
#include "net/loop.h"

#define DNS_MAX         64 /* addresses of one answer that are used: the lowest ones */
#define DNS_SERVERS_MAX 8  /* that may be asked */
#define DNS_SERVICES_MAX                                                                       \
    64                   /* SRV records of one answer that are used: the first by priority     \
                          */
#define DNS_NAME_MAX 256 /* a name with its NUL */

enum dns_verdict {
    DNS_FOUND,
    DNS_NONE,   /* no such name, or no address of this family */
    DNS_FAILED, /* nobody knows: no answer, or none of use */
};

struct dns_answer {
    enum dns_verdict verdict;
    const char *why;            /* in words; not with DNS_FOUND */
    struct addr addrs[DNS_MAX]; /* sorted, each once, port 0 */
    size_t count;
    uint32_t ttl_s; /* the shortest of its records */
};

/* One SRV record. */
struct dns_service {
    char host[DNS_NAME_MAX]; /* a name, without a dot at its end */
    uint16_t priority, weight, port;
};

struct dns_services {
    enum dns_verdict verdict;
    const char *why; /* in words; not with DNS_FOUND */
    /* By priority, name and port. None with DNS_FOUND: it says that there is no such service.
     */
    struct dns_service list[DNS_SERVICES_MAX];
    size_t count;
    uint32_t ttl_s; /* the shortest of its records */
};

struct dns;

/* Embedded by whoever asks; must stay until it was answered or the dns is gone. */
struct dns_query {
    struct dns *dns;
    sa_family_t family;
    /* Must not free the dns. */
    void (*on_answer)(struct dns_query *query, const struct dns_answer *answer);
};

/* The same for the SRV records of a name. */
struct dns_services_query {
    struct dns *dns;
    void (*on_answer)(struct dns_services_query *query, const struct dns_services *answer);
};

/* `servers`: whom to ask, in this order; none: those of /etc/resolv.conf. NULL: no memory. */
struct dns *dns_new(const struct addr *servers, size_t count);
void dns_free(struct dns *dns); /* what runs is not answered any more; NULL is fine */

/* What /etc/hosts says, of both families. False: nothing. */
bool dns_hosts(struct dns *dns, const char *host, struct dns_answer *ret);
/* AF_INET or AF_INET6, in query->family. */
void dns_ask(struct dns *dns, const char *host, struct dns_query *query);
void dns_ask_services(struct dns *dns, const char *name, struct dns_services_query *query);
/* Blocks until all questions are answered, at most `ms`; then the others have failed. */
void dns_wait(struct dns *dns, uint64_t ms);
/* From now on answers come in on the loop, which lives longer than the dns. */
void dns_attach(struct dns *dns, struct loop *loop);

#endif
