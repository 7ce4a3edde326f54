/* The interface between postern and its plugins: all of it. A plugin is a shared object that
 * includes this header alone and exports one symbol, `const struct postern_plugin
 * postern_plugin`. plugins/example is one to start from.
 *
 * Compatibility. Every struct that crosses begins with its size and grows only at its end; what
 * is behind the size of the other side is not there. The gateway refuses a plugin of another
 * major version. Views (struct postern_str) are not NUL-terminated and belong to whom they came
 * from: what a request gives lives until its log hook has returned, text given to the gateway
 * is copied.
 *
 * Threads. load, configure, discard and on_change run on the main thread. Everything with a
 * request or a worker runs on that worker's thread, many workers at once: what they share is
 * the plugin's to protect, with atomics rather than locks. A hook must not block: the gateway
 * names one that holds its worker longer than 10 ms in the error log. */
#ifndef POSTERN_PLUGIN_H
#define POSTERN_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTERN_ABI_MAJOR 1
#define POSTERN_ABI_MINOR 0
#define POSTERN_EXPORT    __attribute__((visibility("default")))

struct postern_request; /* one request and its answer, until its log hook has returned */
struct postern_worker;  /* one event loop and its thread */
struct postern_plugin;
struct postern_setup;  /* a configuration being read; valid within configure */
struct postern_origin; /* where calls go; valid as long as the instance */

struct postern_str {
    const char *p;
    size_t n;
};

/* ---- options: from this table come the grammar, the checks of -t, --help-plugin and -T ----
 */

enum postern_type {
    POSTERN_BOOL = 1,
    POSTERN_NUMBER, /* min to max */
    POSTERN_SIZE,   /* bytes: "16k" */
    POSTERN_TIME,   /* milliseconds: "250ms" */
    POSTERN_SHARE,  /* thousandths: "20%" is 200 */
    POSTERN_RATE,   /* "100/s": number is 100, per_ms is 1000 */
    POSTERN_TEXT,   /* not empty, no control bytes */
    POSTERN_WORD,   /* one of `words`: number is its index */
    POSTERN_FILE,   /* text is an absolute path, taken relative to the file that names it */
    POSTERN_SECRET, /* text that -T masks */
    POSTERN_TOKEN,  /* an RFC 9110 token: a header's or cookie's name */
};

struct postern_option {
    const char *name;
    enum postern_type type;
    bool list, required;      /* list: `name = {"a", "b"}` */
    const char *default_text; /* as one would write it; NULL: none, unless it is given */
    int64_t min, max;         /* NUMBER, SIZE, TIME, RATE; both 0: any that is not negative */
    const char *const *words; /* WORD: ended by NULL */
    const char *help;         /* one sentence */
};

struct postern_value {
    bool given; /* in the file; false: the default, or nothing */
    int64_t number, per_ms;
    struct postern_str text; /* as checked; .p NULL: nothing. NUL-terminated for once */
};

/* One option's values: `count` is 1 where the option is no list (0: neither given nor default).
 */
struct postern_values {
    size_t size; /* of this struct */
    const struct postern_value *list;
    size_t count;
};

/* ---- requests ---- */

/* What a hook says. */
enum postern_verdict {
    POSTERN_GO_ON = 0,
    POSTERN_ANSWERED, /* answer() was called: no later plugin and no upstream is asked */
    POSTERN_WAIT,     /* wait() was called; on_resume follows, or on_cancel */
    POSTERN_FAILED,   /* the plugin cannot do its work now: its section's `fail` decides */
};

