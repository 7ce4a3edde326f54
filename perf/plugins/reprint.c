/* perf/ladder: JSON bodies parsed and printed again on their way, as gateways do that look into
 * what they pass. What is not JSON is refused: passing it raw would be another row. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "postern_plugin.h"

#define BODY_MAX   (1u << 20)
#define BODY_FIRST 4096u

static const struct postern_api *api;

struct body {
    size_t n, room;
    char *bytes;
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

static void body_free(struct body *body)
{
    if (body)
        free(body->bytes);
    free(body);
}

static bool append(struct body *body, struct postern_str piece)
{
    size_t room = body->room ? body->room : BODY_FIRST;
    if (piece.n > BODY_MAX - body->n)
        return false;
    while (room < body->n + piece.n)
        room *= 2;
    char *bytes = room > body->room ? realloc(body->bytes, room) : body->bytes;
    if (!bytes)
        return false;
    body->bytes = bytes;
    body->room = room;
    if (piece.n)
        memcpy(bytes + body->n, piece.p, piece.n);
    body->n += piece.n;
    return true;
}

/* The whole body is collected first: a parser of its kind wants it in one piece. */
static bool collect(struct postern_request *request, struct postern_str piece, bool last)
{
    void **slot = api->slot(request);
    struct body *body = *slot;
    if (!body)
        *slot = body = calloc(1, sizeof(*body));
    if (!body || !append(body, piece))
        return false;
    if (!last)
        return true;
    json_t *json = body->n ? json_loadb(body->bytes, body->n, 0, NULL) : NULL;
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    bool ok =
        !body->n || (text && api->body(request, (struct postern_str){text, strlen(text)}));
    free(text);
    json_decref(json);
    body_free(body);
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
    body_free(*api->slot(request)); /* of a message that broke off */
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
