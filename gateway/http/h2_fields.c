#include "http/h2_fields.h"

#include <assert.h>
#include <errno.h>

#include "http/bytes.h"
#include "http/h1_write.h"
#include "http/websocket.h"

#define METHOD_MAX  32
#define FIELDS_MOST 24 /* fields that there is room for at first, ours included */
#define LENGTH_MAX  ((uint64_t)INT64_MAX)

#define BIT(symbol) (1ull << F_##symbol)
/* RFC 9113 8.2.2: what steers one connection has no place among fields. */
#define CONNECTION_FIELDS                                                                      \
    (BIT(CONNECTION) | BIT(KEEP_ALIVE) | BIT(PROXY_CONNECTION) | BIT(TRANSFER_ENCODING) |      \
     BIT(UPGRADE) | BIT(HTTP2_SETTINGS))

void h2_section_begin(struct h2_section *section, struct arena *arena)
{
    struct head *head = arena_alloc(arena, sizeof(*head));
    struct field *fields = arena_alloc(arena, FIELDS_MOST * sizeof(*fields));
    *section = (struct h2_section){.arena = arena};
    if (!head || !fields) {
        section->fault.reason = R_NO_MEMORY;
        return;
    }
    *head = (struct head){.fields = fields, .cap = FIELDS_MOST, .minor = 1, .keep_alive = true};
    head->h2 = true;
    section->head = head;
}

/* The first fault stays. Its field's name is kept. */
static void fail(struct h2_section *section, enum reason reason, struct str name)
{
    if (section->fault.reason)
        return;
    section->fault = (struct leg_fault){.reason = reason};
    if (name.n)
        section->fault.field = arena_copy(section->arena, name);
}

static void fail_limit(struct h2_section *section, enum reason reason, struct str name,
                       uint64_t limit, uint64_t actual)
{
    if (section->fault.reason)
        return;
    fail(section, reason, name);
    section->fault.limit = limit;
    section->fault.actual = actual;
}

void h2_section_refuse(struct h2_section *section, struct str name)
{
    bool named = name.n && name.p[0] != ':' && head_is_token(name);
    for (size_t i = 0; named && i < name.n; i++)
        named = name.p[i] < 'A' || name.p[i] > 'Z'; /* RFC 9113 8.2.1 */
    fail(section, named ? R_BAD_FIELD_VALUE : R_BAD_FIELD_NAME, name);
}

static void add_pseudo(struct h2_section *section, struct str name, struct str value)
{
    static const struct {
        struct str name;
        size_t at;
    } known[] = {
        {STR(":method"), offsetof(struct h2_section, method)},
        {STR(":scheme"), offsetof(struct h2_section, scheme)},
        {STR(":authority"), offsetof(struct h2_section, authority)},
        {STR(":path"), offsetof(struct h2_section, path)},
        {STR(":protocol"), offsetof(struct h2_section, protocol)},
        {STR(":status"), offsetof(struct h2_section, status)},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (!str_eq(name, known[i].name))
            continue;
        struct str *slot = (struct str *)(void *)((char *)section + known[i].at);
        if (slot->p || section->lines) /* RFC 9113 8.3 */
            fail(section, R_BAD_FIELDS, name);
        *slot = arena_copy(section->arena, value);
        if (!slot->p)
            fail(section, R_NO_MEMORY, (struct str){NULL, 0});
        return;
    }
    fail(section, R_BAD_FIELDS, name);
}

static void note_length(struct h2_section *section, struct str value)
{
    struct head *head = section->head;
    if (head->has_length || str_to_u64(value, LENGTH_MAX, &head->length) < 0)
        fail(section, R_BAD_LENGTH, field_names[F_CONTENT_LENGTH]);
    head->has_length = true;
}

/* RFC 9110 10.1.1, as HTTP/1 has it. */
static void note_expect(struct h2_section *section, struct str list)
{
    struct str expectation;
    while (str_next_token(&list, &expectation)) {
        if (!str_eq_nocase(expectation, STR("100-continue")))
            fail(section, R_CLIENT_EXPECT, field_names[F_EXPECT]);
        section->head->expect_continue = true;
    }
}

/* Whether the field is kept. */
static bool note_field(struct h2_section *section, enum field_id id, struct str value)
{
    if (CONNECTION_FIELDS >> id & 1) {
        fail(section, R_BAD_CONNECTION, field_names[id]);
        return false;
    }
    switch (id) {
    case F_CONTENT_LENGTH:
        note_length(section, value);
        return false;
    case F_TE:
        if (!str_eq_nocase(value, STR("trailers")))
            fail(section, R_BAD_CONNECTION, field_names[F_TE]);
        return true;
    case F_EXPECT:
        note_expect(section, value);
        return true;
    case F_COOKIE:
        section->crumbs++;
        return true;
    default:
        return true;
    }
}

