#include "up/resolver.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

/* Seconds until a name is looked up again. */
#define TTL_MIN   1
#define TTL_MAX   3600
#define FILE_TTL  5 /* for what stands in /etc/hosts */
#define RETRY_MIN 1 /* after a failure, then twice as long each time */
#define RETRY_MAX 30

/* What is known of one address family of a name. */
struct half {
    struct dns_query query;
    struct name *name;
    struct addr *addrs;
    size_t count;
    enum dns_verdict verdict; /* the last one */
    uint32_t ttl_s;
    const char *why;
};

struct name {
    struct resolver *resolver;
    char *host;
    struct half halves[2]; /* IPv4, IPv6 */
    unsigned waiting;      /* halves that are being asked for */
    struct addr *addrs;    /* in use: those of both halves that can be reached */
    size_t count;
    const char *why;   /* NULL: the last look-up went well */
    unsigned failures; /* in a row */
    bool told;         /* of them */
    uint64_t due_at;   /* ns */
    struct deadline due;
};

struct resolver {
    struct dns *dns;
    struct name **names; /* sorted by host */
    size_t count;
    struct loop *loop; /* NULL: not watched */
    const struct resolver_ops *ops;
    void *arg;
    struct task changed;
    size_t unsettled; /* with on_settled: names whose first look-up is under way */
    void (*on_settled)(void *arg);
    void *settled_arg;
    struct task settled;
    struct deadline start_due;
};

/* ---- what came out ---- */

static bool same_addrs(const struct addr *a, size_t a_count, const struct addr *b,
                       size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++)
        if (!addr_eq(&a[i], &b[i]))
            return false;
    return true;
}

