#include "up/probe.h"

#include <errno.h>

#include "http/h1_client.h"
#include "net/proxy_protocol.h"

#define PROBE_FIELDS 4

const char *const probe_end_names[PROBE_ENDS] = {"ok",       "connect", "timeout", "reset",
                                                 "protocol", "status",  "body",    "error"};

struct probe {
    struct loop *loop;
    struct cluster *cluster;
    const struct server *server;
    void (*on_done)(void *arg, const struct probe_result *result);
    void *arg;
    struct tls_peer peer; /* .back NULL: without TLS */
    struct h1_client client;
    bool opened; /* `client` lives, or waits to be buried */
    bool done;   /* nobody waits for the result any more */
    struct arena arena;
    struct deadline due;
    struct task task; /* for what failed before there was a connection */
    int err;
    unsigned status;
    size_t bytes;  /* of body, so far */
    size_t needle; /* its length; 0: nothing is looked for */
    size_t match;  /* how much of it the bytes end with */
    bool found;
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
    if (probe->opened)
        probe->client.leg.ops->abort(&probe->client.leg); /* harmless when it is closed */
    else
        loop_bury(probe->loop, &probe->grave, on_bury);
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

/* ---- what the connection tells ---- */

static void on_head(struct leg *leg, struct head *head)
{
    struct probe *probe = leg->owner;
    char expected[64];
    if (head->status < 200)
        return;
    probe->status = head->status;
    if (status_is_in(policy_of(probe), head->status))
        return;
    put_expected(policy_of(probe), expected);
    end(probe, PROBE_STATUS, "status %u, expected %s", head->status, expected);
}

static void on_body(struct leg *leg, struct slice slice)
{
    struct probe *probe = leg->owner;
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
    (void)trailers;
    judge(leg->owner);
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
                        .target = str_of(policy->path)};
    head_add_id(&head, &probe->arena, F_HOST, str_of(host));
    head_add(&head, &probe->arena, STR("User-Agent"), STR("postern-health"));
    head_add(&head, &probe->arena, STR("Accept"), STR("*/*"));
    head_add(&head, &probe->arena, STR("Connection"), STR("close"));
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
    client->leg.ops->send_end(&client->leg, NULL);
}

static void on_connected(struct h1_client *client)
{
    struct probe *probe = client->owner;
    if (policy_of(probe)->type == HEALTH_HTTP)
        ask(probe);
    else
        end(probe, PROBE_OK, "%s", "");
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
        end_failed(probe, fault->err);
        break;
    case R_UPSTREAM_PROTOCOL:
        end(probe, PROBE_PROTOCOL, "what it answers is not HTTP/1 (byte %zu)", fault->offset);
        break;
    case R_NO_MEMORY:
        end_failed(probe, ENOMEM);
        break;
    default:
        end(probe, PROBE_RESET, "it closed the connection %s%s%s",
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

struct probe *probe_start(struct loop *loop, struct cluster *cluster, uint32_t server,
                          void (*on_done)(void *arg, const struct probe_result *result),
                          void *arg)
{
    static const struct h1_client_timeouts none; /* ours covers all */
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
    if (needle)
        find_borders(probe, policy->body);
    arena_init(&probe->arena, &loop->chunks);
    probe->task.run = on_task;
    deadline_init(&probe->due, on_due);
    probe->peer = (struct tls_peer){.back = cluster->tls, .name = probe->server->host};
    int rc = h1_client_open(&probe->client, loop, &probe->server->addr,
                            probe->peer.back ? &probe->peer : NULL, &none, &client_ops, probe);
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
