/* A plugin to start from: requests need a header with a certain value. Its section, at the top
 * level, in a listener or in a route: example { header = "X-Team"  value = "red" } */
#include <postern_plugin.h>

#include <stdlib.h>
#include <string.h>

static const struct postern_api *api;

/* What may stand in the section. The gateway checks it and fills in the default. */
enum { HEADER, VALUE, OPTIONS };
static const struct postern_option options[OPTIONS] = {
    {"header", POSTERN_TOKEN, .default_text = "X-Team", .help = "The header to look at."},
    {"value", POSTERN_TEXT, .required = true, .help = "What must stand in it."},
};
static const struct postern_reason reasons[] = {{"auth.team", "Not of the team"}};

/* What a section becomes. `values` are gone after configure, so what counts is copied. */
struct instance {
    postern_str header, value;
    int refused; /* a counter */
};

static bool load(const struct postern_api *the_api)
{
    api = the_api;
    return true;
}

static bool configure(postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    const postern_str header = values[HEADER].list[0].text, value = values[VALUE].list[0].text;
    struct instance *self = malloc(sizeof(*self) + header.n + value.n);
    if (!self) {
        api->fault(s, -1, 0, "out of memory");
        return false;
    }
    char *room = (char *)(self + 1);
    self->header = (postern_str){memcpy(room, header.p, header.n), header.n};
    self->value = (postern_str){memcpy(room + header.n, value.p, value.n), value.n};
    self->refused = api->counter(s, "example_refused", "Requests that were not of the team.");
    *ret_instance = self;
    return true;
}

/* On a worker's thread, which serves others too: no lock, no file, no waiting. */
static enum postern_verdict on_request(void *instance, postern_request *r)
{
    static const char why[] = "This is for the team only.";
    const struct instance *self = instance;
    postern_str got = api->value(r, POSTERN_HEADER, self->header, 0);
    if (got.p && got.n == self->value.n && memcmp(got.p, self->value.p, got.n) == 0)
        return api->credential(r, got) ? POSTERN_GO_ON : POSTERN_FAILED;
    struct postern_answer answer = {.size = sizeof(answer), .status = 403};
    answer.reason = "auth.team";
    answer.detail = (postern_str){why, sizeof(why) - 1};
    api->answer(r, &answer);
    api->count(api->worker(r), self->refused, 1);
    return POSTERN_ANSWERED;
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .name = "example",
    .version = "1",
    .summary = "Lets requests through that have a certain header.",
    .options = options,
    .option_count = OPTIONS,
    .option_size = sizeof(options[0]),
    .reasons = reasons,
    .reason_count = 1,
    .order = POSTERN_ORDER_AUTH,
    .load = load,
    .configure = configure,
    .discard = free,
    .on_request = on_request,
};