/* Names that we know are not copied. */
static struct str keep_name(struct h2_section *section, enum field_id id, struct str name)
{
    return id == F_OTHER ? arena_copy(section->arena, name) : field_names[id];
}

void h2_section_add(struct h2_section *section, struct str name, struct str value,
                    const struct h1_limits *limits)
{
    bool counts = name.n == 0 || name.p[0] != ':';
    enum field_id id = field_id_of(name);
    section->bytes += name.n + value.n + 32;
    section->lines += counts && (id != F_COOKIE || !section->crumbs);
    if (section->bytes > limits->header_bytes)
        fail_limit(section, R_CLIENT_HEADERS_TOO_LARGE, name, limits->header_bytes,
                   section->bytes);
    else if (section->lines > limits->headers)
        fail_limit(section, R_CLIENT_HEADERS_TOO_LARGE, name, limits->headers, section->lines);
    if (section->fault.reason)
        return;
    if (!counts) {
        add_pseudo(section, name, value);
        return;
    }
    if (!head_is_token(name))
        fail(section, R_BAD_FIELD_NAME, name);
    else if (!head_is_field_value(value) || str_trim(value).n != value.n)
        fail(section, R_BAD_FIELD_VALUE, name);
    if (section->fault.reason || !note_field(section, id, value) || section->fault.reason)
        return;
    struct str kept = keep_name(section, id, name), text = arena_copy(section->arena, value);
    if (!kept.p || !text.p || head_add(section->head, section->arena, kept, text) < 0)
        fail(section, R_NO_MEMORY, (struct str){NULL, 0});
    else
        section->head->fields[section->head->count - 1].checked = true;
}

/* ---- a request ---- */

/* RFC 9113 8.2.3: what a compressor has taken apart. */
static void join_crumbs(struct h2_section *section)
{
    struct head *head = section->head;
    if (section->crumbs < 2)
        return;
    size_t n = 0;
    for (uint32_t i = 0; i < head->count; i++)
        n += head->fields[i].id == F_COOKIE ? head->fields[i].value.n + 2 : 0;
    char *out = arena_alloc(section->arena, n);
    if (!out) {
        fail(section, R_NO_MEMORY, (struct str){NULL, 0});
        return;
    }
    struct field *whole = NULL;
    uint32_t kept = 0;
    n = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        struct field field = head->fields[i];
        if (field.id == F_COOKIE) {
            memcpy(out + n, "; ", n ? 2 : 0);
            n += n ? 2 : 0;
            memcpy(out + n, field.value.p, field.value.n);
            n += field.value.n;
            if (whole)
                continue;
            whole = &head->fields[kept];
        }
        head->fields[kept++] = field;
    }
    if (whole)
        whole->value = (struct str){out, n};
    head->count = kept;
}

static void settle_method(struct h2_section *section)
{
    struct head *head = section->head;
    if (!head_is_token(section->method) || section->method.n > METHOD_MAX)
        fail(section, R_BAD_METHOD, (struct str){NULL, 0});
    head->method_text = section->method;
    head->method = method_of(section->method);
    if (head->method == M_CONNECT && !section->protocol.p)
        fail(section, R_BAD_METHOD, (struct str){NULL, 0});
}

static void settle_target(struct h2_section *section, const struct h1_limits *limits)
{
    struct head *head = section->head;
    struct str path = section->path;
    size_t i = 0;
    if (!str_eq(section->scheme, STR("http")) && !str_eq(section->scheme, STR("https")))
        fail(section, R_BAD_TARGET, STR(":scheme"));
    if (path.n > limits->target_bytes)
        fail_limit(section, R_CLIENT_TARGET_TOO_LONG, STR(":path"), limits->target_bytes,
                   path.n);
    while (i < path.n && byte_is(path.p[i], BYTE_TARGET))
        i++;
    bool asterisk = path.n == 1 && path.p[0] == '*' && head->method == M_OPTIONS;
    if (!path.n || i < path.n || (path.p[0] != '/' && !asterisk))
        fail(section, R_BAD_TARGET, STR(":path"));
    if (section->fault.reason)
        return;
    const char *question = memchr(path.p, '?', path.n);
    head->target = path;
    head->path = (struct str){path.p, question ? (size_t)(question - path.p) : path.n};
    if (question)
        head->query = (struct str){question + 1, path.n - head->path.n - 1};
}

