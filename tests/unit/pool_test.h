/* For the tests of pool.c: a scripted server, a pool, and who asks it for connections. */
#ifndef POOL_TEST_H
#define POOL_TEST_H

#include "leg_test.h"

#include "up/pool.h"

/* The scripted server: what it accepted, in order. */
#define CONNS 64
static int listening, conns[CONNS];
static size_t accepted;
static struct addr addr;

static struct cluster *cluster;
static struct pool *pool;
static _Atomic uint64_t opened, reuses, idle, active;
static unsigned warm_calls;

/* Who asks for connections, and what they hear. */
struct asker {
    struct pool_waiter waiter;
    struct recorder rec;
    struct h1_client *client;
    struct leg_fault fault;
    bool failed, ready;
};
static struct asker a, b, c;
static char order[64]; /* in which askers hear */

static inline struct asker *asker_of(struct pool_waiter *waiter)
{
    return (struct asker *)((char *)waiter - offsetof(struct asker, waiter));
}

static inline void note(const struct asker *asker)
{
    size_t n = strlen(order);
    order[n] = asker == &a ? 'a' : asker == &b ? 'b' : 'c';
    order[n + 1] = '\0';
}

static inline void use(struct asker *asker, struct h1_client *client)
{
    asker->client = client;
    recorder_listen(&asker->rec, &client->leg);
    h1_client_lend(client);
}

static inline void on_ready(struct pool_waiter *waiter, struct h1_client *client)
{
    struct asker *asker = asker_of(waiter);
    asker->ready = true;
    note(asker);
    use(asker, client);
}

static inline void on_failed(struct pool_waiter *waiter, const struct leg_fault *fault)
{
    struct asker *asker = asker_of(waiter);
    assert_false(asker->failed);
    asker->failed = true;
    asker->fault = *fault;
    note(asker);
}

/* True: a connection was at hand. */
static inline bool take(struct asker *asker, bool fresh)
{
    asker->ready = asker->failed = false;
    asker->client = NULL;
    asker->waiter.on_ready = on_ready;
    asker->waiter.on_failed = on_failed;
    loop_enter(&loop);
    struct h1_client *client = pool_take(pool, fresh, &asker->waiter);
    assert_false(asker->ready || asker->failed); /* never from inside the call */
    if (client)
        use(asker, client);
    loop_leave(&loop);
    return client != NULL;
}

static inline void release_it(struct recorder *r)
{
    struct leg *leg = r->leg;
    recorder_free_arena(r);
    leg->ops->release(leg);
}

static inline void accept_all(void)
{
    int fd;
    while ((fd = accept_next(listening)) >= 0) {
        assert_true(accepted < CONNS);
        conns[accepted++] = fd;
    }
}

/* A whole request and answer, after which the connection goes back. */
static inline void finish(struct asker *asker, const char *fields)
{
    char answer[256], ask[] = "GET /x HTTP/1.1\r\n\r\n", got[64];
    struct head head = {.minor = 1, .method_text = STR("GET"), .target = STR("/x")};
    struct leg *leg = &asker->client->leg;
    size_t which = CONNS;
    asker->rec.on_end = release_it;
    asker->rec.log[0] = '\0';
    loop_enter(&loop);
    leg->ops->send_head(leg, &head);
    leg->ops->send_end(leg, NULL);
    loop_leave(&loop);
    int n = snprintf(answer, sizeof(answer), "HTTP/1.1 200 \r\n%sContent-Length: 0\r\n\r\n",
                     fields);
    while (which == CONNS) { /* the one that the request came to */
        accept_all();
        for (size_t i = 0; i < accepted && which == CONNS; i++)
            if (recv(conns[i], got, sizeof(got), 0) == (ssize_t)strlen(ask))
                which = i;
        turn();
    }
    feed(conns[which], answer, (size_t)n);
    UNTIL(strstr(asker->rec.log, "end []"));
    settle();
}

/* The first of so many workers' pools. */
static inline void open_pool_of(struct cluster_limits limits, unsigned workers)
{
    struct cluster_server server = {.addr = addr, .weight = 1};
    struct cluster_spec spec = {.name = "u", .limits = limits};
    struct pool_counters counters = {&opened, &reuses, &idle, &active};
    opened = reuses = idle = active = 0;
    cluster = cluster_new(&spec, &server, 1);
    pool = pool_new(&loop, cluster, 0, 0, workers, &counters);
    assert_non_null(pool);
}

static inline void open_pool(struct cluster_limits limits)
{
    open_pool_of(limits, 1);
}

static inline int set_up(void **state)
{
    if (set_up_loop(state))
        return -1;
    listening = listen_any(&addr);
    accepted = 0;
    warm_calls = 0;
    order[0] = '\0';
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    memset(&c, 0, sizeof(c));
    return 0;
}

static inline void close_pool(void)
{
    if (pool)
        IN_LOOP(pool_close(pool));
    pool = NULL;
    settle();
}

static inline int tear_down(void **state)
{
    struct asker *all[] = {&a, &b, &c};
    close_pool();
    for (size_t i = 0; i < 3; i++)
        if (all[i]->rec.leg)
            IN_LOOP(recorder_abort(&all[i]->rec));
    settle();
    assert_int_equal(cluster->refs, 1); /* the pool's memory is gone */
    assert_int_equal(cluster->servers[0].down, 0);
    assert_int_equal(idle, 0);
    assert_int_equal(active, 0);
    cluster_unref(cluster);
    for (size_t i = 0; i < accepted; i++)
        close(conns[i]);
    if (listening >= 0)
        close(listening);
    return tear_down_loop(state);
}

static inline void on_warm(void *arg)
{
    assert_ptr_equal(arg, &warm_calls);
    warm_calls++;
}

static inline void warm_up(void)
{
    IN_LOOP(pool_warm(pool, on_warm, &warm_calls));
    UNTIL(warm_calls);
}

#endif
