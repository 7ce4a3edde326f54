#include "proxy/attempt.h"

#include "up/outlier.h"

/* ---- choosing ---- */

static int pick_among(struct context *cx, const struct fleet *fleet, const struct tried *tried,
                      uint64_t hash, uint32_t regardless)
{
    struct tried passed = *tried;
    int busy = -1, down = -1;
    passed.regardless = regardless;
    for (;;) {
        uint64_t random =
            fleet->cluster->balance == BALANCE_TWO_CHOICES ? context_random(cx) : 0;
        int server = balance_pick(fleet->cluster, &passed, hash, random);
        if (server < 0)
            return busy < 0 ? down : busy;
        struct pool *pool = fleet->pools[server];
        bool is_down = pool_is_down(pool);
        if (!is_down && (hash || !pool_is_busy(pool))) /* keys wait for their server */
            return server;
        int *other = is_down ? &down : &busy;
        if (*other < 0)
            *other = server;
        tried_add(&passed, (unsigned)server);
    }
}

int attempt_pick(struct context *cx, const struct fleet *fleet, const struct tried *tried,
                 uint64_t hash)
{
    int server = pick_among(cx, fleet, tried, hash, 0);
    if (server < 0)
        server = pick_among(cx, fleet, tried, hash, VITAL_WARMING);
    if (server < 0 && fleet->cluster->watch.panic == PANIC_USE_ALL)
        server = pick_among(cx, fleet, tried, hash, VITAL_OUT & ~VITAL_DRAINING);
    return server;
}

int attempt_moves_to(const struct fleet *fleet, const struct tried *tried,
                     const struct pool *pool)
{
    int server = pool_server(pool, fleet->cluster);
    bool is_out = server < 0 || tried_has(tried, (unsigned)server) ||
                  (vitals_word(fleet->cluster->servers[server].vitals) & VITAL_OUT);
    return is_out ? -1 : server;
}

/* ---- once more ---- */

void attempt_budget_turn(struct fleet *fleet, uint64_t now)
{
    if (now - fleet->window_at < RETRY_HALF)
        return;
    bool long_ago = now - fleet->window_at >= 2 * RETRY_HALF;
    fleet->requests[1] = long_ago ? 0 : fleet->requests[0];
    fleet->retried[1] = long_ago ? 0 : fleet->retried[0];
    fleet->requests[0] = fleet->retried[0] = 0;
    fleet->window_at = now;
}

bool attempt_may_retry(struct fleet *fleet, uint64_t now)
{
    attempt_budget_turn(fleet, now);
    uint64_t requests = (uint64_t)fleet->requests[0] + fleet->requests[1];
    uint64_t retried = (uint64_t)fleet->retried[0] + fleet->retried[1];
    if (retried < RETRY_FLOOR ||
        retried * 1000 < requests * fleet->cluster->retry_budget_permille)
        return true;
    series_add(fleet->refused, 1);
    return false;
}

unsigned attempt_kind(enum reason reason)
{
    switch (reason) {
    case R_UPSTREAM_CONNECT:
    case R_UPSTREAM_TIMEOUT_CONNECT:
        return RETRY_CONNECT;
    case R_UPSTREAM_RESET:
        return RETRY_RESET;
    case R_UPSTREAM_TIMEOUT_RESPONSE:
        return RETRY_TIMEOUT;
    default:
        return 0;
    }
}

unsigned attempt_status_kind(unsigned status)
{
    return status == 502   ? RETRY_502
           : status == 503 ? RETRY_503
           : status == 504 ? RETRY_504
                           : 0;
}

/* ---- what speaks against a server ---- */

static unsigned against(enum reason reason)
{
    switch (reason) {
    case R_UPSTREAM_CONNECT:
    case R_UPSTREAM_TIMEOUT_CONNECT:
        return OUTLIER_CONNECT;
    case R_UPSTREAM_RESET:
        return OUTLIER_RESET;
    case R_UPSTREAM_TIMEOUT_RESPONSE:
    case R_UPSTREAM_TIMEOUT_IDLE:
    case R_UPSTREAM_TIMEOUT_TOTAL:
        return OUTLIER_TIMEOUT;
    case R_UPSTREAM_PROTOCOL:
        return OUTLIER_PROTOCOL;
    default: /* not the server's */
        return 0;
    }
}

void attempt_note(const struct cluster *cluster, unsigned server, enum reason reason,
                  uint64_t now)
{
    unsigned what = against(reason);
    if (what)
        outlier_note(cluster, server, what, now);
}
