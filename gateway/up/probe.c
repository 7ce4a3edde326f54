#include "up/probe.h"

#include <errno.h>

#include "http/h2_client.h"
#include "net/proxy_protocol.h"
#include "up/grpc_health.h"

#define PROBE_FIELDS 6

const char *const probe_end_names[PROBE_ENDS] = {"ok",       "connect", "timeout", "reset",
                                                 "protocol", "status",  "body",    "error"};

struct probe {
    struct loop *loop;
    struct cluster *cluster;
    const struct server *server;
    void (*on_done)(void *arg, const struct probe_result *result);
    void *arg;
    struct tls_peer peer; /* .back NULL: without TLS */
    union {
        struct h1_client client;
        struct h2_lane lane; /* whose first member is a client too */
    };
    struct h2_trunks trunks;    /* with HTTP/2: one, and nobody else's */
    _Atomic uint64_t uncounted; /* what is counted of them, for nobody */
    bool opened;                /* `client` lives, or waits to be buried */
    bool done;                  /* nobody waits for the result any more */
    struct arena arena;
    struct deadline due;
    struct task task; /* for what failed before there was a connection */
    int err;
    unsigned status;
    size_t bytes;  /* of body, so far */
    size_t needle; /* its length; 0: nothing is looked for */
    size_t match;  /* how much of it the bytes end with */
    bool found;
    uint64_t grpc_status; /* UINT64_MAX: not said yet */
    char message[GRPC_HEALTH_ANSWER];
    struct grave grave;
    uint16_t borders[]; /* of the needle's beginnings, for the search */
};

static const struct health_policy *policy_of(const struct probe *probe)
{
    return &probe->cluster->watch.health;
}

/* ---- the end ---- */

static void on_bury(struct grave *grave)
{
    struct probe *probe = (struct probe *)((char *)grave - offsetof(struct probe, grave));
    h2_trunks_done(&probe->trunks);
    arena_done(&probe->arena);
    tls_peer_done(&probe->peer);
    cluster_unref(probe->cluster);
    mem_free(probe);
}

/* Lets go of the connection; its memory is ours, and goes after it. */
static void let_go(struct probe *probe)
{
    probe->done = true;
    loop_cancel(probe->loop, &probe->task);
    deadline_end(&probe->loop->wheel, &probe->due);
    if (!probe->opened)
        loop_bury(probe->loop, &probe->grave, on_bury);
    else
        h1_client_close(&probe->client); /* harmless when it is closed */
}

static void end(struct probe *probe, enum probe_end how, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void end(struct probe *probe, enum probe_end how, const char *fmt, ...)
{
    struct probe_result result = {.end = how};
    if (probe->done)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(result.why, sizeof(result.why), fmt, args);
    va_end(args);
    let_go(probe);
    probe->on_done(probe->arg, &result);
}

static void end_failed(struct probe *probe, int err)
{
    if (err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS)
        end(probe, PROBE_SELF, "the gateway cannot connect: %s", strerror(err));
    else
        end(probe, PROBE_CONNECT, "cannot connect: %s", strerror(err));
}

/* ---- what is expected ---- */

static void put_expected(const struct health_policy *policy, char out[64])
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < policy->status_count && n < 50; i++) {
        const struct status_range *range = &policy->status[i];
        n += (size_t)snprintf(out + n, 64 - n, "%s%u", i ? ", " : "", range->low);
        if (range->high != range->low)
            n += (size_t)snprintf(out + n, 64 - n, "-%u", range->high);
    }
}

/* The longest beginning of the needle that each of its beginnings ends with, but itself. */
static void find_borders(struct probe *probe, const char *needle)
{
    size_t border = 0;
    probe->borders[0] = 0;
    for (size_t i = 1; i < probe->needle; i++) {
        while (border && needle[i] != needle[border])
            border = probe->borders[border - 1];
        border += needle[i] == needle[border];
        probe->borders[i] = (uint16_t)border;
    }
}

