#include "proxy/admin.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#define LISTENERS    8
#define BACKLOG      64
#define HEADER_BYTES (16 * 1024)
#define BODY_BYTES   (16 * 1024) /* nothing here wants a body; a small one is read over */
#define TIMEOUT_S    10
#define PAUSE_MS     250
#define WARN_EVERY   (60 * NS_PER_S)

struct admin {
    struct evhttp *http;
    const struct admin_ops *ops;
    void *owner;
    struct evhttp_bound_socket *listeners[LISTENERS];
    size_t count;
    struct event *resume; /* ends the pause after a failed accept */
    uint64_t warned_at;
    struct admin *next;
};

#define TEXT    "text/plain; charset=utf-8"
#define JSON    "application/json"
#define PROBLEM "application/problem+json"
#define METRICS "text/plain; version=0.0.4; charset=utf-8"

/* ---- answers ---- */

static void free_text(const void *data, size_t n, void *text)
{
    (void)data;
    (void)n;
    free(text);
}

/* Answers with `n` bytes of `text`, which malloc gave and which are taken. To HEAD with the
 * same head. */
static void answer_taking(struct evhttp_request *req, int status, const char *type, char *text,
                          size_t n)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(req);
    struct evbuffer *body = evhttp_request_get_output_buffer(req);
    char length[24];

    snprintf(length, sizeof(length), "%zu", n);
    evhttp_add_header(headers, "Content-Type", type);
    evhttp_add_header(headers, "Content-Length", length);
    evhttp_add_header(headers, "Cache-Control", "no-store");
    if (evhttp_request_get_command(req) == EVHTTP_REQ_HEAD || n == 0 ||
        evbuffer_add_reference(body, text, n, free_text, text) < 0)
        free(text);
    evhttp_send_reply(req, status, NULL, NULL);
}

static void answer(struct evhttp_request *req, int status, const char *type, const char *text)
{
    char *copy = strdup(text);

    if (copy)
        answer_taking(req, status, type, copy, strlen(copy));
    else
        evhttp_send_error(req, HTTP_INTERNAL, NULL);
}

static void answer_no_memory(struct evhttp_request *req)
{
    answer(req, HTTP_INTERNAL, PROBLEM,
           "{\"type\":\"about:blank\",\"title\":\"Internal Server Error\",\"status\":500,"
           "\"detail\":\"The gateway is out of memory\"}\n");
}

/* Takes the reference. */
static void answer_json(struct evhttp_request *req, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_ENCODE_ANY) : NULL;
    size_t n = text ? strlen(text) : 0;
    char *line = text ? realloc(text, n + 1) : NULL;

    json_decref(json);
    if (!line) {
        free(text);
        answer_no_memory(req);
        return;
    }
    line[n] = '\n'; /* a text file ends in LF; the NUL is not sent */
    answer_taking(req, HTTP_OK, JSON, line, n + 1);
}

static void healthz(struct admin *admin, struct evhttp_request *req)
{
    (void)admin;
    answer(req, HTTP_OK, TEXT, "ok\n");
}

static void readyz(struct admin *admin, struct evhttp_request *req)
{
    if (admin->ops->is_ready(admin->owner))
        answer(req, HTTP_OK, TEXT, "ready\n");
    else
        answer(req, HTTP_SERVUNAVAIL, TEXT, "not ready\n");
}

static void metrics(struct admin *admin, struct evhttp_request *req)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    bool failed;

    if (!out) {
        answer_no_memory(req);
        return;
    }
    admin->ops->metrics(admin->owner, out);
    failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        answer_no_memory(req);
        return;
    }
    answer_taking(req, HTTP_OK, METRICS, text, n);
}

static void upstreams(struct admin *admin, struct evhttp_request *req)
{
    answer_json(req, admin->ops->upstreams(admin->owner));
}

static void config(struct admin *admin, struct evhttp_request *req)
{
    answer_json(req, admin->ops->config(admin->owner));
}

static const struct endpoint {
    const char *path;
    void (*get)(struct admin *admin, struct evhttp_request *req);
} endpoints[] = {
    {"/healthz", healthz},     {"/readyz", readyz}, {"/metrics", metrics},
    {"/upstreams", upstreams}, {"/config", config},
};

