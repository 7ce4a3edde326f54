/* The names of what can go wrong: one table for the response, the log and the metrics.
 *
 * REASONS(X): X(symbol, status, name, title). The name never changes once released. Behind
 * ours stand those that plugins bring; the main thread adds them before a worker can see
 * their numbers, and never takes one away. */
#ifndef POSTERN_HTTP_REASON_H
#define POSTERN_HTTP_REASON_H

#include <stdint.h>

#define REASONS(X)                                                                             \
    X(NONE, 0, "", "")                                                                         \
    X(BAD_REQUEST_LINE, 400, "bad_request.line", "Malformed request line")                     \
    X(BAD_METHOD, 400, "bad_request.method", "Malformed method, or CONNECT")                   \
    X(BAD_TARGET, 400, "bad_request.target", "Malformed request target")                       \
    X(BAD_PATH, 400, "bad_request.path", "Ambiguous path")                                     \
    X(BAD_VERSION, 505, "bad_request.version", "HTTP version not supported")                   \
    X(BAD_LINE_ENDING, 400, "bad_request.line_ending", "Line does not end in CR LF")           \
    X(BAD_FIELD_NAME, 400, "bad_request.field_name", "Malformed field name")                   \
    X(BAD_FIELD_VALUE, 400, "bad_request.field_value", "Malformed field value")                \
    X(BAD_FOLDING, 400, "bad_request.folding", "Folded field line")                            \
    X(BAD_HOST, 400, "bad_request.host", "Missing, repeated or malformed Host")                \
    X(BAD_LENGTH, 400, "bad_request.content_length", "Malformed or repeated Content-Length")   \
    X(BAD_FRAMING, 400, "bad_request.framing",                                                 \
      "Content-Length together with Transfer-Encoding")                                        \
    X(BAD_CODING, 501, "bad_request.coding", "Transfer coding not implemented")                \
    X(BAD_TRANSFER, 400, "bad_request.transfer_encoding", "Malformed Transfer-Encoding")       \
    X(BAD_CHUNK, 400, "bad_request.chunk", "Malformed chunk")                                  \
    X(BAD_TRAILER, 400, "bad_request.trailer", "Malformed trailer field")                      \
    X(BAD_CONNECTION, 400, "bad_request.connection", "Connection names a protected field")     \
    X(BAD_UPGRADE, 400, "bad_request.upgrade", "Malformed Upgrade")                            \
    X(BAD_TLS, 400, "bad_request.tls", "TLS on a plain HTTP port")                             \
    X(BAD_PLAIN, 400, "bad_request.plain_http", "Plain HTTP on a TLS port, speak https here")  \
    X(BAD_HTTP2, 400, "bad_request.http2", "HTTP/2 preface on an HTTP/1 listener")             \
    X(BAD_FIELDS, 400, "bad_request.fields", "Fields that HTTP/2 does not allow")              \
    X(BAD_FRAMES, 400, "bad_request.frames", "HTTP/2 protocol violated")                       \
    X(CLIENT_FLOOD, 499, "client.flood", "HTTP/2 frames that serve no purpose, or attack")     \
    X(CLIENT_TIMEOUT_HEAD, 408, "client.timeout_head", "Request head took too long")           \
    X(CLIENT_TIMEOUT_BODY, 408, "client.timeout_body", "Request body took too long")           \
    X(CLIENT_TIMEOUT_WRITE, 499, "client.timeout_write", "Client does not read the answer")    \
    X(CLIENT_BODY_TOO_LARGE, 413, "client.body_too_large", "Request body too large")           \
    X(CLIENT_TARGET_TOO_LONG, 414, "client.target_too_long", "Request target too long")        \
    X(CLIENT_HEADERS_TOO_LARGE, 431, "client.headers_too_large", "Request headers too large")  \
    X(CLIENT_EXPECT, 417, "client.expect", "Unknown expectation")                              \
    X(CLIENT_MISDIRECTED, 421, "client.misdirected",                                           \
      "Host is not covered by this connection's certificate")                                  \
    X(CLIENT_TOO_EARLY, 425, "client.too_early", "Not to be asked for in early data")          \
    X(CLIENT_ABORT, 499, "client.abort", "Client went away")                                   \
    X(ROUTE_NONE, 404, "route.none", "No route matches")                                       \
    X(ROUTE_METHOD, 405, "route.method", "Method not allowed")                                 \
    X(UPSTREAM_CONNECT, 502, "upstream.connect", "Cannot connect to the backend")              \
    X(UPSTREAM_RESET, 502, "upstream.reset", "Backend closed the connection")                  \
    X(UPSTREAM_PROTOCOL, 502, "upstream.protocol", "Backend sent a malformed answer")          \
    X(UPSTREAM_WEBSOCKET, 502, "upstream.websocket", "Backend takes no WebSockets")            \
    X(UPSTREAM_NONE, 503, "upstream.none", "No backend available")                             \
    X(UPSTREAM_OVERFLOW, 503, "upstream.overflow", "Too many requests wait for the backend")   \
    X(DRAINING, 503, "draining", "The gateway is shutting down")                               \
    X(NO_MEMORY, 503, "gateway.memory", "The gateway is out of memory")                        \
    X(PLUGIN_FAILED, 503, "plugin.failed", "A plugin cannot do its work")                      \
    X(PLUGIN_TIMEOUT, 503, "plugin.timeout", "A plugin took too long")                         \
    X(UPSTREAM_TIMEOUT_CONNECT, 504, "upstream.timeout_connect",                               \
      "Connecting to the backend took too long")                                               \
    X(UPSTREAM_TIMEOUT_RESPONSE, 504, "upstream.timeout_response",                             \
      "Backend did not answer in time")                                                        \
    X(UPSTREAM_TIMEOUT_IDLE, 504, "upstream.timeout_idle", "Backend stopped sending")          \
    X(UPSTREAM_TIMEOUT_TOTAL, 504, "upstream.timeout_total", "Request took too long")

enum reason {
#define X(symbol, status, name, title) R_##symbol,
    REASONS(X)
#undef X
        REASON_COUNT
};

struct reason_text {
    uint16_t status;
    const char *name, *title;
};
#define REASON_MAX (REASON_COUNT + 256)
extern struct reason_text reason_texts[REASON_MAX];

/* The number of a reason of that name, added where there is none; its answers have statuses of
 * their own. R_NONE: no name ([a-z0-9_.], at most 63 bytes), a title that cannot be shown, too
 * many of them, or no memory. Main thread. */
enum reason reason_add(const char *name, const char *title);

#endif
