#include "proxy/forwarded.h"

#define ELEMENTS_MAX 64 /* hops of one Forwarded field that are looked at, from the right */

static bool is_trusted(const struct exchange *ex, const struct addr *addr)
{
    const struct conf_listener *listener = exchange_listener(ex);
    for (size_t i = 0; i < listener->trusted_count; i++)
        if (addr_in_range(addr, &listener->trusted[i]))
            return true;
    return false;
}

/* ---- who asked ---- */

/* One hop, from the right. True: it is the client, or nothing left of it can be believed. */
static bool is_end(struct exchange *ex, struct str hop)
{
    struct addr addr;
    char text[ADDR_TEXT];
    if (addr_parse_ip(hop, &addr) < 0)
        return true; /* not an address: what is left of it is anybody's word */
    size_t n = addr_put_host(text, &addr);
    struct str ip = arena_copy(&ex->arena, (struct str){text, n});
    if (ip.p)
        ex->client_ip = ip;
    return !is_trusted(ex, &addr);
}

static bool walk_x(struct exchange *ex, struct str value)
{
    while (value.n) {
        const char *comma = memrchr(value.p, ',', value.n);
        struct str hop =
            comma ? (struct str){comma + 1, (size_t)(value.p + value.n - comma - 1)} : value;
        value.n = comma ? (size_t)(comma - value.p) : 0;
        hop = str_trim(hop); /* RFC 9110 5.6.1: empty ones are stepped over */
        if (hop.n && is_end(ex, hop))
            return true;
    }
    return false;
}

/* Up to the next `mark` that stands in no quoted string (RFC 9110 5.6.4), which `rest` moves
 * behind. */
static struct str cut(struct str *rest, char mark)
{
    size_t i = 0;
    for (bool quoted = false; i < rest->n && (quoted || rest->p[i] != mark); i++) {
        if (rest->p[i] == '"')
            quoted = !quoted;
        else if (quoted && rest->p[i] == '\\' && i + 1 < rest->n)
            i++;
    }
    struct str part = {rest->p, i};
    size_t used = i + (i < rest->n);
    *rest = (struct str){rest->p + used, rest->n - used};
    return part;
}

/* The node that an element of Forwarded names by "for"; empty when it names none. */
static struct str node_of(struct str element)
{
    while (element.n) {
        struct str pair = str_trim(cut(&element, ';')), value;
        if (pair.n < 4 || !str_eq_nocase((struct str){pair.p, 4}, STR("for=")))
            continue;
        value = (struct str){pair.p + 4, pair.n - 4};
        if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"')
            value = (struct str){value.p + 1, value.n - 2};
        return value;
    }
    return STR("");
}

static bool walk_rfc7239(struct exchange *ex, struct str value)
{
    struct str elements[ELEMENTS_MAX];
    size_t count = 0;
    while (value.n) {
        struct str element = str_trim(cut(&value, ','));
        if (element.n) /* RFC 9110 5.6.1: empty ones are stepped over */
            elements[count++ % ELEMENTS_MAX] = element;
    }
    size_t left = count > ELEMENTS_MAX ? ELEMENTS_MAX : count;
    while (left--)
        if (is_end(ex, node_of(elements[--count % ELEMENTS_MAX])))
            return true;
    return count > 0; /* more hops than are looked at: no further */
}

/* False: there is no such field. */
static bool walk(struct exchange *ex, enum field_id id)
{
    bool some = false, end = false;
    for (uint32_t i = ex->head->count; i-- > 0 && !end;) {
        const struct field *field = &ex->head->fields[i];
        if (field->id != id)
            continue;
        some = true;
        end = id == F_FORWARDED ? walk_rfc7239(ex, field->value) : walk_x(ex, field->value);
    }
    return some;
}

void forwarded_identify(struct exchange *ex)
{
    unsigned kinds = exchange_listener(ex)->forwarded;
    ex->trusted = is_trusted(ex, &ex->peer->addr);
    if (!ex->trusted || (kinds & FORWARDED_X && walk(ex, F_X_FORWARDED_FOR)))
        return;
    if (kinds & FORWARDED_RFC7239)
        walk(ex, F_FORWARDED);
}

struct addr forwarded_client(const struct exchange *ex)
{
    struct addr addr;
    if (ex->client_ip.p == ex->peer->ip || addr_parse_ip(ex->client_ip, &addr) < 0)
        return ex->peer->addr;
    return addr;
}

