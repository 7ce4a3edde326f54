#include "http/head.h"

#include <arpa/inet.h>
#include <errno.h>

#include "http/bytes.h"

#define A BYTE_TOKEN | BYTE_TARGET | BYTE_PATH | BYTE_UNRESERVED
#define H A | BYTE_HEX
#define T BYTE_TOKEN | BYTE_TARGET | BYTE_PATH
#define V BYTE_TARGET | BYTE_PATH
#define N BYTE_TARGET
/* clang-format off */
const uint8_t byte_classes[256] = {
    ['!'] = T, ['"'] = V, ['$'] = T, ['%'] = BYTE_TOKEN | BYTE_TARGET, ['&'] = T, ['\''] = T, ['('] = V, [')'] = V,
    ['*'] = T, ['+'] = T, [','] = V, ['-'] = A, ['.'] = A, ['/'] = V, [':'] = V, [';'] = N,
    ['<'] = V, ['='] = V, ['>'] = V, ['?'] = N, ['@'] = V, ['['] = V, ['\\'] = N, [']'] = V,
    ['^'] = T, ['_'] = A, ['`'] = T, ['{'] = V, ['|'] = T, ['}'] = V, ['~'] = A,
    ['#'] = BYTE_TOKEN,
    ['0'] = H, H, H, H, H, H, H, H, H, H,
    ['A'] = H, H, H, H, H, H, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A,
    ['a'] = H, H, H, H, H, H, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A, A,
};
/* clang-format on */
#undef A
#undef H
#undef T
#undef V
#undef N

const struct str field_names[FIELD_COUNT] = {
    [F_HOST] = STR("Host"),
    [F_CONNECTION] = STR("Connection"),
    [F_CONTENT_LENGTH] = STR("Content-Length"),
    [F_TRANSFER_ENCODING] = STR("Transfer-Encoding"),
    [F_KEEP_ALIVE] = STR("Keep-Alive"),
    [F_PROXY_CONNECTION] = STR("Proxy-Connection"),
    [F_TE] = STR("TE"),
    [F_TRAILER] = STR("Trailer"),
    [F_UPGRADE] = STR("Upgrade"),
    [F_HTTP2_SETTINGS] = STR("HTTP2-Settings"),
    [F_EXPECT] = STR("Expect"),
    [F_DATE] = STR("Date"),
    [F_SERVER] = STR("Server"),
    [F_VIA] = STR("Via"),
    [F_ACCEPT] = STR("Accept"),
    [F_CONTENT_TYPE] = STR("Content-Type"),
    [F_CONTENT_ENCODING] = STR("Content-Encoding"),
    [F_USER_AGENT] = STR("User-Agent"),
    [F_AUTHORIZATION] = STR("Authorization"),
    [F_PROXY_AUTHORIZATION] = STR("Proxy-Authorization"),
    [F_PROXY_AUTHENTICATE] = STR("Proxy-Authenticate"),
    [F_COOKIE] = STR("Cookie"),
    [F_LOCATION] = STR("Location"),
    [F_FORWARDED] = STR("Forwarded"),
    [F_X_FORWARDED_FOR] = STR("X-Forwarded-For"),
    [F_X_FORWARDED_PROTO] = STR("X-Forwarded-Proto"),
    [F_X_FORWARDED_HOST] = STR("X-Forwarded-Host"),
    [F_X_SSL_CLIENT_S_DN] = STR("X-SSL-Client-S-DN"),
    [F_X_REQUEST_ID] = STR("X-Request-Id"),
    [F_X_REQUEST_DEADLINE_MS] = STR("X-Request-Deadline-Ms"),
    [F_TRACEPARENT] = STR("Traceparent"),
    [F_TRACESTATE] = STR("Tracestate"),
};

const struct str method_names[METHOD_COUNT] = {
#define X(name) [M_##name] = STR(#name),
    METHODS(X)
#undef X
};

/* Bytes against lower-case ones. Only where those have a letter (bit 0x40; the names hold
 * letters, digits and "-") may the case bit differ. */
static inline bool eight_are(const char *p, const char *lower)
{
    uint64_t a, b;
    memcpy(&a, p, 8);
    memcpy(&b, lower, 8);
    return ((a ^ b) & ~((b & 0x4040404040404040ull) >> 1)) == 0;
}

static inline bool four_are(const char *p, const char *lower)
{
    uint32_t a, b;
    memcpy(&a, p, 4);
    memcpy(&b, lower, 4);
    return ((a ^ b) & ~((b & 0x40404040u) >> 1)) == 0;
}

/* With `n` and `lower` constant this is a few instructions without a loop: words that overlap
 * where the length is not theirs. */
