#include "conf/load.h"
#include "http/head.h"

/* A numeric address, unix:PATH, or NAME:PORT, which is resolved later. */
static bool is_server_address(struct str text)
{
    struct addr addr;
    struct str host;
    uint16_t port;
    if (addr_parse(text, &addr) == 0)
        return addr.sa.sa_family == AF_UNIX ||
               (addr.sa.sa_family == AF_INET ? addr.in4.sin_port : addr.in6.sin6_port);
    return addr_split_name(text, &host, &port) == 0 && port;
}

/* What a server's certificate is asked for: NULL when it has no name. */
static char *host_of(struct load *load, const char *text)
{
    struct addr addr;
    struct str host;
    uint16_t port;
    char ip[ADDR_TEXT];
    if (addr_parse(str_of(text), &addr) < 0)
        return addr_split_name(str_of(text), &host, &port) == 0 ? load_copy(load, host) : NULL;
    if (addr.sa.sa_family == AF_UNIX)
        return NULL;
    return load_copy(load, (struct str){ip, addr_put_host(ip, &addr)});
}

/* What only DNS says of a service must not stand in the file too. */
static void service_compile(struct load *load, cfg_t *sec, struct conf_server *ret)
{
    const struct value *weight = value_get(sec, "weight");
    struct str name;
    ret->service = addr_split_service(str_of(ret->text), &name);
    if (!ret->service)
        return;
    ret->host = load_copy(load, name);
    if (weight)
        load_fault(load, weight->line,
                   "server.weight is %s, expected none with \"%s\", whose SRV records say it",
                   weight->text[0] ? weight->text : "empty", ret->text);
}

static void check_address(struct load *load, int line, const char *text)
{
    struct str host, name;
    uint16_t port;
    bool service = addr_split_service(str_of(text), &name);
    if (!service && addr_split_name(str_of(text), &host, &port) == 0 &&
        addr_split_service(host, &name))
        load_fault(
            load, line,
            "server \"%s\" has a port, expected _SERVICE._PROTOCOL.NAME without one: its "
            "SRV records say it",
            text);
    else if (!service && !is_server_address(str_of(text)))
        load_fault(load, line,
                   "server \"%s\" is no address, expected IP:PORT, NAME:PORT, unix:PATH or "
                   "_SERVICE._PROTOCOL.NAME",
                   text);
}

/* The same address, however it is spelled ("[::1]:80" and "[0:0::1]:80"), or name and port. */
static bool is_same_server(const char *a, const char *b)
{
    struct addr one, other;
    struct str host, other_host;
    uint16_t port, other_port;
    if (addr_parse(str_of(a), &one) == 0)
        return addr_parse(str_of(b), &other) == 0 && addr_eq(&one, &other);
    if (addr_split_name(str_of(a), &host, &port) == 0)
        return addr_split_name(str_of(b), &other_host, &other_port) == 0 &&
               port == other_port && str_eq_nocase(host, other_host);
    return str_eq_nocase(str_of(a), str_of(b));
}

static void check_twice(struct load *load, int line, const struct conf_upstream *upstream,
                        const struct conf_server *server)
{
    for (const struct conf_server *other = upstream->servers; other < server; other++) {
        if (!other->text || !is_same_server(other->text, server->text))
            continue;
        bool same = strcmp(other->text, server->text) == 0;
        load_fault(load, line,
                   "server \"%s\" stands twice in upstream \"%s\", first%s%s%s at %s:%d",
                   server->text, upstream->name, same ? "" : " as \"", same ? "" : other->text,
                   same ? "" : "\"", other->where.file, other->where.line);
        return;
    }
}

static void server_compile(struct load *load, cfg_t *sec, const struct conf_upstream *upstream,
                           struct conf_server *ret)
{
    int line = value_line(sec);
    ret->where = load_where(load, line);
    ret->text = load_copy(load, str_of(value_title(sec)));
    ret->weight = 1;
    if (!ret->text)
        return;
    check_address(load, line, ret->text);
    ret->host = host_of(load, ret->text);
    service_compile(load, sec, ret);
    check_twice(load, line, upstream, ret);
    value_number(load, sec, "weight", 1, 1000, &ret->weight);
    value_bool(load, sec, "backup", &ret->backup);
}

