/* The head of a message: one neutral form for requests and responses of every HTTP version.
 *
 * All spans point into memory that outlives the head (the exchange's arena). Framing fields
 * (Content-Length, Transfer-Encoding) are not among `fields`: the codec that reads turns them
 * into `framing` and `length`, and the codec that writes makes them anew, so that nobody's
 * framing bytes are ever copied. Used on one thread at a time. */
#ifndef POSTERN_HTTP_HEAD_H
#define POSTERN_HTTP_HEAD_H

#include "base/mem.h"
#include "http/reason.h"

/* Fields that the gateway itself looks at. FIELDS(X): X(symbol, lower-case name). */
#define FIELDS(X)                                                                              \
    X(HOST, "host")                                                                            \
    X(CONNECTION, "connection")                                                                \
    X(CONTENT_LENGTH, "content-length")                                                        \
    X(TRANSFER_ENCODING, "transfer-encoding")                                                  \
    X(KEEP_ALIVE, "keep-alive")                                                                \
    X(PROXY_CONNECTION, "proxy-connection")                                                    \
    X(TE, "te")                                                                                \
    X(TRAILER, "trailer")                                                                      \
    X(UPGRADE, "upgrade")                                                                      \
    X(HTTP2_SETTINGS, "http2-settings")                                                        \
    X(EXPECT, "expect")                                                                        \
    X(DATE, "date")                                                                            \
    X(SERVER, "server")                                                                        \
    X(VIA, "via")                                                                              \
    X(ACCEPT, "accept")                                                                        \
    X(CONTENT_TYPE, "content-type")                                                            \
    X(CONTENT_ENCODING, "content-encoding")                                                    \
    X(USER_AGENT, "user-agent")                                                                \
    X(AUTHORIZATION, "authorization")                                                          \
    X(PROXY_AUTHORIZATION, "proxy-authorization")                                              \
    X(PROXY_AUTHENTICATE, "proxy-authenticate")                                                \
    X(COOKIE, "cookie")                                                                        \
    X(LOCATION, "location")                                                                    \
    X(FORWARDED, "forwarded")                                                                  \
    X(X_FORWARDED_FOR, "x-forwarded-for")                                                      \
    X(X_FORWARDED_PROTO, "x-forwarded-proto")                                                  \
    X(X_FORWARDED_HOST, "x-forwarded-host")                                                    \
    X(X_SSL_CLIENT_S_DN, "x-ssl-client-s-dn")                                                  \
    X(X_REQUEST_ID, "x-request-id")                                                            \
    X(X_REQUEST_DEADLINE_MS, "x-request-deadline-ms")                                          \
    X(TRACEPARENT, "traceparent")                                                              \
    X(TRACESTATE, "tracestate")

enum field_id {
    F_OTHER,
#define X(symbol, name) F_##symbol,
    FIELDS(X)
#undef X
        FIELD_COUNT
};

struct field {
    struct str name, value; /* value without surrounding blanks */
    enum field_id id;
    /* Name and value were checked where they were read: the writer need not look again. */
    bool checked;
    /* They stand in memory as a whole line, "name: value" CR LF, or did before an edit. */
    bool line;
};

/* Methods the gateway knows; others pass as M_OTHER. METHODS(X): X(name). */
#define METHODS(X)                                                                             \
    X(GET) X(HEAD) X(POST) X(PUT) X(DELETE) X(OPTIONS) X(PATCH) X(TRACE) X(CONNECT)

enum method {
    M_OTHER,
#define X(name) M_##name,
    METHODS(X)
#undef X
        METHOD_COUNT
};

enum framing {
    FRAMING_NONE,   /* no body by rule or absence (RFC 9112 6.3) */
    FRAMING_LENGTH, /* exactly `length` bytes, which may be 0 */
    FRAMING_CHUNKED,
    FRAMING_CLOSE, /* a response that ends with its connection */
};

struct head {
    struct field *fields;
    uint32_t count, cap; /* cap: room in `fields`, from the arena */
    uint64_t present;    /* a bit for each field_id that is, or was, among them */

    enum framing framing;
    bool has_length; /* Content-Length was there, also on an answer without body (HEAD, 304) */
    uint64_t length; /* with has_length */