static inline __attribute__((always_inline)) bool name_is(const char *p, const char *lower,
                                                          size_t n)
{
    if (n >= 8)
        return eight_are(p, lower) && (n < 16 || eight_are(p + 8, lower + 8)) &&
               eight_are(p + n - 8, lower + n - 8);
    if (n >= 4)
        return four_are(p, lower) && four_are(p + n - 4, lower + n - 4);
    for (size_t i = 0; i < n; i++)
        if (ascii_lower(p[i]) != lower[i])
            return false;
    return true;
}

#define IS(symbol, lower)                                                                      \
    if (name_is(name.p, lower, sizeof(lower) - 1))                                             \
    return F_##symbol

/* Names of up to ten bytes. */
static enum field_id id_of_short(struct str name)
{
    switch (name.n) {
    case 2:
        IS(TE, "te");
        break;
    case 3:
        IS(VIA, "via");
        break;
    case 4:
        IS(HOST, "host");
        IS(DATE, "date");
        break;
    case 6:
        IS(ACCEPT, "accept");
        IS(COOKIE, "cookie");
        IS(SERVER, "server");
        IS(EXPECT, "expect");
        break;
    case 7:
        IS(UPGRADE, "upgrade");
        IS(TRAILER, "trailer");
        break;
    case 8:
        IS(LOCATION, "location");
        break;
    case 9:
        IS(FORWARDED, "forwarded");
        break;
    case 10:
        IS(CONNECTION, "connection");
        IS(USER_AGENT, "user-agent");
        IS(KEEP_ALIVE, "keep-alive");
        IS(TRACESTATE, "tracestate");
        break;
    }
    return F_OTHER;
}

static enum field_id id_of_long(struct str name)
{
    switch (name.n) {
    case 11:
        IS(TRACEPARENT, "traceparent");
        break;
    case 12:
        IS(CONTENT_TYPE, "content-type");
        IS(X_REQUEST_ID, "x-request-id");
        break;
    case 13:
        IS(AUTHORIZATION, "authorization");
        break;
    case 14:
        IS(CONTENT_LENGTH, "content-length");
        IS(HTTP2_SETTINGS, "http2-settings");
        break;
    case 15:
        IS(X_FORWARDED_FOR, "x-forwarded-for");
        break;
    case 16:
        IS(CONTENT_ENCODING, "content-encoding");
        IS(X_FORWARDED_HOST, "x-forwarded-host");
        IS(PROXY_CONNECTION, "proxy-connection");
        break;
    case 17:
        IS(TRANSFER_ENCODING, "transfer-encoding");
        IS(X_FORWARDED_PROTO, "x-forwarded-proto");
        IS(X_SSL_CLIENT_S_DN, "x-ssl-client-s-dn");
        break;
    case 18:
        IS(PROXY_AUTHENTICATE, "proxy-authenticate");
        break;
    case 19:
        IS(PROXY_AUTHORIZATION, "proxy-authorization");
        break;
    case 21:
        IS(X_REQUEST_DEADLINE_MS, "x-request-deadline-ms");
        break;
    }
    return F_OTHER;
}
#undef IS

enum field_id field_id_of(struct str name)
{
    return name.n <= 10 ? id_of_short(name) : id_of_long(name);
}

enum method method_of(struct str name)
{
    for (unsigned m = M_OTHER + 1; m < METHOD_COUNT; m++)
        if (method_names[m].n == name.n && memcmp(method_names[m].p, name.p, name.n) == 0)
            return (enum method)m;
    return M_OTHER;
}

bool method_is_idempotent(enum method method)
{
    switch (method) {
    case M_GET:
    case M_HEAD:
    case M_PUT:
    case M_DELETE:
    case M_OPTIONS:
    case M_TRACE:
        return true;
    default:
        return false;
    }
}

static bool field_is(const struct field *field, enum field_id id, struct str name)
{
    return field->id == id && (id != F_OTHER || str_eq_nocase(field->name, name));
}

static struct field *find(const struct head *head, enum field_id id, struct str name)
{
    if (!(head->present >> id & 1))
        return NULL;
    for (uint32_t i = 0; i < head->count; i++)
        if (field_is(&head->fields[i], id, name))
            return &head->fields[i];
    return NULL;
}

struct field *head_find(const struct head *head, enum field_id id)
{
    return id == F_OTHER ? NULL : find(head, id, (struct str){NULL, 0});
}

struct field *head_find_name(const struct head *head, struct str name)
{
    return find(head, field_id_of(name), name);
}

unsigned head_remove_name(struct head *head, struct str name)
{
    enum field_id id = field_id_of(name);
    uint32_t kept = 0, count = head->count;

    if (!(head->present >> id & 1))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (!field_is(&head->fields[i], id, name))
            head->fields[kept++] = head->fields[i];
    head->count = kept;
    return count - kept;
}