/* RFC 9113 8.3.1: either says who is asked, and both must say the same. What goes on is one
 * Host, as from HTTP/1. */
static void settle_host(struct h2_section *section)
{
    struct head *head = section->head;
    struct field *host = head_find(head, F_HOST);
    struct str authority = section->authority;
    unsigned hosts = 0;
    for (uint32_t i = 0; i < head->count; i++)
        hosts += head->fields[i].id == F_HOST;
    if (!authority.p && host)
        authority = host->value;
    if (hosts > 1 || !head_is_authority(authority) ||
        (host && !str_eq_nocase(host->value, authority)))
        fail(section, R_BAD_HOST, field_names[F_HOST]);
    head->authority = authority;
    if (!host && !section->fault.reason &&
        head_add_id(head, section->arena, F_HOST, authority) < 0)
        fail(section, R_NO_MEMORY, (struct str){NULL, 0});
}

/* RFC 8441 5: what a websocket's CONNECT is on HTTP/1. */
static void settle_websocket(struct h2_section *section, bool ended)
{
    struct head *head = section->head;
    char *key;
    if (!section->protocol.p)
        return;
    if (head->method != M_CONNECT || ended || head->has_length ||
        !str_eq(section->protocol, STR("websocket"))) {
        fail(section, R_BAD_UPGRADE, STR(":protocol"));
        return;
    }
    head->method = M_GET;
    head->method_text = STR("GET");
    head->upgrade = STR("websocket");
    head_remove_name(head, STR("sec-websocket-key"));
    key = arena_alloc(section->arena, WEBSOCKET_KEY);
    if (!key || !websocket_key(key)) {
        fail(section, R_NO_MEMORY, (struct str){NULL, 0});
        return;
    }
    struct str text = {key, WEBSOCKET_KEY};
    if (head_add(head, section->arena, STR("Sec-WebSocket-Key"), text) < 0)
        fail(section, R_NO_MEMORY, (struct str){NULL, 0});
}

/* How much follows, as HTTP/1 has to say it. */
static void settle_framing(struct head *head, bool ended)
{
    bool usual = head->method == M_POST || head->method == M_PUT || head->method == M_PATCH;
    if (head->upgrade.p) {
        head->framing = FRAMING_NONE;
    } else if (ended && !head->has_length && usual) {
        head->has_length = true; /* backends ask for a length where a body is usual */
        head->framing = FRAMING_LENGTH;
    } else if (head->has_length) {
        head->framing = FRAMING_LENGTH;
    } else {
        head->framing = ended ? FRAMING_NONE : FRAMING_CHUNKED;
    }
}

struct head *h2_section_request(struct h2_section *section, bool ended,
                                const struct h1_limits *limits)
{
    struct head *head = section->head;
    if (!section->fault.reason) {
        settle_method(section);
        settle_websocket(section, ended);
        settle_target(section, limits);
        settle_host(section);
        join_crumbs(section);
        settle_framing(head, ended);
    }
    if (!section->fault.reason)
        return head;
    const struct field *accept = head ? head_find(head, F_ACCEPT) : NULL;
    if (accept)
        section->fault.accept = accept->value;
    return NULL;
}

/* ---- a response ---- */

struct head *h2_section_response(struct h2_section *section, bool ended, enum method method)
{
    struct head *head = section->head;
    uint64_t status = 0;
    if (!section->fault.reason &&
        (section->status.n != 3 || str_to_u64(section->status, 599, &status) < 0 ||
         status < 100 || status == 101))
        fail(section, R_UPSTREAM_PROTOCOL, STR(":status"));
    if (section->fault.reason) {
        if (section->fault.reason != R_NO_MEMORY)
            section->fault.reason = R_UPSTREAM_PROTOCOL;
        return NULL;
    }
    head->status = (uint16_t)status;
    head->reason_phrase = h1_phrase(head->status); /* HTTP/2 has none, HTTP/1 clients show it */
    bool bodiless = method == M_HEAD || status < 200 || status == 204 || status == 304;
    if (!bodiless && ended)
        head->has_length = true; /* none is 0 */
    if (bodiless)
        head->framing = FRAMING_NONE;
    else
        head->framing = head->has_length ? FRAMING_LENGTH : FRAMING_CHUNKED;
    return head;
}

struct head *h2_section_trailers(struct h2_section *section, struct arena *arena)
{
    struct head *from = section->head, *head = arena_alloc(arena, sizeof(*head));
    if (section->fault.reason)
        return NULL;
    if (head)
        *head = (struct head){.minor = 1, .h2 = true};
    for (uint32_t i = 0; head && i < from->count; i++) {
        const struct field *field = &from->fields[i];
        if (head_is_wrong_in_trailer(field->name))
            continue;
        struct str name = arena_copy(arena, field->name);
        struct str value = arena_copy(arena, field->value);
        if (!name.p || !value.p || head_add(head, arena, name, value) < 0)
            head = NULL;
    }
    if (!head)
        fail(section, R_NO_MEMORY, (struct str){NULL, 0});
    return head;
}