static void servers_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    size_t count = value_count(sec, "server"), backups = 0;
    ret->servers = load_alloc(load, count, sizeof(*ret->servers));
    if (!ret->servers)
        return;
    for (size_t i = 0; i < count; i++) {
        server_compile(load, cfg_getnsec(sec, "server", (unsigned)i), ret, &ret->servers[i]);
        backups += ret->servers[i].backup;
    }
    ret->server_count = count;
    if (load->broken) /* what is missing may only have been lost */
        return;
    if (count == 0)
        load_fault(load, value_line(sec),
                   "upstream \"%s\" has no server, expected at least one", ret->name);
    else if (count > CLUSTER_SERVERS)
        load_fault(load, value_line(sec),
                   "upstream \"%s\" has %zu servers, expected at most %d", ret->name, count,
                   CLUSTER_SERVERS);
    else if (backups == count)
        load_fault(load, value_line(sec),
                   "upstream \"%s\" has only backup servers, expected at least one that is not",
                   ret->name);
}

void hash_on_compile(struct load *load, cfg_t *sec, const char *name, bool path,
                     enum conf_hash_on *ret_on, char **ret_name)
{
    const struct value *value = value_get(sec, name);
    if (!value)
        return;
    struct str text = str_of(value->text), key = {0};
    if (str_eq(text, STR("client_ip"))) {
        *ret_on = HASH_CLIENT_IP;
        return;
    }
    if (path && str_eq(text, STR("path"))) {
        *ret_on = HASH_PATH;
        return;
    }
    if (text.n > 7 && memcmp(text.p, "header:", 7) == 0)
        *ret_on = HASH_HEADER;
    else if (text.n > 7 && memcmp(text.p, "cookie:", 7) == 0)
        *ret_on = HASH_COOKIE;
    if (text.n > 7 && text.p[6] == ':')
        key = (struct str){text.p + 7, text.n - 7};
    if ((*ret_on != HASH_HEADER && *ret_on != HASH_COOKIE) || !head_is_token(key))
        load_fault(load, value->line, "%s.%s is %s, expected client_ip, header:NAME%s",
                   sec->name, name, text.n ? text.p : "empty",
                   path ? ", cookie:NAME or path" : " or cookie:NAME");
    else
        *ret_name = load_copy(load, key);
}

/* How far over its fair share a server may go before its keys go elsewhere. */
static void hash_bound_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    const struct value *value = value_get(sec, "hash_bound");
    if (!value)
        return;
    if (value_parse_share(str_of(value->text), 1000, &ret->hash_bound) < 0 ||
        (ret->hash_bound && ret->hash_bound < 1000))
        load_fault(load, value->line,
                   "upstream.hash_bound is %s, expected 0%% or a share from 100%% to 1000%%",
                   value->text[0] ? value->text : "empty");
}

/* RFC 6265 4.1.1: a path ends at a semicolon. */
static void cookie_path_compile(struct load *load, cfg_t *sec, char **ret_path)
{
    const struct value *value = value_get(sec, "path");
    value_text(load, sec, "path", ret_path);
    if (value && (value->text[0] != '/' || strchr(value->text, ';')))
        load_fault(load, value->line,
                   "sticky_cookie.path is %s, expected a path without semicolons",
                   value->text[0] ? value->text : "empty");
}

static void sticky_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    static const char *const sites[] = {"lax", "strict", "none", NULL};
    static const char *const secures[] = {"auto", "always", "never", NULL};
    unsigned site = SAME_SITE_LAX, secure = SECURE_AUTO;
    const struct value *name = value_get(sec, "name"), *secret = value_get(sec, "secret");
    if (!name)
        load_fault(load, value_line(sec), "sticky_cookie has no name, expected one");
    else if (!head_is_token(str_of(name->text)))
        load_fault(load, name->line,
                   "sticky_cookie.name is %s, expected a name of letters, digits, - and _",
                   name->text[0] ? name->text : "empty");
    else
        ret->sticky.name = load_copy(load, str_of(name->text));
    ret->sticky.path = load_copy(load, STR("/"));
    cookie_path_compile(load, sec, &ret->sticky.path);
    value_time(load, sec, "max_age", 0, 30 * DAY_MS, &ret->sticky.max_age);
    value_word(load, sec, "same_site", sites, &site);
    value_word(load, sec, "secure", secures, &secure);
    ret->sticky.same_site = (enum conf_same_site)site;
    ret->sticky.secure = (enum conf_secure)secure;
    if (site == SAME_SITE_NONE && secure == SECURE_NEVER)
        load_fault(load, value_get(sec, "secure")->line,
                   "sticky_cookie.secure is never with same_site = none, which browsers only "
                   "take from secure cookies");
    if (secret && strlen(secret->text) < 16)
        load_fault(load, secret->line,
                   "sticky_cookie.secret has %zu bytes, expected at least 16",
                   strlen(secret->text));
    else if (secret)
        ret->sticky.secret = load_copy(load, str_of(secret->text));
}

