/* The plugin forward_auth: somebody else decides whether a request goes on, and is asked over
 * HTTP. */
#include "forward_auth.h"

#include <stdlib.h>
#include <sys/random.h>

#include "decision.h"
#include "question.h"

static const struct postern_api *api;

static const struct postern_reason reasons[] = {
    {"auth.denied", "Not allowed"},
};

/* A request that waits for its decision. In the request's memory. */
struct pending {
    struct postern_str key; /* .p NULL: it is not remembered */
};

static bool on_load(const struct postern_api *a)
{
    api = a;
    forward_options_use(a);
    return true;
}

static void on_start(void *instance, struct postern_worker *w)
{
    struct forward_auth *auth = instance;
    unsigned count = api->worker_count(w), index = api->worker_index(w);
    struct desks *none = NULL, *desks = atomic_load(&auth->desks);
    uint64_t seed;

    if (!auth->cache_ms)
        return;
    if (!desks) {
        desks = calloc(1, sizeof(*desks) + count * sizeof(desks->caches[0]));
        if (!desks)
            return;
        desks->count = count;
        if (!atomic_compare_exchange_strong(&auth->desks, &none, desks)) {
            free(desks);
            desks = none;
        }
    }
    if (index < desks->count && getrandom(&seed, sizeof(seed), 0) == sizeof(seed))
        desks->caches[index] = memo_new(auth->cache_entries, seed, 0, free);
}

static struct memo *cache_of(struct forward_auth *auth, struct postern_request *r)
{
    struct desks *desks = atomic_load_explicit(&auth->desks, memory_order_acquire);
    unsigned index = api->worker_index(api->worker(r));

    return desks && index < desks->count ? desks->caches[index] : NULL;
}

/* ---- a decision ---- */

static bool give_to_backend(const struct forward_auth *auth, struct postern_request *r,
                            const struct decision *decision)
{
    bool good = true;

    /* Those of the client go first, in any case: nobody brings his own. */
    for (size_t i = 0; i < auth->response_headers.count; i++)
        api->remove(r, POSTERN_HEADER, auth->response_headers.list[i]);
    for (size_t i = 0; i < decision->header_count; i++) {
        const struct postern_header *header = &decision->headers[i];

        if (names_have(&auth->response_headers, header->name))
            good &= api->add(r, POSTERN_HEADER, header->name, header->value);
        if (names_have(&auth->client_headers, header->name))
            good &= api->add(r, POSTERN_ANSWER_HEADER, header->name, header->value);
        if (text_is(auth->credential_header, header->name) && header->value.n > 0)
            good &= api->credential(r, header->value) &&
                    api->fact_set(r, TEXT("consumer"), header->value);
    }
    return good;
}

static enum postern_verdict refuse(struct postern_request *r, const struct decision *decision)
{
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = decision->status,
        .reason = "auth.denied",
        .detail = TEXT("The request was not allowed."),
        .type = decision->type,
        .body = decision->body,
        .headers = decision->headers,
        .header_count = decision->header_count,
    };

    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static enum postern_verdict obey(const struct forward_auth *auth, struct postern_request *r,
                                 const struct decision *decision)
{
    if (decision_is_yes(decision))
        return give_to_backend(auth, r, decision) ? POSTERN_GO_ON : POSTERN_FAILED;
    return decision_is_no(decision) ? refuse(r, decision) : POSTERN_FAILED;
}

/* ---- asking ---- */

struct call {
    const struct forward_auth *auth;
    struct postern_token token;
};

static void on_reply(struct postern_worker *w, const struct postern_reply *reply, void *arg)
{
    struct call *call = arg;

    if (reply->status < 200 || reply->status >= 500) {
        api->count(w, call->auth->failed, 1);
        if (reply->status)
            api->log(&postern_plugin, POSTERN_INFO, "no decision: status %u", reply->status);
        else
            api->log(&postern_plugin, POSTERN_INFO, "no decision: %s", reply->failure);
    }
    /* Without memory the result is NULL: no decision. */
    api->resume(call->token, decision_new(call->auth, reply), free);
    free(call);
}

static enum postern_verdict ask(struct forward_auth *auth, struct postern_request *r,
                                struct postern_str key)
{
    struct pending *pending = api->alloc(r, sizeof(*pending));
    struct call *call = malloc(sizeof(*call));
    struct postern_header headers[QUESTION_HEADERS];
    struct postern_call what;

    if (!pending || !call || !question_call(auth, api, r, headers, &what)) {
        free(call);
        return POSTERN_FAILED;
    }
    pending->key = key;
    *api->slot(r) = pending;
    *call = (struct call){auth, api->wait(r)};
    api->call(api->worker(r), &what, on_reply, call);
    return POSTERN_WAIT;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    struct forward_auth *auth = instance;
    struct postern_str key = question_key(auth, api, r);
    const struct decision *known =
        key.p ? memo_find(cache_of(auth, r), key, api->now_ns(), 0) : NULL;

    return known ? obey(auth, r, known) : ask(auth, r, key);
}

static enum postern_verdict on_resume(void *instance, struct postern_request *r, void *result)
{
    const struct pending *pending = *api->slot(r);
    struct decision *decision = result;
    enum postern_verdict verdict;

    if (!decision)
        return POSTERN_FAILED;
    verdict = obey(instance, r, decision);
    if (!decision->keep_ms ||
        !memo_put(cache_of(instance, r), pending->key, decision,
                  api->now_ns() + decision->keep_ms * UINT64_C(1000000), 0))
        free(decision);
    return verdict;
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "forward_auth",
    .version = POSTERN_VERSION,
    .summary = "asks another service whether a request may go on",
    .options = forward_options,
    .option_count = FORWARD_OPTIONS,
    .option_size = sizeof(struct postern_option),
    .reasons = reasons,
    .reason_count = sizeof(reasons) / sizeof(reasons[0]),
    .order = POSTERN_ORDER_AUTH,
    .load = on_load,
    .configure = forward_configure,
    .discard = forward_discard,
    .start = on_start,
    .on_request = on_request,
    .on_resume = on_resume,
};
