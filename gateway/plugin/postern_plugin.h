/* The interface between postern and its plugins: all of it. A plugin is a shared object that
 * includes this header alone and exports one symbol, `postern_plugin`; see plugins/example.
 *
 * Structs that may grow begin with their size and grow only at their end; what is behind the
 * size of the other side is not there. The gateway refuses a plugin of another major version.
 * Views (postern_str) are not NUL-terminated and belong to whom they came from: what a
 * request gives lives until its log hook has returned, what configure gets until it returns;
 * text given to the gateway is copied.
 *
 * load, configure, discard and on_change run on the main thread, everything with a request or a
 * worker on that worker's, many at once: what they share is the plugin's to protect, with
 * atomics rather than locks. A hook must not block: one that holds its worker longer than 10 ms
 * is named in the error log. */
#ifndef POSTERN_PLUGIN_H
#define POSTERN_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTERN_ABI_MAJOR 1
#define POSTERN_ABI_MINOR 2
#define POSTERN_EXPORT    __attribute__((visibility("default")))
#define POSTERN_LIKE(f)   __attribute__((format(printf, f, (f) + 1)))

typedef struct postern_request postern_request; /* with its answer, until it was logged */
typedef struct postern_worker postern_worker;   /* one event loop and its thread */
typedef struct postern_setup postern_setup;     /* a configuration being read; in configure */
typedef struct postern_origin postern_origin;   /* where calls go; as long as the instance */
struct postern_plugin;
/* clang-format off */
typedef struct postern_str { const char *p; size_t n; } postern_str;
typedef struct postern_header { postern_str name, value; } postern_header;
struct postern_token { uint64_t id[2]; }; /* where a request waits; harmless when it is over */

/* ---- options: from these come the grammar, the checks of -t, --help-plugin and -T ---- */
enum postern_type {
    POSTERN_BOOL = 1, POSTERN_NUMBER, /* min to max */
    POSTERN_SIZE, POSTERN_TIME,       /* bytes: "16k"; milliseconds: "250ms" */
    POSTERN_SHARE,  /* thousandths: "20%" is 200 */
    POSTERN_RATE,   /* "100/s": number is 100, per_ms is 1000 */
    POSTERN_TEXT,   /* not empty, no control bytes */
    POSTERN_WORD,   /* one of `words`: number is its index */
    POSTERN_FILE,   /* text is an absolute path, taken relative to the file that names it */
    POSTERN_SECRET, /* text that -T masks */
    POSTERN_TOKEN,  /* an RFC 9110 token: a header's or cookie's name */
};
/* clang-format on */

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
    bool given; /* in the file; false: the default */
    int64_t number, per_ms;
    postern_str text; /* as checked; NUL-terminated for once */
};

/* One option's values; `count` is 1 where it is no list, and 0 without value and default. */
struct postern_values {
    size_t size; /* of this struct */
    const struct postern_value *list;
    size_t count;
};

/* ---- requests ---- */
enum postern_verdict {
    POSTERN_GO_ON = 0,
    POSTERN_ANSWERED, /* answer() was called: no later plugin and no upstream is asked */
    POSTERN_WAIT,     /* wait() was called; on_resume follows, or on_cancel */
    POSTERN_FAILED,   /* the plugin cannot do its work now: its section's `fail` decides */
};

/* Earlier ones see the request first and the answer last: answers that need nobody's permission
 * (cors), who asks, whether they may, how often, and work on what will be sent. */
/* clang-format off */
enum postern_order {
    POSTERN_ORDER_EDGE = 100, POSTERN_ORDER_AUTH = 200, POSTERN_ORDER_ACCESS = 300,
    POSTERN_ORDER_LIMIT = 400, POSTERN_ORDER_LAST = 500
};

/* What a request can be asked for by get(). .p is NULL where there is none. */
enum postern_field {
    POSTERN_METHOD = 1, POSTERN_SCHEME, POSTERN_PROTOCOL, POSTERN_CLIENT_IP, POSTERN_REQUEST_ID,
    POSTERN_HOST,                   /* lower case, without a port */
    POSTERN_PATH,                   /* in normal form: decide by this one */
    POSTERN_TARGET, POSTERN_QUERY,  /* as they came, but for parameters that were removed */
    POSTERN_LISTENER, POSTERN_UPSTREAM,
    POSTERN_ROUTE,                  /* NULL: none matched, and the request will be refused */
    POSTERN_CREDENTIAL,             /* who asks, as an earlier plugin found out */
    POSTERN_TLS_SUBJECT,            /* of the client's verified certificate, RFC 4514 */
    POSTERN_REASON,                 /* why the gateway or a plugin answered; NULL: it did not */
    POSTERN_AUTHORITY               /* since 1.2: host[:port], as the client has it */
};
/* clang-format on */

/* Where in a request a value stands. A header of the answer can be set before there is one: it
 * is kept for whatever answer comes, the gateway's own included. */