static int make_room(struct head *head, struct arena *arena)
{
    uint32_t cap = head->cap < 8 ? 16 : head->cap * 2;
    struct field *fields;

    if (head->count < head->cap)
        return 0;
    fields = arena_alloc(arena, cap * sizeof(*fields));
    if (!fields)
        return -ENOMEM;
    if (head->count)
        memcpy(fields, head->fields, head->count * sizeof(*fields));
    head->fields = fields;
    head->cap = cap;
    return 0;
}

static inline int append(struct head *head, struct arena *arena, enum field_id id,
                         struct str name, struct str value, bool checked)
{
    if (head->count == head->cap && make_room(head, arena) < 0)
        return -ENOMEM;
    struct field *field = &head->fields[head->count++];
    field->name = name;
    field->value = value;
    field->id = id;
    field->checked = checked;
    field->line = false;
    head->present |= 1ull << id;
    return 0;
}

int head_add(struct head *head, struct arena *arena, struct str name, struct str value)
{
    return append(head, arena, field_id_of(name), name, value, false);
}

int head_add_id(struct head *head, struct arena *arena, enum field_id id, struct str value)
{
    return append(head, arena, id, field_names[id], value, false);
}

int head_add_text(struct head *head, struct arena *arena, enum field_id id, struct str value)
{
    return append(head, arena, id, field_names[id], value, true);
}

int head_set(struct head *head, struct arena *arena, struct str name, struct str value)
{
    int err = make_room(head, arena); /* first, so that a failure removes nothing */
    if (err)
        return err;
    head_remove_name(head, name);
    return head_add(head, arena, name, value);
}

#define BIT(symbol) (1ull << F_##symbol)
_Static_assert(FIELD_COUNT <= 64, "sets of fields are 64 bits");

#define HOP_FIELDS                                                                             \
    (BIT(CONNECTION) | BIT(KEEP_ALIVE) | BIT(PROXY_CONNECTION) | BIT(TE) |                     \
     BIT(TRANSFER_ENCODING) | BIT(UPGRADE) | BIT(HTTP2_SETTINGS) | BIT(PROXY_AUTHORIZATION))

/* Who removes one of these by naming it changes what the backend believes about the request:
 * its length, its meaning, or who sent it. */
#define PROTECTED_FIELDS                                                                       \
    (BIT(HOST) | BIT(CONTENT_LENGTH) | BIT(CONTENT_TYPE) | BIT(CONTENT_ENCODING) |             \
     BIT(AUTHORIZATION) | BIT(COOKIE) | BIT(VIA) | BIT(FORWARDED) | BIT(X_FORWARDED_FOR) |     \
     BIT(X_FORWARDED_PROTO) | BIT(X_FORWARDED_HOST) | BIT(X_REQUEST_ID) | BIT(TRACEPARENT) |   \
     BIT(X_REQUEST_DEADLINE_MS) | BIT(TRACESTATE) | BIT(DATE) | BIT(LOCATION))

/* Each costs a walk over all fields; nobody honest names so many. */
#define MAX_NAMED 32

/* Marks the fields that this Connection value names by emptying their names. */
static void mark_named(struct head *head, struct str options)
{
    struct str option;

    while (str_next_token(&options, &option)) {
        enum field_id id = field_id_of(option);
        if (HOP_FIELDS >> id & 1)
            continue;
        for (uint32_t i = 0; i < head->count; i++)
            if (field_is(&head->fields[i], id, option))
                head->fields[i].name.n = 0;
    }
}

/* Marks Trailer fields that announce what is dropped from trailers: there are programs that
 * refuse a message for one that names its framing. */
static void mark_wrong_trailer(struct head *head)
{
    for (uint32_t i = 0; i < head->count; i++) {
        struct str names = head->fields[i].value, name;
        if (head->fields[i].id != F_TRAILER)
            continue;
        while (str_next_token(&names, &name))
            if (head_is_wrong_in_trailer(name))
                head->fields[i].name.n = 0;
    }
}

bool head_is_hop(enum field_id id)
{
    return HOP_FIELDS >> id & 1;
}

bool head_is_codecs(enum field_id id)
{
    switch (id) {
    case F_CONNECTION:
    case F_CONTENT_LENGTH:
    case F_TRANSFER_ENCODING:
    case F_KEEP_ALIVE:
    case F_PROXY_CONNECTION:
    case F_TE:
    case F_TRAILER:
    case F_UPGRADE:
    case F_HTTP2_SETTINGS:
        return true;
    default:
        return false;
    }
}

enum reason head_strip_hop(struct head *head)
{
    struct str options, option;
    unsigned named = 0;
    uint32_t kept = 0;