/* Looks on where the last piece ended. */
static void look(struct probe *probe, struct str bytes)
{
    const char *needle = policy_of(probe)->body;
    for (size_t i = 0; i < bytes.n && !probe->found; i++) {
        while (probe->match && bytes.p[i] != needle[probe->match])
            probe->match = probe->borders[probe->match - 1];
        probe->match += bytes.p[i] == needle[probe->match];
        probe->found = probe->match == probe->needle;
    }
}

/* The answer is there as far as it is looked at; its status was right. */
static void judge(struct probe *probe)
{
    if (!probe->needle || probe->found)
        end(probe, PROBE_OK, "%s", "");
    else
        end(probe, PROBE_BODY_LACKS, "its body (%zu bytes%s) lacks \"%.48s\"", probe->bytes,
            probe->bytes == PROBE_BODY ? " were looked at" : "", policy_of(probe)->body);
}

/* ---- grpc.health.v1 ---- */

static bool is_grpc(const struct probe *probe)
{
    return policy_of(probe)->type == HEALTH_GRPC;
}

/* The call's own status stands in the trailers, or in the head of an answer without a body. */
static void note_grpc_status(struct probe *probe, const struct head *head)
{
    const struct field *field = head ? head_find_name(head, STR("grpc-status")) : NULL;
    uint64_t status;
    if (field && str_to_u64(field->value, UINT32_MAX, &status) == 0)
        probe->grpc_status = status;
}

static void look_at_grpc_head(struct probe *probe, const struct head *head)
{
    const struct field *type = head_find(head, F_CONTENT_TYPE);
    struct str grpc = STR("application/grpc");
    if (head->status != 200)
        end(probe, PROBE_STATUS, "status %u, expected 200", head->status);
    else if (!type || type->value.n < grpc.n || memcmp(type->value.p, grpc.p, grpc.n) != 0)
        end(probe, PROBE_PROTOCOL, "what it answers is not gRPC (its content-type)");
    else
        note_grpc_status(probe, head);
}

static void take_message(struct probe *probe, struct str bytes)
{
    if (bytes.n > sizeof(probe->message) - probe->bytes) {
        end(probe, PROBE_PROTOCOL, "its answer is longer than one of grpc.health.v1 can be");
        return;
    }
    memcpy(probe->message + probe->bytes, bytes.p, bytes.n);
    probe->bytes += bytes.n;
}

static void judge_grpc(struct probe *probe, const struct head *trailers)
{
    uint64_t status;
    note_grpc_status(probe, trailers);
    if (probe->grpc_status == UINT64_MAX)
        end(probe, PROBE_PROTOCOL, "its answer has no grpc-status");
    else if (probe->grpc_status != 0)
        end(probe, PROBE_STATUS, "grpc-status %u, expected 0", (unsigned)probe->grpc_status);
    else if (grpc_health_read((struct str){probe->message, probe->bytes}, &status) < 0)
        end(probe, PROBE_PROTOCOL, "its answer is not one of grpc.health.v1");
    else if (status == GRPC_SERVING)
        end(probe, PROBE_OK, "%s", "");
    else
        end(probe, PROBE_STATUS, "it says %s, expected SERVING",
            grpc_serving_names[status < GRPC_SERVINGS ? status : GRPC_UNKNOWN]);
}

/* ---- what the connection tells ---- */

static void on_head(struct leg *leg, struct head *head)
{
    struct probe *probe = leg->owner;
    char expected[64];
    if (head->status < 200)
        return;
    probe->status = head->status;
    if (is_grpc(probe)) {
        look_at_grpc_head(probe, head);
        return;
    }
    if (status_is_in(policy_of(probe), head->status))
        return;
    put_expected(policy_of(probe), expected);
    end(probe, PROBE_STATUS, "status %u, expected %s", head->status, expected);
}

static void on_body(struct leg *leg, struct slice slice)
{
    struct probe *probe = leg->owner;
    if (is_grpc(probe)) {
        take_message(probe, (struct str){slice.p, slice.n});
        slice_drop(&slice);
        return;
    }
    size_t left = PROBE_BODY - probe->bytes, n = slice.n < left ? slice.n : left;
    if (probe->needle)
        look(probe, (struct str){slice.p, n});
    probe->bytes += n;
    slice_drop(&slice);
    if (probe->bytes == PROBE_BODY)
        judge(probe);
}

