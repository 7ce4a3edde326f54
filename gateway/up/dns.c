#include "up/dns.h"

#include <ares.h>
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/time.h>

#include "base/demand.h"
#include "base/mem.h"

/* One question: asked again after these many ms, and again after twice as many. */
#define TRY_MS 500
#define TRIES  3

/* A socket of c-ares, and what it waits for there. */
struct dns_socket {
    struct dns_socket *next;
    struct dns *dns;
    ares_socket_t fd;
    short what; /* EV_READ, EV_WRITE */
    struct event event;
    bool watched;
    struct grave grave;
};

/* A question that is held back, because somebody wants DNS to be slow. */
struct dns_held {
    struct dns_held *next;
    uint64_t at;
    struct dns_query *query;             /* or ... */
    struct dns_services_query *services; /* ... this one */
    char name[];
};

struct dns {
    ares_channel servers; /* asks only the network ... */
    ares_channel files;   /* ... and this one only /etc/hosts */
    struct dns_socket *sockets;
    unsigned running;
    uint64_t hold_ms;                   /* POSTERN_FAULT=dns:N */
    struct dns_held *held, **last_held; /* in the order in which they are due */
    struct loop *loop;                  /* NULL: not attached */
    struct deadline due;
};

/* ---- sockets and time ---- */

/* Until something has to be done, in ms; UINT64_MAX: nothing. */
static uint64_t left(struct dns *dns)
{
    struct timeval tv;
    uint64_t ms = UINT64_MAX;
    if (ares_timeout(dns->servers, NULL, &tv))
        ms = (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000 + 1;
    if (dns->held) {
        uint64_t now = clock_ns();
        uint64_t more = dns->held->at > now ? (dns->held->at - now) / NS_PER_MS + 1 : 0;
        ms = more < ms ? more : ms;
    }
    return ms;
}

static void arm(struct dns *dns)
{
    if (!dns->loop)
        return;
    uint64_t ms = left(dns);
    if (ms == UINT64_MAX)
        deadline_off(&dns->due);
    else
        loop_deadline(dns->loop, &dns->due, ms ? ms : 1);
}

static void ask_held(struct dns *dns);

static void on_due(struct deadline *deadline)
{
    struct dns *dns = (struct dns *)((char *)deadline - offsetof(struct dns, due));
    ask_held(dns);
    ares_process_fd(dns->servers, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    arm(dns);
}

static void process(struct dns *dns, ares_socket_t fd, bool readable, bool writable)
{
    ares_process_fd(dns->servers, readable ? fd : ARES_SOCKET_BAD,
                    writable ? fd : ARES_SOCKET_BAD);
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct dns *dns = arg;
    struct loop *loop = dns->loop;
    loop_enter(loop);
    process(dns, fd, what & EV_READ, what & EV_WRITE);
    arm(dns);
    loop_leave(loop);
}

static void unwatch(struct dns_socket *socket)
{
    if (socket->watched)
        event_del(&socket->event);
    socket->watched = false;
}

static void watch(struct dns_socket *socket)
{
    struct dns *dns = socket->dns;
    unwatch(socket);
    if (!dns->loop)
        return;
    event_assign(&socket->event, dns->loop->base, socket->fd,
                 (short)(socket->what | EV_PERSIST), on_event, dns);
    socket->watched = event_add(&socket->event, NULL) == 0;
}

static void bury_socket(struct grave *grave)
{
    mem_free((char *)grave - offsetof(struct dns_socket, grave));
}

/* c-ares wants to hear of this socket, or (neither) is about to close it. Without memory it
 * does not hear, and the question fails when its time is up. */
static void on_socket(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct dns *dns = arg;
    struct dns_socket **at = &dns->sockets;
    while (*at && (*at)->fd != fd)
        at = &(*at)->next;
    struct dns_socket *socket = *at;
    if (!readable && !writable) {
        if (!socket)
            return;
        *at = socket->next;
        unwatch(socket);
        if (dns->loop) /* its own event may be the one that runs */
            loop_bury(dns->loop, &socket->grave, bury_socket);
        else
            mem_free(socket);
        return;
    }
    if (!socket) {
        socket = mem_zalloc(sizeof(*socket));
        if (!socket)
            return;
        socket->dns = dns;
        socket->fd = fd;
        *at = socket;
    }
    socket->what = (short)((readable ? EV_READ : 0) | (writable ? EV_WRITE : 0));
    watch(socket);
}

/* ---- answers ---- */

static int by_bytes(const struct addr *a, const struct addr *b)
{
    if (a->sa.sa_family != b->sa.sa_family)
        return a->sa.sa_family == AF_INET ? -1 : 1;
    return a->sa.sa_family == AF_INET
               ? memcmp(&a->in4.sin_addr, &b->in4.sin_addr, sizeof(a->in4.sin_addr))
               : memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr));
}

