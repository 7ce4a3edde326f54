/* perf/ladder: JSON bodies parsed and printed again on their way, as gateways do that look into
 * what they pass. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "postern_plugin.h"

#define BODY_MAX (1u << 20)

static const struct postern_api *api;

struct body {
    size_t n;
    char bytes[BODY_MAX];
};

static bool load(const struct postern_api *given)
{
    api = given;
    return true;
}

static bool configure(struct postern_setup *setup, const struct postern_values *values,
                      void **ret_instance)
{
    (void)setup;
    (void)values;
    *ret_instance = &api;
    return true;
}

/* The whole body is collected first: a parser of its kind wants it in one piece. */
static bool collect(struct postern_request *request, struct postern_str piece, bool last)
{
    void **slot = api->slot(request);
    struct body *body = *slot;
    if (!body)
        *slot = body = calloc(1, sizeof(*body));
    if (!body || piece.n > BODY_MAX - body->n)
        return false;
    if (piece.n)
        memcpy(body->bytes + body->n, piece.p, piece.n);
    body->n += piece.n;
    if (!last)
        return true;
    json_t *json = body->n ? json_loadb(body->bytes, body->n, 0, NULL) : NULL;
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    bool ok = api->body(request, text ? (struct postern_str){text, strlen(text)}
                                      : (struct postern_str){body->bytes, body->n});
    free(text);
    json_decref(json);
    free(body);
    *slot = NULL;
    return ok;
}

static bool on_body(void *instance, struct postern_request *request, struct postern_str piece,
                    bool last)
{
    (void)instance;
    return collect(request, piece, last);
}

static void on_log(void *instance, struct postern_request *request)
{
    (void)instance;
    free(*api->slot(request)); /* of a message that broke off */
}

POSTERN_EXPORT const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "reprint",
    .version = "1",
    .summary = "Parses JSON bodies and prints them again: what perf/ladder compares with.",
    .order = POSTERN_ORDER_LAST,
    .load = load,
    .configure = configure,
    .on_log = on_log,
    .on_request_body = on_body,
    .on_response_body = on_body,
};