static void on_end(struct leg *leg, struct head *trailers)
{
    struct probe *probe = leg->owner;
    if (is_grpc(probe))
        judge_grpc(probe, trailers);
    else
        judge(probe);
}

static void on_room(struct leg *leg)
{
    (void)leg;
}

static void on_gone(struct leg *leg, const struct leg_fault *fault)
{
    (void)leg, (void)fault; /* on_closed has told it */
}

static const struct leg_events leg_events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_room = on_room,
    .on_gone = on_gone,
};

/* What the head says of HTTP's own, or of gRPC's kind of it, beyond what all have. */
static void put_kind(struct probe *probe, struct head *head)
{
    char *timeout = arena_alloc(&probe->arena, 24);
    if (!is_grpc(probe)) {
        head_add(head, &probe->arena, STR("Accept"), STR("*/*"));
        if (!probe->cluster->http2)
            head_add(head, &probe->arena, STR("Connection"), STR("close"));
        return;
    }
    head->method = M_POST;
    head->method_text = STR("POST");
    head->target = STR(GRPC_HEALTH_PATH);
    head->framing = FRAMING_CHUNKED;
    head_add(head, &probe->arena, STR("Content-Type"), STR("application/grpc"));
    if (!timeout)
        return;
    int n = snprintf(timeout, 24, "%um", policy_of(probe)->timeout);
    head_add(head, &probe->arena, STR("Grpc-Timeout"), (struct str){timeout, (size_t)n});
}

static void put_question(struct probe *probe)
{
    struct leg *leg = &probe->client.leg;
    const char *service = policy_of(probe)->service;
    char *question = arena_alloc(&probe->arena, GRPC_HEALTH_ASK);
    if (!question) {
        end_failed(probe, ENOMEM);
        return;
    }
    size_t n = grpc_health_ask(question, str_of(service ? service : ""));
    leg->ops->send_body(leg, (struct slice){NULL, question, n});
    leg->ops->send_end(leg, NULL);
}

static void ask(struct probe *probe)
{
    struct h1_client *client = &probe->client;
    const struct health_policy *policy = policy_of(probe);
    const char *host = policy->host          ? policy->host
                       : probe->server->name ? probe->server->name
                                             : probe->server->text;
    struct field fields[PROBE_FIELDS];
    struct head head = {.fields = fields,
                        .cap = PROBE_FIELDS,
                        .minor = 1,
                        .method = M_GET,
                        .method_text = STR("GET"),
                        .target = str_of(policy->path ? policy->path : "")};
    head_add_id(&head, &probe->arena, F_HOST, str_of(host));
    head_add(&head, &probe->arena, STR("User-Agent"), STR("postern-health"));
    put_kind(probe, &head);
    client->leg.events = &leg_events;
    client->leg.owner = probe;
    client->leg.arena = &probe->arena;
    h1_client_lend(client);
    if (probe->cluster->proxy_protocol) { /* we speak for nobody */
        char bytes[PROXY_PROTOCOL_WRITE];
        stream_write(&client->stream, bytes,
                     proxy_protocol_write(bytes, probe->cluster->proxy_protocol, NULL, NULL));
    }
    client->leg.ops->send_head(&client->leg, &head);
    if (is_grpc(probe))
        put_question(probe);
    else
        client->leg.ops->send_end(&client->leg, NULL);
}

static void on_connected(struct h1_client *client)
{
    struct probe *probe = client->owner;
    if (policy_of(probe)->type == HEALTH_TCP)
        end(probe, PROBE_OK, "%s", "");
    else
        ask(probe);
}

static void on_idle(struct h1_client *client)
{
    (void)client; /* never: it is not released */
}