/* Into its place; the highest falls off the end. So which ones are used never depends on the
 * order in which a server names them. */
static void insert(struct dns_answer *answer, const struct addr *addr)
{
    size_t at = answer->count;
    while (at && by_bytes(addr, &answer->addrs[at - 1]) < 0)
        at--;
    if (at == DNS_MAX || (at && by_bytes(addr, &answer->addrs[at - 1]) == 0))
        return;
    if (answer->count < DNS_MAX)
        answer->count++;
    memmove(&answer->addrs[at + 1], &answer->addrs[at],
            (answer->count - at - 1) * sizeof(*addr));
    answer->addrs[at] = *addr;
}

static void collect(struct dns_answer *answer, sa_family_t family,
                    const struct ares_addrinfo *result)
{
    answer->ttl_s = UINT32_MAX;
    for (const struct ares_addrinfo_node *node = result->nodes; node; node = node->ai_next) {
        struct addr addr = {.len = (socklen_t)node->ai_addrlen};
        bool fits = node->ai_family == AF_INET
                        ? node->ai_addrlen == sizeof(addr.in4)
                        : node->ai_family == AF_INET6 && node->ai_addrlen == sizeof(addr.in6);
        if (!fits || (family != AF_UNSPEC && node->ai_family != family))
            continue;
        memcpy(&addr.sa, node->ai_addr, node->ai_addrlen);
        insert(answer, &addr);
        uint32_t ttl = node->ai_ttl < 0 ? 0 : (uint32_t)node->ai_ttl;
        if (ttl < answer->ttl_s)
            answer->ttl_s = ttl;
    }
}

static const char *why_failed(int status)
{
    switch (status) {
    case ARES_ENODATA:
        return "the name has no address";
    case ARES_ENOTFOUND:
        return "there is no such name";
    case ARES_ETIMEOUT:
    case ARES_ECANCELLED:
        return "no DNS server answered in time";
    default:
        return ares_strerror(status);
    }
}

static void read_answer(struct dns_answer *answer, sa_family_t family, int status,
                        struct ares_addrinfo *result)
{
    *answer = (struct dns_answer){.verdict = DNS_FAILED, .why = why_failed(status)};
    if (status == ARES_SUCCESS) {
        collect(answer, family, result);
        ares_freeaddrinfo(result);
        answer->verdict = answer->count ? DNS_FOUND : DNS_NONE;
        answer->why = answer->count ? NULL : "the name has no address";
    } else if (status == ARES_ENODATA || status == ARES_ENOTFOUND) {
        answer->verdict = DNS_NONE;
    }
}

static void on_result(void *arg, int status, int timeouts, struct ares_addrinfo *result)
{
    (void)timeouts;
    struct dns_query *query = arg;
    if (status == ARES_EDESTRUCTION)
        return;
    struct dns_answer answer;
    read_answer(&answer, query->family, status, result);
    query->dns->running--;
    query->on_answer(query, &answer);
}

