#include "conf/conf.h"

static bool text_eq(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool servers_eq(const struct conf_upstream *a, const struct conf_upstream *b)
{
    if (a->server_count != b->server_count)
        return false;
    /* the order counts too: round robin and hash go by it */
    for (size_t i = 0; i < a->server_count; i++) {
        const struct conf_server *x = &a->servers[i], *y = &b->servers[i];
        if (!text_eq(x->text, y->text) || x->weight != y->weight || x->backup != y->backup)
            return false;
    }
    return true;
}

static bool pools_eq(const struct conf_upstream *a, const struct conf_upstream *b)
{
    return a->pool.warm == b->pool.warm && a->pool.idle == b->pool.idle &&
           a->pool.connections == b->pool.connections && a->pool.requests == b->pool.requests &&
           a->pool.idle_timeout == b->pool.idle_timeout && a->pool.lifetime == b->pool.lifetime;
}

static bool sticky_eq(const struct conf_upstream *a, const struct conf_upstream *b)
{
    return text_eq(a->sticky.name, b->sticky.name) &&
           text_eq(a->sticky.secret, b->sticky.secret);
}

static bool rest_eq(const struct conf_upstream *a, const struct conf_upstream *b)
{
    return a->timeouts.connect == b->timeouts.connect &&
           a->timeouts.response == b->timeouts.response &&
           a->timeouts.idle == b->timeouts.idle && a->timeouts.total == b->timeouts.total &&
           a->timeouts.queue == b->timeouts.queue && a->breaker.pending == b->breaker.pending &&
           a->breaker.requests == b->breaker.requests &&
           a->retry.attempts == b->retry.attempts &&
           a->retry.budget_permille == b->retry.budget_permille && a->retry.on == b->retry.on;
}

static bool file_eq(const struct conf_text *a, const struct conf_text *b)
{
    return text_eq(a->path, b->path) && str_eq(a->text, b->text);
}

/* By what the files hold: new certificates are new connections. */
static bool tls_eq(const struct conf_back *a, const struct conf_back *b)
{
    if (!a || !b)
        return a == b;
    return file_eq(&a->ca, &b->ca) && file_eq(&a->certificate, &b->certificate) &&
           file_eq(&a->key, &b->key) && a->verify == b->verify &&
           text_eq(a->server_name, b->server_name);
}

/* All that makes two connections to one address different belongs here. */
bool conf_upstream_kin(const struct conf_upstream *a, const struct conf_upstream *b)
{
    return text_eq(a->name, b->name) && a->proxy_protocol == b->proxy_protocol &&
           a->http2 == b->http2 && tls_eq(a->tls, b->tls);
}

bool conf_upstream_eq(const struct conf_upstream *a, const struct conf_upstream *b)
{
    return conf_upstream_kin(a, b) && servers_eq(a, b) && a->balance == b->balance &&
           a->hash_on == b->hash_on && text_eq(a->hash_name, b->hash_name) &&
           a->hash_bound == b->hash_bound && sticky_eq(a, b) && pools_eq(a, b) && rest_eq(a, b);
}

bool conf_split_eq(const struct conf_route *a, const struct conf_route *b)
{
    if (a->action != b->action || a->split.count != b->split.count ||
        !text_eq(a->name, b->name))
        return false;
    for (size_t i = 0; i < a->split.count; i++)
        if (!text_eq(a->split.shares[i].upstream, b->split.shares[i].upstream) ||
            a->split.shares[i].weight != b->split.shares[i].weight)
            return false;
    return true;
}
