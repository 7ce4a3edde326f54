/* gateway.conf as values: what the file said, checked and with defaults filled in.
 *
 * Made by conf_load on the main thread, immutable afterwards, freed by conf_free. All
 * pointers inside belong to it. Times are milliseconds, sizes are bytes, 0 means "none" or
 * "no limit" where INTERFACE allows it. `line` and `file` say where a section stands. */
#ifndef POSTERN_CONF_CONF_H
#define POSTERN_CONF_CONF_H

#include "base/log.h"
#include "base/mem.h"
#include "net/addr.h"
#include "plugin/phases.h"
#include "up/cluster.h"

struct conf_where {
    const char *file;
    int line;
};

/* One thing wrong with a file. Collected: every fault is reported, not only the first. */
struct conf_fault {
    struct conf_where where;
    char *message; /* what is wrong and what was expected */
};

struct conf_faults {
    struct conf_fault *list;
    size_t count;
};
/* printf-like; `where` is copied. Out of memory loses the text, never the fact: after a call
 * count is not 0. */
void conf_fault(struct conf_faults *faults, struct conf_where where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void conf_faults_done(struct conf_faults *faults);

struct conf_strs {
    char **list;
    size_t count;
};

/* A plugin's section. */
struct conf_plugin {
    struct conf_where where;
    const struct plugin *plugin;
    bool enabled, fail_open;
    uint32_t deadline;
    struct postern_values *values; /* as its options */
    struct instance *instance;     /* NULL: not enabled */
};
struct conf_plugins {
    struct conf_plugin *list;
    size_t count;
    unsigned class; /* which of the places that have some; 0: none here */
};

/* Where calls of plugins go: an upstream of the configuration. */
struct postern_origin {
    const struct conf *conf;
    size_t upstream_index;
};

/* A file that belongs to the configuration, as it was when that was read. */
struct conf_text {
    char *path; /* absolute; NULL: not given */
    struct conf_where where;
    struct str text; /* .p NULL: not given */
    uint64_t stamp;  /* of the file when that was read */
};

struct conf_certificate {
    struct conf_where where;
    char *name;
    struct conf_text chain, key, ocsp;
};

/* tls of a listener. */
struct conf_front {
    struct conf_where where;
    struct conf_certificate *certificates; /* at least one; the first is the default */
    size_t count;
    bool tls13_only; /* min_version */
    bool early_data;
    char *ciphers, *suites; /* NULL: ours */
    struct conf_where ciphers_at, suites_at;
    unsigned client_auth; /* enum tls_client_auth */
    struct conf_text client_ca, ticket_keys;
    uint64_t stamp; /* of all its files, from before they were read */
};

/* tls of an upstream. */
struct conf_back {
    struct conf_where where;
    struct conf_text ca, certificate, key;
    bool verify;
    char *server_name; /* NULL: each server's own */
};

/* How a backend hears who asked, and from which field of trusted proxies we do. Bits. */
enum conf_forwarded { FORWARDED_X = 1, FORWARDED_RFC7239 = 2 };

struct conf_listener {
    struct conf_where where;
    char *name;
    struct addr *addrs; /* listen */
    size_t addr_count;
    struct addr_range *trusted; /* trusted_proxies */
    size_t trusted_count;
    unsigned forwarded;  /* enum conf_forwarded bits */
    bool proxy_protocol; /* every connection begins with a PROXY header */
    bool http2;
    struct conf_front *tls; /* NULL: without */
    struct {
        uint32_t header_bytes, headers, target_bytes;
        uint64_t body_bytes;
        uint32_t connections, requests_per_connection, streams;
    } limits;
    struct {
        uint32_t header, body, idle, write;
        uint32_t rate, rate_window; /* bytes per second over so many ms; rate 0: none */
    } timeouts;
    unsigned path_allow; /* enum path_class bits */
    struct conf_plugins plugins;
};

struct conf_server {
    struct conf_where where;
    char *text;      /* as written: "users.internal:8080" */
    char *host;      /* without the port, for TLS; NULL: a unix socket */
    bool service;    /* text is "_http._tcp.users.internal" and host "users.internal" */
    uint32_t weight; /* 1 to 1000; of a service its records say it */
    bool backup;
};
/* What a server that is no unix socket knows itself by. */
static inline const char *conf_server_name(const struct conf_server *server)
{
    return server->service ? server->host : server->text;
}

/* What of a request chooses, so that the same client gets the same. */
enum conf_hash_on { HASH_CLIENT_IP, HASH_HEADER, HASH_COOKIE, HASH_PATH, HASH_NONE };

/* When a sticky cookie is marked Secure: as the client came, or in any case. */
enum conf_secure { SECURE_AUTO, SECURE_ALWAYS, SECURE_NEVER };
enum conf_same_site { SAME_SITE_LAX, SAME_SITE_STRICT, SAME_SITE_NONE };

/* Which Host a server gets to see. */
enum conf_host { HOST_PASS, HOST_UPSTREAM, HOST_NAME };

enum retry_on {
    RETRY_CONNECT = 1,
    RETRY_RESET = 2,
    RETRY_TIMEOUT = 4,
    RETRY_502 = 8,
    RETRY_503 = 16,
    RETRY_504 = 32,
};

struct conf_upstream {
    struct conf_where where;
    char *name;
    bool implicit; /* made for a plugin that calls an address */
    struct conf_server *servers;
    size_t server_count;
    enum balance balance;
    enum conf_hash_on hash_on;
    char *hash_name;     /* the header's or cookie's; NULL otherwise */
    uint32_t hash_bound; /* permille of the fair share; 0: none */
    struct {
        char *name; /* NULL: no cookie is set */
        char *path;
        uint32_t max_age; /* ms; 0: as long as the browser likes */
        enum conf_same_site same_site;
        enum conf_secure secure;
        char *secret; /* NULL: one of this process's own */
    } sticky;
    enum conf_host host;
    char *host_name; /* with HOST_NAME */
    unsigned
        proxy_protocol; /* version of the PROXY header that connections begin with; 0: none */
    struct conf_back *tls; /* NULL: without */
    bool http2;            /* is spoken to the servers */
    struct {
        uint32_t warm, idle, connections, requests;
        uint32_t idle_timeout, lifetime;
    } pool;
    struct {
        uint32_t connect, response, idle, total, queue;
    } timeouts;
    bool tell_deadline; /* servers are told how long the client waits */
    struct breaker_limits breaker;
    struct {
        uint32_t attempts;
        uint32_t budget_permille; /* of live requests */
        unsigned on;              /* enum retry_on bits */
        uint32_t try_timeout;     /* 0: none */
        uint32_t body_bytes;      /* of a request are kept for another try */
    } retry;
    struct watch watch;
};

/* What may be sent again although a server may have executed it. */
enum conf_retry { ROUTE_RETRY_IDEMPOTENT, ROUTE_RETRY_ANY, ROUTE_RETRY_NEVER };

enum conf_action { ACTION_UPSTREAM, ACTION_SPLIT, ACTION_RESPOND, ACTION_REDIRECT };

#define CONDITIONS 32 /* the most of one route */

enum condition_test { CONDITION_EQUALS, CONDITION_REGEX, CONDITION_PRESENT, CONDITION_ABSENT };

/* One match_header or match_query. */
struct conf_condition {
    bool query; /* of a parameter of the query, else of a header field */
    enum condition_test test;
    char *name;
    char *text;     /* with equals and regex, as written */
    void *code;     /* with regex: compiled */
    unsigned field; /* enum field_id of a header's name */
};

struct conf_share { /* one of a split */
    char *upstream;
    size_t upstream_index; /* in conf->upstreams */
    uint32_t weight;
    int line; /* while loading, in the flat text */
};
#define SPLIT_SHARES 64

/* A text with {name} parts, split when loaded. A part is a literal or a variable. */
enum template_var {
    VAR_LITERAL,
    VAR_CAPTURE,    /* {name} bound by the route's path: `capture` is its index */
    VAR_CLIENT_IP,  /* {client_ip} */
    VAR_REQUEST_ID, /* {request_id} */
    VAR_HOST,       /* {host} */
    VAR_PATH,       /* {path} */
    VAR_HEADER,     /* {header:NAME} */
};
/* What bytes of a variable become that mean something where it stands. */
enum escape {
    ESCAPE_NONE,
    ESCAPE_FIELD, /* in a header's value */
    ESCAPE_PATH,
    ESCAPE_QUERY,
    ESCAPE_AUTHORITY,
    ESCAPE_JSON, /* within a string */
    ESCAPE_SCRIPT,
    ESCAPE_HTML, /* and XML */
};
struct template_part {
    enum template_var var;
    unsigned capture;
    enum escape escape;
    struct str text; /* the literal, or the header's name */
};
struct template
{
    struct template_part *parts;
    size_t count;
};

struct conf_field { /* one of request_headers/response_headers */
    char *name;
    struct template value;
};
struct conf_edit {
    struct conf_field *set, *add;
    size_t set_count, add_count;
    struct conf_strs remove;
};

#define ROUTE_CAPTURES 16

struct conf_route {
    struct conf_where where;
    char *name;
    bool faulty;                       /* while loading: it is not compared with others */
    int upstream_line, listeners_line; /* while loading, in the flat text */
    struct conf_strs listeners;        /* names; none: all */
    struct conf_strs hosts;            /* lower case; "*.example.org"; none: any */
    char *path;                        /* pattern; default "/{rest...}"; "*": OPTIONS * */
    struct conf_strs methods;          /* none: any */
    char *captures[ROUTE_CAPTURES];    /* names bound by path, in order */
    size_t capture_count;
    struct conf_condition *conditions; /* all must hold */
    size_t condition_count;

    enum conf_action action;
    char *upstream;
    size_t upstream_index; /* in conf->upstreams, with ACTION_UPSTREAM */
    struct {
        struct conf_share *shares;
        size_t count;
        uint32_t total;           /* of the weights */
        enum conf_hash_on sticky; /* HASH_NONE: by turns */
        char *sticky_name;        /* the header's or cookie's; NULL otherwise */
        size_t index;             /* among the splits of the file */
    } split;
    char *strip_prefix;      /* NULL: none */
    struct template rewrite; /* count 0: none */
    struct {
        uint16_t status;
        char *type;
        struct template body; /* from `body` or what is in `file` */
        char *file;           /* NULL: none; an absolute path */
        bool filled;          /* with a body or file: names in it are filled in */
    } respond;
    struct {
        uint16_t status;
        struct template to;
    } redirect;
    struct conf_edit request_headers, response_headers;
    uint32_t timeout; /* 0: none */
    enum conf_retry retry;
    uint64_t body_bytes; /* UINT64_MAX: the listener's */
    bool access_log;     /* default true */
    struct conf_plugins plugins;
};

struct conf {
    struct slab chunks; /* the arena's */
    struct arena arena; /* everything below lives here */
    char *file;         /* the main file's path */
    uint32_t workers;   /* auto is resolved: usable cores */
    bool workers_auto;
    char *user, *pid_file; /* NULL: not given */
    struct conf_where user_at, pid_file_at;
    uint32_t drain_timeout;
    struct addr *resolvers; /* DNS servers; none: the system's */
    size_t resolver_count;

    bool has_admin;
    struct addr admin;
    struct conf_where admin_where;

    struct {
        char *path; /* "-", "off" or a file */
        struct conf_where path_at;
        bool combined;
        uint32_t sample; /* of successful requests keep every n-th; "1/100" is 100 */
        uint32_t slower_than;
    } access_log;
    struct {
        char *path;
        struct conf_where path_at;
        enum log_level level;
    } error_log;

    struct conf_listener *listeners;
    size_t listener_count;
    struct conf_upstream *upstreams;
    size_t upstream_count;
    struct conf_route *routes;
    size_t route_count;
    size_t split_count;

    char *plugin_directory; /* NULL: the usual ones */
    struct conf_strs plugin_files;
    struct conf_plugins plugins; /* of the top level */
    /* What counts for a route's requests on a listener: by the classes of both, see
     * conf_phases. NULL: there are no plugins. */
    struct phases **phases;
    size_t phases_count, listener_classes;
    /* Where plugins look for credentials: lower case, "-" as "_". */
    struct conf_strs secret_parameters;
    struct conf_faults warnings; /* what plugins said */
};

/* NULL: no plugin has to do with requests for that route on that listener. `route` NULL: none
 * matches. */
static inline const struct phases *conf_phases(const struct conf *conf,
                                               const struct conf_listener *listener,
                                               const struct conf_route *route)
{
    if (!conf->phases)
        return NULL;
    return conf->phases[(route ? route->plugins.class : 0) * conf->listener_classes +
                        listener->plugins.class];
}

/* Reads `path` and what it includes. NULL when there were faults (all of them in *faults,
 * sorted by file order). Opens nothing but configuration files and those that they name: of
 * `respond` and `tls`. */
struct conf *conf_load(const char *path, struct conf_faults *faults);
/* As conf_load with the main file's text in memory; `path` stands in faults, and includes
 * are looked for beside it. */
struct conf *conf_load_text(const char *path, struct str text, struct conf_faults *faults);
void conf_free(struct conf *conf); /* NULL is fine */
/* The effective configuration, defaults filled in, in gateway.conf's own syntax, such that
 * loading it again gives the same (-T). */
void conf_dump(const struct conf *conf, FILE *out);
/* Equal in everything that makes connections and choices differ: such an upstream keeps its
 * warm connections over a reload, and all of it is adopted when it is watched as before too. */
bool conf_upstream_eq(const struct conf_upstream *a, const struct conf_upstream *b);
/* Equal in name and in what makes connections different: servers that both have can keep
 * theirs, whatever else has changed. */
bool conf_upstream_kin(const struct conf_upstream *a, const struct conf_upstream *b);
/* Equal in name, upstreams and weights: such a split goes on where it stood. */
bool conf_split_eq(const struct conf_route *a, const struct conf_route *b);

#endif