static void on_hosts(void *arg, int status, int timeouts, struct ares_addrinfo *result)
{
    (void)timeouts;
    read_answer(arg, AF_UNSPEC, status, result);
}

/* ---- SRV records ---- */

#define TYPE_SRV 33
#define CLASS_IN 1

static int by_place(const struct dns_service *a, const struct dns_service *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    int order = strcasecmp(a->host, b->host);
    return order ? order : (int)a->port - (int)b->port;
}

static void insert_service(struct dns_services *answer, const struct dns_service *service)
{
    size_t at = answer->count;
    while (at && by_place(service, &answer->list[at - 1]) < 0)
        at--;
    if (at == DNS_SERVICES_MAX || (at && by_place(service, &answer->list[at - 1]) == 0))
        return;
    if (answer->count < DNS_SERVICES_MAX)
        answer->count++;
    memmove(&answer->list[at + 1], &answer->list[at],
            (answer->count - at - 1) * sizeof(*service));
    answer->list[at] = *service;
}

/* What is left of an answer. */
struct rest {
    const uint8_t *all, *at, *end;
};

/* The name that begins here, into `ret` (NULL: nobody wants it), cut where it does not fit. */
static bool take_name(struct rest *rest, char *ret, size_t size)
{
    char *text;
    long used;
    if (rest->at >= rest->end ||
        ares_expand_name(rest->at, rest->all, (int)(rest->end - rest->all), &text, &used) !=
            ARES_SUCCESS)
        return false;
    if (ret)
        snprintf(ret, size, "%s", text);
    ares_free_string(text);
    if (used > rest->end - rest->at)
        return false;
    rest->at += used;
    return true;
}

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

/* A target with a port that can be connected to; "." is no service, and text that is no name
 * nothing that could be asked for. */
static bool take_service(struct rest data, struct dns_services *answer, size_t *none)
{
    struct dns_service service;
    if (data.end - data.at < 7)
        return false;
    service.priority = get16(data.at);
    service.weight = get16(data.at + 2);
    service.port = get16(data.at + 4);
    data.at += 6;
    /* Compressed or not, the name must end where the record does. */
    if (!take_name(&data, service.host, sizeof(service.host)) || data.at != data.end)
        return false;
    if (!service.host[0])
        ++*none;
    else if (service.port && addr_is_name(str_of(service.host)))
        insert_service(answer, &service);
    return true;
}

static bool take_record(struct rest *rest, struct dns_services *answer, size_t *none)
{
    if (!take_name(rest, NULL, 0) || rest->end - rest->at < 10)
        return false;
    uint16_t type = get16(rest->at), class = get16(rest->at + 2), size = get16(rest->at + 8);
    uint32_t ttl = (uint32_t)get16(rest->at + 4) << 16 | get16(rest->at + 6);
    rest->at += 10;
    if (size > rest->end - rest->at)
        return false;
    struct rest data = {rest->all, rest->at, rest->at + size};
    rest->at += size;
    if (ttl > INT32_MAX) /* RFC 2181 8 */
        ttl = 0;
    if (ttl < answer->ttl_s)
        answer->ttl_s = ttl;
    return type != TYPE_SRV || class != CLASS_IN || take_service(data, answer, none);
}

static void read_services(struct dns_services *answer, const uint8_t *packet, int len)
{
    bool good = len >= 12;
    struct rest rest = {packet, packet + (good ? 12 : 0), packet + len};
    size_t none = 0;
    for (unsigned left = good ? get16(packet + 4) : 0; good && left; left--) {
        good = take_name(&rest, NULL, 0) && rest.end - rest.at >= 4;
        rest.at += good ? 4 : 0;
    }
    answer->ttl_s = UINT32_MAX;
    for (unsigned left = good ? get16(packet + 6) : 0; good && left; left--)
        good = take_record(&rest, answer, &none);
    answer->verdict = good && (answer->count || none) ? DNS_FOUND : DNS_FAILED;
    answer->why = !good ? "the answer is malformed" : "the answer has no record of use";
    if (answer->verdict == DNS_FOUND)
        answer->why = NULL;
}

