#include "proxy/reply.h"

#include <stdarg.h>
#include <stdio.h>

#include "http/h1_write.h"
#include "http/path.h"
#include "proxy/forward.h"
#include "proxy/plugins.h"
#include "proxy/text.h"

#define TEXT_MAX          1024 /* of a detail, before it is escaped */
#define RETRY_AFTER_MAX_S 60

/* ---- what is said ---- */

/* Bytes of strangers in a sentence: bounded, and nothing that a terminal would obey. */
static void put_span(char out[96], struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n && n < 88; i++)
        out[n++] = s.p[i] < ' ' || s.p[i] > '~' ? '?' : s.p[i];
    if (s.n > 88)
        memcpy(out + n, "...", 3), n += 3;
    out[n] = '\0';
}

static const char *server_text(const struct exchange *ex)
{
    return ex->cluster && ex->server >= 0 ? ex->cluster->servers[ex->server].text : "?";
}

static const char *upstream_text(const struct exchange *ex)
{
    return ex->cluster ? ex->cluster->name : "?";
}

static void detail_route(const struct exchange *ex, char out[TEXT_MAX])
{
    char host[96], path[96];
    put_span(host, ex->host);
    put_span(path, ex->path);
    if (ex->reason == R_ROUTE_METHOD) {
        char method[96];
        put_span(method, ex->head->method_text);
        snprintf(out, TEXT_MAX, "%s is not allowed for %s; allowed: %s.", method, path,
                 ex->match.allow);
        return;
    }
    snprintf(out, TEXT_MAX, "No route of listener \"%s\" matches host \"%s\" and path \"%s\".",
             exchange_listener(ex)->name, host, path);
}

static void detail_client(const struct exchange *ex, const struct leg_fault *fault,
                          char out[TEXT_MAX])
{
    char field[96];
    put_span(field, fault->field);
    const char *title = reason_texts[fault->reason].title;
    int n = snprintf(out, TEXT_MAX, "%s", title);
    if (fault->reason == R_BAD_PATH)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), ": it has %s",
                      path_class_text(ex->path_class));
    if (fault->field.n)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), " in field \"%s\"", field);
    if (fault->limit)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), ": %llu, the limit is %llu",
                      (unsigned long long)fault->actual, (unsigned long long)fault->limit);
    else if (fault->offset)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), " at byte %zu", fault->offset);
    snprintf(out + n, (size_t)(TEXT_MAX - n), ".");
}

static const char *why_out(uint32_t word)
{
    return word & VITAL_DRAINING  ? "drained by an operator"
           : word & VITAL_DOWN    ? "down, its health probes fail"
           : word & VITAL_EJECTED ? "ejected, its requests failed"
                                  : "failed";
}

/* Each server with what keeps it out, as far as there is room. */
static void detail_none(const struct exchange *ex, char out[TEXT_MAX])
{
    const struct cluster *cluster = ex->cluster;
    int n = snprintf(out, TEXT_MAX, "No backend available: upstream \"%s\"", cluster->name);
    if (!cluster->count)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), " has no address");
    for (uint32_t i = 0; i < cluster->count; i++) {
        const struct server *server = &cluster->servers[i];
        if (n > TEXT_MAX - 256) {
            n += snprintf(out + n, (size_t)(TEXT_MAX - n), ", and %u more", cluster->count - i);
            break;
        }
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), "%s %s is %s", i ? "," : ":",
                      server->text, why_out(vitals_word(server->vitals)));
    }
    snprintf(out + n, (size_t)(TEXT_MAX - n), ".");
}

static void detail_upstream(const struct exchange *ex, const struct leg_fault *fault,
                            char out[TEXT_MAX])
{
    int n = snprintf(out, TEXT_MAX, "%s: upstream \"%s\"", reason_texts[fault->reason].title,
                     upstream_text(ex));
    if (ex->cluster && ex->server >= 0)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), ", server %s", server_text(ex));
    if (fault->why)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), ": TLS failed: %s", fault->why);
    else if (fault->err && reason_texts[fault->reason].status != 504) /* the title says it */
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), ": %s", strerror(fault->err));
    if (fault->limit)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), ": %llu, the limit is %llu",
                      (unsigned long long)fault->actual, (unsigned long long)fault->limit);
    if (ex->attempts > 1)
        n += snprintf(out + n, (size_t)(TEXT_MAX - n), ", after %u tries", ex->attempts);
    snprintf(out + n, (size_t)(TEXT_MAX - n), ".");
}

static void detail_plugin(const struct exchange *ex, const struct leg_fault *fault,
                          char out[TEXT_MAX])
{
    const struct postern_request *r = ex->plugged;
    if (r && r->answered)
        snprintf(out, TEXT_MAX, "%.*s", r->detail.n > 900 ? 900 : (int)r->detail.n,
                 r->detail.n ? r->detail.p : "");
    else
        snprintf(out, TEXT_MAX, "%s: \"%.*s\".", reason_texts[fault->reason].title,
                 (int)fault->field.n, fault->field.p);
}

