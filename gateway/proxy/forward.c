#include "proxy/forward.h"

#include <errno.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "http/path.h"
#include "net/proxy_protocol.h"
#include "proxy/forwarded.h"
#include "proxy/plugins.h"
#include "proxy/sticky.h"
#include "proxy/text.h"

#define ID_MAX          128 /* of a request id that a trusted proxy brings */
#define TRACEPARENT     55  /* bytes of one */
#define DEADLINE_MAX_MS (24ull * 60 * 60 * 1000)

/* ---- who asks ---- */

#ifdef __x86_64__
/* All digits at once: the nibbles side by side, and each becomes its digit by adding '0', or
 * what lies between '9' and 'a' on top of it. */
static void put_hex16(char out[16], uint64_t value)
{
    const __m128i low = _mm_set1_epi8(15);
    __m128i v = _mm_cvtsi64_si128((long long)__builtin_bswap64(value));
    __m128i x =
        _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi64(v, 4), low), _mm_and_si128(v, low));
    __m128i over_9 =
        _mm_and_si128(_mm_cmpgt_epi8(x, _mm_set1_epi8(9)), _mm_set1_epi8('a' - '9' - 1));
    x = _mm_add_epi8(x, _mm_add_epi8(over_9, _mm_set1_epi8('0')));
    memcpy(out, &x, 16);
}
#else
static void put_hex16(char out[16], uint64_t value)
{
    static const char hex[] = "0123456789abcdef";
    for (unsigned i = 16; i-- > 0; value >>= 4)
        out[i] = hex[value & 15];
}
#endif

static struct str new_id(struct exchange *ex)
{
    char *id = arena_alloc(&ex->arena, ID_LEN);
    if (!id)
        return (struct str){NULL, 0};
    put_hex16(id, context_random(ex->cx));
    put_hex16(id + 16, context_random(ex->cx));
    return (struct str){id, ID_LEN};
}

static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~')
            return false;
    return s.n > 0;
}

/* version "-" trace-id "-" parent-id "-" flags (W3C Trace Context, level 1). Versions to come
 * may have more behind another "-". */
static bool is_traceparent(struct str s)
{
    static const uint8_t dashes[] = {2, 35, 52};
    if (s.n > TRACEPARENT && memcmp(s.p, "00", 2) != 0 && s.p[TRACEPARENT] == '-')
        s.n = TRACEPARENT;
    if (s.n != TRACEPARENT || memcmp(s.p, "ff", 2) == 0 ||
        memcmp(s.p + 3,
               "0000000000000000"
               "0000000000000000",
               32) == 0)
        return false;
    for (size_t i = 0, d = 0; i < s.n; i++) {
        if (d < sizeof(dashes) && i == dashes[d]) {
            if (s.p[i] != '-')
                return false;
            d++;
        } else if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f'))) {
            return false;
        }
    }
    return memcmp(s.p + 36, "0000000000000000", 16) != 0;
}

/* The one that the client sent; two of them are none. */
static const struct field *given_trace(const struct head *head)
{
    const struct field *first = head_find(head, F_TRACEPARENT);
    if (!first || !is_traceparent(first->value))
        return NULL;
    for (const struct field *f = first + 1; f < head->fields + head->count; f++)
        if (f->id == F_TRACEPARENT)
            return NULL;
    return first;
}

/* Who starts a trace and names the request gives both the same id: one to search for. */
bool forward_name(struct exchange *ex)
{
    ex->req_id = ex->trace_id = new_id(ex);
    return ex->req_id.p != NULL;
}

static bool identify_ids(struct exchange *ex)
{
    const struct field *id = ex->trusted ? head_find(ex->head, F_X_REQUEST_ID) : NULL;
    if (id && id->value.n <= ID_MAX && is_plain(id->value))
        ex->req_id = id->value;
    const struct field *trace = given_trace(ex->head);
    if (trace)
        ex->trace_id = (struct str){trace->value.p + 3, ID_LEN};
    if (!ex->trace_id.p)
        ex->trace_id = new_id(ex);
    if (!ex->req_id.p)
        ex->req_id = trace ? new_id(ex) : ex->trace_id;
    return ex->req_id.p && ex->trace_id.p;
}