static void on_services(void *arg, int status, int timeouts, unsigned char *packet, int len)
{
    (void)timeouts;
    struct dns_services_query *query = arg;
    if (status == ARES_EDESTRUCTION)
        return;
    struct dns_services answer;
    answer.count = 0;
    answer.ttl_s = 0;
    answer.verdict = status == ARES_ENODATA || status == ARES_ENOTFOUND ? DNS_NONE : DNS_FAILED;
    if (status == ARES_SUCCESS)
        read_services(&answer, packet, len);
    else if (status == ARES_ENODATA)
        answer.why = "the name has no SRV record";
    else
        answer.why = why_failed(status);
    query->dns->running--;
    query->on_answer(query, &answer);
}

/* ---- asking ---- */

bool dns_hosts(struct dns *dns, const char *host, struct dns_answer *ret)
{
    static const struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NOSORT, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    *ret = (struct dns_answer){.verdict = DNS_NONE};
    ares_getaddrinfo(dns->files, host, NULL, &hints, on_hosts, ret); /* answers at once */
    return ret->verdict == DNS_FOUND;
}

static void ask(struct dns *dns, const char *name, struct dns_query *query,
                struct dns_services_query *services)
{
    if (services) {
        ares_search(dns->servers, name, CLASS_IN, TYPE_SRV, on_services, services);
        return;
    }
    struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NOSORT, .ai_family = query->family, .ai_socktype = SOCK_STREAM};
    ares_getaddrinfo(dns->servers, name, NULL, &hints, on_result, query);
}

static struct dns_held *take_held(struct dns *dns)
{
    struct dns_held *held = dns->held;
    dns->held = held->next;
    if (!dns->held)
        dns->last_held = &dns->held;
    return held;
}

static void ask_held(struct dns *dns)
{
    while (dns->held && dns->held->at <= clock_ns()) {
        struct dns_held *held = take_held(dns);
        ask(dns, held->name, held->query, held->services);
        mem_free(held);
    }
}

/* False: it is not to be slow, or there is no memory to be. */
static bool hold(struct dns *dns, const char *name, struct dns_query *query,
                 struct dns_services_query *services)
{
    size_t n = strlen(name) + 1;
    struct dns_held *held = dns->hold_ms ? mem_alloc(sizeof(*held) + n) : NULL;
    if (!held)
        return false;
    *held = (struct dns_held){
        .at = clock_ns() + dns->hold_ms * NS_PER_MS, .query = query, .services = services};
    memcpy(held->name, name, n);
    *dns->last_held = held;
    dns->last_held = &held->next;
    return true;
}

/* Their time was up before they were asked. */
static void cancel_held(struct dns *dns)
{
    while (dns->held) {
        struct dns_held *held = take_held(dns);
        if (held->services)
            on_services(held->services, ARES_ECANCELLED, 0, NULL, 0);
        else
            on_result(held->query, ARES_ECANCELLED, 0, NULL);
        mem_free(held);
    }
}

void dns_ask(struct dns *dns, const char *host, struct dns_query *query)
{
    query->dns = dns;
    dns->running++;
    if (!hold(dns, host, query, NULL))
        ask(dns, host, query, NULL);
    arm(dns);
}

void dns_ask_services(struct dns *dns, const char *name, struct dns_services_query *query)
{
    query->dns = dns;
    dns->running++;
    if (!hold(dns, name, NULL, query))
        ask(dns, name, NULL, query);
    arm(dns);
}

