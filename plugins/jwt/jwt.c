/* The plugin jwt: lets through who brings a good token (RFC 6750, RFC 7519). */
#include "jwt.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "signature.h"
#include "token.h"

/* Bytes at the end of a token, of its signature, that tell it from others: as good as random,
 * and only tokens that verified get into the cache. */
#define TAIL 32

static const struct postern_api *api;

static bool on_load(const struct postern_api *a)
{
    api = a;
    jwt_options_use(a);
    jwks_use(a, &postern_plugin);
    json_object_seed(0); /* of its tables; so that no two threads do it */
    return true;
}

/* ---- what each worker has ---- */

static struct jwt_desk *desk_of(struct jwt *jwt, struct postern_worker *w)
{
    struct jwt_desks *desks = atomic_load_explicit(&jwt->desks, memory_order_acquire);
    unsigned index = api->worker_index(w);

    return desks && index < desks->count ? &desks->desks[index] : NULL;
}

static void free_grant(void *grant)
{
    grant_free(grant);
}

static void on_start(void *instance, struct postern_worker *w)
{
    struct jwt *jwt = instance;
    unsigned count = api->worker_count(w);
    struct jwt_desks *none = NULL, *desks = atomic_load(&jwt->desks);
    struct jwt_desk *desk;
    uint64_t seed;

    if (!desks) {
        desks = calloc(1, sizeof(*desks) + count * sizeof(desks->desks[0]));
        if (!desks)
            return;
        desks->count = count;
        if (!atomic_compare_exchange_strong(&jwt->desks, &none, desks))
            free(desks);
    }
    desk = desk_of(jwt, w);
    if (!desk)
        return;
    if (jwt->cache_entries > 0 && RAND_bytes((unsigned char *)&seed, sizeof(seed)) == 1)
        desk->cache = memo_new(jwt->cache_entries, seed, TAIL, free_grant);
    desk->user.plan = &jwt->plan;
    if (jwt->jwks)
        desk->seat = jwks_join(jwt->jwks, w, &desk->user);
}

static void on_stop(void *instance, struct postern_worker *w)
{
    struct jwt_desk *desk = desk_of(instance, w);

    if (desk && desk->seat)
        jwks_leave(desk->seat, w, &desk->user);
    if (desk)
        desk->seat = NULL;
}

static void on_change(void *instance, const char *path)
{
    struct jwt *jwt = instance;
    struct keyset *old = atomic_load(&jwt->keys), *keys;
    const char *wrong = NULL;

    keys = jwt_read_keys(jwt, &wrong);
    if (keys && !jwt_keys_serve(jwt, keys)) {
        keyset_free(keys);
        keys = NULL;
        wrong = "no key serves one of the algorithms";
    }
    if (!keys) {
        api->log(&postern_plugin, POSTERN_ERROR, "%s: %s; the old keys stay in use", path,
                 wrong);
        return;
    }
    keys->generation = old->generation + 1;
    api->log(&postern_plugin, POSTERN_INFO, "%s: %zu keys", path, keys->count);
    atomic_store_explicit(&jwt->keys, keys, memory_order_release);
    api->retire(old, keyset_free);
}

/* ---- one request ---- */

/* What there is behind "Bearer", in any case (RFC 9110 11.1); .p NULL: it is another scheme. */
static struct postern_str behind_scheme(struct postern_str value, bool needed)
{
    size_t n = 6;

    if (value.n < 7 || strncasecmp(value.p, "bearer", 6) != 0 || value.p[6] != ' ')
        return needed ? (struct postern_str){NULL, 0} : value;
    while (n < value.n && value.p[n] == ' ')
        n++;
    return (struct postern_str){value.p + n, value.n - n};
}

static enum refusal find_token(const struct jwt *jwt, struct postern_request *r,
                               struct postern_str *ret)
{
    const struct {
        enum postern_part part;
        struct postern_str name;
    } places[] = {{POSTERN_HEADER, jwt->header},
                  {POSTERN_PARAMETER, jwt->query},
                  {POSTERN_COOKIE, jwt->cookie}};
    struct postern_str found = {NULL, 0};

    for (size_t i = 0; i < 3; i++) {
        struct postern_str value = {NULL, 0};

        if (places[i].name.p)
            value = api->value(r, places[i].part, places[i].name, 0);
        if (!value.p)
            continue;
        if (api->value(r, places[i].part, places[i].name, 1).p)
            return REFUSAL_MULTIPLE;
        if (places[i].part == POSTERN_HEADER)
            value = behind_scheme(value, jwt->header_is_bearer);
        if (value.p && found.p)
            return REFUSAL_MULTIPLE;
        if (value.p)
            found = value;
    }
    *ret = found;
    return found.p ? REFUSAL_NONE : REFUSAL_MISSING;
}

