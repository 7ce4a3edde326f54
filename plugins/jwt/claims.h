/* What a token's claims must say (RFC 7519 4.1, RFC 8693 4.2). Rules are made by configure and
 * do not change; any thread. */
#ifndef JWT_CLAIMS_H
#define JWT_CLAIMS_H

#include "bounded.h"
#include "refusal.h"

struct claims_rule {
    struct postern_str path, value; /* value .p NULL: it only has to be there */
};

struct claims_list {
    struct postern_str *list;
    size_t count;
};

struct claims_rules {
    struct claims_list issuers, audiences; /* one of them, if there are any */
    struct claims_list scopes;             /* all of them */
    struct claims_rule *required;
    size_t required_count;
    uint64_t leeway_ms;
    bool expiry_required;
};

/* *ret_expires_ms: from then on the token is too old, leeway included; UINT64_MAX: never. */
enum refusal claims_check(const struct claims_rules *rules, const json_t *claims,
                          uint64_t now_ms, uint64_t *ret_expires_ms);

/* The claim of that name, or along a path: "realm_access.roles". Names with dots in them win.
 * NULL: there is none, or it is null. */
const json_t *claims_find(const json_t *claims, struct postern_str path);

/* A claim as text: a string as it is, a number, true and false as JSON has them, and so lists
 * and objects, in ASCII. `*ret_own` is what to free(), or NULL. .p NULL: no memory. */
struct postern_str claims_text(const json_t *claim, char **ret_own);

/* The scopes, one blank between each two: "scope" as text, or "scope" or "scp" as a list.
 * .p NULL: there are none. *ret_own as above. */
struct postern_str claims_scope(const json_t *claims, char **ret_own);

#endif
