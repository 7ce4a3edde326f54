#include "rate_limit/redis_link.h"

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS    256
#define CONNECT_MS 1000
#define PAUSE_MIN  100
#define PAUSE_MAX  5000

struct redis_target {
    const struct postern_api *api;
    char *name, *host, *path, *user, *password;
    char db[12];
    uint16_t port;
    uint32_t timeout_ms;
    _Atomic unsigned away;             /* workers that said so, and not that it is back */
    struct redis_link *links[WORKERS]; /* each touched by its worker only */
};

/*      FIRST ──▶ UP ◀── TRYING
 *        │       │        ▲ │
 *        └──▶  AWAY  ─────┘ ▼
 * In FIRST commands are taken before it is known whether there is a Redis: at a start nobody is
 * turned away for the time of a connect. */
enum state { FIRST, UP, AWAY, TRYING };

/* A connection, while hiredis knows it. */
struct conn {
    struct redis_link *link;
    redisAsyncContext *ac;
    int fd;
    unsigned events;
};

struct redis_link {
    struct redis_target *target;
    struct postern_worker *worker;
    unsigned users;
    enum state state;
    bool said_away;
    bool refused;      /* what we wanted, the last time; being let in does not mean much then */
    struct conn *conn; /* NULL: none */
    struct redis_call *first, **last; /* sent and not answered */
    uint32_t pause_ms;
    uint64_t retry_at, connect_by; /* AWAY; FIRST and TRYING */
    uint64_t timer, timer_at;
};

static void fail(struct redis_link *link, const char *why);
static void arm(struct redis_link *link);

/* ---- targets ---- */