/* The token's own key, if it is among them. */
static enum refusal check_signature(const struct keyset *keys, const struct token *token,
                                    const struct token_header *header, uint64_t now_ms,
                                    uint64_t *until_ms)
{
    const struct jwk *tries[KEYSET_TRIES];
    size_t n = keyset_find(keys, header->kid, header->alg, now_ms, tries);
    bool named = n > 0 && header->kid.p && tries[0]->kid.p;

    for (size_t i = 0; i < n; i++) {
        if (!signature_is_good(tries[i], header->alg, token->input, token->signature))
            continue;
        *until_ms = tries[i]->until_ms ? tries[i]->until_ms : UINT64_MAX;
        return REFUSAL_NONE;
    }
    /* A key without a name that does not fit is no proof that the token's own key is here. */
    return n == 0 || (header->kid.p && !named) ? REFUSAL_KEY_UNKNOWN : REFUSAL_SIGNATURE;
}

static bool is_type(struct postern_str type, struct postern_str wanted)
{
    /* RFC 7515 4.1.9: "application/" may be left out, and media types have no case. */
    if (type.n > 12 && strncasecmp(type.p, "application/", 12) == 0)
        type = (struct postern_str){type.p + 12, type.n - 12};
    return type.p && type.n == wanted.n && strncasecmp(type.p, wanted.p, type.n) == 0;
}

static enum refusal check_header(const struct jwt *jwt, const struct token_header *header)
{
    if (header->alg == ALG_COUNT || !jwt->allowed[header->alg])
        return REFUSAL_ALGORITHM;
    if (jwt->type.p && !is_type(header->type, jwt->type))
        return REFUSAL_TYPE;
    return REFUSAL_NONE;
}

/* All of it. What comes out is a grant, which goes into the cache once it was applied. */
static enum refusal check_token(const struct jwt *jwt, const struct keyset *keys,
                                struct postern_str text, struct grant **ret,
                                uint64_t *ret_expires_ms)
{
    uint64_t now_ms = api->wall_ms(), until_ms = UINT64_MAX;
    struct token_header header;
    struct token token;
    enum refusal refusal;
    json_t *claims;

    if (!token_split(text, &token))
        return REFUSAL_FORM;
    refusal = token_read_header(&token, &header);
    if (refusal != REFUSAL_NONE)
        return refusal;
    refusal = check_header(jwt, &header);
    if (refusal == REFUSAL_NONE)
        refusal = check_signature(keys, &token, &header, now_ms, &until_ms);
    json_decref(header.json);
    if (refusal != REFUSAL_NONE)
        return refusal;
    claims = token_read_payload(&token);
    if (!claims)
        return REFUSAL_PAYLOAD;
    refusal = claims_check(&jwt->rules, claims, now_ms, ret_expires_ms);
    if (refusal == REFUSAL_NONE)
        refusal = grant_new(&jwt->grants, claims, ret);
    if (*ret_expires_ms > until_ms)
        *ret_expires_ms = until_ms;
    json_decref(claims);
    return refusal;
}

static enum postern_verdict answer(const struct jwt *jwt, struct postern_request *r,
                                   enum refusal refusal, struct postern_str token)
{
    const struct refusal_info *info = &refusal_info[refusal];
    char challenge[768];
    struct postern_header headers[2];
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = info->status,
        .reason = info->reason,
        .detail = span_of(info->sentence),
        .headers = headers,
    };
    int n = snprintf(challenge, sizeof(challenge), "%s", jwt->challenge.p);

    if (refusal == REFUSAL_MEMORY)
        return POSTERN_FAILED;
    if (refusal == REFUSAL_TOO_LONG) {
        answer.limit = jwt->token_bytes;
        answer.actual = token.n;
    }
    /* RFC 6750 3.1: who brought nothing gets no error code. */
    if (info->error)
        n += snprintf(challenge + n, sizeof(challenge) - (size_t)n,
                      ", error=\"%s\", error_description=\"%s\"", info->error, info->sentence);
    if (refusal == REFUSAL_SCOPE)
        n += snprintf(challenge + n, sizeof(challenge) - (size_t)n, ", scope=\"%s\"",
                      jwt->scope_text);
    if (info->status == 503)
        headers[answer.header_count++] =
            (struct postern_header){SPAN("Retry-After"), SPAN("1")};
    else
        headers[answer.header_count++] =
            (struct postern_header){SPAN("WWW-Authenticate"), {challenge, (size_t)n}};
    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static void take_token_away(const struct jwt *jwt, struct postern_request *r)
{
    if (jwt->header.p)
        api->remove(r, POSTERN_HEADER, jwt->header);
    if (jwt->query.p)
        api->remove(r, POSTERN_PARAMETER, jwt->query);
    if (jwt->cookie.p)
        api->remove(r, POSTERN_COOKIE, jwt->cookie);
}

/* grant NULL: it goes on without a token. Later plugins learn what to ask for where they refuse
 * it, and that this credential was one of several that would have done. */
