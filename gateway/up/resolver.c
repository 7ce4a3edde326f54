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

#define WEIGHT_MAX 1000 /* of a server */

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

/* Whose addresses a name has: its own, or those of what its SRV records say. */
struct target {
    struct dns_service at;
    struct half halves[2]; /* IPv4, IPv6 */
};

struct name {
    struct resolver *resolver;
    char *host;
    bool service; /* its SRV records are asked for first */
    struct dns_services_query query;
    uint32_t ttl_s;         /* of them */
    struct target *targets; /* do not move while they are asked for */
    size_t target_count;
    unsigned waiting;       /* questions that are not answered */
    struct resolved *found; /* in use: what can be reached of all targets */
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

static bool same_found(const struct name *name, const struct resolved *found, size_t count)
{
    if (name->count != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!addr_eq(&name->found[i].addr, &found[i].addr) ||
            name->found[i].weight != found[i].weight ||
            name->found[i].backup != found[i].backup)
            return false;
    return true;
}

static void set_port(struct addr *addr, uint16_t port)
{
    if (addr->sa.sa_family == AF_INET)
        addr->in4.sin_port = htons(port);
    else
        addr->in6.sin6_port = htons(port);
}

/* Whether there is a route; asks the kernel, sends nothing. */
static bool has_route(const struct addr *addr)
{
    struct addr to = *addr;
    set_port(&to, 9);
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

static size_t addrs_of(const struct target *target, struct addr ret[RESOLVE_MAX])
{
    const struct half *v4 = &target->halves[0], *v6 = &target->halves[1];
    size_t count = v4->count + v6->count;
    for (size_t i = 0; i < count; i++) {
        ret[i] = i < v4->count ? v4->addrs[i] : v6->addrs[i - v4->count];
        set_port(&ret[i], target->at.port);
    }
    return v4->count && v6->count ? drop_unroutable(ret, count) : count;
}

/* Of SRV records: as they are where ours reach as far, else to scale. */
static uint32_t weight_of(const struct name *name, const struct target *target)
{
    uint32_t heaviest = WEIGHT_MAX, weight = target->at.weight;
    if (!name->service)
        return 0;
    for (size_t i = 0; i < name->target_count; i++)
        if (name->targets[i].at.weight > heaviest)
            heaviest = name->targets[i].at.weight;
    weight = weight * WEIGHT_MAX / heaviest;
    return weight ? weight : 1;
}

/* Puts all targets together; two that have an address and port in common have it once. False:
 * no memory, and nothing has changed. */
static bool combine(struct name *name, bool *ret_changed)
{
    struct resolved *found = mem_alloc(RESOLVE_MAX * sizeof(*found));
    struct addr addrs[RESOLVE_MAX];
    size_t count = 0;
    if (!found)
        return false;
    uint16_t best = 0;
    for (size_t t = 0; t < name->target_count; t++) {
        const struct target *target = &name->targets[t];
        for (size_t i = 0, n = addrs_of(target, addrs); i < n && count < RESOLVE_MAX; i++) {
            size_t k = 0;
            while (k < count && !addr_eq(&found[k].addr, &addrs[i]))
                k++;
            if (!count)
                best = target->at.priority;
            if (k == count)
                found[count++] = (struct resolved){addrs[i], weight_of(name, target),
                                                   target->at.priority > best};
        }
    }
    *ret_changed = !same_found(name, found, count);
    struct resolved *less = mem_realloc(found, (count ? count : 1) * sizeof(*found));
    mem_free(name->found);
    name->found = less ? less : found;
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
 * of a family counts only beside one that there is. False: neither has been found. */
static bool judge(struct target *target, uint32_t *ttl, const char **ret_why)
{
    struct half *v4 = &target->halves[0], *v6 = &target->halves[1];
    if (v4->verdict != DNS_FOUND && v6->verdict != DNS_FOUND) {
        *ret_why = v6->verdict == DNS_FAILED ? v6->why : v4->why;
        return false;
    }
    for (struct half *half = v4; half <= v6; half++) {
        if (half->verdict == DNS_NONE)
            half->count = 0;
        if (half->verdict == DNS_FOUND && half->ttl_s < *ttl)
            *ttl = half->ttl_s;
    }
    return true;
}

static void tell_change(struct name *name)
{
    if (name->resolver->ops)
        loop_task(name->resolver->loop, &name->resolver->changed);
}

/* All questions are answered. A target without an answer does not hold up the others. */
static void settle(struct name *name)
{
    uint32_t ttl = name->ttl_s < TTL_MAX ? name->ttl_s : TTL_MAX;
    const char *why = NULL;
    size_t good = 0;
    for (size_t i = 0; i < name->target_count; i++)
        good += judge(&name->targets[i], &ttl, &why);
    if (!good) {
        failed(name, why);
        return;
    }
    bool changed;
    if (!combine(name, &changed)) {
        failed(name, "out of memory");
        return;
    }
    if (why && ttl > RETRY_MAX)
        ttl = RETRY_MAX;
    name->failures = 0;
    name->why = why ? "a target of its SRV records has no address" : NULL;
    tell(name);
    next_at(name, ttl < TTL_MIN ? TTL_MIN : ttl);
    if (changed)
        tell_change(name);
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

static bool copy_addrs(struct addr **to, const struct addr *from, size_t count)
{
    *to = count ? mem_alloc(count * sizeof(**to)) : NULL;
    if (*to)
        memcpy(*to, from, count * sizeof(**to));
    return *to != NULL;
}

static void targets_free(struct target *targets, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(targets[i].halves[0].addrs);
        mem_free(targets[i].halves[1].addrs);
    }
    mem_free(targets);
}

static struct target *targets_new(struct name *name, size_t count)
{
    struct target *targets = mem_zalloc((count ? count : 1) * sizeof(*targets));
    for (size_t i = 0; targets && i < count; i++)
        for (int k = 0; k < 2; k++) {
            struct half *half = &targets[i].halves[k];
            half->name = name;
            half->query =
                (struct dns_query){.family = k ? AF_INET6 : AF_INET, .on_answer = on_answer};
        }
    return targets;
}

/* Begins with the addresses that the host had; without memory, with none. */
static void begin_with(struct target *target, const struct name *from)
{
    for (size_t i = 0; i < from->target_count; i++) {
        const struct target *old = &from->targets[i];
        if (strcasecmp(old->at.host, target->at.host) != 0)
            continue;
        for (int k = 0; k < 2; k++)
            if (copy_addrs(&target->halves[k].addrs, old->halves[k].addrs,
                           old->halves[k].count))
                target->halves[k].count = old->halves[k].count;
        return;
    }
}

/* A target of a record is the whole name: no search list. */
static void ask(struct name *name, struct target *target)
{
    struct dns *dns = name->resolver->dns;
    struct dns_answer answer;
    char host[DNS_NAME_MAX + 1];
    if (dns_hosts(dns, target->at.host, &answer)) {
        answer.ttl_s = FILE_TTL;
        take(&target->halves[0], &answer);
        take(&target->halves[1], &answer);
        return;
    }
    snprintf(host, sizeof(host), "%s%s", target->at.host, name->service ? "." : "");
    name->waiting += 2;
    dns_ask(dns, host, &target->halves[0].query);
    dns_ask(dns, host, &target->halves[1].query);
}

static void ask_all(struct name *name)
{
    name->waiting = 1; /* so that it does not end before all are asked */
    for (size_t i = 0; i < name->target_count; i++)
        ask(name, &name->targets[i]);
    if (--name->waiting == 0)
        settle(name);
}

/* The only word that takes all addresses away: its own record says that there are none. */
static void withdraw(struct name *name)
{
    bool changed = name->count > 0;
    targets_free(name->targets, name->target_count);
    name->targets = NULL;
    name->target_count = name->count = 0;
    failed(name, "its SRV record says that there is no such service");
    if (changed)
        tell_change(name);
}

static void on_services(struct dns_services_query *query, const struct dns_services *answer)
{
    struct name *name = (struct name *)((char *)query - offsetof(struct name, query));
    name->waiting = 0;
    if (answer->verdict != DNS_FOUND) {
        failed(name, answer->why);
        return;
    }
    if (!answer->count) {
        withdraw(name);
        return;
    }
    struct target *targets = targets_new(name, answer->count);
    if (!targets) {
        failed(name, "out of memory");
        return;
    }
    for (size_t i = 0; i < answer->count; i++) {
        targets[i].at = answer->list[i];
        begin_with(&targets[i], name);
    }
    targets_free(name->targets, name->target_count);
    name->targets = targets;
    name->target_count = answer->count;
    name->ttl_s = answer->ttl_s;
    ask_all(name);
}

static void look_up(struct name *name)
{
    if (name->waiting) /* it is being asked for already */
        return;
    if (!name->service) {
        ask_all(name);
        return;
    }
    name->waiting = 1;
    dns_ask_services(name->resolver->dns, name->host, &name->query);
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

/* The name in a server's text; port 0: its SRV records say it. False: there is none. */
static bool host_of(struct str text, char ret[DNS_NAME_MAX], uint16_t *ret_port)
{
    struct addr addr;
    struct str host = text, domain;
    *ret_port = 0;
    if (!addr_split_service(text, &domain) &&
        (addr_parse(text, &addr) == 0 || addr_split_name(text, &host, ret_port) < 0))
        return false;
    if (host.n >= DNS_NAME_MAX)
        return false;
    memcpy(ret, host.p, host.n);
    ret[host.n] = '\0';
    return true;
}

static void name_free(struct name *name)
{
    if (!name)
        return;
    targets_free(name->targets, name->target_count);
    mem_free(name->found);
    mem_free(name->host);
    mem_free(name);
}

static struct name *name_new(struct resolver *resolver, const char *host)
{
    struct name *name = mem_zalloc(sizeof(*name));
    struct str domain;
    if (!name)
        return NULL;
    name->resolver = resolver;
    name->why = "it was not looked up";
    name->service = addr_split_service(str_of(host), &domain);
    name->query.on_answer = on_services;
    name->ttl_s = TTL_MAX;
    deadline_init(&name->due, on_due);
    size_t size = strlen(host) + 1;
    name->host = mem_alloc(size);
    name->targets = targets_new(name, 1);
    if (!name->host || !name->targets) {
        name_free(name);
        return NULL;
    }
    memcpy(name->host, host, size);
    memcpy(name->targets[0].at.host, host, size);
    name->target_count = name->service ? 0 : 1;
    return name;
}

int resolver_add(struct resolver *resolver, struct str text)
{
    char host[DNS_NAME_MAX];
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

static void inherit(struct name *name, const struct name *from)
{
    struct resolved *found = mem_alloc((from->count ? from->count : 1) * sizeof(*found));
    struct target *targets = targets_new(name, from->target_count);
    if (!found || !targets) {
        mem_free(found);
        targets_free(targets, 0);
        return;
    }
    for (size_t i = 0; i < from->target_count; i++) {
        targets[i].at = from->targets[i].at;
        begin_with(&targets[i], from);
    }
    if (from->count)
        memcpy(found, from->found, from->count * sizeof(*found));
    targets_free(name->targets, name->target_count);
    name->targets = targets;
    name->target_count = from->target_count;
    name->found = found;
    name->count = from->count;
}

/* Without memory a name begins with nothing. */
void resolver_inherit(struct resolver *resolver, const struct resolver *old)
{
    for (size_t i = 0; old && i < resolver->count; i++) {
        bool there;
        size_t at = place(old, resolver->names[i]->host, &there);
        if (there)
            inherit(resolver->names[i], old->names[at]);
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
                    struct resolved ret[RESOLVE_MAX], const char **ret_why)
{
    char host[DNS_NAME_MAX];
    uint16_t port;
    *ret_why = NULL;
    ret[0] = (struct resolved){.weight = 0};
    if (addr_parse(text, &ret[0].addr) == 0)
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
        ret[i] = name->found[i];
        if (port)
            set_port(&ret[i].addr, port);
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
