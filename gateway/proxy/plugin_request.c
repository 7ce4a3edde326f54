/* What plugins ask of a request, and do to it. */
#include <arpa/inet.h>

#include "proxy/forward.h"
#include "proxy/forwarded.h"
#include "proxy/plugins.h"

#define NONE ((struct postern_str){NULL, 0})

static struct postern_str named(const char *name)
{
    return str_to(str_of(name));
}

/* ---- what it is ---- */

static struct postern_worker *api_worker(struct postern_request *r)
{
    return r->ex->cx->station;
}

static struct postern_str api_get(struct postern_request *r, enum postern_field field)
{
    const struct exchange *ex = r->ex;
    switch (field) {
    case POSTERN_METHOD:
        return str_to(ex->head->method_text);
    case POSTERN_SCHEME:
        return named(forwarded_is_https(ex) ? "https" : "http");
    case POSTERN_HOST:
        return str_to(ex->host);
    case POSTERN_PATH:
        return str_to(ex->path);
    case POSTERN_TARGET:
        return str_to(ex->head->target);
    case POSTERN_QUERY:
        return str_to(ex->head->query);
    case POSTERN_PROTOCOL:
        return named(ex->head->h2 ? "HTTP/2.0" : ex->head->minor ? "HTTP/1.1" : "HTTP/1.0");
    case POSTERN_CLIENT_IP:
        return str_to(ex->client_ip);
    case POSTERN_REQUEST_ID:
        return str_to(ex->req_id);
    case POSTERN_LISTENER:
        return named(exchange_listener(ex)->name);
    case POSTERN_ROUTE:
        return r->route ? named(r->route->name) : NONE;
    case POSTERN_UPSTREAM:
        return ex->upstream ? named(ex->upstream->name) : NONE;
    case POSTERN_CREDENTIAL:
        return str_to(ex->credential);
    case POSTERN_TLS_SUBJECT:
        return ex->peer->tls ? str_to(ex->peer->tls->subject) : NONE;
    case POSTERN_REASON:
        return ex->reason ? named(reason_texts[ex->reason].name) : NONE;
    case POSTERN_AUTHORITY:
        return str_to(forwarded_host(ex));
    }
    return NONE;
}

static unsigned api_status(struct postern_request *r)
{
    return r->head ? r->head->status : r->ex->status;
}

static unsigned api_address(struct postern_request *r, uint8_t out[16])
{
    struct addr addr = forwarded_client(r->ex);
    if (addr.sa.sa_family == AF_INET) {
        memcpy(out, &addr.in4.sin_addr, 4);
        return 4;
    }
    if (addr.sa.sa_family != AF_INET6)
        return 0;
    memcpy(out, &addr.in6.sin6_addr, 16);
    return 16;
}

/* ---- parameters of the query ---- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One decoded byte of a query; *at moves along. */
static char decoded(struct str s, size_t *at)
{
    char c = s.p[(*at)++];
    if (c == '+')
        return ' ';
    int high = c == '%' && *at + 2 <= s.n ? hex(s.p[*at]) : -1;
    int low = high >= 0 ? hex(s.p[*at + 1]) : -1;
    if (low < 0)
        return c;
    c = (char)((unsigned)high << 4 | (unsigned)low);
    *at += 2;
    return c;
}

static bool is_coded(char c)
{
    return c == '%' || c == '+';
}

static bool decodes_to(struct str s, struct str name)
{
    size_t at = 0, n = 0;
    while (at < s.n) {
        char c = decoded(s, &at);
        if (n == name.n || c != name.p[n++])
            return false;
    }
    return n == name.n;
}