enum reason forward_identify(struct exchange *ex, size_t *ret_offset)
{
    struct head *head = ex->head;
    ex->log_method = head->method_text;
    ex->log_target_path = head->path;
    ex->log_query = head->query;
    forwarded_identify(ex);
    if (!identify_ids(ex) || head_host(head->authority, &ex->arena, &ex->host) < 0)
        return R_NO_MEMORY;
    enum reason reason = head_strip_hop(head);
    if (reason)
        return reason;
    if (head->path.n == 1 && head->path.p[0] == '*') {
        ex->path = head->path;
        return R_NONE;
    }
    unsigned class;
    int rc = path_normalise(head->path, exchange_listener(ex)->path_allow, &ex->arena,
                            &ex->path, &class, ret_offset);
    if (rc == 0)
        return R_NONE;
    ex->path_class = class;
    return rc == -ENOMEM ? R_NO_MEMORY : R_BAD_PATH;
}

/* ---- what a route says of headers ---- */

/* All values are made before a field is touched: one that is taken away, or set, may be
 * another's value. .p NULL in what it gives: no memory. */
static struct str *edit_values(struct exchange *ex, const struct conf_edit *edit)
{
    size_t count = edit->set_count + edit->add_count;
    struct str *values = arena_alloc(&ex->arena, (count + 1) * sizeof(*values));
    for (size_t i = 0; values && i < count; i++) {
        const struct conf_field *field =
            i < edit->set_count ? &edit->set[i] : &edit->add[i - edit->set_count];
        values[i] = text_fill(ex, &field->value);
        if (!values[i].p)
            return NULL;
    }
    return values;
}

bool forward_edit(struct exchange *ex, const struct conf_edit *edit, struct head *head)
{
    if (!edit->set_count && !edit->add_count && !edit->remove.count)
        return true;
    const struct str *values = edit_values(ex, edit);
    if (!values)
        return false;
    for (size_t i = 0; i < edit->remove.count; i++)
        head_remove_name(head, str_of(edit->remove.list[i]));
    for (size_t i = 0; i < edit->set_count; i++)
        if (head_set(head, &ex->arena, str_of(edit->set[i].name), *values++) < 0)
            return false;
    for (size_t i = 0; i < edit->add_count; i++)
        if (head_add(head, &ex->arena, str_of(edit->add[i].name), *values++) < 0)
            return false;
    return true;
}

struct str forward_cookie(const struct head *head, struct str name)
{
    for (uint32_t i = 0; i < head->count; i++) {
        if (head->fields[i].id != F_COOKIE)
            continue;
        struct str rest = head->fields[i].value;
        while (rest.n) {
            const char *end = memchr(rest.p, ';', rest.n);
            struct str pair = {rest.p, end ? (size_t)(end - rest.p) : rest.n};
            rest.p += pair.n + (end != NULL);
            rest.n -= pair.n + (end != NULL);
            pair = str_trim(pair);
            if (pair.n > name.n && pair.p[name.n] == '=' && memcmp(pair.p, name.p, name.n) == 0)
                return (struct str){pair.p + name.n + 1, pair.n - name.n - 1};
        }
    }
    return (struct str){NULL, 0};
}

uint64_t forward_hash(const struct exchange *ex, enum conf_hash_on on, const char *name)
{
    const struct field *field;
    struct str value;
    switch (on) {
    case HASH_CLIENT_IP:
        return balance_hash(ex->client_ip);
    case HASH_PATH:
        return balance_hash(ex->path);
    case HASH_HEADER:
        field = head_find_name(ex->head, str_of(name));
        return field ? balance_hash(field->value) : 0;
    case HASH_COOKIE:
        value = forward_cookie(ex->head, str_of(name));
        return value.p ? balance_hash(value) : 0;
    case HASH_NONE:
        return 0;
    }
    return 0;
}

/* ---- the request's head ---- */

/* A spelling that some backend takes for one of the fields we vouch for, X_Forwarded_For, or
 * for the framing that we make anew, Content_Length. */
static bool is_twin(struct str name)
{
    static const enum field_id ours[] = {
        F_X_FORWARDED_FOR, F_X_FORWARDED_PROTO,     F_X_FORWARDED_HOST,
        F_X_REQUEST_ID,    F_X_REQUEST_DEADLINE_MS, F_X_SSL_CLIENT_S_DN,
        F_FORWARDED,       F_TRACEPARENT,           F_VIA,
        F_CONTENT_LENGTH,  F_TRANSFER_ENCODING};
    if (!memchr(name.p, '_', name.n) && !memchr(name.p, '.', name.n))
        return false;
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
        struct str own = field_names[ours[i]];
        size_t k = 0;
        while (own.n == name.n && k < name.n) {
            char c = name.p[k] == '_' || name.p[k] == '.' ? '-' : ascii_lower(name.p[k]);
            if (c != ascii_lower(own.p[k]))
                break;
            k++;
        }
        if (own.n == name.n && k == name.n)
            return true;
    }
    return false;
}

