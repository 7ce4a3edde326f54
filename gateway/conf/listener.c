#include "conf/load.h"
#include "http/path.h"

bool address_compile(struct load *load, const char *what, const struct value *value,
                     struct addr *ret)
{
    bool ok = addr_parse(str_of(value->text), ret) == 0;
    if (ok && ret->sa.sa_family == AF_INET)
        ok = ret->in4.sin_port != 0;
    if (ok && ret->sa.sa_family == AF_INET6)
        ok = ret->in6.sin6_port != 0;
    if (!ok)
        load_fault(load, value->line,
                   "%s is %s, expected an IP address with a port from 1 to 65535 "
                   "(127.0.0.1:8080, [::1]:8080) or unix:PATH",
                   what, value->text[0] ? value->text : "empty");
    return ok;
}

static void listen_compile(struct load *load, cfg_t *sec, struct conf_listener *ret)
{
    size_t count = value_count(sec, "listen");
    if (count == 0 && !load->broken)
        load_fault(load, value_line(sec), "listener \"%s\" has no listen, expected an address",
                   ret->name);
    ret->addrs = load_alloc(load, count, sizeof(*ret->addrs));
    for (size_t i = 0; ret->addrs && i < count; i++)
        if (address_compile(load, "listener.listen", value_at(sec, "listen", i),
                            &ret->addrs[ret->addr_count]))
            ret->addr_count++;
}

static void trusted_compile(struct load *load, cfg_t *sec, struct conf_listener *ret)
{
    size_t count = value_count(sec, "trusted_proxies");
    ret->trusted = load_alloc(load, count, sizeof(*ret->trusted));
    for (size_t i = 0; ret->trusted && i < count; i++) {
        const struct value *value = value_at(sec, "trusted_proxies", i);
        if (addr_range_parse(str_of(value->text), &ret->trusted[ret->trusted_count]) == 0)
            ret->trusted_count++;
        else
            load_fault(load, value->line,
                       "listener.trusted_proxies has \"%s\", expected an IP address or a range "
                       "of them (10.0.0.0/8, fd00::/8), or unix:",
                       value->text);
    }
}

static void limits_compile(struct load *load, cfg_t *sec, struct conf_listener *ret)
{
    value_size32(load, sec, "header_bytes", 1024, 60 * 1024, &ret->limits.header_bytes);
    value_number(load, sec, "headers", 1, 1000, &ret->limits.headers);
    if (ret->limits.target_bytes > ret->limits.header_bytes)
        ret->limits.target_bytes = ret->limits.header_bytes;
    value_size32(load, sec, "target_bytes", 64, ret->limits.header_bytes,
                 &ret->limits.target_bytes);
    value_size(load, sec, "body_bytes", 0, BODY_BYTES_MAX, &ret->limits.body_bytes);
    value_number(load, sec, "connections", 0, 10000000, &ret->limits.connections);
    value_number(load, sec, "requests_per_connection", 0, 1000000000,
                 &ret->limits.requests_per_connection);
    value_number(load, sec, "streams", 0, 100000, &ret->limits.streams);
}

static void timeouts_compile(struct load *load, cfg_t *sec, struct conf_listener *ret)
{
    value_time(load, sec, "header", 1, DAY_MS, &ret->timeouts.header);
    value_time(load, sec, "body", 1, DAY_MS, &ret->timeouts.body);
    value_time(load, sec, "idle", 1, DAY_MS, &ret->timeouts.idle);
    value_time(load, sec, "write", 1, DAY_MS, &ret->timeouts.write);
    value_size32(load, sec, "rate", 0, 1u << 30, &ret->timeouts.rate);
    value_time(load, sec, "rate_window", 100, DAY_MS, &ret->timeouts.rate_window);
}

static void forwarded_compile(struct load *load, cfg_t *sec, struct conf_listener *ret)
{
    static const char *const words[] = {"x_forwarded", "rfc7239", "both", NULL};
    unsigned word = FORWARDED_X - 1;
    value_word(load, sec, "forwarded", words, &word);
    ret->forwarded = word + 1; /* the words stand in the order of the bits */
    value_bool(load, sec, "proxy_protocol", &ret->proxy_protocol);
}

void listener_compile(struct load *load, cfg_t *sec, struct conf_listener *ret)
{
    cfg_t *sub;
    ret->limits.header_bytes = 32 * 1024;
    ret->limits.headers = 100;
    ret->limits.target_bytes = 8 * 1024;
    ret->limits.body_bytes = 10u << 20;
    ret->limits.streams = 128;
    ret->http2 = true;
    ret->timeouts.header = 10000;
    ret->timeouts.body = 30000;
    ret->timeouts.idle = 60000;
    ret->timeouts.write = 30000;
    ret->timeouts.rate = 240;
    ret->timeouts.rate_window = 30000;
    ret->path_allow = PATH_ALLOW_DEFAULT;
    listen_compile(load, sec, ret);
    trusted_compile(load, sec, ret);
    forwarded_compile(load, sec, ret);
    value_bool(load, sec, "http2", &ret->http2);
    if ((sub = value_section(sec, "limits")))
        limits_compile(load, sub, ret);
    if ((sub = value_section(sec, "timeouts")))
        timeouts_compile(load, sub, ret);
    if ((sub = value_section(sec, "tls")))
        ret->tls = tls_front_compile(load, sub);
    if ((sub = value_section(sec, "paths")))
        ret->path_allow = paths_compile(load, sub, ret->path_allow);
}