static bool copy(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

struct redis_target *redis_target_new(const struct postern_api *api,
                                      const struct redis_address *address, const char *name)
{
    struct redis_target *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->api = api;
    t->port = address->port;
    t->timeout_ms = address->timeout_ms;
    if (address->db)
        snprintf(t->db, sizeof(t->db), "%u", address->db);
    if (!copy(&t->name, name) || !copy(&t->host, address->host) ||
        !copy(&t->path, address->path) || !copy(&t->user, address->user) ||
        !copy(&t->password, address->password)) {
        redis_target_free(t);
        return NULL;
    }
    return t;
}

void redis_target_free(void *target)
{
    struct redis_target *t = target;
    free(t->name);
    free(t->host);
    free(t->path);
    free(t->user);
    if (t->password)
        explicit_bzero(t->password, strlen(t->password));
    free(t->password);
    free(t);
}

/* ---- hiredis on the worker's loop ---- */

static void on_ready(struct postern_worker *w, unsigned events, void *arg)
{
    struct conn *conn = arg;
    struct redis_link *link = conn->link;
    redisAsyncContext *ac = conn->ac;
    (void)w;
    if (events & POSTERN_READ)
        redisAsyncHandleRead(ac);
    if (events & POSTERN_WRITE && link->conn == conn)
        redisAsyncHandleWrite(ac);
}

static void watch(struct conn *conn, unsigned events)
{
    if (events != conn->events &&
        conn->link->target->api->watch(conn->link->worker, conn->fd, events, on_ready, conn))
        conn->events = events; /* else its commands time out */
}

static void add_read(void *conn)
{
    watch(conn, ((struct conn *)conn)->events | POSTERN_READ);
}

static void del_read(void *conn)
{
    watch(conn, ((struct conn *)conn)->events & ~(unsigned)POSTERN_READ);
}

static void add_write(void *conn)
{
    watch(conn, ((struct conn *)conn)->events | POSTERN_WRITE);
}

static void del_write(void *conn)
{
    watch(conn, ((struct conn *)conn)->events & ~(unsigned)POSTERN_WRITE);
}

/* A connection that hiredis ends: all that waits gets NULL first. */
static void lost(const redisAsyncContext *ac)
{
    struct conn *conn = ac->data;
    if (conn && conn->link->conn == conn) {
        conn->link->conn = NULL;
        fail(conn->link, ac->err ? ac->errstr : "the connection was closed");
    }
}

/* hiredis is about to close it, for whatever reason. */
static void cleanup(void *arg)
{
    struct conn *conn = arg;
    watch(conn, 0);
    lost(conn->ac);
    conn->ac->data = NULL;
    free(conn);
}

/* ---- states ---- */

static void say_away(struct redis_link *link, const char *why)
{
    struct redis_target *t = link->target;
    if (link->said_away)
        return;
    link->said_away = true;
    if (atomic_fetch_add(&t->away, 1) == 0)
        t->api->log(&postern_plugin, POSTERN_WARN,
                    "redis %s: %.200s; limits go by redis_down until it answers", t->name, why);
}

static void say_back(struct redis_link *link)
{
    struct redis_target *t = link->target;
    link->pause_ms = PAUSE_MIN;
    link->refused = false;
    if (!link->said_away)
        return;
    link->said_away = false;
    if (atomic_fetch_sub(&t->away, 1) == 1)
        t->api->log(&postern_plugin, POSTERN_INFO, "redis %s answers again", t->name);
}

static void fail(struct redis_link *link, const char *why)
{
    if (link->state == AWAY)
        return;
    char reason[256]; /* `why` may lie in what is freed here */
    snprintf(reason, sizeof(reason), "%s", why);
    say_away(link, reason);
    link->state = AWAY;
    uint64_t now = link->target->api->now_ns();
    /* Not all workers at the same time. */
    uint64_t pause = link->pause_ms + now / 1000 % (link->pause_ms / 4);
    link->retry_at = now + pause * 1000000;
    link->pause_ms = link->pause_ms * 2 < PAUSE_MAX ? link->pause_ms * 2 : PAUSE_MAX;
    if (link->conn)
        redisAsyncFree(link->conn->ac); /* fails what waits, and ends the watch */
    arm(link);
}

static void on_connect(const redisAsyncContext *ac, int status)
{
    struct conn *conn = ac->data;
    if (status == REDIS_OK || !conn || conn->link->conn != conn)
        return;
    conn->link->conn = NULL; /* hiredis ends it behind this */
    fail(conn->link, ac->errstr);
}

static void on_hello(redisAsyncContext *ac, void *answer, void *last)
{
    struct conn *conn = ac->data;
    const redisReply *reply = answer;
    if (!reply) {
        lost(ac);
        return;
    }
    if (!conn || conn->link->conn != conn)
        return;
    struct redis_link *link = conn->link;
    if (reply->type == REDIS_REPLY_ERROR) {
        fail(link, reply->str);
    } else if (last) {
        link->state = UP;
        /* One that is full, or a replica, greets everybody. */
        if (!link->refused)
            say_back(link);
    }
}

static void greet(redisAsyncContext *ac, const struct redis_target *t)
{
    if (t->password && t->user)
        redisAsyncCommand(ac, on_hello, NULL, "AUTH %s %s", t->user, t->password);
    else if (t->password)
        redisAsyncCommand(ac, on_hello, NULL, "AUTH %s", t->password);
    if (t->db[0])
        redisAsyncCommand(ac, on_hello, NULL, "SELECT %s", t->db);
    static int last;
    redisAsyncCommand(ac, on_hello, &last, "PING");
}

static void begin(struct redis_link *link)
{
    struct redis_target *t = link->target;
    struct conn *conn = calloc(1, sizeof(*conn));
    redisAsyncContext *ac = !conn     ? NULL
                            : t->path ? redisAsyncConnectUnix(t->path)
                                      : redisAsyncConnect(t->host, t->port);
    if (!ac || ac->err) {
        fail(link, ac ? ac->errstr : "out of memory");
        if (ac)
            redisAsyncFree(ac);
        free(conn);
        return;
    }
    *conn = (struct conn){.link = link, .ac = ac, .fd = ac->c.fd};
    ac->data = conn;
    ac->ev.data = conn;
    ac->ev.addRead = add_read;
    ac->ev.delRead = del_read;
    ac->ev.addWrite = add_write;
    ac->ev.delWrite = del_write;
    ac->ev.cleanup = cleanup;
    link->conn = conn;
    link->connect_by = t->api->now_ns() + CONNECT_MS * UINT64_C(1000000);
    redisAsyncSetConnectCallback(ac, on_connect);
    greet(ac, t);
    arm(link);
}

/* ---- the timer ---- */

static bool is_late(const struct redis_link *link, uint64_t now)
{
    return link->first &&
           now >= link->first->sent + link->target->timeout_ms * UINT64_C(1000000);
}

static void tick(struct postern_worker *w, void *arg)
{
    struct redis_link *link = arg;
    uint64_t now = link->target->api->now_ns();
    (void)w;
    link->timer = 0;
    if (link->state == AWAY && now >= link->retry_at) {
        link->state = TRYING;
        begin(link);
    } else if ((link->state == FIRST || link->state == TRYING) && now >= link->connect_by) {
        fail(link, "no connection within a second");
    } else if (is_late(link, now) && link->conn) {
        /* When it is we who were held up, the answer is there already. */
        redisAsyncHandleRead(link->conn->ac);
        if (is_late(link, now)) {
            char why[64];
            snprintf(why, sizeof(why), "no answer within %u ms", link->target->timeout_ms);
            fail(link, why);
        }
    }
    arm(link);
}

/* The timer comes when the next thing is due, or before. */
static void arm(struct redis_link *link)
{
    const struct postern_api *api = link->target->api;
    uint64_t now = api->now_ns(), due = UINT64_MAX;
    if (link->state == AWAY)
        due = link->retry_at;
    else if (link->state != UP)
        due = link->connect_by;
    if (link->first) {
        uint64_t sent = link->first->sent + link->target->timeout_ms * UINT64_C(1000000);
        due = sent < due ? sent : due;
    }
    if (due == UINT64_MAX || (link->timer && link->timer_at <= due))
        return;
    if (link->timer)
        api->cancel(link->worker, link->timer);
    uint64_t ms = due > now ? (due - now) / 1000000 + 1 : 1;
    link->timer_at = due;
    link->timer = api->timer(link->worker, (uint32_t)ms, tick, link);
}

/* ---- users ---- */

struct redis_link *redis_join(struct redis_target *target, struct postern_worker *worker)
{
    unsigned index = target->api->worker_index(worker);
    struct redis_link *link = target->links[index];
    if (!link) {
        link = calloc(1, sizeof(*link));
        if (!link)
            return NULL;
        *link = (struct redis_link){.target = target, .worker = worker, .pause_ms = PAUSE_MIN};
        link->last = &link->first;
        target->links[index] = link;
        begin(link);
    }
    link->users++;
    return link;
}

void redis_leave(struct redis_link *link)
{
    struct redis_target *t = link->target;
    if (--link->users > 0)
        return;
    if (link->said_away)
        atomic_fetch_sub(&t->away, 1);
    link->state = AWAY; /* nobody hears of this end */
    if (link->conn)
        redisAsyncFree(link->conn->ac);
    if (link->timer)
        t->api->cancel(link->worker, link->timer);
    t->links[t->api->worker_index(link->worker)] = NULL;
    free(link);
}

bool redis_is_away(const struct redis_link *link)
{
    return link->state == AWAY || link->state == TRYING;
}

static void on_reply(redisAsyncContext *ac, void *answer, void *arg)
{
    struct redis_call *call = arg;
    struct redis_link *link = call->link;
    redisReply *reply = answer;
    link->first = call->next; /* answers come in order */
    if (!link->first)
        link->last = &link->first;
    if (!reply) {
        lost(ac);
    } else if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) != 0) {
        link->refused = true;
        fail(link, reply->str);
        reply = NULL;
    } else if (reply->type != REDIS_REPLY_ERROR) {
        say_back(link);
    }
    call->done(call, reply);
}

bool redis_send(struct redis_link *link, struct redis_call *call, int argc, const char **argv,
                const size_t *lengths)
{
    if (redis_is_away(link) || !link->conn)
        return false;
    call->link = link;
    call->next = NULL;
    call->sent = link->target->api->now_ns();
    if (redisAsyncCommandArgv(link->conn->ac, on_reply, call, argc, argv, lengths) != REDIS_OK)
        return false;
    *link->last = call;
    link->last = &call->next;
    if (link->first == call)
        arm(link);
    return true;
}