/* What a request can be asked for by get(). .p is NULL where there is none. */
enum postern_field {
    POSTERN_METHOD = 1,
    POSTERN_SCHEME,   /* "http" or "https" */
    POSTERN_HOST,     /* lower case, without a port */
    POSTERN_PATH,     /* in normal form: what routes are found by; decide by this one */
    POSTERN_TARGET,   /* as it came */
    POSTERN_QUERY,    /* as it came, without "?" */
    POSTERN_PROTOCOL, /* "HTTP/1.1", "HTTP/2.0" */
    POSTERN_CLIENT_IP,
    POSTERN_REQUEST_ID,
    POSTERN_LISTENER,    /* names as the configuration has them */
    POSTERN_ROUTE,       /* NULL: none matched, and the request will be refused */
    POSTERN_UPSTREAM,    /* NULL: none yet */
    POSTERN_CREDENTIAL,  /* who asks, as an earlier plugin found out */
    POSTERN_TLS_SUBJECT, /* of the client's verified certificate, RFC 4514 */
    POSTERN_REASON,      /* why the gateway or a plugin answered; NULL: it did not */
};

/* Where in a request a value stands. */
enum postern_part {
    POSTERN_HEADER = 1, /* of the request, on its way to the upstream */
    POSTERN_PARAMETER,  /* of the query, decoded */
    POSTERN_COOKIE,
    /* Of the answer. In a request hook only to set and add: kept for whatever answer comes, one
     * of the gateway's own included. */
    POSTERN_ANSWER_HEADER,
};

struct postern_header {
    struct postern_str name, value;
};

/* An answer of the plugin's own: application/problem+json (or what the client asked for, or a
 * gRPC status) made of reason and detail, unless there is a body. */
struct postern_answer {
    size_t size;
    unsigned status;           /* 200 to 599 */
    const char *reason;        /* of the plugin's `reasons`; NULL: no refusal, and no reason */
    struct postern_str detail; /* a sentence for the client: no secret, nothing unchecked */
    struct postern_str type, body; /* body .p NULL: a problem, or with status < 400 nothing */
    uint64_t limit, actual;        /* where a limit was met; both 0: none */
    const struct postern_header *headers;
    size_t header_count;
};

/* A place in a request to come back to; harmless when the request is over. */
struct postern_token {
    uint64_t id[2];
};

/* An HTTP request that a plugin makes. */
struct postern_call {
    size_t size;
    struct postern_origin *origin;
    struct postern_str method, target;    /* target begins with "/" */
    const struct postern_header *headers; /* without Host and Content-Length */
    size_t header_count;
    struct postern_str body;
    uint32_t deadline_ms; /* for all of it; 1 or more */
    size_t max_bytes;     /* of the answer's body; a larger one is a failure */
};

struct postern_reply {
    size_t size;
    unsigned status;                      /* 0: it failed */
    const char *failure;                  /* then: why, as a sentence */
    const struct postern_header *headers; /* names in lower case */
    size_t header_count;
    struct postern_str body;
};

enum postern_level { POSTERN_DEBUG, POSTERN_INFO, POSTERN_WARN, POSTERN_ERROR };
enum postern_watch { POSTERN_READ = 1, POSTERN_WRITE = 2 };

/* ---- what the gateway does for a plugin ---- */

struct postern_api {
    size_t size;
    uint32_t abi_major, abi_minor;
    const char *version; /* of the gateway */

    /* Any thread. */
    uint64_t (*now_ns)(void);  /* monotonic */
    uint64_t (*wall_ms)(void); /* since 1970 */
    void (*log)(const struct postern_plugin *plugin, enum postern_level level, const char *fmt,
                ...) __attribute__((format(printf, 3, 4)));
    /* Ends a wait: on_resume gets `result`. When the request is gone already, or the deadline
     * has passed, `drop` (NULL: nothing) gets it instead, on the worker's thread. */
    void (*resume)(struct postern_token token, void *result, void (*drop)(void *result));
    /* Calls run(worker, arg) on the thread of worker `index`. False: it ends, or no memory. */
    bool (*post)(unsigned index, void (*run)(struct postern_worker *w, void *arg), void *arg);
    /* Frees p once no hook can see it any more: every hook that runs now has returned. For what
     * workers read by an atomic pointer and somebody replaces. */
    void (*retire)(void *p, void (*free_it)(void *p));