static enum postern_verdict let_through(const struct jwt *jwt, struct postern_request *r,
                                        const struct grant *grant)
{
    if (!grant_apply(grant, &jwt->grants, api, r) ||
        !api->fact_set(r, SPAN("challenge"), jwt->challenge) ||
        (grant && jwt->optional && !api->fact_set(r, SPAN("optional"), SPAN("jwt"))))
        return POSTERN_FAILED;
    if (grant && !jwt->forward_token)
        take_token_away(jwt, r);
    return POSTERN_GO_ON;
}

/* The token's key is not among `keys`; it may come. False: others have come meanwhile. */
static bool miss(struct jwt *jwt, struct postern_request *r, struct jwt_desk *desk,
                 const struct keyset *keys, enum postern_verdict *ret)
{
    struct postern_worker *w = api->worker(r);
    struct jwks_waiter *waiter = *api->slot(r); /* of its first wait, or NULL */
    uint64_t now = api->now_ns(),
             until = waiter ? waiter->deadline_ns : now + jwt->wait_ms * UINT64_C(1000000);
    enum jwks_advice advice = JWKS_BROKEN;

    if (desk && desk->seat && now < until)
        advice = jwks_miss(desk->seat, w);
    /* Only now: a fetch that another worker ended before it was asked about here has not told
     * this one yet, and its keys would be passed over for the time between two fetches. */
    if (advice != JWKS_WAIT && keys != jwks_keys(jwt->jwks))
        return false;
    if (advice == JWKS_WAIT && !waiter)
        *api->slot(r) = waiter = api->alloc(r, sizeof(*waiter));
    if (advice == JWKS_WAIT && waiter) {
        jwks_wait(desk->seat, w, waiter, api->wait(r), until);
        *ret = POSTERN_WAIT;
    } else {
        *ret =
            answer(jwt, r, advice == JWKS_LATER ? REFUSAL_KEY_UNKNOWN : REFUSAL_KEYS, SPAN(""));
    }
    return true;
}

static enum postern_verdict judge(struct jwt *jwt, struct postern_request *r)
{
    struct jwt_desk *desk = desk_of(jwt, api->worker(r));
    struct memo *cache = desk ? desk->cache : NULL;
    struct postern_str token = {NULL, 0};
    enum refusal refusal = find_token(jwt, r, &token);
    const struct keyset *keys;
    const struct grant *known;
    enum postern_verdict verdict;
    struct grant *grant = NULL;
    uint64_t expires_ms = 0, generation;

    if (refusal == REFUSAL_MISSING && jwt->optional)
        return let_through(jwt, r, NULL);
    if (refusal == REFUSAL_NONE && token.n > jwt->token_bytes)
        refusal = REFUSAL_TOO_LONG;
    if (refusal != REFUSAL_NONE)
        return answer(jwt, r, refusal, token);
    do {
        keys = jwt->jwks ? jwks_keys(jwt->jwks)
                         : atomic_load_explicit(&jwt->keys, memory_order_acquire);
        generation = keys ? keys->generation : 0;
        known = memo_find(cache, token, api->wall_ms(), generation);
        if (known)
            return let_through(jwt, r, known);
        refusal = check_token(jwt, keys, token, &grant, &expires_ms);
        if (refusal == REFUSAL_KEY_UNKNOWN && jwt->jwks && miss(jwt, r, desk, keys, &verdict))
            return verdict;
    } while (refusal == REFUSAL_KEY_UNKNOWN && jwt->jwks);
    if (refusal != REFUSAL_NONE)
        return answer(jwt, r, refusal, token);
    verdict = let_through(jwt, r, grant);
    if (!memo_put(cache, token, grant, expires_ms, generation))
        grant_free(grant);
    return verdict;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    return judge(instance, r);
}

static enum postern_verdict on_resume(void *instance, struct postern_request *r, void *result)
{
    if (result == jwks_too_late)
        return answer(instance, r, REFUSAL_KEYS, SPAN(""));
    return judge(instance, r);
}

static void on_cancel(void *instance, struct postern_request *r)
{
    struct jwks_waiter *waiter = *api->slot(r);

    (void)instance;
    if (waiter)
        jwks_unwait(waiter);
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "jwt",
    .version = POSTERN_VERSION,
    .summary = "lets through who brings a good JSON Web Token",
    .options = jwt_options,
    .option_count = JWT_OPTIONS,
    .option_size = sizeof(struct postern_option),
    .reasons = jwt_reasons,
    .reason_count = REASON_COUNT,
    .order = POSTERN_ORDER_AUTH,
    .load = on_load,
    .configure = jwt_configure,
    .discard = jwt_discard,
    .on_change = on_change,
    .start = on_start,
    .stop = on_stop,
    .on_request = on_request,
    .on_resume = on_resume,
    .on_cancel = on_cancel,
};
