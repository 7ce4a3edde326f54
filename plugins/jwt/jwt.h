/* One section of the plugin jwt: what configure made of it, and what each worker keeps. */
#ifndef JWT_JWT_H
#define JWT_JWT_H

#include <stdatomic.h>

#include "grant.h"
#include "jwks.h"
#include "memo/memo.h"

/* What one worker has of an instance. */
struct jwt_desk {
    struct memo *cache; /* of grants, by tokens that verified; NULL: none */
    struct jwks_user user;
    struct jwks_seat *seat; /* NULL: keys come from no URL */
};

struct jwt_desks {
    unsigned count;
    struct jwt_desk desks[];
};

struct jwt {
    bool allowed[ALG_COUNT];
    struct postern_str header, query, cookie; /* where a token may be; .p NULL: nowhere */
    bool header_is_bearer;                    /* "Authorization: Bearer" */
    bool forward_token, optional;
    struct postern_str type;      /* .p NULL: any */
    struct postern_str challenge; /* of RFC 6750 3, without parameters that say what is wrong */
    const char *scope_text;
    size_t token_bytes, cache_entries;
    uint32_t wait_ms;

    struct claims_rules rules;
    struct grant_rules grants;
    struct grant_pair *headers, *facts;

    /* Keys from a file or a secret: replaced as a whole by the main thread. */
    _Atomic(struct keyset *) keys;
    const char *file; /* NULL: they are from no file */
    enum jwt_keys { KEYS_PEM, KEYS_JSON, KEYS_SECRET_FILE, KEYS_SECRET, KEYS_URL } from;

    struct jwks *jwks; /* KEYS_URL: shared by the gateway, not ours to free */
    struct jwks_plan plan;

    _Atomic(struct jwt_desks *) desks; /* made by the first worker that starts */
    struct note *notes;                /* owns the texts */
};

#define JWT_OPTIONS 32
extern const struct postern_option jwt_options[JWT_OPTIONS];

/* For the plugin's table. `api` must be set before: jwt_options_use(). */
void jwt_options_use(const struct postern_api *api);
bool jwt_configure(struct postern_setup *s, const struct postern_values *values,
                   void **ret_instance);
void jwt_discard(void *instance);

/* The keys of the section's file, or of a secret (jwt_keys.c). NULL: *ret_wrong says why, as
 * the end of a sentence. */
struct keyset *jwt_read_keys(const struct jwt *jwt, const char **ret_wrong);
struct keyset *jwt_secret_keys(struct postern_str secret, const char **ret_wrong);
/* Whether a key can be used with one of the algorithms. */
bool jwt_keys_serve(const struct jwt *jwt, const struct keyset *keys);

#endif