/* X-Forwarded-Prefix and its like, which backends believe too. */
static bool is_forwarded_other(struct str name)
{
    static const struct str start = STR("x-forwarded-");
    if (name.n <= start.n || ascii_lower(name.p[0]) != 'x')
        return false;
    for (size_t i = 1; i < start.n; i++)
        if (start.p[i] != '-' ? ascii_lower(name.p[i]) != start.p[i]
                              : !memchr("-_.", name.p[i], 3))
            return false;
    return true;
}

/* Whether a field the client sent goes on to the upstream as it is. */
static bool passes(const struct exchange *ex, const struct field *field)
{
    switch (field->id) {
    case F_X_REQUEST_DEADLINE_MS: /* told anew, less what has passed */
        return ex->trusted && !ex->upstream->tell_deadline;
    case F_X_REQUEST_ID:
    case F_TRACEPARENT:
    case F_X_SSL_CLIENT_S_DN: /* nobody's word but ours */
    case F_EXPECT:            /* answered here */
        return false;
    case F_X_FORWARDED_FOR:
    case F_X_FORWARDED_PROTO:
    case F_X_FORWARDED_HOST:
    case F_FORWARDED:
        return forwarded_passes(ex, field->id);
    case F_TRACESTATE:
        return ex->trace_id.p != NULL && !ex->trace_is_new;
    case F_HOST:
        return !ex->host_is_new;
    case F_OTHER:
        return !is_twin(field->name) && (ex->trusted || !is_forwarded_other(field->name));
    default:
        return true;
    }
}

static struct str traceparent(struct exchange *ex)
{
    const struct field *field = given_trace(ex->head);
    if (field)
        return field->value;
    ex->trace_is_new = true;
    char *text = arena_alloc(&ex->arena, TRACEPARENT);
    if (!text)
        return (struct str){NULL, 0};
    memcpy(text, "00-", 3);
    memcpy(text + 3, ex->trace_id.p, ID_LEN);
    text[35] = '-';
    put_hex16(text + 36, context_random(ex->cx) | 1); /* all zeros would not be valid */
    memcpy(text + 52, "-01", 3);
    return (struct str){text, TRACEPARENT};
}

/* "//x" would be read as a host. */
static struct str one_slash(struct str path)
{
    while (path.n > 1 && path.p[1] == '/')
        path.p++, path.n--;
    return path;
}

static struct str strip_prefix(struct str path, struct str prefix)
{
    if (path.n < prefix.n || memcmp(path.p, prefix.p, prefix.n) != 0 ||
        (path.n > prefix.n && path.p[prefix.n] != '/'))
        return (struct str){NULL, 0};
    path = one_slash((struct str){path.p + prefix.n, path.n - prefix.n});
    return path.n ? path : STR("/");
}

/* The normal form, but what only does not count when paths are compared is still there. */
static struct str plain_path(struct exchange *ex)
{
    unsigned allow = exchange_listener(ex)->path_allow, class;
    struct str plain = {NULL, 0};
    size_t offset;
    if (ex->path.p == ex->head->path.p || allow & PATH_DOTS_BEHIND_EMPTY)
        return ex->path; /* with the latter the two would not be one path */
    allow &= ~(unsigned)(PATH_MERGE_SLASHES | PATH_DROP_PARAMETERS);
    path_normalise(ex->head->path, allow, &ex->arena, &plain, &class, &offset);
    return plain;
}

/* A backend that does not resolve ".." would read another path than we matched, and one that
 * may be guarded: "/admin/..". */
static bool climbs(struct exchange *ex)
{
    unsigned allow = exchange_listener(ex)->path_allow, class = 0;
    struct str path, raw = ex->head->path;
    size_t offset;
    return ex->path.p != raw.p && (allow & PATH_ENCODED_DOT || memmem(raw.p, raw.n, "..", 2)) &&
           path_normalise(raw, allow & ~(unsigned)PATH_DOT_SEGMENT, &ex->arena, &path, &class,
                          &offset) < 0 &&
           class == PATH_DOT_SEGMENT;
}

/* The target that goes out: origin-form, as it came unless the route rewrites it or it has
 * segments that climb. */
