/* How many requests of one client may be on their way at a time. One instance for each section;
 * its table outlives reloads, because the requests that it counts do. */
#include "concurrency/in_flight.h"
#include "limit/limit_by.h"
#include "postern_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct concurrency {
    struct limit_by by;
    uint64_t limit;
    unsigned status;
    bool dry_run;
    struct slots *table;                /* api->shared owns it */
    int refused, would_refuse, crowded; /* counters */
};

static const struct postern_api *api;

/* ---- configuration ---- */

enum { O_LIMIT, O_BY, O_STATUS, O_DRY_RUN, O_KEYS, O_IPV6_PREFIX, OPTIONS };

static const char *const status_words[] = {"429", "503", NULL};

static const struct postern_option options[OPTIONS] = {
    [O_LIMIT] = {.name = "limit",
                 .type = POSTERN_NUMBER,
                 .required = true,
                 .min = 1,
                 .max = 10000000,
                 .help = "How many requests of a client may be on their way at a time."},
    [O_BY] = {.name = "by",
              .type = POSTERN_TEXT,
              .list = true,
              .default_text = LIMIT_BY_DEFAULT,
              .help = LIMIT_BY_HELP},
    [O_STATUS] = {.name = "status",
                  .type = POSTERN_WORD,
                  .default_text = "429",
                  .words = status_words,
                  .help =
                      "What a request over the limit gets: 429 (the client has too many) or "
                      "503 (what it asks for is busy)."},
    [O_DRY_RUN] = {.name = "dry_run",
                   .type = POSTERN_BOOL,
                   .default_text = "false",
                   .help = "Count what would be refused and let it through."},
    [O_KEYS] = {.name = "keys",
                .type = POSTERN_NUMBER,
                .default_text = "65536",
                .min = 8,
                .max = 67108864,
                .help =
                    "For how many clients with requests on their way there is room; 32 bytes "
                    "each."},
    [O_IPV6_PREFIX] = {.name = "ipv6_prefix",
                       .type = POSTERN_NUMBER,
                       .default_text = "64",
                       .min = 32,
                       .max = 128,
                       .help = LIMIT_V6_HELP},
};

static void *make_table(void *arg)
{
    const size_t *keys = arg;
    return slots_new(*keys, 1);
}

static void free_table(void *table)
{
    slots_free(table);
}

static struct slots *table_of(struct postern_setup *s, const struct limit_by *by, size_t keys)
{
    struct postern_str place = api->place(s);
    char text[512], *name;
    limit_by_name(by, text, sizeof(text));
    if (asprintf(&name, "%zu|%.*s|%s", keys, (int)place.n, place.p, text) < 0)
        return NULL;
    struct slots *table = api->shared(s, name, make_table, &keys, free_table);
    free(name);
    return table;
}

static bool configure(struct postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    struct concurrency *c = calloc(1, sizeof(*c));
    if (!c) {
        api->fault(s, -1, 0, "out of memory");
        return false;
    }
    if (!limit_by_read(api, s, O_BY, &values[O_BY], O_IPV6_PREFIX, &values[O_IPV6_PREFIX],
                       &c->by))
        goto fail;
    c->limit = (uint64_t)values[O_LIMIT].list[0].number;
    c->status = values[O_STATUS].list[0].number == 0 ? 429 : 503;
    c->dry_run = values[O_DRY_RUN].list[0].number;
    c->refused = api->counter(s, "refused", "Requests refused by a limit.");
    c->would_refuse = api->counter(s, "would_refuse", "Requests that dry_run let through.");
    c->crowded = api->counter(s, "crowded",
                              "Requests counted along with another key's: the table was full.");
    c->table = table_of(s, &c->by, (size_t)values[O_KEYS].list[0].number);
    if (!c->table) {
        api->fault(s, O_KEYS, 0, "no memory for a table of that size");
        goto fail;
    }
    *ret_instance = c;
    return true;
fail:
    free(c);
    return false;
}

static void discard(void *instance)
{
    free(instance);
}

/* ---- requests ---- */

static struct postern_str text_of(const char *s)
{
    return (struct postern_str){s, strlen(s)};
}

static enum postern_verdict refuse(const struct concurrency *c, struct postern_request *r,
                                   uint64_t count)
{
    char detail[128];
    int n = snprintf(detail, sizeof(detail),
                     "The limit of %llu requests at a time is met; wait for one to end.",
                     (unsigned long long)c->limit);
    struct postern_header after = {text_of("Retry-After"), text_of("1")};
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = c->status,
        .reason = "limit.concurrency",
        .detail = {detail, (size_t)n},
        .limit = c->limit,
        .actual = count,
        .headers = &after,
        .header_count = 1,
    };
    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    const struct concurrency *c = instance;
    void **slot = api->slot(r);
    uint64_t hash = limit_by_hash(&c->by, api, r);
    struct in_flight_verdict v = in_flight_enter(c->table, hash, c->limit);
    if (v.shared)
        api->count(api->worker(r), c->crowded, 1);
    *slot = v.held;
    if (v.held)
        return POSTERN_GO_ON;
    api->count(api->worker(r), c->dry_run ? c->would_refuse : c->refused, 1);
    return c->dry_run ? POSTERN_GO_ON : refuse(c, r, v.count);
}

static void on_log(void *instance, struct postern_request *r)
{
    void **slot = api->slot(r);
    (void)instance;
    if (*slot) {
        in_flight_leave(*slot);
        *slot = NULL;
    }
}

static bool load(const struct postern_api *given)
{
    api = given;
    return true;
}

static const struct postern_reason reasons[] = {
    {"limit.concurrency", "Too many requests at a time"},
};

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "concurrency",
    .version = POSTERN_VERSION,
    .summary = "How many requests of the same client may be on their way at a time.",
    .options = options,
    .option_count = OPTIONS,
    .option_size = sizeof(struct postern_option),
    .reasons = reasons,
    .reason_count = sizeof(reasons) / sizeof(reasons[0]),
    .order = POSTERN_ORDER_LIMIT,
    .load = load,
    .configure = configure,
    .discard = discard,
    .on_request = on_request,
    .on_log = on_log,
};