/* Whether a "name=value" has that name, and what stands behind it. */
static bool is_named(struct str pair, struct str name, struct str *ret_value)
{
    size_t n = 0;
    while (n < pair.n && n < name.n && pair.p[n] == name.p[n] && pair.p[n] != '=' &&
           !is_coded(pair.p[n]))
        n++;
    if (n == pair.n || !is_coded(pair.p[n])) { /* nothing is coded as far as it matters */
        if (n < name.n || (n < pair.n && pair.p[n] != '='))
            return false;
    } else {
        const char *eq = memchr(pair.p, '=', pair.n);
        n = eq ? (size_t)(eq - pair.p) : pair.n;
        if (!decodes_to((struct str){pair.p, n}, name))
            return false;
    }
    n += n < pair.n;
    *ret_value = (struct str){pair.p + n, pair.n - n};
    return true;
}

/* The next pair of a query. False: the end. */
static bool next_pair(struct str *rest, struct str *ret_pair)
{
    if (!rest->n)
        return false;
    const char *end = memchr(rest->p, '&', rest->n);
    *ret_pair = (struct str){rest->p, end ? (size_t)(end - rest->p) : rest->n};
    rest->p += ret_pair->n + (end != NULL);
    rest->n -= ret_pair->n + (end != NULL);
    return true;
}

/* Decoded; nearly always there is nothing to decode, and the query itself will do. */
static struct postern_str parameter_value(struct postern_request *r, struct str value)
{
    if (!value.n)
        return (struct postern_str){"", 0};
    if (!memchr(value.p, '%', value.n) && !memchr(value.p, '+', value.n))
        return str_to(value);
    char *out = arena_alloc(&r->ex->arena, value.n);
    if (!out)
        return NONE;
    size_t n = 0;
    for (size_t at = 0; at < value.n;)
        out[n++] = decoded(value, &at);
    return (struct postern_str){out, n};
}

static struct postern_str parameter(struct postern_request *r, struct str name, size_t i)
{
    struct str rest = r->ex->head->query, pair, value;
    while (next_pair(&rest, &pair))
        if (is_named(pair, name, &value) && i-- == 0)
            return parameter_value(r, value);
    return NONE;
}

/* All pairs but those of that name, with "&" between them. */
static size_t other_pairs(struct str query, struct str name, char *out)
{
    struct str pair, value;
    size_t n = 0;
    while (next_pair(&query, &pair)) {
        if (is_named(pair, name, &value))
            continue;
        if (n)
            out[n++] = '&';
        memcpy(out + n, pair.p, pair.n);
        n += pair.n;
    }
    return n;
}

/* The query without that parameter, in what goes out and in what is written down. */
static void remove_parameter(struct postern_request *r, struct str name)
{
    struct exchange *ex = r->ex;
    struct head *head = ex->head;
    struct str rest = head->query, pair, value;
    do {
        if (!next_pair(&rest, &pair))
            return; /* there is no such parameter */
    } while (!is_named(pair, name, &value));
    struct str path = head->path, query = {NULL, 0};
    struct str target = path;
    bool is_alone = pair.n == head->query.n;
    char *out = is_alone ? NULL : arena_alloc(&ex->arena, path.n + 1 + head->query.n);
    /* no memory: all of the query goes, which is more than was asked, never less */
    size_t n = out ? other_pairs(head->query, name, out + path.n + 1) : 0;
    if (n) {
        memcpy(out, path.p, path.n);
        out[path.n] = '?';
        target = (struct str){out, path.n + 1 + n};
        query = (struct str){out + path.n + 1, n};
    }
    if (head->target.n && head->target.p[0] == '/')
        head->target = target;
    head->query = ex->log_query = query;
}

/* ---- cookies ---- */

/* The next "name=value" of a Cookie field. False: the end. */
static bool next_cookie(struct str *rest, struct str *ret_pair)
{
    if (!rest->n)
        return false;
    const char *end = memchr(rest->p, ';', rest->n);
    struct str pair = {rest->p, end ? (size_t)(end - rest->p) : rest->n};
    rest->p += pair.n + (end != NULL);
    rest->n -= pair.n + (end != NULL);
    *ret_pair = str_trim(pair);
    return true;
}