enum postern_part {
    POSTERN_HEADER = 1, /* of the request, on its way to the upstream */
    POSTERN_PARAMETER,  /* of the query, decoded */
    POSTERN_COOKIE,
    POSTERN_ANSWER_HEADER,
};

/* An answer of the plugin's own: application/problem+json (or what the client asked for, or a
 * gRPC status) made of reason and detail, unless there is a body. */
struct postern_answer {
    size_t size;
    unsigned status;    /* 200 to 599 */
    const char *reason; /* of the plugin's `reasons`; NULL: no refusal, and no problem */
    postern_str detail; /* a sentence for the client: no secret, nothing unchecked */
    postern_str type, body;
    uint64_t limit, actual; /* where a limit was met; both 0: none */
    const postern_header *headers;
    size_t header_count;
};

/* An HTTP request that a plugin makes. */
struct postern_call {
    size_t size;
    postern_origin *origin;
    postern_str method, target;    /* target begins with "/" */
    const postern_header *headers; /* without Host and Content-Length */
    size_t header_count;
    postern_str body;
    uint32_t deadline_ms; /* for all of it; 1 or more */
    size_t max_bytes;     /* of the answer's body; a larger one is a failure */
};

struct postern_reply {
    size_t size;
    unsigned status;               /* 0: it failed */
    const char *failure;           /* then: why, as a sentence */
    const postern_header *headers; /* names in lower case */
    size_t header_count;
    postern_str body;
};

enum postern_level { POSTERN_DEBUG, POSTERN_INFO, POSTERN_WARN, POSTERN_ERROR };
enum postern_watch { POSTERN_READ = 1, POSTERN_WRITE = 2 };

typedef void postern_say(postern_setup *s, int option, size_t i, const char *fmt, ...)
    POSTERN_LIKE(4);
typedef void postern_run(postern_worker *w, void *arg);
typedef void postern_done(postern_worker *w, const struct postern_reply *reply, void *arg);
typedef void postern_ready(postern_worker *w, unsigned events, void *arg);
typedef bool postern_put(postern_request *r, enum postern_part part, postern_str name,
                         postern_str value);

/* ---- what the gateway does for a plugin ---- */
struct postern_api {
    size_t size;
    uint32_t abi_major, abi_minor;
    const char *version; /* of the gateway */
    /* Any thread. */
    uint64_t (*now_ns)(void);  /* monotonic */
    uint64_t (*wall_ms)(void); /* since 1970 */
    void (*log)(const struct postern_plugin *plugin, enum postern_level level, const char *fmt,
                ...) POSTERN_LIKE(3);
    /* Ends a wait: on_resume gets `result`, soon. When the request is gone or the deadline has
     * passed, drop (NULL: nothing) gets it instead, on any thread. */
    void (*resume)(struct postern_token token, void *result, void (*drop)(void *result));
    /* Calls run(worker, arg) on the thread of worker `index`. False: it ends, or no memory. */
    bool (*post)(unsigned index, postern_run *run, void *arg);
    /* Frees p, on any thread, once every hook that runs now has returned. */
    void (*retire)(void *p, void (*free_it)(void *p));
    /* Within configure. fault and warn: about value `i` of option number `option`, or with
     * option < 0 about the section; after a fault configure returns false. */
    postern_say *fault, *warn;
    /* What stands around the section: "", "listener NAME" or "route NAME". */
    postern_str (*place)(const postern_setup *s);
    /* State that outlives a reload: this plugin's object of that name, or what make(arg) gives;
     * freed when no configuration that asked for it lives. */
    void *(*shared)(postern_setup *s, const char *name, void *(*make)(void *arg), void *arg,
                    void (*free_it)(void *object));
    /* "http://HOST[:PORT]", "https://…" (verified), or an upstream's name. NULL: a fault. */
    postern_origin *(*origin)(postern_setup *s, int option, size_t i, postern_str where);
    /* Calls on_change(instance, path) when the file has changed; before the file is read. */
    void (*follow)(postern_setup *s, const char *path);
    /* A counter postern_plugin_NAME_total{plugin, place}, for count(); < 0: no memory. */
    int (*counter)(postern_setup *s, const char *name, const char *help);
    bool (*is_check)(const postern_setup *s); /* -t: nothing will run */
    /* With a worker. */
    unsigned (*worker_index)(const postern_worker *w);
    unsigned (*worker_count)(const postern_worker *w);
    void (*count)(postern_worker *w, int counter, uint64_t n);
    /* Calls run once, `ms` from now. For cancel(), harmless when over; 0: no memory. */
    uint64_t (*timer)(postern_worker *w, uint32_t ms, postern_run *run, void *arg);
    void (*cancel)(postern_worker *w, uint64_t timer);
    /* Calls done once, later (at once only for want of memory); the reply lives that long. */
    void (*call)(postern_worker *w, const struct postern_call *call, postern_done *done,
                 void *arg);
    /* Calls ready while fd can do what `events` (postern_watch bits) asks. Again for the same
     * fd: changes them; 0 ends it, before fd is closed. */
    bool (*watch)(postern_worker *w, int fd, unsigned events, postern_ready *ready, void *arg);
    /* With a request. */
    postern_worker *(*worker)(postern_request *r);
    postern_str (*get)(postern_request *r, enum postern_field field);
    unsigned (*status)(postern_request *r); /* of the answer; 0: none yet */
    /* The client's address: 4 or 16 bytes, and how many; 0: a unix-domain peer. */
    unsigned (*address)(postern_request *r, uint8_t out[16]);
    /* The i-th value of that name (headers: in any case), .p NULL: there are fewer; the i-th of
     * all headers, false: so too. */
    postern_str (*value)(postern_request *r, enum postern_part part, postern_str name,
                         size_t i);
    bool (*header_at)(postern_request *r, enum postern_part part, size_t i,
                      postern_header *ret);
    /* Headers: set replaces all of that name, add leaves them. False: no token, no field value,
     * a field that frames the message or is the gateway's own, or no memory. */
    postern_put *set, *add;
    /* Takes all of that name away from what the upstream or the client gets, and the log. */
    void (*remove)(postern_request *r, enum postern_part part, postern_str name);
    /* Who asks, for later plugins and the access log, never a secret; facts for later plugins:
     * "scope", "consumer", "claim.sub", .p NULL: unknown. False: no memory. */
    bool (*credential)(postern_request *r, postern_str name);
    bool (*fact_set)(postern_request *r, postern_str name, postern_str v);
    postern_str (*fact)(postern_request *r, postern_str name);
    void *(*alloc)(postern_request *r, size_t n); /* until the log hook; or NULL */
    void **(*slot)(postern_request *r); /* one pointer of this instance's, NULL first */
    /* In on_request, on_resume, on_preflight; the first one counts. */
    void (*answer)(postern_request *r, const struct postern_answer *answer);
    /* In on_request, on_resume, before it returns POSTERN_WAIT; resume may be called earlier.
     * The section's `deadline` runs from the first wait of an instance on. */
    struct postern_token (*wait)(postern_request *r);
    /* In body hooks: these bytes go on instead of those that came. False: no memory. */
    bool (*body)(postern_request *r, postern_str bytes);
    /* Since 1.1. With a section: a parameter of queries that may carry a credential. No log
     * shows its value, whatever becomes of the request. False: no memory. */
    bool (*secret_parameter)(postern_setup *s, postern_str name);
    /* Since 1.2. Any thread: whether set and add take a header of that name there. */
    bool (*may_put)(enum postern_part part, postern_str name);
};

