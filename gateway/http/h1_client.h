/* The client side of an HTTP/1 connection: one to an upstream server, lent to one exchange
 * after another. Each request is one turn of its leg.
 *
 *   CONNECTING ─▶ IDLE ─▶ HEAD ─▶ BODY ─▶ END ─▶ (released) ─▶ IDLE
 *                           └───▶ TUNNEL
 *
 * A connection is used again only when request and answer both ended cleanly; any byte or end
 * of stream while it is idle closes it. Owned by one worker (by its pool). */
#ifndef POSTERN_HTTP_H1_CLIENT_H
#define POSTERN_HTTP_H1_CLIENT_H

#include "http/h1_chunk.h"
#include "http/h1_parse.h"
#include "http/leg.h"
#include "net/stream.h"
#include "net/tls.h"

struct h1_client_timeouts {
    uint32_t connect, response, idle; /* ms, 0: none */
};

struct h1_client;

struct h1_client_ops {
    /* Connected: it is IDLE now and may be lent. */
    void (*on_connected)(struct h1_client *client);
    /* Released by its exchange and fit to be lent again. */
    void (*on_idle)(struct h1_client *client);
    /* It is closed, for whatever reason; `fault` says why when it never got connected (its
     * memory goes at the end of the turn, by bury). */
    void (*on_closed)(struct h1_client *client, const struct leg_fault *fault);
    void (*bury)(struct h1_client *client);
};

enum client_state {
    CLIENT_CONNECTING,
    CLIENT_IDLE,
    CLIENT_HEAD, /* lent; the answer's head is awaited */
    CLIENT_BODY,
    CLIENT_TUNNEL,
    CLIENT_END, /* the answer is complete */
    CLIENT_CLOSED,
};

struct h1_client {
    struct stream stream;
    struct leg leg;
    const struct h1_client_ops *ops;
    void *owner;
    struct h1_client *next, **prev; /* the owner's list */
    struct h1_client_timeouts timeouts;
    enum client_state state;
    enum method method; /* of the request under way */
    bool request_ended; /* sent to its end */
    bool keep_alive;    /* the answer lets the connection live */
    struct str upgrade; /* what the request asked for; .p NULL: nothing */
    bool chunked_in, chunked_out, until_close;
    bool shared; /* it is a lane of HTTP/2 (h2_client.h), and `stream` no socket's */
    bool joined; /* a lane on a connection that was there already */
    bool fresh;  /* the owner's: it was opened for who has it, and never idle before */
    uint8_t interims;
    uint32_t requests;     /* begun on this connection */
    uint32_t keep_alive_s; /* the server's Keep-Alive: timeout=, seconds; 0: not said */
    uint64_t body_left;
    uint64_t read_mark, written_mark; /* stream totals when this turn began */
    uint64_t opened_at, idle_at;      /* ns */
    uint16_t spread; /* the owner's: so much earlier than others it retires, of 1024 parts */
    struct h1_scan scan;
    struct h1_chunk chunk;
    struct deadline due; /* connect, response or between bytes; the owner's while IDLE */
    void (*on_idle_due)(struct h1_client *client);
    void (*close)(struct h1_client *client); /* h1_client_close, by what it is */
    struct grave grave;
};

/* Starts to connect, over TLS with a `peer` (NULL: without). 0, or -errno when it failed at
 * once (client not started). The result of a connect that succeeds at once (unix sockets) is
 * told from a task, like all others. */
int h1_client_open(struct h1_client *client, struct loop *loop, const struct addr *addr,
                   struct tls_peer *peer, const struct h1_client_timeouts *timeouts,
                   const struct h1_client_ops *ops, void *owner);
/* Lends an IDLE connection: the caller has set leg.events, owner and arena. */
void h1_client_lend(struct h1_client *client);
/* Whether the peer has closed or said something since: asks the socket. For requests that
 * must not be sent in vain. */
bool h1_client_is_stale(const struct h1_client *client);
/* Whether not one byte of the request under way has left. */
static inline bool h1_client_is_untouched(const struct h1_client *client)
{
    return client->stream.written_total == client->written_mark;
}
/* 90 to 100 % of a limit, by `spread`: what was opened together does not end together. */
static inline uint64_t h1_client_limit(uint64_t limit, uint16_t spread)
{
    return limit - limit / 10 * spread / 1024;
}
/* At once; an exchange under way is told on_gone with R_UPSTREAM_RESET. */
void h1_client_close(struct h1_client *client);

#endif