static bool is_cookie(struct str pair, struct str name)
{
    return pair.n > name.n && pair.p[name.n] == '=' && memcmp(pair.p, name.p, name.n) == 0;
}

static struct postern_str cookie(struct postern_request *r, struct str name, size_t i)
{
    const struct head *head = r->ex->head;
    for (uint32_t k = 0; k < head->count; k++) {
        struct str rest = head->fields[k].value, pair;
        if (head->fields[k].id != F_COOKIE)
            continue;
        while (next_cookie(&rest, &pair))
            if (is_cookie(pair, name) && i-- == 0)
                return (struct postern_str){pair.p + name.n + 1, pair.n - name.n - 1};
    }
    return NONE;
}

static struct str without_cookie(struct arena *arena, struct str value, struct str name)
{
    struct str rest = value, pair;
    char *out = arena_alloc(arena, 2 * value.n + 1);
    size_t n = 0;
    while (out && next_cookie(&rest, &pair)) {
        if (!pair.n || is_cookie(pair, name))
            continue;
        if (n) {
            memcpy(out + n, "; ", 2);
            n += 2;
        }
        memcpy(out + n, pair.p, pair.n);
        n += pair.n;
    }
    return (struct str){out, n};
}

static void remove_cookie(struct postern_request *r, struct str name)
{
    struct head *head = r->ex->head;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        struct field field = head->fields[i];
        struct str rest = field.value, pair;
        bool found = false;
        while (field.id == F_COOKIE && next_cookie(&rest, &pair))
            found |= is_cookie(pair, name);
        if (found)
            field.value = without_cookie(&r->ex->arena, field.value, name);
        if (!found || field.value.n)
            head->fields[kept++] = field;
    }
    head->count = kept;
}

/* ---- headers ---- */

/* The head that `part` is about; NULL: it is not there, or no head. */
static struct head *head_of(struct postern_request *r, enum postern_part part)
{
    return part == POSTERN_HEADER          ? r->ex->head
           : part == POSTERN_ANSWER_HEADER ? r->head
                                           : NULL;
}

static struct postern_str api_value(struct postern_request *r, enum postern_part part,
                                    struct postern_str name, size_t i)
{
    if (part == POSTERN_PARAMETER)
        return parameter(r, str_from(name), i);
    if (part == POSTERN_COOKIE)
        return cookie(r, str_from(name), i);
    const struct head *head = head_of(r, part);
    enum field_id id = field_id_of(str_from(name));
    if (!head || !(head->present >> id & 1))
        return NONE;
    for (uint32_t k = 0; k < head->count; k++) {
        const struct field *field = &head->fields[k];
        if (field->id != id || field->name.n != name.n ||
            (id == F_OTHER && !str_eq_nocase(field->name, str_from(name))))
            continue;
        if (i-- == 0)
            return str_to(field->value);
    }
    return NONE;
}

static bool api_header_at(struct postern_request *r, enum postern_part part, size_t i,
                          struct postern_header *ret)
{
    const struct head *head = head_of(r, part);
    if (!head || i >= head->count)
        return false;
    *ret = (struct postern_header){str_to(head->fields[i].name), str_to(head->fields[i].value)};
    return true;
}

/* Fields that frame a message or that the gateway vouches for. */
static bool is_ours(enum field_id id, enum postern_part part)
{
    switch (id) {
    case F_HOST:
    case F_EXPECT:
    case F_VIA:
    case F_FORWARDED:
    case F_X_FORWARDED_FOR:
    case F_X_FORWARDED_PROTO:
    case F_X_FORWARDED_HOST:
    case F_X_SSL_CLIENT_S_DN:
    case F_X_REQUEST_ID:
    case F_TRACEPARENT:
        return part == POSTERN_HEADER;
    default:
        return head_is_codecs(id);
    }
}

