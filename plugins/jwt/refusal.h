/* Why a request with a token is refused: what the client, the log and a program get to read. */
#ifndef JWT_REFUSAL_H
#define JWT_REFUSAL_H

#include "span.h"

/* JWT_REASONS(X): X(symbol, reason, title) */
#define JWT_REASONS(X)                                                                         \
    X(MISSING, "auth.missing", "No credentials")                                               \
    X(MULTIPLE, "auth.multiple", "More than one credential")                                   \
    X(INVALID, "auth.invalid", "Invalid token")                                                \
    X(ALGORITHM, "auth.algorithm", "Algorithm not allowed")                                    \
    X(KEY_UNKNOWN, "auth.key_unknown", "Unknown key")                                          \
    X(SIGNATURE, "auth.signature", "Wrong signature")                                          \
    X(EXPIRED, "auth.expired", "Expired credentials")                                          \
    X(NOT_YET, "auth.not_yet", "Token not valid yet")                                          \
    X(ISSUER, "auth.issuer", "Wrong issuer")                                                   \
    X(AUDIENCE, "auth.audience", "Wrong audience")                                             \
    X(CLAIM, "auth.claim", "Required claim missing")                                           \
    X(SCOPE, "auth.scope", "Insufficient scope")                                               \
    X(KEYS_UNAVAILABLE, "auth.keys_unavailable", "Keys not available")

enum jwt_reason {
#define X(symbol, reason, title) REASON_##symbol,
    JWT_REASONS(X)
#undef X
        REASON_COUNT
};

extern const struct postern_reason jwt_reasons[REASON_COUNT];

/* REFUSALS(X): X(symbol, status, reason, error of RFC 6750 3.1 or NULL, sentence) */
#define REFUSALS(X)                                                                            \
    X(MISSING, 401, MISSING, NULL, "A bearer token is needed.")                                \
    X(MULTIPLE, 401, MULTIPLE, "invalid_request",                                              \
      "The request carries more than one credential.")                                         \
    X(TOO_LONG, 401, INVALID, "invalid_token", "The token is too long.")                       \
    X(FORM, 401, INVALID, "invalid_token",                                                     \
      "The token is no signed JSON Web Token in compact form.")                                \
    X(HEADER, 401, INVALID, "invalid_token", "The token's header is not valid.")               \
    X(CRITICAL, 401, INVALID, "invalid_token",                                                 \
      "The token's header has extensions that are critical and not understood.")               \
    X(TYPE, 401, INVALID, "invalid_token", "The token is of another type.")                    \
    X(ALGORITHM, 401, ALGORITHM, "invalid_token", "The token's algorithm is not allowed.")     \
    X(KEY_UNKNOWN, 401, KEY_UNKNOWN, "invalid_token",                                          \
      "The token is signed with a key that is not known.")                                     \
    X(SIGNATURE, 401, SIGNATURE, "invalid_token", "The token's signature is wrong.")           \
    X(PAYLOAD, 401, INVALID, "invalid_token", "The token's claims are not valid.")             \
    X(NO_EXPIRY, 401, INVALID, "invalid_token", "The token has no expiry.")                    \
    X(EXPIRED, 401, EXPIRED, "invalid_token", "The token has expired.")                        \
    X(NOT_YET, 401, NOT_YET, "invalid_token", "The token is not valid yet.")                   \
    X(ISSUER, 401, ISSUER, "invalid_token", "The token is from another issuer.")               \
    X(AUDIENCE, 401, AUDIENCE, "invalid_token", "The token is for another audience.")          \
    X(VALUE, 401, INVALID, "invalid_token", "A claim of the token cannot be passed on.")       \
    X(CLAIM, 403, CLAIM, "insufficient_scope", "The token lacks a claim that is required.")    \
    X(SCOPE, 403, SCOPE, "insufficient_scope", "The token lacks a scope that is required.")    \
    X(KEYS, 503, KEYS_UNAVAILABLE, NULL, "The keys to check tokens with are not available.")   \
    X(MEMORY, 503, KEYS_UNAVAILABLE, NULL, "There is no memory.")

enum refusal {
    REFUSAL_NONE,
#define X(symbol, status, reason, error, sentence) REFUSAL_##symbol,
    REFUSALS(X)
#undef X
        REFUSAL_COUNT
};

struct refusal_info {
    unsigned status;
    const char *reason, *error, *sentence;
};

extern const struct refusal_info refusal_info[REFUSAL_COUNT];

#endif
