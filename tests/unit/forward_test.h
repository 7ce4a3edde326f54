/* For the tests of forward and forwarded: an exchange without connections. */
#ifndef FORWARD_TEST_H
#define FORWARD_TEST_H

#include "conf_test.h"

#include "http/h1_parse.h"
#include "proxy/forward.h"

/* An exchange without connections: a configuration, a head, and who sent it. */
static struct slab chunks;
static struct context cx;
static struct view view;
static struct peer peer;
static struct exchange ex;
static struct head head;
static struct field fields[48];

static inline void begin_text(const char *text, const char *peer_ip)
{
    struct conf_faults faults = {0}, warnings = {0};
    slab_init(&chunks, ARENA_CHUNK, 4);
    cx = (struct context){.random = {1, 2}};
    view =
        (struct view){.snapshot = snapshot_new(conf_of(text), NULL, NULL, &faults, &warnings)};
    assert_non_null(view.snapshot);
    memset(&peer, 0, sizeof(peer));
    assert_int_equal(addr_parse_ip(str_of(peer_ip), &peer.addr), 0);
    peer.ip_len = (uint8_t)strlen(peer_ip);
    memcpy(peer.ip, peer_ip, peer.ip_len);
    memset(&ex, 0, sizeof(ex));
    ex.cx = &cx;
    ex.view = &view;
    ex.peer = &peer;
    ex.client_ip = (struct str){peer.ip, peer.ip_len};
    arena_init(&ex.arena, &chunks);
}

/* `options` of the listener, `upstream` of the upstream. */
static inline void begin_with(const char *options, const char *upstream, const char *route,
                              const char *peer_ip)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "listener \"l\" { listen = \"127.0.0.1:1\" trusted_proxies = {\"10.0.0.0/8\", "
             "\"fd00::/8\"} %s }\n"
             "upstream \"u\" { server \"127.0.0.1:2\" {} %s }\n"
             "route \"r\" { upstream = u %s }\n",
             options, upstream, route);
    begin_text(text, peer_ip);
    ex.upstream = &view.snapshot->conf->upstreams[0];
    ex.cluster = view.snapshot->clusters[0];
}

static inline void begin(const char *route, const char *peer_ip)
{
    begin_with("", "", route, peer_ip);
}

static inline void end(void)
{
    arena_done(&ex.arena);
    snapshot_unref(view.snapshot);
    slab_done(&chunks);
}

static inline enum reason identify(const char *request)
{
    static const struct h1_limits limits = {4096, 40, 1024};
    struct h1_fault fault;
    size_t offset;
    head = (struct head){.fields = fields, .cap = sizeof(fields) / sizeof(*fields)};
    if (h1_parse_request(request, strlen(request), &limits, &head, &fault) < 0)
        fail_msg("the test's request is malformed: %s", reason_texts[fault.reason].name);
    ex.head = &head;
    enum reason reason = forward_identify(&ex, &offset);
    if (!reason)
        router_find(view.snapshot->router, 0, ex.host, ex.path, head.method_text, &head,
                    &ex.match);
    return reason;
}

/* The request as the upstream gets it: its target, then every field, a line each. */
static inline const char *forwarded(const char *request)
{
    static char out[4096];
    assert_int_equal(identify(request), R_NONE);
    assert_non_null(ex.match.route);
    assert_int_equal(forward_request(&ex), R_NONE);
    size_t n = (size_t)snprintf(out, sizeof(out), "%.*s\n", (int)head.target.n, head.target.p);
    for (uint32_t i = 0; i < head.count; i++)
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%.*s: %.*s\n",
                              (int)head.fields[i].name.n, head.fields[i].name.p,
                              (int)head.fields[i].value.n, head.fields[i].value.p);
    return out;
}

static inline void assert_has(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("\"%s\" is not in:\n%s", line, text);
}

static inline void assert_lacks(const char *text, const char *part)
{
    if (strcasestr(text, part))
        fail_msg("\"%s\" is in:\n%s", part, text);
}

static inline void assert_str(struct str got, const char *expected)
{
    assert_int_equal(got.n, strlen(expected));
    assert_memory_equal(got.p, expected, got.n);
}

#endif