static bool set_target(struct exchange *ex)
{
    struct head *head = ex->head;
    const struct conf_route *route = ex->match.route;
    struct str path = head->path;
    bool changed = head->target.n && head->target.p[0] != '/' && head->target.p[0] != '*';
    if (route->rewrite.count) {
        path = one_slash(text_fill(ex, &route->rewrite));
        changed = true;
    } else if (route->strip_prefix) {
        struct str prefix = str_of(route->strip_prefix);
        changed = true;
        path = strip_prefix(plain_path(ex), prefix);
        if (!path.p)
            path = strip_prefix(ex->path, prefix);
        if (!path.p)
            path = ex->path;
    } else if (climbs(ex)) {
        changed = true;
        path = plain_path(ex);
    }
    if (!changed)
        return true;
    if (path.p)
        head->target = arena_join(&ex->arena, (struct str[]){path, STR("?"), head->query},
                                  head->query.p ? 3 : 1);
    return path.p && head->target.p;
}

/* The server's own name, as the configuration has it. */
static struct str server_name(const struct exchange *ex)
{
    const struct server *server = &ex->cluster->servers[ex->server];
    if (server->addr.sa.sa_family == AF_UNIX)
        return STR("localhost");
    return str_of(conf_server_name(&ex->upstream->servers[server->from]));
}

static struct str choose_host(struct exchange *ex)
{
    struct str host = ex->head->authority;
    ex->server_host = (struct str){NULL, 0};
    if (ex->upstream->host == HOST_NAME)
        return str_of(ex->upstream->host_name);
    if (ex->upstream->host == HOST_UPSTREAM || !host.n) /* none: HTTP/1.0, but it needs one */
        host = ex->server_host = server_name(ex);
    return host;
}

bool forward_is_grpc(const struct exchange *ex)
{
    static const struct str kind = STR("application/grpc");
    const struct field *type = ex->head ? head_find(ex->head, F_CONTENT_TYPE) : NULL;
    return type && type->value.n >= kind.n &&
           str_eq_nocase((struct str){type->value.p, kind.n}, kind);
}

/* Grpc-Timeout: one to eight digits and a unit; what passes for longer than anybody waits is
 * none. */
static bool grpc_timeout(const struct exchange *ex, uint64_t *ret_ms)
{
    static const struct {
        char unit;
        uint32_t us; /* 0: nanoseconds */
    } units[] = {{'n', 0},           {'u', 1},         {'m', 1000},
                 {'S', 1000 * 1000}, {'M', 60000000u}, {'H', 3600000000u}};
    const struct field *field = head_find_name(ex->head, STR("grpc-timeout"));
    uint64_t n;
    if (!field || field->value.n < 2 ||
        str_to_u64((struct str){field->value.p, field->value.n - 1}, 99999999, &n) < 0)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (field->value.p[field->value.n - 1] == units[i].unit) {
            *ret_ms = (units[i].us ? n * units[i].us : n / 1000) / 1000;
            return *ret_ms <= DEADLINE_MAX_MS;
        }
    return false;
}

bool forward_deadline(const struct exchange *ex, uint64_t *ret_ms)
{
    if (forward_is_grpc(ex) && grpc_timeout(ex, ret_ms))
        return true;
    const struct field *field =
        ex->trusted ? head_find(ex->head, F_X_REQUEST_DEADLINE_MS) : NULL;
    return field && str_to_u64(field->value, DEADLINE_MAX_MS, ret_ms) == 0;
}

/* What is left of the time for all of it. .p NULL: no memory. */
static struct str time_left(struct exchange *ex)
{
    uint64_t now = ex->cx->loop->now, at = ex->total.at;
    char text[20];
    return arena_copy(
        &ex->arena,
        (struct str){text, str_put_u64(text, at > now ? (at - now) / NS_PER_MS : 0)});
}

static bool tell_deadline(struct exchange *ex)
{
    if (!ex->upstream->tell_deadline || !deadline_is_on(&ex->total))
        return true;
    ex->time_left = time_left(ex);
    return ex->time_left.p &&
           head_add_text(ex->head, &ex->arena, F_X_REQUEST_DEADLINE_MS, ex->time_left) == 0;
}