/* Whether a plugin said this. */
static bool is_of_plugin(const struct exchange *ex, const struct leg_fault *fault)
{
    return ex->plugged && ex->plugged->answered && ex->plugged->reason == fault->reason;
}

static unsigned status_of(const struct exchange *ex, const struct leg_fault *fault)
{
    return is_of_plugin(ex, fault) ? ex->plugged->status : reason_texts[fault->reason].status;
}

static void put_detail(const struct exchange *ex, const struct leg_fault *fault,
                       char out[TEXT_MAX])
{
    const char *name = reason_texts[fault->reason].name;
    if (fault->reason == R_ROUTE_NONE || fault->reason == R_ROUTE_METHOD)
        detail_route(ex, out);
    else if (fault->reason == R_UPSTREAM_NONE && ex->cluster)
        detail_none(ex, out);
    else if (is_of_plugin(ex, fault) || fault->reason == R_PLUGIN_FAILED ||
             fault->reason == R_PLUGIN_TIMEOUT)
        detail_plugin(ex, fault, out);
    else if (strncmp(name, "upstream.", 9) == 0)
        detail_upstream(ex, fault, out);
    else
        detail_client(ex, fault, out);
}

/* ---- how it is said ---- */

enum shape { SHAPE_PROBLEM, SHAPE_HTML, SHAPE_TEXT };

/* A weight as in q=0.5, in thousandths (RFC 9110 12.4.2). */
static unsigned quality(struct str range)
{
    const char *q = range.n ? memmem(range.p, range.n, "q=", 2) : NULL;
    if (!q)
        return 1000;
    unsigned value = 0, scale = 1000;
    for (const char *p = q + 2; p < range.p + range.n && scale; p++) {
        if (*p == '.')
            continue;
        if (*p < '0' || *p > '9')
            break;
        value += (unsigned)(*p - '0') * scale;
        scale /= 10;
    }
    return value > 1000 ? 1000 : value;
}

static bool begins(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq_nocase((struct str){s.p, prefix.n}, prefix);
}

/* JSON unless the client likes HTML or plain text better. */
static enum shape shape_for(const struct exchange *ex, const struct leg_fault *fault)
{
    const struct field *accept = ex->head ? head_find(ex->head, F_ACCEPT) : NULL;
    unsigned json = 0, html = 0, text = 0;
    struct str rest = accept ? accept->value : ex->head ? STR("") : fault->accept, range;
    while (str_next_token(&rest, &range)) {
        unsigned q = quality(range);
        if (begins(range, STR("application/problem+json")) ||
            begins(range, STR("application/json")) || begins(range, STR("application/*")) ||
            begins(range, STR("*/*")))
            json = q > json ? q : json;
        else if (begins(range, STR("text/html")))
            html = q > html ? q : html;
        else if (begins(range, STR("text/plain")) || begins(range, STR("text/*")))
            text = q > text ? q : text;
    }
    if (html > json && html >= text)
        return SHAPE_HTML;
    return text > json ? SHAPE_TEXT : SHAPE_PROBLEM;
}