static void on_closed(struct h1_client *client, const struct leg_fault *fault)
{
    struct probe *probe = client->owner;
    if (fault && fault->why) {
        end(probe, PROBE_CONNECT, "TLS failed: %s", fault->why);
        return;
    }
    switch (fault ? fault->reason : R_UPSTREAM_RESET) {
    case R_UPSTREAM_CONNECT:
        if (fault->err == EPROTONOSUPPORT)
            end(probe, PROBE_CONNECT, "it does not take HTTP/2 over TLS (ALPN h2)");
        else
            end_failed(probe, fault->err);
        break;
    case R_UPSTREAM_PROTOCOL:
        if (client->shared)
            end(probe, PROBE_PROTOCOL, "what it answers is not HTTP/2");
        else
            end(probe, PROBE_PROTOCOL, "what it answers is not HTTP/1 (byte %zu)",
                fault->offset);
        break;
    case R_NO_MEMORY:
        end_failed(probe, ENOMEM);
        break;
    default:
        end(probe, PROBE_RESET, "it closed the %s %s%s%s",
            client->shared ? "stream" : "connection",
            probe->status ? "in the middle of its answer" : "without an answer",
            fault && fault->err ? ": " : "", fault && fault->err ? strerror(fault->err) : "");
        break;
    }
}

static void on_client_buried(struct h1_client *client)
{
    struct probe *probe = client->owner;
    on_bury(&probe->grave);
}

static const struct h1_client_ops client_ops = {
    .on_connected = on_connected,
    .on_idle = on_idle,
    .on_closed = on_closed,
    .bury = on_client_buried,
};

static void on_due(struct deadline *deadline)
{
    struct probe *probe = (struct probe *)((char *)deadline - offsetof(struct probe, due));
    uint32_t ms = policy_of(probe)->timeout;
    if (probe->client.state == CLIENT_CONNECTING)
        end(probe, PROBE_TIMEOUT, "no connection within %u ms", ms);
    else
        end(probe, PROBE_TIMEOUT, "%s within %u ms",
            probe->status ? "its answer was not complete" : "no answer", ms);
}

static void on_task(struct task *task)
{
    struct probe *probe = (struct probe *)((char *)task - offsetof(struct probe, task));
    end_failed(probe, probe->err);
}

static int connect_to(struct probe *probe)
{
    static const struct h1_client_timeouts none; /* the probe's own covers all */
    const struct addr *addr = &probe->server->addr;
    struct tls_peer *peer = probe->peer.back ? &probe->peer : NULL;
    if (probe->cluster->http2 && policy_of(probe)->type != HEALTH_TCP)
        return h2_lane_open(&probe->lane, &probe->trunks, addr, peer, &none, 0, &client_ops,
                            probe);
    return h1_client_open(&probe->client, probe->loop, addr, peer, &none, &client_ops, probe);
}

struct probe *probe_start(struct loop *loop, struct cluster *cluster, uint32_t server,
                          void (*on_done)(void *arg, const struct probe_result *result),
                          void *arg)
{
    const struct health_policy *policy = &cluster->watch.health;
    size_t needle = policy->type == HEALTH_HTTP && policy->body ? strlen(policy->body) : 0;
    struct probe *probe = mem_zalloc(sizeof(*probe) + needle * sizeof(uint16_t));
    if (!probe)
        return NULL;
    probe->loop = loop;
    probe->cluster = cluster_ref(cluster);
    probe->server = &cluster->servers[server];
    probe->on_done = on_done;
    probe->arg = arg;
    probe->needle = needle;
    probe->grpc_status = UINT64_MAX;
    if (needle)
        find_borders(probe, policy->body);
    arena_init(&probe->arena, &loop->chunks);
    probe->task.run = on_task;
    deadline_init(&probe->due, on_due);
    probe->peer = (struct tls_peer){.back = cluster->tls, .name = probe->server->host};
    h2_trunks_init(
        &probe->trunks, loop,
        &(struct h2_trunks_counters){&probe->uncounted, &probe->uncounted, &probe->uncounted});
    int rc = connect_to(probe);
    probe->opened = rc == 0;
    if (rc == 0) {
        loop_deadline(loop, &probe->due, policy->timeout);
    } else {
        probe->err = -rc;
        loop_task(loop, &probe->task);
    }
    return probe;
}

void probe_cancel(struct probe *probe)
{
    if (probe && !probe->done)
        let_go(probe);
}