enum hops forward_hops(struct exchange *ex)
{
    static const struct str name = STR("Max-Forwards");
    const struct field *field = head_find_name(ex->head, name), *all = ex->head->fields;
    uint64_t left;
    if (!field)
        return HOPS_ON;
    for (uint32_t i = (uint32_t)(field - all) + 1; i < ex->head->count; i++)
        if (str_eq_nocase(all[i].name, name))
            return HOPS_BAD;
    if (str_to_u64(field->value, UINT32_MAX, &left) < 0)
        return HOPS_BAD;
    if (left == 0)
        return HOPS_HERE;
    char text[20];
    struct str value = arena_copy(&ex->arena, (struct str){text, str_put_u64(text, left - 1)});
    return value.p && head_set(ex->head, &ex->arena, name, value) == 0 ? HOPS_ON
                                                                       : HOPS_NO_MEMORY;
}

static bool add_ours(struct exchange *ex, struct str host, const struct forwarded *forwarded,
                     struct str trace)
{
    struct head *head = ex->head;
    struct arena *arena = &ex->arena;
    if (ex->host_is_new && head_add_id(head, arena, F_HOST, host) < 0)
        return false;
    if (ex->peer->tls && ex->peer->tls->subject.p &&
        head_add_id(head, arena, F_X_SSL_CLIENT_S_DN, ex->peer->tls->subject) < 0)
        return false;
    return forwarded_add(ex, forwarded) &&
           head_add_text(head, arena, F_X_REQUEST_ID, ex->req_id) == 0 &&
           head_add_text(head, arena, F_TRACEPARENT, trace) == 0 &&
           head_add_text(head, arena, F_VIA,
                         head->h2      ? STR("2.0 postern")
                         : head->minor ? STR("1.1 postern")
                                       : STR("1.0 postern")) == 0 &&
           tell_deadline(ex);
}

enum reason forward_request(struct exchange *ex)
{
    struct head *head = ex->head;
    const struct field *given = head_find(head, F_HOST);
    struct str host = choose_host(ex);
    ex->host_is_new = !given || !str_eq(given->value, host);
    struct forwarded forwarded;
    struct str trace = traceparent(ex);
    if (!trace.p || !forwarded_make(ex, &forwarded))
        return R_NO_MEMORY;

    uint32_t kept = 0;
    for (uint32_t i = 0; i < head->count; i++)
        if (passes(ex, &head->fields[i]))
            head->fields[kept++] = head->fields[i];
    head->count = kept;
    if (!add_ours(ex, host, &forwarded, trace) || !set_target(ex) ||
        !forward_edit(ex, &ex->match.route->request_headers, head))
        return R_NO_MEMORY;
    return R_NONE;
}

void forward_again(struct exchange *ex)
{
    struct field *host = ex->server_host.p ? head_find(ex->head, F_HOST) : NULL;
    if (host && host->value.p == ex->server_host.p) /* else the route has set another */
        host->value = ex->server_host = server_name(ex);
    struct field *left = ex->time_left.p ? head_find(ex->head, F_X_REQUEST_DEADLINE_MS) : NULL;
    struct str text = left && left->value.p == ex->time_left.p ? time_left(ex) : STR("");
    if (text.n)
        left->value = ex->time_left = text;
}

void forward_preface(struct exchange *ex)
{
    char bytes[PROXY_PROTOCOL_WRITE];
    struct addr source = forwarded_client(ex), local;
    const struct addr *destination = ex->peer->destination;
    if (!destination && sock_local(ex->peer->stream->fd, &local) == 0)
        destination = &local;
    stream_write(
        &ex->client->stream, bytes,
        proxy_protocol_write(bytes, ex->cluster->proxy_protocol, &source, destination));
}

/* ---- the response's head ---- */

enum reason forward_response(struct exchange *ex, struct head *head)
{
    if (head_strip_hop(head))
        return R_UPSTREAM_PROTOCOL;
    head->keep_alive = true; /* the client's connection is the client's */
    bool final = head->status >= 200;
    /* RFC 9110 6.6.1: who forwards an answer without a date gives it one */
    if (final && !(head->present & 1ull << F_DATE) &&
        head_add_id(head, &ex->arena, F_DATE, context_date(ex->cx)) < 0)
        return R_NO_MEMORY;
    if (final && !forward_edit(ex, &ex->match.route->response_headers, head))
        return R_NO_MEMORY;
    if ((final || head->status == 101) && !sticky_tell(ex, head))
        return R_NO_MEMORY;
    if ((final || head->status == 101) && ex->plugged && !plugins_response(ex, head))
        return R_NO_MEMORY;
    if (ex->plugged)
        plugins_frame_response(ex, head);
    return R_NONE;
}
