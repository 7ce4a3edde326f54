#include "question.h"

/* What frames a message or belongs to a connection (RFC 9110 7.6.1), and what we say ourselves.
 */
static bool is_ours(struct postern_str name)
{
    static const struct postern_str ours[] = {
        {"host", 4},
        {"connection", 10},
        {"content-length", 14},
        {"transfer-encoding", 17},
        {"keep-alive", 10},
        {"proxy-connection", 16},
        {"te", 2},
        {"trailer", 7},
        {"upgrade", 7},
        {"http2-settings", 14},
        {"expect", 6},
        {"x-forwarded-method", 18},
        {"x-forwarded-proto", 17},
        {"x-forwarded-host", 16},
        {"x-forwarded-uri", 15},
        {"x-forwarded-for", 15},
        {"x-request-id", 12},
    };

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (text_is(name, ours[i]))
            return true;
    return false;
}

static bool add(struct postern_call *call, struct postern_header *headers,
                struct postern_str name, struct postern_str value)
{
    if (!value.p)
        return true;
    if (call->header_count == QUESTION_HEADERS)
        return false;
    headers[call->header_count++] = (struct postern_header){name, value};
    return true;
}

static bool add_all(const struct postern_api *api, struct postern_request *r,
                    struct postern_header *headers, struct postern_call *call)
{
    struct postern_header header;

    for (size_t i = 0; api->header_at(r, POSTERN_HEADER, i, &header); i++)
        if (!is_ours(header.name) && !add(call, headers, header.name, header.value))
            return false;
    return true;
}

static bool add_named(const struct forward_auth *auth, const struct postern_api *api,
                      struct postern_request *r, struct postern_header *headers,
                      struct postern_call *call)
{
    for (size_t i = 0; i < auth->request_headers.count; i++) {
        struct postern_str name = auth->request_headers.list[i], value;

        for (size_t k = 0; (value = api->value(r, POSTERN_HEADER, name, k)).p; k++)
            if (!is_ours(name) && !add(call, headers, name, value))
                return false;
    }
    return true;
}

/* The path as the gateway's routes and limits see it, so that "/public/../admin" is decided
 * about as what it is. .p NULL: no memory. */
static struct postern_str uri_of(const struct postern_api *api, struct postern_request *r)
{
    struct postern_str path = api->get(r, POSTERN_PATH), query = api->get(r, POSTERN_QUERY);
    size_t n = path.n + (query.p ? 1 + query.n : 0);
    char *uri = query.p ? api->alloc(r, n) : NULL;

    if (!query.p)
        return path;
    if (!uri)
        return (struct postern_str){NULL, 0};
    memcpy(uri, path.p, path.n);
    uri[path.n] = '?';
    if (query.n > 0)
        memcpy(uri + path.n + 1, query.p, query.n);
    return (struct postern_str){uri, n};
}

bool question_call(const struct forward_auth *auth, const struct postern_api *api,
                   struct postern_request *r, struct postern_header headers[QUESTION_HEADERS],
                   struct postern_call *ret)
{
    static const struct {
        const char *name;
        size_t n;
        enum postern_field field;
    } told[] = {{"X-Forwarded-Method", 18, POSTERN_METHOD},
                {"X-Forwarded-Proto", 17, POSTERN_SCHEME},
                {"X-Forwarded-Host", 16, POSTERN_AUTHORITY},
                {"X-Forwarded-For", 15, POSTERN_CLIENT_IP},
                {"X-Request-Id", 12, POSTERN_REQUEST_ID}};
    const struct postern_str uri = uri_of(api, r);

    *ret = (struct postern_call){.size = sizeof(*ret),
                                 .origin = auth->origin,
                                 .method = auth->method == METHOD_GET ? TEXT("GET")
                                           : auth->method == METHOD_HEAD
                                               ? TEXT("HEAD")
                                               : api->get(r, POSTERN_METHOD),
                                 .target = auth->path,
                                 .headers = headers,
                                 .deadline_ms = auth->timeout_ms,
                                 .max_bytes = auth->max_bytes};
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
        add(ret, headers, (struct postern_str){told[i].name, told[i].n},
            api->get(r, told[i].field));
    if (!uri.p || !add(ret, headers, TEXT("X-Forwarded-Uri"), uri))
        return false;
    return auth->all_headers ? add_all(api, r, headers, ret)
                             : add_named(auth, api, r, headers, ret);
}

struct key_text {
    char *p;
    size_t n;
    bool too_long;
};

/* .p NULL is another thing than an empty text. */
static void put(struct key_text *key, struct postern_str part)
{
    uint32_t n = part.p ? (uint32_t)part.n : UINT32_MAX;

    if (part.n > QUESTION_KEY_MAX || QUESTION_KEY_MAX - part.n < key->n + sizeof(n)) {
        key->too_long = true;
        return;
    }
    memcpy(key->p + key->n, &n, sizeof(n));
    key->n += sizeof(n);
    if (part.p)
        memcpy(key->p + key->n, part.p, part.n);
    key->n += part.n;
}

struct postern_str question_key(const struct forward_auth *auth, const struct postern_api *api,
                                struct postern_request *r)
{
    static const enum postern_field fields[] = {
        [KEY_METHOD] = POSTERN_METHOD,       [KEY_HOST] = POSTERN_HOST,
        [KEY_PATH] = POSTERN_PATH,           [KEY_TARGET] = POSTERN_TARGET,
        [KEY_CLIENT_IP] = POSTERN_CLIENT_IP, [KEY_SCHEME] = POSTERN_SCHEME,
        [KEY_AUTHORITY] = POSTERN_AUTHORITY};
    char text[QUESTION_KEY_MAX], *copy;
    struct key_text key = {text, 0, auth->cache_ms == 0};

    for (size_t i = 0; !key.too_long && i < auth->key_count; i++) {
        const struct key_item *item = &auth->key[i];
        struct postern_str value;
        size_t k = 0;

        if (item->part != KEY_HEADER) {
            put(&key, api->get(r, fields[item->part]));
            continue;
        }
        do {
            value = api->value(r, POSTERN_HEADER, item->header, k++);
            put(&key, value); /* the one that is not there ends them */
        } while (value.p && !key.too_long);
    }
    copy = key.too_long ? NULL : api->alloc(r, key.n + 1);
    if (!copy)
        return (struct postern_str){NULL, 0};
    memcpy(copy, text, key.n);
    return (struct postern_str){copy, key.n};
}
