/* What a good token gives to its request: headers, who asks, and facts for later plugins. Made
 * once for each token, kept in the token cache, applied to any number of requests. Owns all of
 * its text in one block. */
#ifndef JWT_GRANT_H
#define JWT_GRANT_H

#include "claims.h"

#define GRANT_VALUE_BYTES 4096 /* of a header */

struct grant_pair {
    struct postern_str claim, name; /* "realm_access.roles", "X-Roles" or "claim.roles" */
};

struct grant_rules {
    const struct grant_pair *headers, *facts;
    size_t header_count, fact_count;
    struct postern_str credential; /* the claim that says who asks */
};

struct grant;

/* REFUSAL_NONE, VALUE (a claim that is to be a header's value can be none) or MEMORY. */
enum refusal grant_new(const struct grant_rules *rules, const json_t *claims,
                       struct grant **ret);
void grant_free(struct grant *grant); /* NULL is fine */

/* A header whose claim is not there is removed, so that nobody can bring his own. With `grant`
 * NULL: all of them are. False: no memory. */
bool grant_apply(const struct grant *grant, const struct grant_rules *rules,
                 const struct postern_api *api, struct postern_request *r);

#endif