/* ---- what is done on request ---- */

static void answer_problem(struct evhttp_request *req, int status, const char *title,
                           const char *detail)
{
    json_t *json = json_pack("{s:s, s:s, s:i, s:s}", "type", "about:blank", "title", title,
                             "status", status, "detail", detail);
    char *text = json ? json_dumps(json, 0) : NULL;

    json_decref(json);
    if (text)
        answer_taking(req, status, PROBLEM, text, strlen(text));
    else
        answer_no_memory(req);
}

/* A part of a path, decoded into a text of its own, or NULL: no memory. */
static char *decoded(const char *p, size_t n)
{
    char *out = malloc(n + 1);
    size_t at = 0;
    uint64_t byte;

    for (size_t i = 0; out && i < n; i++) {
        if (p[i] == '%' && n - i > 2 &&
            str_hex_to_u64((struct str){p + i + 1, 2}, 255, &byte) == 0) {
            out[at++] = (char)byte;
            i += 2;
        } else {
            out[at++] = p[i];
        }
    }
    if (out)
        out[at] = '\0';
    return out;
}

/* /upstreams/NAME/SERVER/drain or /ready; a unix socket's slashes may stand as they are. */
struct order {
    char *upstream, *server;
    bool drain;
};

static bool parse_order(const char *path, struct order *ret)
{
    static const char before[] = "/upstreams/";
    const char *name, *slash, *last;

    if (!path || strncmp(path, before, sizeof(before) - 1) != 0)
        return false;
    name = path + sizeof(before) - 1;
    slash = strchr(name, '/');
    last = strrchr(name, '/');
    if (!slash || last == slash || (strcmp(last, "/drain") != 0 && strcmp(last, "/ready") != 0))
        return false;
    ret->upstream = decoded(name, (size_t)(slash - name));
    ret->server = decoded(slash + 1, (size_t)(last - slash - 1));
    ret->drain = strcmp(last, "/drain") == 0;
    return true;
}

static void drain(struct admin *admin, struct evhttp_request *req, const struct order *order)
{
    char detail[ADMIN_DETAIL] = "";
    json_t *json = NULL;

    if (order->upstream && order->server)
        json = admin->ops->drain(admin->owner, order->upstream, order->server, order->drain,
                                 detail);
    if (json)
        answer_json(req, json);
    else if (detail[0])
        answer_problem(req, HTTP_NOTFOUND, "Not Found", detail);
    else
        answer_no_memory(req);
}

/* True: the request was one, and is answered. */
static bool on_order(struct admin *admin, struct evhttp_request *req, const char *path)
{
    struct order order = {NULL, NULL, false};

    if (!parse_order(path, &order))
        return false;
    if (evhttp_request_get_command(req) != EVHTTP_REQ_POST) {
        evhttp_add_header(evhttp_request_get_output_headers(req), "Allow", "POST");
        answer_problem(req, HTTP_BADMETHOD, "Method Not Allowed", "Only POST is answered here");
    } else if (evhttp_find_header(evhttp_request_get_input_headers(req), "Origin")) {
        /* a page in an operator's browser must not give orders */
        answer_problem(req, 403, "Forbidden", "Orders are not taken from web pages");
    } else {
        drain(admin, req, &order);
    }
    free(order.upstream);
    free(order.server);
    return true;
}

static void on_request(struct evhttp_request *req, void *arg)
{
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    enum evhttp_cmd_type method = evhttp_request_get_command(req);
    const struct endpoint *found = NULL;

    for (size_t i = 0; path && i < sizeof(endpoints) / sizeof(*endpoints); i++)
        if (strcmp(path, endpoints[i].path) == 0)
            found = &endpoints[i];
    if (!found && on_order(arg, req, path))
        return;
    if (!found && method != EVHTTP_REQ_CONNECT) { /* which names no path */
        answer(req, HTTP_NOTFOUND, PROBLEM,
               "{\"type\":\"about:blank\",\"title\":\"Not Found\",\"status\":404,"
               "\"detail\":\"There are /healthz, /readyz, /metrics, /upstreams and /config; "
               "and POST "
               "/upstreams/NAME/SERVER/drain and .../ready\"}\n");
    } else if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
        evhttp_add_header(evhttp_request_get_output_headers(req), "Allow", "GET, HEAD");
        answer(req, HTTP_BADMETHOD, PROBLEM,
               "{\"type\":\"about:blank\",\"title\":\"Method Not Allowed\",\"status\":405,"
               "\"detail\":\"Only GET and HEAD are answered here\"}\n");
    } else {
        found->get(arg, req);
    }
}