    uint8_t minor;   /* 0 or 1: the HTTP/1 minor version; 1 for HTTP/2 */
    bool h2;         /* it came by HTTP/2 */
    bool keep_alive; /* this message lets its connection live on (RFC 9112 9.3) */

    /* request */
    enum method method;
    bool expect_continue;   /* Expect: 100-continue from a 1.1 client */
    bool secure;            /* an absolute target of HTTP/1 says https */
    struct str method_text; /* as it came */
    struct str target;      /* as it came: origin-, absolute- or asterisk-form */
    struct str authority;   /* host[:port] that counts: the absolute target's, else Host's */
    struct str path;    /* of the target, as it came, without query; "*" for asterisk-form */
    struct str query;   /* without "?"; .p NULL: none (an empty one has .p set) */
    struct str upgrade; /* Upgrade's value when Connection names it; .p NULL: none */

    /* response */
    uint16_t status;
    struct str reason_phrase; /* may be empty */
};

enum field_id field_id_of(struct str name);       /* any case */
extern const struct str field_names[FIELD_COUNT]; /* canonical spelling: "X-Request-Id" */
enum method method_of(struct str name);           /* case matters (RFC 9110 9.1) */
extern const struct str method_names[METHOD_COUNT];
/* Whether sending it twice has the effect of once (RFC 9110 9.2.2). */
bool method_is_idempotent(enum method method);

/* The first field with that id, or NULL. */
struct field *head_find(const struct head *head, enum field_id id);
/* The first field with that name, any case, or NULL. */
struct field *head_find_name(const struct head *head, struct str name);
/* Takes all fields of that name away, keeping the others' order; returns how many. */
unsigned head_remove_name(struct head *head, struct str name);
/* Appends. Spans are kept, not copied. 0 or -ENOMEM. */
int head_add(struct head *head, struct arena *arena, struct str name, struct str value);
int head_add_id(struct head *head, struct arena *arena, enum field_id id, struct str value);
/* As head_add_id, for a value that is text for certain: ours, or checked where it was read. */
int head_add_text(struct head *head, struct arena *arena, enum field_id id, struct str value);
/* Removes all of that name, then appends. 0 or -ENOMEM. */
int head_set(struct head *head, struct arena *arena, struct str name, struct str value);

/* Takes away what must not cross a hop (RFC 9110 7.6.1): Connection, what it names,
 * Keep-Alive, Proxy-Connection, TE, Transfer-Encoding, Upgrade, HTTP2-Settings, Proxy-Auth*
 * stay as RFC 9110 11.7 says: Proxy-Authorization is dropped. Fields that must survive
 * whatever Connection says (Host, Content-Length, Authorization, X-Forwarded-*, …) make it
 * return R_BAD_CONNECTION with nothing removed; R_NONE otherwise. A Trailer field that
 * announces one which head_is_wrong_in_trailer goes, too. */
enum reason head_strip_hop(struct head *head);

/* Whether head_strip_hop takes fields of that id away, whatever Connection says. */
bool head_is_hop(enum field_id id);

/* Fields that frame a message or belong to one connection are the codec's alone: who adds,
 * takes or changes one does nothing, or splits messages. */
bool head_is_codecs(enum field_id id);

/* Grammar, one rule set for heads of all versions. */
bool head_is_token(struct str s);       /* RFC 9110 5.6.2, at least one byte */
bool head_is_field_value(struct str s); /* HTAB, SP, VCHAR, obs-text; nothing else */
/* uri-host [":" port] (RFC 9110 7.2): reg-name of the usual bytes, IPv4, or [IPv6]; no
 * userinfo, no path, no empty label but behind a last dot. Empty is not valid. */
bool head_is_authority(struct str s);
/* The host of an authority as hosts are compared: lower case, without port and last dot, an
 * IPv6 address as RFC 5952 has it. 0 or -ENOMEM. */
int head_host(struct str authority, struct arena *arena, struct str *ret);
/* Fields that frame, route, authenticate or steer are dropped from trailers (RFC 9110 6.5.1).
 * Names are compared with "_" and "." read as "-", as CGI and its heirs do. */
bool head_is_wrong_in_trailer(struct str name);

#endif