    if (!(head->present & (HOP_FIELDS | BIT(TRAILER))))
        return R_NONE;
    for (uint32_t i = 0; i < head->count; i++) {
        if (head->fields[i].id != F_CONNECTION)
            continue;
        options = head->fields[i].value;
        while (str_next_token(&options, &option))
            if (PROTECTED_FIELDS >> field_id_of(option) & 1 || ++named > MAX_NAMED)
                return R_BAD_CONNECTION;
    }
    for (uint32_t i = 0; named && i < head->count; i++)
        if (head->fields[i].id == F_CONNECTION)
            mark_named(head, head->fields[i].value);
    if (head->present & BIT(TRAILER))
        mark_wrong_trailer(head);
    for (uint32_t i = 0; i < head->count; i++)
        if (head->fields[i].name.n && !(HOP_FIELDS >> head->fields[i].id & 1))
            head->fields[kept++] = head->fields[i];
    head->count = kept;
    return R_NONE;
}

bool head_is_token(struct str s)
{
    const char *p = s.p, *end = s.p + s.n;

    while (p < end && byte_is(*p, BYTE_TOKEN))
        p++;
    return p == end && s.n > 0;
}

bool head_is_field_value(struct str s)
{
    return s.n == 0 || bytes_text_end(s.p, s.p + s.n) == s.p + s.n;
}

static bool is_ipv6(struct str s, struct in6_addr *ret)
{
    char text[INET6_ADDRSTRLEN];

    if (s.n >= sizeof(text) || memchr(s.p, 0, s.n))
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    return inet_pton(AF_INET6, text, ret) == 1;
}

/* [::1] has many spellings. `host`: with its brackets. */
static int host_ipv6(struct str host, struct arena *arena, struct str *ret)
{
    struct in6_addr in6;
    char text[INET6_ADDRSTRLEN + 2] = "[";

    if (!is_ipv6((struct str){host.p + 1, host.n - 2}, &in6) ||
        !inet_ntop(AF_INET6, &in6, text + 1, INET6_ADDRSTRLEN))
        return -EINVAL;
    size_t n = strlen(text);
    text[n] = ']';
    struct str copy = arena_copy(arena, (struct str){text, n + 1});
    if (!copy.p)
        return -ENOMEM;
    *ret = copy;
    return 0;
}

int head_host(struct str authority, struct arena *arena, struct str *ret)
{
    struct str host = authority;
    const char *end = host.n ? memchr(host.p, host.p[0] == '[' ? ']' : ':', host.n) : NULL;
    char *lower;

    if (end)
        host.n = (size_t)(end - host.p) + (*end == ']');
    if (host.n > 2 && host.p[0] == '[')
        return host_ipv6(host, arena, ret);
    if (host.n && host.p[host.n - 1] == '.')
        host.n--;
    lower = arena_alloc(arena, host.n + 1);
    if (!lower)
        return -ENOMEM;
    for (size_t i = 0; i < host.n; i++)
        lower[i] = ascii_lower(host.p[i]);
    *ret = (struct str){lower, host.n};
    return 0;
}

bool head_is_authority(struct str s)
{
    const char *end = s.p + s.n, *p = s.p;
    struct in6_addr in6;
    uint64_t port;

    if (s.n && *p == '[') {
        const char *close = memchr(p, ']', s.n);
        if (!close || !is_ipv6((struct str){p + 1, (size_t)(close - p - 1)}, &in6))
            return false;
        p = close + 1;
    } else {
        /* What drops more than one last dot would take "a.." for "a". */
        for (; p < end && byte_is(*p, BYTE_UNRESERVED); p++)
            if (*p == '.' && (p == s.p || p[-1] == '.'))
                return false;
        if (p == s.p)
            return false;
    }
    if (p == end)
        return true;
    return *p == ':' && end - p <= 6 &&
           str_to_u64((struct str){p + 1, (size_t)(end - p - 1)}, UINT16_MAX, &port) == 0;
}

bool head_is_wrong_in_trailer(struct str name)
{
    static const char *const others[] = {
        "age",           "cache-control",    "content-range",
        "expires",       "if-match",         "if-modified-since",
        "if-none-match", "if-range",         "if-unmodified-since",
        "max-forwards",  "pragma",           "range",
        "retry-after",   "set-cookie",       "vary",
        "warning",       "www-authenticate", "x-api-key",
        "x-real-ip",
    };
    char folded[32];
    static const struct str forwarded = STR("x-forwarded-");
    size_t n = name.n;

    for (size_t i = 0; i < n && i < sizeof(folded); i++) {
        char c = name.p[i];
        folded[i] = c == '_' || c == '.' ? '-' : c;
    }
    if (n > forwarded.n && str_eq_nocase((struct str){folded, forwarded.n}, forwarded))
        return true;
    if (n > sizeof(folded))
        return false; /* longer than any of them */
    if (field_id_of((struct str){folded, n}) != F_OTHER)
        return true;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (str_eq_nocase((struct str){folded, n}, str_of(others[i])))
            return true;
    return false;
}