static bool may_put(enum postern_part part, struct str name)
{
    return (part == POSTERN_HEADER || part == POSTERN_ANSWER_HEADER) && head_is_token(name) &&
           !is_ours(field_id_of(name), part);
}

static bool api_may_put(enum postern_part part, struct postern_str name)
{
    return may_put(part, str_from(name));
}

/* Spellings that some backend takes for the same name: X_User and x.user for X-User. */
static bool is_twin(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++) {
        char x = ascii_lower(a.p[i]), y = ascii_lower(b.p[i]);
        x = x == '_' || x == '.' ? '-' : x;
        y = y == '_' || y == '.' ? '-' : y;
        if (x != y)
            return false;
    }
    return true;
}

static void remove_twins(struct head *head, struct str name)
{
    uint32_t kept = 0;
    while (kept < head->count && !is_twin(head->fields[kept].name, name))
        kept++;
    for (uint32_t i = kept + 1; i < head->count; i++)
        if (!is_twin(head->fields[i].name, name))
            head->fields[kept++] = head->fields[i];
    if (kept < head->count)
        head->count = kept;
}

static bool keep(struct postern_request *r, struct str name, struct str value, bool set)
{
    struct kept_header *kept = arena_alloc(&r->ex->arena, sizeof(*kept));
    if (!kept)
        return false;
    *kept = (struct kept_header){NULL, name, value, set};
    *r->last_kept = kept;
    r->last_kept = &kept->next;
    return true;
}

static bool put(struct postern_request *r, enum postern_part part, struct str name,
                struct str value, bool set)
{
    struct arena *arena = &r->ex->arena;
    struct head *head = head_of(r, part);
    if (!may_put(part, name) || !head_is_field_value(value))
        return false;
    name = arena_copy(arena, name);
    value = arena_copy(arena, str_trim(value));
    if (!name.p || !value.p)
        return false;
    if (!head)
        return keep(r, name, value, set);
    if (head_add(head, arena, name, value) < 0)
        return false;
    if (!set)
        return true;
    struct field field = head->fields[--head->count];
    if (part == POSTERN_HEADER)
        remove_twins(head, name);
    else
        head_remove_name(head, name);
    head->fields[head->count++] = field;
    return true;
}

static bool api_set(struct postern_request *r, enum postern_part part, struct postern_str name,
                    struct postern_str value)
{
    return put(r, part, str_from(name), str_from(value), true);
}

static bool api_add(struct postern_request *r, enum postern_part part, struct postern_str name,
                    struct postern_str value)
{
    return put(r, part, str_from(name), str_from(value), false);
}

static void api_remove(struct postern_request *r, enum postern_part part,
                       struct postern_str name)
{
    struct head *head = head_of(r, part);
    if (part == POSTERN_PARAMETER)
        remove_parameter(r, str_from(name));
    else if (part == POSTERN_COOKIE)
        remove_cookie(r, str_from(name));
    else if (!head || is_ours(field_id_of(str_from(name)), part))
        return;
    /* What a client says in a plugin's place must not arrive in another spelling. */
    else if (part == POSTERN_HEADER)
        remove_twins(head, str_from(name));
    else
        head_remove_name(head, str_from(name));
}

/* ---- what plugins tell each other ---- */

static bool copy_into(struct arena *arena, struct str *ret, struct str s)
{
    struct str copy = arena_copy(arena, s);
    if (copy.p)
        *ret = copy;
    return copy.p != NULL;
}

static bool api_credential(struct postern_request *r, struct postern_str name)
{
    return copy_into(&r->ex->arena, &r->ex->credential, str_from(name));
}

static struct fact *find_fact(const struct postern_request *r, struct str name)
{
    struct fact *fact = r->facts;
    while (fact && !str_eq(fact->name, name))
        fact = fact->next;
    return fact;
}