/* Host as the server gets it: what the client said, the server's own name, or a fixed one. */
static void host_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    const struct value *value = value_get(sec, "host");
    if (!value || strcmp(value->text, "pass") == 0)
        return;
    ret->host = strcmp(value->text, "upstream") == 0 ? HOST_UPSTREAM : HOST_NAME;
    if (ret->host == HOST_UPSTREAM)
        return;
    ret->host_name = load_copy(load, str_of(value->text));
    if (!head_is_authority(str_of(value->text)))
        load_fault(load, value->line,
                   "upstream.host is %s, expected pass, upstream, or a HOST or HOST:PORT",
                   value->text[0] ? value->text : "empty");
}

static void protocol_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    static const char *const words[] = {"http1", "h2", NULL};
    unsigned word = 0;
    value_word(load, sec, "protocol", words, &word);
    ret->http2 = word == 1;
    if (ret->http2 && ret->proxy_protocol)
        load_fault(load, value_get(sec, "protocol")->line,
                   "upstream.protocol is h2, whose connections many clients share: "
                   "proxy_protocol cannot name one; expected http1 with it");
}

/* A connection that says whose it is can serve nobody else: it is opened for one request. */
static void proxy_protocol_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    static const char *const words[] = {"off", "v1", "v2", NULL};
    static const char *const idle[] = {"warm", "idle", "idle_timeout", "lifetime", "requests"};
    value_word(load, sec, "proxy_protocol", words, &ret->proxy_protocol);
    if (!ret->proxy_protocol)
        return;
    cfg_t *sub = value_section(sec, "pool");
    for (size_t i = 0; sub && i < sizeof(idle) / sizeof(*idle); i++)
        if (value_get(sub, idle[i]) && strcmp(value_get(sub, idle[i])->text, "0") != 0)
            load_fault(load, value_get(sub, idle[i])->line,
                       "pool.%s has no effect with proxy_protocol, whose connections are not "
                       "used again",
                       idle[i]);
    ret->pool.warm = ret->pool.idle = 0;
    ret->pool.requests = 1;
}

static void pool_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    value_number(load, sec, "idle", 0, 65535, &ret->pool.idle);
    value_number(load, sec, "connections", 1, 65535, &ret->pool.connections);
    value_number(load, sec, "requests", 0, 1000000000, &ret->pool.requests);
    value_time(load, sec, "idle_timeout", 0, DAY_MS, &ret->pool.idle_timeout);
    value_time(load, sec, "lifetime", 0, DAY_MS, &ret->pool.lifetime);
    if (ret->pool.idle > ret->pool.connections) {
        if (value_get(sec, "idle") && value_get(sec, "connections"))
            load_fault(load, value_get(sec, "idle")->line,
                       "pool.idle is %u, expected at most pool.connections, which is %u",
                       ret->pool.idle, ret->pool.connections);
        ret->pool.idle = ret->pool.connections;
    }
    if (ret->pool.warm > ret->pool.idle)
        ret->pool.warm = ret->pool.idle;
    value_number(load, sec, "warm", 0, 65535, &ret->pool.warm);
    if (ret->pool.warm > ret->pool.idle)
        load_fault(load, value_get(sec, "warm")->line,
                   "pool.warm is %u, expected at most pool.idle, which is %u", ret->pool.warm,
                   ret->pool.idle);
}

static void timeouts_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    value_time(load, sec, "connect", 1, DAY_MS, &ret->timeouts.connect);
    value_time(load, sec, "response", 1, DAY_MS, &ret->timeouts.response);
    value_time(load, sec, "idle", 1, DAY_MS, &ret->timeouts.idle);
    value_time(load, sec, "total", 0, DAY_MS, &ret->timeouts.total);
    value_time(load, sec, "queue", 1, DAY_MS, &ret->timeouts.queue);
}