/* One round of poll; c-ares may open and close sockets while they are gone through. */
static void turn(struct dns *dns, uint64_t ms)
{
    struct pollfd fds[ARES_GETSOCK_MAXNUM];
    nfds_t count = 0;
    for (const struct dns_socket *s = dns->sockets; s && count < ARES_GETSOCK_MAXNUM;
         s = s->next)
        fds[count++] = (struct pollfd){.fd = s->fd,
                                       .events = (short)((s->what & EV_READ ? POLLIN : 0) |
                                                         (s->what & EV_WRITE ? POLLOUT : 0))};
    uint64_t wait = left(dns);
    int ready = poll(fds, count, (int)((wait < ms ? wait : ms) + 1));
    ask_held(dns);
    for (nfds_t i = 0; ready > 0 && i < count; i++)
        if (fds[i].revents)
            process(dns, fds[i].fd, fds[i].revents & (POLLIN | POLLERR | POLLHUP),
                    fds[i].revents & POLLOUT);
    ares_process_fd(dns->servers, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

void dns_wait(struct dns *dns, uint64_t ms)
{
    uint64_t now = clock_ns(), end = now + ms * NS_PER_MS;
    while (dns->running && now < end) {
        turn(dns, (end - now) / NS_PER_MS);
        now = clock_ns();
    }
    if (dns->running) {
        cancel_held(dns);
        ares_cancel(dns->servers);
    }
}

void dns_attach(struct dns *dns, struct loop *loop)
{
    dns->loop = loop;
    for (struct dns_socket *socket = dns->sockets; socket; socket = socket->next)
        watch(socket);
    arm(dns);
}

/* ---- life ---- */

static int set_servers(ares_channel channel, const struct addr *servers, size_t count)
{
    struct ares_addr_port_node nodes[DNS_SERVERS_MAX] = {{.next = NULL}};
    for (size_t i = 0; i < count; i++) {
        struct ares_addr_port_node *node = &nodes[i];
        node->next = i + 1 < count ? node + 1 : NULL;
        node->family = servers[i].sa.sa_family;
        if (node->family == AF_INET) {
            node->addr.addr4 = servers[i].in4.sin_addr;
            node->udp_port = ntohs(servers[i].in4.sin_port);
        } else {
            memcpy(&node->addr.addr6, &servers[i].in6.sin6_addr, sizeof(node->addr.addr6));
            node->udp_port = ntohs(servers[i].in6.sin6_port);
        }
        node->tcp_port = node->udp_port;
    }
    return count ? ares_set_servers_ports(channel, nodes) : ARES_SUCCESS;
}

struct dns *dns_new(const struct addr *servers, size_t count)
{
    assert(count <= DNS_SERVERS_MAX);
    struct dns *dns = mem_zalloc(sizeof(*dns));
    if (!dns)
        return NULL;
    deadline_init(&dns->due, on_due);
    dns->hold_ms = demand("dns");
    dns->last_held = &dns->held;
    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS) {
        mem_free(dns);
        return NULL;
    }
    struct ares_options options = {.timeout = TRY_MS,
                                   .tries = TRIES,
                                   .lookups = "b",
                                   .sock_state_cb = on_socket,
                                   .sock_state_cb_data = dns};
    int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS;
    if (ares_init_options(&dns->servers, &options, mask | ARES_OPT_SOCK_STATE_CB) !=
        ARES_SUCCESS)
        dns->servers = NULL;
    options.lookups = "f";
    if (ares_init_options(&dns->files, &options, mask) != ARES_SUCCESS)
        dns->files = NULL;
    if (dns->servers && dns->files && set_servers(dns->servers, servers, count) == ARES_SUCCESS)
        return dns;
    dns_free(dns);
    return NULL;
}

void dns_free(struct dns *dns)
{
    if (!dns)
        return;
    if (dns->servers)
        ares_destroy(dns->servers);
    if (dns->files)
        ares_destroy(dns->files);
    ares_library_cleanup();
    while (dns->held)
        mem_free(take_held(dns));
    if (dns->loop)
        deadline_end(&dns->loop->wheel, &dns->due);
    mem_free(dns);
}