static bool api_fact_set(struct postern_request *r, struct postern_str name,
                         struct postern_str value)
{
    struct arena *arena = &r->ex->arena;
    struct fact *fact = find_fact(r, str_from(name));
    if (fact)
        return copy_into(arena, &fact->value, str_from(value));
    fact = arena_alloc(arena, sizeof(*fact) + name.n + value.n);
    if (!fact)
        return false;
    char *text = (char *)(fact + 1);
    *fact = (struct fact){r->facts, {text, name.n}, {text + name.n, value.n}};
    memcpy(text, name.p, name.n);
    if (value.n)
        memcpy(text + name.n, value.p, value.n);
    r->facts = fact;
    return true;
}

static struct postern_str api_fact(struct postern_request *r, struct postern_str name)
{
    const struct fact *fact = find_fact(r, str_from(name));
    return fact ? str_to(fact->value) : NONE;
}

static void *api_alloc(struct postern_request *r, size_t n)
{
    return arena_alloc(&r->ex->arena, n);
}

/* They stand behind the request, so that there is always one: what a plugin remembers there it
 * may have to take back. */
static void **api_slot(struct postern_request *r)
{
    if (!r->slots) {
        r->slots = (void **)(r + 1);
        memset(r->slots, 0, r->phases->count * sizeof(void *));
    }
    return &r->slots[r->at];
}

/* ---- answers ---- */

static enum reason reason_of(const struct postern_request *r, const char *name)
{
    const struct plugin *plugin = r->phases->instances[r->at]->plugin;
    size_t count = plugin->def.reasons ? plugin->def.reason_count : 0;
    for (size_t i = 0; name && i < count; i++)
        if (strcmp(plugin->def.reasons[i].name, name) == 0)
            return plugin->reasons[i];
    return name ? R_PLUGIN_FAILED : R_NONE;
}

static void api_answer(struct postern_request *r, const struct postern_answer *answer)
{
    struct arena *arena = &r->ex->arena;
    if (r->answered || r->ex->state != EX_PLUGINS)
        return;
    r->answered = r->eventful = true;
    r->detail = r->type = r->body = (struct str){NULL, 0};
    r->status = answer->status >= 200 && answer->status <= 599 ? (uint16_t)answer->status : 500;
    r->reason = reason_of(r, answer->reason);
    r->limit = answer->limit;
    r->actual = answer->actual;
    if (answer->detail.p)
        r->detail = arena_copy(arena, str_from(answer->detail));
    if (answer->type.p && head_is_field_value(str_from(answer->type)))
        r->type = arena_copy(arena, str_from(answer->type));
    if (answer->body.p)
        r->body = arena_copy(arena, str_from(answer->body));
    else if (r->status < 400 || !r->reason)
        r->body = STR("");
    for (size_t i = 0; i < answer->header_count; i++)
        put(r, POSTERN_ANSWER_HEADER, str_from(answer->headers[i].name),
            str_from(answer->headers[i].value), false);
}

/* ---- waiting ---- */

static struct postern_token api_wait(struct postern_request *r)
{
    static const struct postern_token nowhere;
    if (r->phase != PHASE_REQUEST || r->ex->state != EX_PLUGINS)
        return nowhere;
    r->eventful = true;
    if (!r->waiting)
        r->waiting = station_wait(r->ex->cx->station, r, &r->token);
    return r->waiting ? r->token : nowhere;
}

void plugin_request_fill(struct postern_api *api)
{
    api->worker = api_worker;
    api->get = api_get;
    api->status = api_status;
    api->address = api_address;
    api->value = api_value;
    api->header_at = api_header_at;
    api->set = api_set;
    api->add = api_add;
    api->remove = api_remove;
    api->may_put = api_may_put;
    api->credential = api_credential;
    api->fact_set = api_fact_set;
    api->fact = api_fact;
    api->alloc = api_alloc;
    api->slot = api_slot;
    api->answer = api_answer;
    api->wait = api_wait;
}