static struct str format(struct exchange *ex, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static struct str format(struct exchange *ex, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *out = n < 0 ? NULL : arena_alloc(&ex->arena, (size_t)n + 1);
    if (!out)
        return (struct str){NULL, 0};
    va_start(args, fmt);
    vsnprintf(out, (size_t)n + 1, fmt, args);
    va_end(args);
    return (struct str){out, (size_t)n};
}

static struct str limits_json(struct exchange *ex, const struct leg_fault *fault)
{
    if (!fault->limit)
        return STR("");
    return format(ex, ",\"limit\":%llu,\"actual\":%llu", (unsigned long long)fault->limit,
                  (unsigned long long)fault->actual);
}

static struct str error_body(struct exchange *ex, const struct leg_fault *fault,
                             enum shape shape, unsigned status)
{
    const struct reason_text *text = &reason_texts[fault->reason];
    static const enum escape escapes[] = {
        [SHAPE_PROBLEM] = ESCAPE_JSON, [SHAPE_HTML] = ESCAPE_HTML, [SHAPE_TEXT] = ESCAPE_NONE};
    char detail[TEXT_MAX] = "";
    put_detail(ex, fault, detail);
    struct str safe = text_escape(&ex->arena, str_of(detail), escapes[shape]);
    /* a trusted proxy chose it, or passed on what its client chose */
    struct str id = text_escape(&ex->arena, ex->req_id, escapes[shape]);
    struct str more = limits_json(ex, fault);
    int safe_n = (int)safe.n, id_n = (int)id.n;
    if (!safe.p || !id.p || !more.p)
        return (struct str){NULL, 0};
    if (shape == SHAPE_HTML)
        return format(ex,
                      "<!doctype html>\n<title>%u %s</title>\n<h1>%s</h1>\n<p>%.*s</p>\n"
                      "<p>Reason <code>%s</code>, request <code>%.*s</code></p>\n",
                      status, text->title, text->title, safe_n, safe.p, text->name, id_n, id.p);
    if (shape == SHAPE_TEXT)
        return format(ex, "%u %s\n%.*s\nreason: %s\nrequest: %.*s\n", status, text->title,
                      safe_n, safe.p, text->name, id_n, id.p);
    return format(ex,
                  "{\"type\":\"urn:postern:problem:%s\",\"title\":\"%s\",\"status\":%u,"
                  "\"detail\":\"%.*s\",\"instance\":\"%.*s\",\"reason\":\"%s\"%.*s}\n",
                  text->name, text->title, status, safe_n, safe.p, id_n, id.p, text->name,
                  (int)more.n, more.p);
}

/* ---- sending ---- */

static void new_head(struct exchange *ex, struct head *head, struct field *fields, uint32_t cap,
                     unsigned status)
{
    *head = (struct head){.fields = fields,
                          .cap = cap,
                          .minor = 1,
                          .keep_alive = true,
                          .status = (uint16_t)status,
                          .reason_phrase = h1_phrase(status)};
    ex->status = (uint16_t)status;
    head_add_id(head, &ex->arena, F_DATE, context_date(ex->cx));
}

static bool has_body(const struct exchange *ex, unsigned status)
{
    return status != 204 && status != 304 && !(ex->head && ex->head->method == M_HEAD);
}

/* `body` lives in the arena or in the snapshot: longer than the write. */
static void send_answer(struct exchange *ex, struct head *head, struct str body)
{
    struct leg *down = ex->down;
    if (ex->plugged)
        plugins_response(ex, head); /* no memory: the answer goes without what was wanted */
    bool bodiless = head->status == 204 || head->status == 304;
    head->has_length = !bodiless;
    head->length = body.n;
    head->framing = has_body(ex, head->status) ? FRAMING_LENGTH : FRAMING_NONE;
    down->ops->send_head(down, head);
    if (head->framing == FRAMING_LENGTH) {
        ex->response.bytes = body.n;
        down->ops->send_body(down, (struct slice){NULL, body.p, body.n});
    }
    down->ops->send_end(down, NULL);
}

static bool closes_behind(enum reason reason)
{
    unsigned status = reason_texts[reason].status;
    return strncmp(reason_texts[reason].name, "bad_request.", 12) == 0 || status == 408 ||
           reason == R_CLIENT_TARGET_TOO_LONG || reason == R_CLIENT_HEADERS_TOO_LARGE ||
           reason == R_DRAINING;
}

/* Requests of gRPC clients: status as gRPC counts them (HTTP/2 trailers-only answer). What no
 * server has seen is UNAVAILABLE, which tells clients that they may try again. */
static unsigned grpc_status(enum reason reason, unsigned status)
{
    if (reason == R_UPSTREAM_TIMEOUT_CONNECT)
        return 14;
    switch (status) {
    case 400:
        return 13;
    case 401:
        return 16;
    case 403:
        return 7;
    case 404:
    case 405:
    case 501:
        return 12;
    case 413:
    case 414:
    case 431:
        return 8;
    case 421:
    case 425:
    case 429:
    case 502:
    case 503:
        return 14;
    case 504:
        return 4;
    default:
        return 2;
    }
}

static void send_grpc(struct exchange *ex, const struct leg_fault *fault, unsigned status)
{
    struct field fields[6];
    struct head head;
    char detail[TEXT_MAX] = "";
    put_detail(ex, fault, detail);
    new_head(ex, &head, fields, 6, 200);
    ex->status = (uint16_t)status; /* what the log and the metrics say */
    struct str code = format(ex, "%u", grpc_status(fault->reason, status));
    struct str message = text_escape(&ex->arena, str_of(detail), ESCAPE_FIELD);
    if (!code.p || !message.p)
        code = STR("14"), message = STR("");
    head_add_id(&head, &ex->arena, F_CONTENT_TYPE, STR("application/grpc"));
    head_add(&head, &ex->arena, STR("Grpc-Status"), code);
    head_add(&head, &ex->arena, STR("Grpc-Message"), message);
    head.keep_alive = !closes_behind(fault->reason);
    send_answer(ex, &head, STR(""));
}

/* Seconds until it may go better; 1 where nobody knows. When it is further away than a minute,
 * somebody may have mended it by then. */
static unsigned retry_after(const struct exchange *ex, const struct leg_fault *fault)
{
    uint64_t now = ex->cx->loop->now, ns = 0;
    if (fault->reason == R_UPSTREAM_NONE && ex->cluster) {
        uint64_t at = cluster_back_at(ex->cluster);
        ns = at > now ? at - now : 0;
    } else if (fault->which == LIMIT_CONNECTIONS || fault->which == LIMIT_PENDING) {
        /* who waits now has been served by then, or sent away */
        ns = ex->cluster->limits.queue * NS_PER_MS;
    }
    uint64_t s = (ns + NS_PER_S - 1) / NS_PER_S;
    return s < 1 ? 1 : s > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : (unsigned)s;
}

void reply_error(struct exchange *ex, const struct leg_fault *fault)
{
    static const struct str types[] = {STR("application/problem+json"),
                                       STR("text/html; charset=utf-8"),
                                       STR("text/plain; charset=utf-8")};
    unsigned status = status_of(ex, fault);
    if (!ex->req_id.p) /* it failed before it had one */
        forward_name(ex);
    if (forward_is_grpc(ex)) {
        send_grpc(ex, fault, status);
        return;
    }
    struct field fields[8];
    struct head head;
    enum shape shape = shape_for(ex, fault);
    struct str body = error_body(ex, fault, shape, status);
    new_head(ex, &head, fields, 8, status);
    head.keep_alive = !closes_behind(fault->reason);
    head_add_id(&head, &ex->arena, F_CONTENT_TYPE, types[shape]);
    if (status == 503 && !is_of_plugin(ex, fault)) {
        struct str after = format(ex, "%u", retry_after(ex, fault));
        head_add(&head, &ex->arena, STR("Retry-After"), after.p ? after : STR("1"));
    }
    if (status == 405)
        head_add(&head, &ex->arena, STR("Allow"), str_of(ex->match.allow));
    send_answer(ex, &head, body.p ? body : STR(""));
}

void reply_plain(struct exchange *ex, unsigned status, struct str type, struct str body)
{
    struct field fields[16];
    struct head head;
    new_head(ex, &head, fields, 16, status);
    if (type.n)
        head_add_id(&head, &ex->arena, F_CONTENT_TYPE, type);
    send_answer(ex, &head, body);
}

/* The route's own edits, then out. */
static void send_edited(struct exchange *ex, struct head *head, struct str body)
{
    if (!body.p || !forward_edit(ex, &ex->match.route->response_headers, head)) {
        ex->reason = R_NO_MEMORY;
        reply_error(ex, &(struct leg_fault){.reason = R_NO_MEMORY});
        return;
    }
    send_answer(ex, head, body);
}

void reply_respond(struct exchange *ex)
{
    const struct conf_route *route = ex->match.route;
    struct field fields[24];
    struct head head;
    struct str type = str_of(route->respond.type);
    struct str body = route->respond.body.count ? text_fill(ex, &route->respond.body) : STR("");
    new_head(ex, &head, fields, 24, route->respond.status);
    if (type.n && route->respond.status != 204 && route->respond.status != 304)
        head_add_id(&head, &ex->arena, F_CONTENT_TYPE, type);
    send_edited(ex, &head, body);
}

/* A path that begins with two slashes names another host in a Location: what a client put
 * behind the slash of the template must not. */
static struct str local(const struct template *text, struct str to)
{
    const struct template_part *first = &text->parts[0];
    bool meant = first->var == VAR_LITERAL && first->text.n > 1 && first->text.p[1] == '/';
    while (!meant && to.n > 1 && to.p[0] == '/' && (to.p[1] == '/' || to.p[1] == '\\')) {
        to.p++;
        to.n--;
    }
    return to;
}

/* Before a fragment, behind what is asked for already. */
static struct str with_query(struct exchange *ex, struct str to, struct str query)
{
    const char *hash = memchr(to.p, '#', to.n);
    struct str uri = {to.p, hash ? (size_t)(hash - to.p) : to.n};
    struct str fragment = {to.p + uri.n, to.n - uri.n};
    struct str mark = memchr(uri.p, '?', uri.n) ? STR("&") : STR("?");
    return arena_join(&ex->arena, (struct str[]){uri, mark, query, fragment}, 4);
}

void reply_redirect(struct exchange *ex)
{
    const struct conf_route *route = ex->match.route;
    struct field fields[24];
    struct head head;
    struct str to = text_fill(ex, &route->redirect.to);
    if (to.p)
        to = local(&route->redirect.to, to);
    if (to.p && ex->head->query.p)
        to = with_query(ex, to, ex->head->query);
    new_head(ex, &head, fields, 24, route->redirect.status);
    if (to.p)
        head_add_id(&head, &ex->arena, F_LOCATION, to);
    send_edited(ex, &head, to.p ? STR("") : to);
}