/* The first value of a field in which a trusted proxy tells it; .p NULL: it does not. */
static struct str believed(const struct exchange *ex, enum field_id id)
{
    const struct field *field = ex->trusted ? head_find(ex->head, id) : NULL;
    struct str rest = field ? field->value : STR(""), first;
    return str_next_token(&rest, &first) ? first : (struct str){NULL, 0};
}

bool forwarded_is_https(const struct exchange *ex)
{
    struct str proto = believed(ex, F_X_FORWARDED_PROTO);
    return proto.p ? str_eq_nocase(proto, STR("https")) : ex->peer->tls != NULL;
}

struct str forwarded_host(const struct exchange *ex)
{
    struct str host = believed(ex, F_X_FORWARDED_HOST);
    return host.p && head_is_authority(host) ? host : ex->head->authority;
}

/* ---- what we say ---- */

/* What trusted proxies said in fields of that id, and `own` behind it. .p NULL: no memory. */
static struct str behind(struct exchange *ex, enum field_id id, struct str own)
{
    const struct head *head = ex->head;
    struct str all = {NULL, 0};
    for (uint32_t i = 0; ex->trusted && i < head->count; i++) {
        struct str value = head->fields[i].value;
        if (head->fields[i].id != id || !value.n)
            continue;
        all = all.p ? arena_join(&ex->arena, (struct str[]){all, STR(", "), value}, 3) : value;
        if (!all.p)
            return all;
    }
    return all.p ? arena_join(&ex->arena, (struct str[]){all, STR(", "), own}, 3) : own;
}

/* for=192.0.2.1;host=example.com;proto=http, quoted where it must be. */
static struct str element(struct exchange *ex)
{
    sa_family_t family = ex->peer->addr.sa.sa_family;
    struct str ip = {ex->peer->ip, ex->peer->ip_len}, host = ex->head->authority;
    bool plain = head_is_token(host);
    struct str parts[] = {
        STR("for="),
        family == AF_INET6 ? STR("\"[") : STR(""),
        family == AF_INET || family == AF_INET6 ? ip : STR("unknown"),
        family == AF_INET6 ? STR("]\"") : STR(""),
        !host.n ? STR("")
        : plain ? STR(";host=")
                : STR(";host=\""),
        host,
        plain || !host.n ? STR("") : STR("\""),
        ex->peer->tls ? STR(";proto=https") : STR(";proto=http"),
    };
    return arena_join(&ex->arena, parts, sizeof(parts) / sizeof(*parts));
}

bool forwarded_make(struct exchange *ex, struct forwarded *ret)
{
    unsigned kinds = exchange_listener(ex)->forwarded;
    *ret = (struct forwarded){{NULL, 0}, {NULL, 0}};
    if (kinds & FORWARDED_X) {
        ret->x_for =
            behind(ex, F_X_FORWARDED_FOR, (struct str){ex->peer->ip, ex->peer->ip_len});
        if (!ret->x_for.p)
            return false;
    }
    if (kinds & FORWARDED_RFC7239) {
        struct str own = element(ex);
        ret->rfc7239 = own.p ? behind(ex, F_FORWARDED, own) : own;
        if (!ret->rfc7239.p)
            return false;
    }
    return true;
}

bool forwarded_passes(const struct exchange *ex, enum field_id id)
{
    unsigned kinds = exchange_listener(ex)->forwarded;
    if (id == F_X_FORWARDED_FOR) /* written anew, with the peer behind it */
        return ex->trusted && !(kinds & FORWARDED_X);
    if (id == F_FORWARDED)
        return ex->trusted && !(kinds & FORWARDED_RFC7239);
    return ex->trusted;
}

bool forwarded_add(struct exchange *ex, const struct forwarded *forwarded)
{
    struct head *head = ex->head;
    struct arena *arena = &ex->arena;
    if (forwarded->x_for.p) {
        struct str host = head->authority;
        if (!(ex->trusted && head_find(head, F_X_FORWARDED_PROTO)) &&
            head_add_text(head, arena, F_X_FORWARDED_PROTO,
                          ex->peer->tls ? STR("https") : STR("http")) < 0)
            return false;
        if (host.n && !(ex->trusted && head_find(head, F_X_FORWARDED_HOST)) &&
            head_add_text(head, arena, F_X_FORWARDED_HOST, host) < 0)
            return false;
        if (head_add_text(head, arena, F_X_FORWARDED_FOR, forwarded->x_for) < 0)
            return false;
    }
    return !forwarded->rfc7239.p ||
           head_add_text(head, arena, F_FORWARDED, forwarded->rfc7239) == 0;
}