static void breaker_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    value_number(load, sec, "pending", 0, 10000000, &ret->breaker.pending);
    value_number(load, sec, "requests", 0, 10000000, &ret->breaker.requests);
}

static const struct {
    const char *word;
    unsigned bit;
} retry_words[] = {
    {"connect", RETRY_CONNECT}, {"reset", RETRY_RESET}, {"timeout", RETRY_TIMEOUT},
    {"502", RETRY_502},         {"503", RETRY_503},     {"504", RETRY_504},
};

static void retry_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    value_number(load, sec, "attempts", 0, 10, &ret->retry.attempts);
    value_share(load, sec, "budget", &ret->retry.budget_permille);
    value_time(load, sec, "try_timeout", 0, DAY_MS, &ret->retry.try_timeout);
    value_size32(load, sec, "body_bytes", 0, 1u << 20, &ret->retry.body_bytes);
    cfg_opt_t *on = cfg_getopt(sec, "on");
    if (on->flags & CFGF_MODIFIED)
        ret->retry.on = 0;
    for (size_t i = 0; i < value_count(sec, "on"); i++) {
        const struct value *value = value_at(sec, "on", i);
        unsigned bit = 0;
        for (size_t w = 0; w < sizeof(retry_words) / sizeof(*retry_words); w++)
            if (strcmp(value->text, retry_words[w].word) == 0)
                bit = retry_words[w].bit;
        if (!bit)
            load_fault(load, value->line,
                       "retry.on has \"%s\", expected connect, reset, timeout, 502, 503 or 504",
                       value->text);
        ret->retry.on |= bit;
    }
    if (ret->retry.try_timeout && !(ret->retry.on & RETRY_TIMEOUT))
        load_fault(load, value_get(sec, "try_timeout")->line,
                   "retry.try_timeout ends tries that retry.on does not repeat, expected "
                   "timeout in retry.on");
}

void upstream_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret)
{
    static const char *const balances[] = {"round_robin", "least_requests", "two_choices",
                                           "hash", NULL};
    unsigned balance = BALANCE_ROUND_ROBIN;
    cfg_t *sub;
    ret->pool.warm = 1;
    ret->pool.idle = 64;
    ret->pool.connections = 1024;
    ret->pool.idle_timeout = 60000;
    ret->pool.lifetime = 600000;
    ret->timeouts.connect = 1000;
    ret->timeouts.response = 30000;
    ret->timeouts.idle = 60000;
    ret->timeouts.queue = 1000;
    ret->breaker.pending = 1024;
    ret->retry.attempts = 1;
    ret->retry.budget_permille = 200;
    ret->retry.body_bytes = 64 * 1024;
    ret->retry.on = RETRY_CONNECT | RETRY_RESET;
    servers_compile(load, sec, ret);
    value_word(load, sec, "balance", balances, &balance);
    ret->balance = (enum balance)balance;
    hash_on_compile(load, sec, "hash_on", true, &ret->hash_on, &ret->hash_name);
    hash_bound_compile(load, sec, ret);
    if ((sub = value_section(sec, "sticky_cookie")))
        sticky_compile(load, sub, ret);
    host_compile(load, sec, ret);
    if ((sub = value_section(sec, "pool")))
        pool_compile(load, sub, ret);
    if ((sub = value_section(sec, "timeouts")))
        timeouts_compile(load, sub, ret);
    value_bool(load, sec, "tell_deadline", &ret->tell_deadline);
    if ((sub = value_section(sec, "breaker")))
        breaker_compile(load, sub, ret);
    if ((sub = value_section(sec, "retry")))
        retry_compile(load, sub, ret);
    proxy_protocol_compile(load, sec, ret);
    protocol_compile(load, sec, ret);
    watch_compile(load, sec, ret);
    if ((sub = value_section(sec, "tls")))
        ret->tls = tls_back_compile(load, sub, ret);
    /* The header stands before the handshake, which is done before anybody asks. */
    if (ret->tls && ret->proxy_protocol)
        load_fault(load, value_get(sec, "proxy_protocol")->line,
                   "upstream.proxy_protocol is %s, expected off with tls",
                   value_get(sec, "proxy_protocol")->text);
}