/* ---- the plugin ---- */
struct postern_reason {
    const char *name, *title; /* "auth.missing", "No credentials" */
};

typedef enum postern_verdict postern_decide(void *instance, postern_request *r);
typedef void postern_turn(void *instance, postern_worker *w);
typedef void postern_hear(void *instance, postern_request *r);
typedef bool postern_pass(void *instance, postern_request *r, postern_str piece, bool last);

/* Hooks that are NULL cost nothing. Every section has besides its own options `enabled`, `fail
 * = closed | open` and `deadline`. */
struct postern_plugin {
    size_t size;
    uint32_t abi_major, abi_minor;        /* what it was built against */
    const char *name, *version, *summary; /* name: of section and file, [a-z][a-z0-9_]* */
    const struct postern_option *options;
    size_t option_count, option_size; /* the latter: sizeof(struct postern_option) */
    const struct postern_reason *reasons;
    size_t reason_count;
    int order;                                   /* enum postern_order, or between */
    bool (*load)(const struct postern_api *api); /* once, first; false: it said why */
    /* A section, with `values` for each option: a new instance. False: fault() was called.
     * Nothing may begin to run: start follows only if the configuration takes effect. */
    bool (*configure)(postern_setup *s, const struct postern_values *values,
                      void **ret_instance);
    void (*discard)(void *instance);                     /* nobody uses it any more */
    void (*on_change)(void *instance, const char *path); /* of a followed file */
    /* On each worker, when the instance's configuration takes effect and when it is over. */
    postern_turn *start, *stop;
    postern_decide *on_request;
    enum postern_verdict (*on_resume)(void *instance, postern_request *r, void *result);
    /* While waiting: the client has gone or the deadline has passed. Told once. */
    postern_hear *on_cancel;
    /* For requests whose on_request (on_preflight) was called, or if there is none: once before
     * the answer's head goes out, the gateway's own too, and once when all is over. */
    postern_hear *on_response, *on_log;
    /* A CORS preflight (OPTIONS with Origin and Access-Control-Request-Method) that no route
     * takes: offered here instead, at the place of the method that it asks about. */
    postern_decide *on_preflight;
    /* Bodies, piece by piece; `last` with an empty piece ends them. They end raw pass-through:
     * only what body() is given goes on. False: the message is broken. */
    postern_pass *on_request_body, *on_response_body;
};

extern POSTERN_EXPORT const struct postern_plugin postern_plugin; /* the one symbol */

#ifdef __cplusplus
}
#endif

#endif
