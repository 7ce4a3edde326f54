/* What is written down about an exchange when it ends. */
#include "proxy/exchange.h"

static uint64_t since(uint64_t from, uint64_t to)
{
    return from && to > from ? to - from : 0;
}

/* Our own time: from the request to its way out, less the wait for a connection, and from the
 * upstream's last byte to the client's. For answers of our own: all of it. */
static uint64_t own_time(const struct exchange *ex, uint64_t now)
{
    if (!ex->sent_at)
        return since(ex->started_at, now) - ex->waited;
    uint64_t before = since(ex->started_at, ex->sent_at);
    before = before > ex->waited ? before - ex->waited : 0;
    return before + since(ex->up_ended_at, now);
}

static void count(struct exchange *ex, uint64_t duration, uint64_t own)
{
    struct view *view = ex->view;
    struct metrics *metrics = ex->cx->metrics;
    size_t routes = view->snapshot->conf->route_count;
    size_t route = ex->match.route ? ex->match.index : routes;
    unsigned name = route < routes ? view->snapshot->route_names[route] : 0;
    struct route_cells *cells = &view->cells[route];
    unsigned method = ex->head ? ex->head->method : method_of(ex->log_method);
    unsigned key = ((unsigned)ex->listener << 16 | method << 10 | ex->status) + 1;
    if (cells->key != key) {
        if (!cells->key) {
            cells->duration = metrics_histogram(metrics, METRIC_REQUEST_DURATION, name);
            cells->gateway = metrics_histogram(metrics, METRIC_GATEWAY_DURATION, name);
        }
        unsigned labels[4] = {view->snapshot->listener_names[ex->listener], name, method,
                              ex->status};
        cells->requests = metrics_series(metrics, METRIC_REQUESTS, labels);
        cells->key = key;
    }
    series_add(cells->requests, 1);
    histogram_add(cells->duration, duration);
    histogram_add(cells->gateway, own);
    if (ex->reason)
        series_add(metrics_series(metrics, METRIC_RESPONSES, (unsigned[4]){name, ex->reason}),
                   1);
    series_add(view->bytes_in[ex->listener], ex->request.bytes);
    series_add(view->bytes_out[ex->listener], ex->response.bytes);
}

static struct str field_value(const struct exchange *ex, enum field_id id)
{
    const struct field *field = ex->head ? head_find(ex->head, id) : NULL;
    return field ? field->value : (struct str){NULL, 0};
}

static void log_line(struct exchange *ex, uint64_t duration, uint64_t own)
{
    const struct conf_route *route = ex->match.route;
    struct access_record record = {
        .wall_ms = clock_wall_ms() - duration / NS_PER_MS,
        .req_id = ex->req_id,
        .trace_id = ex->trace_id,
        .client_ip = ex->client_ip,
        .method = ex->log_method,
        .host = ex->host,
        .path = ex->log_target_path,
        .query = ex->log_query,
        .route = route ? str_of(route->name) : (struct str){NULL, 0},
        .reused = ex->reused,
        .status = ex->status,
        .upstream_status = ex->upstream_status,
        .reason = ex->reason,
        .offset = ex->fault.offset,
        .bytes_in = ex->request.bytes,
        .bytes_out = ex->response.bytes,
        .dur = duration,
        .gw = own,
        .connect = ex->attempts ? ex->waited : UINT64_MAX,
        .ttfb = ex->head_at ? ex->head_at - ex->sent_at : UINT64_MAX,
        .attempts = ex->attempts,
        .credential = ex->credential,
        .generation = ex->view->snapshot->generation,
    };
    if (!access_wants(&ex->view->policy, &ex->cx->log_counter, &record))
        return;
    if (ex->head)
        record.proto = ex->head->h2      ? STR("HTTP/2.0")
                       : ex->head->minor ? STR("HTTP/1.1")
                                         : STR("HTTP/1.0");
    const struct tls_facts *tls = ex->peer->tls;
    if (tls) {
        record.tls = true;
        record.sni = tls->sni;
        record.tls_version = tls->version;
        record.tls_cipher = tls->cipher;
        record.client_subject = tls->subject;
    }
    record.user_agent = field_value(ex, F_USER_AGENT);
    if (ex->head && ex->view->policy.combined) {
        const struct field *referer = head_find_name(ex->head, STR("referer"));
        if (referer)
            record.referer = referer->value;
    }
    if (ex->cluster) {
        record.upstream = str_of(ex->cluster->name);
        if (ex->server >= 0)
            record.server = str_of(ex->cluster->servers[ex->server].text);
    }
    access_write(ex->cx->ring, &ex->view->policy, &record);
}

void record_exchange(struct exchange *ex)
{
    uint64_t now = clock_ns();
    uint64_t duration = since(ex->started_at, now), own = own_time(ex, now);
    count(ex, duration, own);
    bool wanted = !ex->match.route || ex->match.route->access_log;
    if (wanted && ex->cx->ring && log_access_is_on())
        log_line(ex, duration, own);
}