/* ---- listening ---- */

static struct admin *admins; /* evhttp keeps its listeners' callback argument for itself */

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct admin *admin = arg;

    (void)fd;
    (void)what;
    for (size_t i = 0; i < admin->count; i++)
        evconnlistener_enable(evhttp_bound_socket_get_listener(admin->listeners[i]));
}

/* Out of descriptors, most likely: what waits to be accepted would wake us at once again. */
static void on_accept_error(struct evconnlistener *listener, void *http)
{
    static const struct timeval pause = {.tv_usec = PAUSE_MS * 1000};
    struct admin *admin = admins;
    int err = errno;
    uint64_t now = clock_ns();

    while (admin->http != http)
        admin = admin->next;
    evconnlistener_disable(listener);
    event_add(admin->resume, &pause);
    if (admin->warned_at == 0 || now - admin->warned_at > WARN_EVERY) {
        admin->warned_at = now;
        log_warn("admin: cannot accept a connection: %s", strerror(err));
    }
}

int admin_listen(struct admin *admin, int fd)
{
    struct event_base *base = event_get_base(admin->resume);
    struct evconnlistener *listener = NULL;
    struct evhttp_bound_socket *bound;
    int err = -ENOMEM;

    if (admin->count == LISTENERS)
        err = -ENOSPC;
    else if (evutil_make_socket_nonblocking(fd) < 0 || listen(fd, BACKLOG) < 0)
        err = -errno;
    else
        listener = evconnlistener_new(base, NULL, NULL,
                                      LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_CLOSE_ON_FREE, 0, fd);
    if (!listener) {
        close(fd);
        return err;
    }
    bound = evhttp_bind_listener(admin->http, listener);
    if (!bound) {
        evconnlistener_free(listener);
        return -ENOMEM;
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
    admin->listeners[admin->count++] = bound;
    return 0;
}

void admin_unlisten(struct admin *admin)
{
    event_del(admin->resume);
    while (admin->count > 0)
        evhttp_del_accept_socket(admin->http, admin->listeners[--admin->count]);
}

struct admin *admin_new(struct event_base *base, const struct admin_ops *ops, void *owner)
{
    static const ev_uint16_t every_method = EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD |
                                            EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                            EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE |
                                            EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH;
    struct admin *admin = mem_zalloc(sizeof(*admin));

    if (!admin)
        return NULL;
    admin->ops = ops;
    admin->owner = owner;
    admin->http = evhttp_new(base);
    admin->resume = evtimer_new(base, on_resume, admin);
    if (!admin->http || !admin->resume) {
        if (admin->http)
            evhttp_free(admin->http);
        if (admin->resume)
            event_free(admin->resume);
        mem_free(admin);
        return NULL;
    }
    evhttp_set_max_headers_size(admin->http, HEADER_BYTES);
    evhttp_set_max_body_size(admin->http, BODY_BYTES);
    evhttp_set_timeout(admin->http, TIMEOUT_S);
    evhttp_set_allowed_methods(admin->http, every_method);
    evhttp_set_gencb(admin->http, on_request, admin);
    admin->next = admins;
    admins = admin;
    return admin;
}

void admin_free(struct admin *admin)
{
    struct admin **at = &admins;

    if (!admin)
        return;
    while (*at != admin)
        at = &(*at)->next;
    *at = admin->next;
    admin_unlisten(admin);
    evhttp_free(admin->http);
    event_free(admin->resume);
    mem_free(admin);
}