/* ---- and back ---- */

static void put(struct h2_nv *nv, struct str name, struct str value)
{
    nghttp2_nv *to = &nv->list[nv->count++];
    /* The type has no const, but what is copied is only read. */
    memcpy(&to->name, &name.p, sizeof(name.p));
    memcpy(&to->value, &value.p, sizeof(value.p));
    to->namelen = name.n;
    to->valuelen = value.n;
    to->flags = NGHTTP2_NV_FLAG_NONE;
}

/* Room for `extra` fields besides the head's. */
static int open_nv(struct h2_nv *nv, nghttp2_nv *usual, struct arena *arena,
                   const struct head *head, size_t extra)
{
    size_t most = head->count + extra;
    nv->count = 0;
    nv->list = most <= H2_NV_USUAL ? usual : arena_alloc(arena, most * sizeof(*nv->list));
    return nv->list ? 0 : -ENOMEM;
}

static void put_fields(struct h2_nv *nv, const struct head *head, uint64_t without)
{
    for (uint32_t i = 0; i < head->count; i++) {
        const struct field *field = &head->fields[i];
        bool sound =
            field->checked || (head_is_token(field->name) && head_is_field_value(field->value));
        assert(sound); /* both the readers and the configuration check every value */
        if (sound && !(without >> field->id & 1))
            put(nv, field->name, str_trim(field->value));
    }
}

static void put_length(struct h2_nv *nv, const struct head *head)
{
    size_t n = str_put_u64(nv->length, head->length);
    put(nv, STR("content-length"), (struct str){nv->length, n});
}

int h2_put_response(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                    const struct head *head)
{
    if (open_nv(nv, usual, arena, head, 2) < 0)
        return -ENOMEM;
    size_t n = str_put_u64(nv->status, head->status);
    put(nv, STR(":status"), (struct str){nv->status, n});
    put_fields(nv, head, CONNECTION_FIELDS | BIT(TE));
    bool says_length =
        head->framing == FRAMING_LENGTH || (head->framing == FRAMING_NONE && head->has_length &&
                                            head->status >= 200 && head->status != 204);
    if (says_length)
        put_length(nv, head);
    return 0;
}

int h2_put_request(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                   const struct head *head, struct str scheme)
{
    if (open_nv(nv, usual, arena, head, 6) < 0)
        return -ENOMEM;
    const struct field *host = head_find(head, F_HOST);
    put(nv, STR(":method"), head->method_text);
    put(nv, STR(":scheme"), scheme);
    if (host)
        put(nv, STR(":authority"), host->value);
    put(nv, STR(":path"), head->target);
    put_fields(nv, head, CONNECTION_FIELDS | BIT(TE) | BIT(HOST));
    /* What a client can do with trailers we cannot know, but we pass them on. */
    put(nv, STR("te"), STR("trailers"));
    if (head->framing == FRAMING_LENGTH)
        put_length(nv, head);
    return 0;
}

int h2_put_connect(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                   const struct head *head, struct str scheme)
{
    if (open_nv(nv, usual, arena, head, 5) < 0)
        return -ENOMEM;
    const struct field *host = head_find(head, F_HOST);
    put(nv, STR(":method"), STR("CONNECT"));
    put(nv, STR(":protocol"), STR("websocket"));
    put(nv, STR(":scheme"), scheme);
    put(nv, STR(":authority"), host ? host->value : head->authority);
    put(nv, STR(":path"), head->target);
    put_fields(nv, head, CONNECTION_FIELDS | BIT(TE) | BIT(HOST));
    size_t kept = 0;
    for (size_t i = 0; i < nv->count; i++) {
        struct str name = {(const char *)nv->list[i].name, nv->list[i].namelen};
        if (!str_eq_nocase(name, STR("sec-websocket-key")))
            nv->list[kept++] = nv->list[i];
    }
    nv->count = kept;
    return 0;
}

int h2_put_trailers(struct h2_nv *nv, nghttp2_nv usual[H2_NV_USUAL], struct arena *arena,
                    const struct head *trailers)
{
    if (open_nv(nv, usual, arena, trailers, 0) < 0)
        return -ENOMEM;
    put_fields(nv, trailers, CONNECTION_FIELDS | BIT(TE));
    return 0;
}