/* Whether there is a route; asks the kernel, sends nothing. */
static bool has_route(const struct addr *addr)
{
    struct addr to = *addr;
    if (to.sa.sa_family == AF_INET)
        to.in4.sin_port = htons(9);
    else
        to.in6.sin6_port = htons(9);
    int fd = socket(to.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool ok = connect(fd, &to.sa, to.len) == 0;
    close(fd);
    return ok;
}

/* Where a name has addresses of both families, those without a route are left out: a host
 * without IPv6 must not spend its tries on it. Where all are without, all stay. */
static size_t drop_unroutable(struct addr *addrs, size_t count)
{
    size_t good = 0;
    bool keep[RESOLVE_MAX];
    for (size_t i = 0; i < count; i++)
        good += keep[i] = has_route(&addrs[i]);
    if (!good)
        return count;
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (keep[i])
            addrs[n++] = addrs[i];
    return n;
}

/* Puts the halves together. False: no memory, and nothing has changed. */
static bool combine(struct name *name, bool *ret_changed)
{
    const struct half *v4 = &name->halves[0], *v6 = &name->halves[1];
    size_t count = v4->count + v6->count;
    struct addr *addrs = mem_alloc((count ? count : 1) * sizeof(*addrs));
    if (!addrs)
        return false;
    for (size_t i = 0; i < count; i++)
        addrs[i] = i < v4->count ? v4->addrs[i] : v6->addrs[i - v4->count];
    if (v4->count && v6->count)
        count = drop_unroutable(addrs, count);
    *ret_changed = !same_addrs(addrs, count, name->addrs, name->count);
    mem_free(name->addrs);
    name->addrs = addrs;
    name->count = count;
    return true;
}

static void tell(struct name *name)
{
    struct resolver *resolver = name->resolver;
    bool failed = name->why != NULL, news = failed != name->told;
    name->told = failed;
    if (!resolver->ops ||
        !news) /* before it is watched, who waits asks for the outcome himself */
        return;
    if (failed)
        resolver->ops->on_failed(resolver->arg, name->host, name->why, name->count);
    else
        resolver->ops->on_found(resolver->arg, name->host, name->count);
}

static void next_at(struct name *name, uint32_t seconds)
{
    name->due_at = clock_ns() + seconds * NS_PER_S;
    if (name->resolver->loop)
        loop_deadline(name->resolver->loop, &name->due, seconds * 1000ull);
}

/* The first look-up of one more name has come to its end. */
static void count_settled(struct resolver *resolver)
{
    if (resolver->on_settled && resolver->unsettled && --resolver->unsettled == 0)
        loop_task(resolver->loop, &resolver->settled);
}

static void failed(struct name *name, const char *why)
{
    unsigned shift = name->failures < 5 ? name->failures : 5;
    uint32_t pause = RETRY_MIN << shift;
    name->failures++;
    name->why = why;
    tell(name);
    next_at(name, pause < RETRY_MAX ? pause : RETRY_MAX);
    count_settled(name->resolver);
}

/* Both families are answered. One that nobody knows of keeps what it had; that there is none
 * of a family counts only beside one that there is. */
static void settle(struct name *name)
{
    struct half *v4 = &name->halves[0], *v6 = &name->halves[1];
    if (v4->verdict != DNS_FOUND && v6->verdict != DNS_FOUND) {
        failed(name, v6->verdict == DNS_FAILED ? v6->why : v4->why);
        return;
    }
    uint32_t ttl = TTL_MAX;
    for (struct half *half = v4; half <= v6; half++) {
        if (half->verdict == DNS_NONE)
            half->count = 0;
        if (half->verdict == DNS_FOUND && half->ttl_s < ttl)
            ttl = half->ttl_s;
    }
    bool changed;
    if (!combine(name, &changed)) {
        failed(name, "out of memory");
        return;
    }
    name->failures = 0;
    name->why = NULL;
    tell(name);
    next_at(name, ttl < TTL_MIN ? TTL_MIN : ttl);
    if (changed && name->resolver->ops)
        loop_task(name->resolver->loop, &name->resolver->changed);
    count_settled(name->resolver);
}

/* ---- looking up ---- */

/* Its own family of the answer. */
static void take(struct half *half, const struct dns_answer *answer)
{
    size_t n = 0, first = 0;
    while (first < answer->count && answer->addrs[first].sa.sa_family != half->query.family)
        first++;
    while (first + n < answer->count &&
           answer->addrs[first + n].sa.sa_family == half->query.family)
        n++;
    half->verdict = answer->verdict == DNS_FOUND && !n ? DNS_NONE : answer->verdict;
    half->why = answer->why;
    half->ttl_s = answer->ttl_s;
    if (half->verdict != DNS_FOUND)
        return;
    struct addr *addrs = mem_alloc(n * sizeof(*addrs));
    if (!addrs) {
        half->verdict = DNS_FAILED;
        half->why = "out of memory";
        return;
    }
    memcpy(addrs, answer->addrs + first, n * sizeof(*addrs));
    mem_free(half->addrs);
    half->addrs = addrs;
    half->count = n;
}

static void on_answer(struct dns_query *query, const struct dns_answer *answer)
{
    struct half *half = (struct half *)((char *)query - offsetof(struct half, query));
    take(half, answer);
    if (--half->name->waiting == 0)
        settle(half->name);
}

static void look_up(struct name *name)
{
    struct dns *dns = name->resolver->dns;
    struct dns_answer answer;
    if (name->waiting) /* it is being asked for already */
        return;
    if (dns_hosts(dns, name->host, &answer)) {
        answer.ttl_s = FILE_TTL;
        take(&name->halves[0], &answer);
        take(&name->halves[1], &answer);
        settle(name);
        return;
    }
    name->waiting = 2;
    dns_ask(dns, name->host, &name->halves[0].query);
    dns_ask(dns, name->host, &name->halves[1].query);
}

static void on_due(struct deadline *deadline)
{
    look_up((struct name *)((char *)deadline - offsetof(struct name, due)));
}

static void on_changed(struct task *task)
{
    struct resolver *resolver =
        (struct resolver *)((char *)task - offsetof(struct resolver, changed));
    resolver->ops->on_change(resolver->arg);
}

/* ---- the book ---- */

/* Where `host` is, or belongs. */
static size_t place(const struct resolver *resolver, const char *host, bool *ret_there)
{
    size_t low = 0, high = resolver->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcasecmp(resolver->names[middle]->host, host) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_there = low < resolver->count && strcasecmp(resolver->names[low]->host, host) == 0;
    return low;
}

#define HOST_MAX 256

/* The name in a server's text. False: there is none. */
static bool host_of(struct str text, char ret[HOST_MAX], uint16_t *ret_port)
{
    struct addr addr;
    struct str host;
    if (addr_parse(text, &addr) == 0 || addr_split_name(text, &host, ret_port) < 0 ||
        host.n >= HOST_MAX)
        return false;
    memcpy(ret, host.p, host.n);
    ret[host.n] = '\0';
    return true;
}

static void name_free(struct name *name)
{
    if (!name)
        return;
    mem_free(name->halves[0].addrs);
    mem_free(name->halves[1].addrs);
    mem_free(name->addrs);
    mem_free(name->host);
    mem_free(name);
}

static struct name *name_new(struct resolver *resolver, const char *host)
{
    struct name *name = mem_zalloc(sizeof(*name));
    if (!name)
        return NULL;
    name->resolver = resolver;
    name->why = "it was not looked up";
    deadline_init(&name->due, on_due);
    for (int i = 0; i < 2; i++) {
        name->halves[i].name = name;
        name->halves[i].query =
            (struct dns_query){.family = i ? AF_INET6 : AF_INET, .on_answer = on_answer};
    }
    size_t size = strlen(host) + 1;
    name->host = mem_alloc(size);
    if (!name->host) {
        name_free(name);
        return NULL;
    }
    memcpy(name->host, host, size);
    return name;
}

int resolver_add(struct resolver *resolver, struct str text)
{
    char host[HOST_MAX];
    uint16_t port;
    if (!host_of(text, host, &port))
        return 0;
    bool there;
    size_t at = place(resolver, host, &there);
    if (there)
        return 0;
    struct name **more =
        mem_realloc(resolver->names, (resolver->count + 1) * sizeof(struct name *));
    if (!more)
        return -ENOMEM;
    resolver->names = more;
    struct name *name = name_new(resolver, host);
    if (!name)
        return -ENOMEM;
    memmove(&more[at + 1], &more[at], (resolver->count - at) * sizeof(struct name *));
    more[at] = name;
    resolver->count++;
    return 0;
}

static bool copy_addrs(struct addr **to, const struct addr *from, size_t count)
{
    *to = count ? mem_alloc(count * sizeof(**to)) : NULL;
    if (*to)
        memcpy(*to, from, count * sizeof(**to));
    return *to != NULL;
}

/* Without memory a name begins with nothing. */
void resolver_inherit(struct resolver *resolver, const struct resolver *old)
{
    for (size_t i = 0; old && i < resolver->count; i++) {
        struct name *name = resolver->names[i];
        bool there;
        size_t at = place(old, name->host, &there);
        if (!there)
            continue;
        const struct name *from = old->names[at];
        for (int k = 0; k < 2; k++)
            if (copy_addrs(&name->halves[k].addrs, from->halves[k].addrs,
                           from->halves[k].count))
                name->halves[k].count = from->halves[k].count;
        if (copy_addrs(&name->addrs, from->addrs, from->count))
            name->count = from->count;
    }
}

void resolver_wait(struct resolver *resolver, uint64_t ms)
{
    for (size_t i = 0; i < resolver->count; i++)
        look_up(resolver->names[i]);
    dns_wait(resolver->dns, ms);
}

static void on_settled(struct task *task)
{
    struct resolver *resolver =
        (struct resolver *)((char *)task - offsetof(struct resolver, settled));
    void (*tell_it)(void *) = resolver->on_settled;
    resolver->on_settled = NULL;
    deadline_end(&resolver->loop->wheel, &resolver->start_due);
    if (tell_it)
        tell_it(resolver->settled_arg);
}

/* Whoever is still asked for has not been found in time; the answer may come later. */
static void on_start_due(struct deadline *deadline)
{
    struct resolver *resolver =
        (struct resolver *)((char *)deadline - offsetof(struct resolver, start_due));
    for (size_t i = 0; i < resolver->count; i++)
        if (resolver->names[i]->waiting)
            resolver->names[i]->why = "no DNS server answered in time";
    loop_task(resolver->loop, &resolver->settled);
}

void resolver_start(struct resolver *resolver, struct loop *loop, uint64_t ms,
                    void (*tell_it)(void *arg), void *arg)
{
    resolver->loop = loop;
    resolver->on_settled = tell_it;
    resolver->settled_arg = arg;
    resolver->unsettled =
        resolver->count + 1; /* so that it does not end before all are asked */
    dns_attach(resolver->dns, loop);
    deadline_init(&resolver->start_due, on_start_due);
    loop_deadline(loop, &resolver->start_due, ms);
    for (size_t i = 0; i < resolver->count; i++)
        look_up(resolver->names[i]);
    count_settled(resolver);
}

void resolver_watch(struct resolver *resolver, struct loop *loop,
                    const struct resolver_ops *ops, void *arg)
{
    resolver->loop = loop;
    resolver->ops = ops;
    resolver->arg = arg;
    dns_attach(resolver->dns, loop);
    uint64_t now = loop->now;
    for (size_t i = 0; i < resolver->count; i++) {
        struct name *name = resolver->names[i];
        if (name->waiting)
            continue; /* its answer is on the way */
        uint64_t ms = name->due_at > now ? (name->due_at - now) / NS_PER_MS : 0;
        loop_deadline(loop, &name->due, ms + 1);
    }
}

size_t resolver_get(const struct resolver *resolver, struct str text,
                    struct addr ret[RESOLVE_MAX], const char **ret_why)
{
    char host[HOST_MAX];
    uint16_t port;
    *ret_why = NULL;
    if (addr_parse(text, &ret[0]) == 0)
        return 1;
    bool there = false;
    size_t at = 0;
    if (host_of(text, host, &port) && resolver)
        at = place(resolver, host, &there);
    if (!there) {
        *ret_why = "it is not a name that was looked up";
        return 0;
    }
    const struct name *name = resolver->names[at];
    *ret_why = name->why;
    for (size_t i = 0; i < name->count; i++) {
        ret[i] = name->addrs[i];
        if (ret[i].sa.sa_family == AF_INET)
            ret[i].in4.sin_port = htons(port);
        else
            ret[i].in6.sin6_port = htons(port);
    }
    return name->count;
}

struct resolver *resolver_new(const struct addr *servers, size_t count)
{
    struct resolver *resolver = mem_zalloc(sizeof(*resolver));
    if (!resolver)
        return NULL;
    resolver->changed.run = on_changed;
    resolver->settled.run = on_settled;
    resolver->dns = dns_new(servers, count);
    if (resolver->dns)
        return resolver;
    mem_free(resolver);
    return NULL;
}

void resolver_free(struct resolver *resolver)
{
    if (!resolver)
        return;
    dns_free(resolver->dns);
    if (resolver->loop) {
        loop_cancel(resolver->loop, &resolver->changed);
        loop_cancel(resolver->loop, &resolver->settled);
        deadline_end(&resolver->loop->wheel, &resolver->start_due);
    }
    for (size_t i = 0; i < resolver->count; i++) {
        if (resolver->loop)
            deadline_end(&resolver->loop->wheel, &resolver->names[i]->due);
        name_free(resolver->names[i]);
    }
    mem_free(resolver->names);
    mem_free(resolver);
}
