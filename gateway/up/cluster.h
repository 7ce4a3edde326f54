/* A cluster: the servers behind one upstream, as all workers share them.
 *
 * Made on the main thread; immutable afterwards but for the atomics. Counted by reference:
 * every snapshot that names it holds one. A reload that leaves an upstream as it was adopts
 * its cluster, with counters, health and warm connections. */
#ifndef POSTERN_UP_CLUSTER_H
#define POSTERN_UP_CLUSTER_H

#include <stdatomic.h>

#include "base/sip.h"
#include "net/addr.h"
#include "net/tls_back.h"
#include "up/breaker.h"
#include "up/vitals.h"
#include "up/watch.h"

#define CLUSTER_SERVERS 256 /* the most addresses in one cluster */
#define CACHE_LINE      64

enum balance { BALANCE_ROUND_ROBIN, BALANCE_LEAST_REQUESTS, BALANCE_TWO_CHOICES, BALANCE_HASH };

struct server {
    struct addr addr;
    char text[ADDR_TEXT]; /* the address, as logs and metrics name it */
    char *host;           /* whose certificate is expected there; NULL: nobody's */
    uint32_t weight;
    bool backup;
    uint16_t from;         /* which of the upstream's servers has this address */
    bool siblings;         /* other servers have the same name, and are as much of a backup */
    uint64_t origin;       /* as in struct cluster_server */
    unsigned metric_name;  /* set by whoever counts */
    char *name;            /* what probes call it in Host; NULL: its address */
    struct vitals *vitals; /* shared with this server in other clusters of the upstream */
    /* Workers whose last try to connect failed; 0: it is up as far as anybody knows. */
    _Atomic uint32_t down;
    /* Requests in flight, for the balances that look at them. */
    _Alignas(CACHE_LINE) _Atomic uint32_t active;
};

struct cluster_limits {
    uint32_t warm, idle, connections, requests; /* per server, all workers together */
    uint32_t idle_timeout, lifetime;            /* ms, 0: none */
    uint32_t connect, response, between, total; /* ms, 0: none */
    uint32_t
        queue; /* ms that a request waits for a connection when all are busy; 0: for ever */
};

/* What a new cluster is made from. */
struct cluster_spec {
    const char *name;
    enum balance balance;
    uint32_t hash_bound; /* permille of the fair share, with BALANCE_HASH; 0: none */
    uint32_t heaviest;   /* weight of all servers that it may come to have; 0: of `servers` */
    struct cluster_limits limits;
    struct breaker_limits breaker;
    uint32_t retry_attempts, retry_budget_permille;
    unsigned retry_on;
    unsigned proxy_protocol;
    bool http2;
    const struct sip_key *sticky; /* makes the servers' ids; NULL: they have none */
    struct watch watch;           /* copied */
    const struct cluster *kin; /* has the same connections, whatever else differs; NULL: none */
    /* Had the same name, whatever its definition: servers that it has too are as well as they
     * are there. NULL: none. */
    const struct cluster *before;
    struct tls_back *tls; /* NULL: without; the cluster takes a reference of its own */
};

struct cluster {
    char *name;
    uint64_t kin;  /* clusters whose connections are the same share it */
    unsigned slot; /* where each worker keeps its pools of this cluster; reused after its end */
    unsigned metric_name;
    enum balance balance;
    uint32_t hash_bound;
    struct cluster_limits limits;
    uint32_t retry_attempts, retry_budget_permille;
    unsigned retry_on;
    unsigned proxy_protocol; /* version of the PROXY header before each request; 0: none */
    bool http2;
    struct watch watch;
    struct tls_back *tls; /* NULL: without */

    struct ward *ward;
    struct server *servers; /* primaries first, then backups */
    uint32_t count, primaries;
    uint16_t *order; /* smooth weighted round robin, expanded: indices of primaries */
    uint32_t order_len;
    uint16_t *backup_order;
    uint32_t backup_order_len;
    uint64_t *ring_hashes;  /* consistent hash: sorted points ... */
    uint16_t *ring_servers; /* ... and whose they are */
    uint32_t ring_len;
    uint64_t *ids;   /* what a sticky cookie calls the servers; NULL: there is none */
    uint64_t weight; /* of all primaries together */

    _Atomic uint32_t refs;
    /* The one word that every request of every worker writes. */
    _Alignas(CACHE_LINE) _Atomic uint64_t counter;
    /* Requests in flight at all servers together, where somebody looks at it. */
    _Alignas(CACHE_LINE) _Atomic uint32_t active;
    struct breaker breaker;
    _Alignas(CACHE_LINE) char end[CACHE_LINE];
};

struct cluster_server {
    struct addr addr;
    uint32_t weight; /* 1 to 1000 */
    bool backup;
    uint16_t from;    /* which of the upstream's servers has this address */
    uint64_t origin;  /* stands for that server's text: the same in every configuration */
    const char *host; /* whose certificate is expected there; NULL: nobody's */
    const char *name; /* what probes call it; NULL: its address */
};

/* Main thread. NULL: no memory, or more than CLUSTER_SERVERS servers. One reference. */
struct cluster *cluster_new(const struct cluster_spec *spec,
                            const struct cluster_server *servers, size_t count);
struct cluster *cluster_ref(struct cluster *cluster);
void cluster_unref(struct cluster *cluster); /* NULL is fine; any thread */

/* All servers are out: when one may be back at the earliest, in ns. 0: nobody knows. */
uint64_t cluster_back_at(const struct cluster *cluster);

#endif