    /* Within configure. */
    /* A fault with file and line: of value `i` of option number `option`; option < 0: of the
     * section. configure then returns false. */
    void (*fault)(struct postern_setup *s, int option, size_t i, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
    void (*warn)(struct postern_setup *s, int option, size_t i, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
    /* What stands around the section: "", "listener NAME" or "route NAME". */
    struct postern_str (*place)(const struct postern_setup *s);
    /* State that outlives a reload: the object of that name that this plugin has, or what
     * make(arg) gives. Freed when no configuration that asked for it lives. NULL: make gave
     * NULL. */
    void *(*shared)(struct postern_setup *s, const char *name, void *(*make)(void *arg),
                    void *arg, void (*free_it)(void *object));
    /* "http://HOST[:PORT]", "https://…" (verified), or the name of an upstream. NULL: a fault
     * was reported. Connections are pooled for each worker. */
    struct postern_origin *(*origin)(struct postern_setup *s, int option, size_t i,
                                     struct postern_str where);
    /* Calls on_change(instance, path) when the file changes, while the instance lives. */
    void (*follow)(struct postern_setup *s, const char *path);
    /* A counter: postern_plugin_NAME_total{plugin, place, …}. For count(); < 0: no memory. */
    int (*counter)(struct postern_setup *s, const char *name, const char *help);
    bool (*is_check)(const struct postern_setup *s); /* -t: nothing will run */

    /* With a worker. */
    unsigned (*worker_index)(const struct postern_worker *w);
    unsigned (*worker_count)(const struct postern_worker *w);
    void (*count)(struct postern_worker *w, int counter, uint64_t n);
    /* Calls run(worker, arg) once, `ms` from now. For cancel(); 0: no memory. */
    uint64_t (*timer)(struct postern_worker *w, uint32_t ms,
                      void (*run)(struct postern_worker *w, void *arg), void *arg);
    void (*cancel)(struct postern_worker *w, uint64_t timer); /* harmless when over */
    /* Calls done(worker, reply, arg) once, later; the reply lives for that call. */
    void (*call)(struct postern_worker *w, const struct postern_call *call,
                 void (*done)(struct postern_worker *w, const struct postern_reply *reply,
                              void *arg),
                 void *arg);
    /* Calls ready(worker, events, arg) while descriptor `fd` can be read or written, as
     * `events` (enum postern_watch bits) asks; again for the same fd: changes them, and 0 ends
     * it. False: no memory. */
    bool (*watch)(struct postern_worker *w, int fd, unsigned events,
                  void (*ready)(struct postern_worker *w, unsigned events, void *arg),
                  void *arg);

    /* With a request. */
    struct postern_worker *(*worker)(struct postern_request *r);
    struct postern_str (*get)(struct postern_request *r, enum postern_field field);
    unsigned (*status)(struct postern_request *r); /* response and log; 0: none yet */
    /* The client's address: 4 or 16 bytes in `out`, and how many; 0: a unix-domain peer. */
    unsigned (*address)(struct postern_request *r, uint8_t out[16]);
    /* The i-th value of that name; .p NULL: no such one. Header names in any case. */
    struct postern_str (*value)(struct postern_request *r, enum postern_part part,
                                struct postern_str name, size_t i);
    /* The i-th header of all; false: there are not so many. */
    bool (*header_at)(struct postern_request *r, enum postern_part part, size_t i,
                      struct postern_header *ret);
    /* Headers: set replaces all of that name, add leaves them. False: no token, no field value,
     * a field that frames the message, or no memory; nothing has changed. */
    bool (*set)(struct postern_request *r, enum postern_part part, struct postern_str name,
                struct postern_str value);
    bool (*add)(struct postern_request *r, enum postern_part part, struct postern_str name,
                struct postern_str value);
    /* Takes all of that name away from what the upstream or the client gets, and the log. */
    void (*remove)(struct postern_request *r, enum postern_part part, struct postern_str name);
    /* Who asks, for later plugins and the access log. Never a secret. False: no memory. */
    bool (*credential)(struct postern_request *r, struct postern_str name);
    /* Facts for later plugins: "scope", "consumer", "claim.sub"; .p NULL: unknown. */
    bool (*fact_set)(struct postern_request *r, struct postern_str name,
                     struct postern_str value);
    struct postern_str (*fact)(struct postern_request *r, struct postern_str name);
    void *(*alloc)(struct postern_request *r, size_t n); /* until the log hook; or NULL */
    /* One pointer for each request and instance, NULL at first. */
    void **(*slot)(struct postern_request *r);
    /* In on_request, on_resume: answers; return POSTERN_ANSWERED. A second call is ignored. */
    void (*answer)(struct postern_request *r, const struct postern_answer *answer);
    /* In on_request, on_resume: return POSTERN_WAIT, unless resume was called already. The
     * section's `deadline` runs from the first wait of an instance on. */
    struct postern_token (*wait)(struct postern_request *r);
    /* In body hooks: these bytes go on instead of those that came; copied. False: no memory. */
    bool (*body)(struct postern_request *r, struct postern_str bytes);
};

/* ---- the plugin ---- */

/* Earlier ones see the request first and the answer last. */
enum postern_order {
    POSTERN_ORDER_EDGE = 100,   /* cors: answers that need nobody's permission */
    POSTERN_ORDER_AUTH = 200,   /* finds out who asks */
    POSTERN_ORDER_ACCESS = 300, /* decides whether they may */
    POSTERN_ORDER_LIMIT = 400,  /* and how often */
    POSTERN_ORDER_LAST = 500,   /* works on what will be sent */
};

struct postern_reason {
    const char *name, *title; /* "auth.missing", "No credentials" */
};

/* Hooks that are NULL cost nothing. Every section has besides its own options `enabled`, and
 * with on_request or on_resume `fail = closed | open` and `deadline`. */
struct postern_plugin {
    size_t size;
    uint32_t abi_major, abi_minor; /* what it was built against */
    const char *name; /* its section's and its file's, without ".so"; [a-z][a-z0-9_]* */
    const char *version, *summary;
    const struct postern_option *options;
    size_t option_count, option_size;     /* option_size: sizeof(struct postern_option) */
    const struct postern_reason *reasons; /* all that it answers with */
    size_t reason_count;
    int order; /* enum postern_order, or between */

    /* Once, before anything else. False: it cannot work, and the log says why. */
    bool (*load)(const struct postern_api *api);
    /* A section of the configuration: `values`, one for each option. A new instance in
     * *ret_instance; false: fault() was called. Nothing may begin to run: start follows only if
     * the configuration takes effect. */
    bool (*configure)(struct postern_setup *s, const struct postern_values *values,
                      void **ret_instance);
    void (*discard)(void *instance);                     /* nobody uses it any more */
    void (*on_change)(void *instance, const char *path); /* of a followed file */
    /* On each worker, when the instance's configuration takes effect and when it is over. */
    void (*start)(void *instance, struct postern_worker *w);
    void (*stop)(void *instance, struct postern_worker *w);

    enum postern_verdict (*on_request)(void *instance, struct postern_request *r);
    enum postern_verdict (*on_resume)(void *instance, struct postern_request *r, void *result);
    /* While waiting: the client has gone or the deadline has passed. Told once. */
    void (*on_cancel)(void *instance, struct postern_request *r);
    void (*on_response)(void *instance, struct postern_request *r);
    /* When all is over, once for each request whose on_request was called. */
    void (*on_log)(void *instance, struct postern_request *r);
    /* A CORS preflight (OPTIONS with Origin and Access-Control-Request-Method) that no route
     * takes is offered here, as if it had the method it asks about. */
    enum postern_verdict (*on_preflight)(void *instance, struct postern_request *r);
    /* Bodies, piece by piece; `last` with an empty piece ends them. They end raw pass-through:
     * only what body() is given goes on. False: the message is broken. */
    bool (*on_request_body)(void *instance, struct postern_request *r, struct postern_str piece,
                            bool last);
    bool (*on_response_body)(void *instance, struct postern_request *r,
                             struct postern_str piece, bool last);
};

/* The one symbol of a plugin. */
extern POSTERN_EXPORT const struct postern_plugin postern_plugin;

#ifdef __cplusplus
}
#endif

#endif
