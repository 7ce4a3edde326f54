/* An exchange: one request and its answer. The state machine at the heart of the gateway.
 *
 *   NEW ──▶ PLUGINS ──▶ CONNECT ──▶ SEND ──▶ RELAY ──▶ FLUSH ──▶ DONE
 *    │ └───────│──────────▲ │  ▲       │ │       └───────────────▶ │      cut off
 *    │         │            │  └─retry─┘ └──▶ TUNNEL ────────────▶ │
 *    └─────────┴────────────┴──────────┴───▶ REPLY ──────────────▶ ┘      an answer of our own
 *
 * It owns its arena, and its upstream connection while it has one; its down leg belongs to
 * the client's connection. Made by exchange_begin, ends itself. One worker's thread. */
#ifndef POSTERN_PROXY_EXCHANGE_H
#define POSTERN_PROXY_EXCHANGE_H

#include "net/tls.h"
#include "proxy/context.h"
#include "proxy/flow.h"

/* Who is at the other end of a downstream connection. Lives as long as the connection. */
struct peer {
    struct addr addr;         /* the client's; as its PROXY header has it, where there is one */
    struct addr *destination; /* of that header; NULL: what the socket says */
    const struct stream *stream;
    struct tls_facts *tls; /* NULL: plain */
    char ip[47];           /* the address as text, without NUL */
    uint8_t ip_len;
};

enum ex_state {
    EX_NEW,     /* its head has not arrived, or is being looked at */
    EX_PLUGINS, /* plugins decide what becomes of it; one of them may be waited for */
    EX_CONNECT, /* a connection to a server is awaited */
    EX_SEND,    /* the request is on its way, the answer's head is awaited */
    EX_RELAY,   /* the answer's head went to the client, its body flows */
    EX_TUNNEL,  /* bytes flow both ways, unframed */
    EX_REPLY,   /* we answer ourselves */
    EX_FLUSH,   /* the answer is complete and waits for the client to take it */
    EX_DONE,
    EX_STATES,
};

#define ID_LEN 32 /* request ids, trace ids: hexadecimal */

struct postern_request;

struct exchange {
    struct context *cx;
    struct view *view;
    const struct peer *peer;
    int listener; /* in view's configuration */
    enum ex_state state;
    struct arena arena;

    struct leg *down, *up;
    struct h1_client *client; /* whose leg `up` is */
    struct flow request, response;

    struct head *head;               /* the request's, NULL before it came */
    struct str host;                 /* lower case, no port: what routes are found by */
    struct str path;                 /* normal form */
    unsigned path_class;             /* with R_BAD_PATH: what the path was refused for */
    struct str client_ip;            /* behind trusted proxies: whom they name */
    struct str server_host;          /* the Host that goes out, when it names the server */
    struct str time_left;            /* X-Request-Deadline-Ms as it goes out, when we say it */
    bool host_is_new, trace_is_new;  /* written by us rather than passed on */
    bool trusted;                    /* the peer is a trusted proxy */
    struct postern_request *plugged; /* NULL: no plugin has to do with it */

    const struct conf_upstream *upstream; /* NULL: none chosen */
    struct cluster *cluster;
    struct fleet *fleet;
    int server;     /* in cluster; -1: none chosen */
    bool at_server; /* and it counts this request as its own */
    bool stays;     /* it is the client's own server: another is none as good */
    bool admitted;  /* the upstream's breaker counts it */
    uint64_t hash;
    struct tried tried;
    struct pool_waiter waiter;
    unsigned attempts;   /* at servers, the first included */
    unsigned retries;    /* that counted against retry.attempts */
    bool raced;          /* the keep-alive race's one free retry is spent */
    bool request_edited; /* hop fields are gone, ours are in: done once */
    bool reused;
    struct spare *spare; /* an answer that was not good enough; NULL: none */
    struct deadline total, try_due, hop_due;

    /* what the log and the metrics will say */
    struct str req_id, trace_id, log_target_path, log_query, log_method;
    struct str credential; /* who asks, as a plugin found out; .p NULL: nobody said */
    enum reason reason;
    struct leg_fault fault; /* that `reason` came with */
    uint16_t status, upstream_status;
    uint64_t started_at;
    uint64_t waited; /* ns for a connection */
    uint64_t wait_from, sent_at, head_at, up_ended_at;
    struct grave grave;
    struct route_match
        match; /* last: a third of the whole, most of which is written before it is read */
};

/* Begins an exchange on `leg` (sets its events, owner, arena) under `view`; `listener` is its
 * index there. False: no memory. */
bool exchange_begin(struct context *cx, struct view *view, struct leg *leg,
                    const struct peer *peer, int listener);

/* The only place where the state changes. A move that is not in the table is a bug. */
void exchange_to(struct exchange *ex, enum ex_state state);

/* The head has come: find the route, ask its plugins, and go there. */
void exchange_route(struct exchange *ex);
/* Nothing is in the way any more: to the upstream, or an answer of our own. */
void exchange_go(struct exchange *ex);
/* Chooses a server and asks for a connection (exchange_up.c). */
void exchange_choose(struct exchange *ex);
/* Its try_due, its hop_due has come. */
void exchange_try_due(struct deadline *deadline);
void exchange_hop_due(struct deadline *deadline);
/* Its time is up: notes whether that speaks against its server. */
void exchange_out_of_time(const struct exchange *ex);
/* Lets go of the upstream side in whatever state it is. */
void exchange_drop_up(struct exchange *ex);
/* In a tunnel: something came, whoever sent it. */
void exchange_tunnel_moves(struct exchange *ex);
/* Answers with an error of our own, or cuts the answer off if it has begun. Ends or will end.
 */
void exchange_fail(struct exchange *ex, const struct leg_fault *fault);
void exchange_finish(struct exchange *ex);
/* The head of the answer that the client gets has come, in EX_CONNECT or EX_SEND. */
void exchange_answer(struct exchange *ex, struct head *head);

extern const struct leg_events exchange_up_events;

/* proxy/record.c: the access line and the counters of an exchange that ends. */
void record_exchange(struct exchange *ex);

const struct conf *exchange_conf(const struct exchange *ex);
const struct conf_listener *exchange_listener(const struct exchange *ex);

#endif
