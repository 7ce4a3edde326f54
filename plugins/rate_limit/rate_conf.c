#include "rate_limit/rate_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rate_limit/rate_redis.h"

static const char *const down_words[] = {"local", "open", "closed", NULL};
static const char *const header_words[] = {"draft", "legacy", "both", "none", NULL};

const struct postern_option rate_options[RATE_OPTIONS] = {
    [RATE_O_RATE] =
        {.name = "rate",
         .type = POSTERN_RATE,
         .list = true,
         .required = true,
         .min = 1,
         .max = 10000000,
         .help = "How many requests in how much time, \"100/s\", or several of them: all "
                 "must allow a request."},
    [RATE_O_BURST] =
        {.name = "burst",
         .type = POSTERN_NUMBER,
         .list = true,
         .min = 1,
         .max = 1000000000,
         .help = "How many may come at once, one number for each rate; left out: 10 or a "
                 "hundredth of the rate's number, whichever is more, but not more than "
                 "that number."},
    [RATE_O_BY] = {.name = "by",
                   .type = POSTERN_TEXT,
                   .list = true,
                   .default_text = LIMIT_BY_DEFAULT,
                   .help = LIMIT_BY_HELP},
    [RATE_O_COST] = {.name = "cost",
                     .type = POSTERN_NUMBER,
                     .default_text = "1",
                     .min = 1,
                     .max = 1000000,
                     .help = "How many requests one of these counts for."},
    [RATE_O_DRY_RUN] = {.name = "dry_run",
                        .type = POSTERN_BOOL,
                        .default_text = "false",
                        .help = "Count what would be refused and let it through."},
    [RATE_O_HEADERS] =
        {.name = "headers",
         .type = POSTERN_WORD,
         .default_text = "draft",
         .words = header_words,
         .help = "What clients are told: RateLimit and RateLimit-Policy (draft), the "
                 "older X-RateLimit trio (legacy), both or none."},
    [RATE_O_KEYS] =
        {.name = "keys",
         .type = POSTERN_NUMBER,
         .default_text = "65536",
         .min = 8,
         .max = 67108864,
         .help = "For how many keys at a time there is room; 32 bytes each, and 16 more "
                 "for each rate after the first."},
    [RATE_O_IPV6_PREFIX] = {.name = "ipv6_prefix",
                            .type = POSTERN_NUMBER,
                            .default_text = "64",
                            .min = 32,
                            .max = 128,
                            .help = LIMIT_V6_HELP},
    [RATE_O_REDIS] = {.name = "redis",
                      .type = POSTERN_TEXT,
                      .help = "The Redis that several gateways count in: \"127.0.0.1:6379\", "
                              "\"[::1]:6379\" or \"unix:/PATH\"."},
    [RATE_O_REDIS_DOWN] = {.name = "redis_down",
                           .type = POSTERN_WORD,
                           .default_text = "local",
                           .words = down_words,
                           .help = "While Redis is away: count in this gateway alone (local), "
                                   "let all through (open), or refuse all with 503 (closed)."},
    [RATE_O_REDIS_USER] = {.name = "redis_user",
                           .type = POSTERN_TEXT,
                           .help = "Whom Redis knows us as."},
    [RATE_O_REDIS_PASSWORD] = {.name = "redis_password",
                               .type = POSTERN_SECRET,
                               .help = "The password for Redis."},
    [RATE_O_REDIS_DB] = {.name = "redis_db",
                         .type = POSTERN_NUMBER,
                         .default_text = "0",
                         .max = 1000000,
                         .help = "The number of the database in Redis."},
    [RATE_O_REDIS_PREFIX] = {.name = "redis_prefix",
                             .type = POSTERN_TEXT,
                             .default_text = "postern",
                             .help = "How the names of our keys in Redis begin."},
    [RATE_O_REDIS_TIMEOUT] = {.name = "redis_timeout",
                              .type = POSTERN_TIME,
                              .default_text = "100ms",
                              .min = 1,
                              .max = 10000,
                              .help = "A Redis that does not answer for so long is away."},
};

static int64_t number(const struct postern_values *v)
{
    return v->count ? v->list[0].number : 0;
}

/* One window; the faults that its numbers make together. */
static bool read_window(struct postern_setup *s, const struct postern_values *values, size_t i,
                        struct gcra *g)
{
    const struct postern_value *rate = &values[RATE_O_RATE].list[i];
    bool given = i < values[RATE_O_BURST].count;
    uint64_t burst = given ? (uint64_t)values[RATE_O_BURST].list[i].number
                           : gcra_burst((uint64_t)rate->number);
    if (!given && burst < g->cost)
        burst = g->cost;
    if (burst < g->cost) {
        rate_api->fault(s, RATE_O_BURST, i,
                        "burst is %llu, expected at least the cost of one request, %llu",
                        (unsigned long long)burst, (unsigned long long)g->cost);
        return false;
    }
    if (!gcra_window_set(&g->windows[i], (uint64_t)rate->number, (uint64_t)rate->per_ms, burst,
                         g->cost)) {
        rate_api->fault(s, RATE_O_RATE, i,
                        "a burst of %llu takes more than 400 days to come back, expected less",
                        (unsigned long long)burst);
        return false;
    }
    for (size_t k = 0; k < i; k++)
        if (g->windows[k].per_ms == g->windows[i].per_ms) {
            rate_api->fault(s, RATE_O_RATE, i, "rate has two for the same time, expected one");
            return false;
        }
    return true;
}

static bool read_windows(struct postern_setup *s, const struct postern_values *values,
                         struct gcra *g)
{
    const struct postern_values *rates = &values[RATE_O_RATE], *bursts = &values[RATE_O_BURST];
    bool ok = true;
    g->cost = (uint64_t)number(&values[RATE_O_COST]);
    g->count = (unsigned)rates->count;
    if (rates->count == 0 || rates->count > GCRA_MAX) {
        rate_api->fault(s, RATE_O_RATE, GCRA_MAX, "rate has %zu, expected 1 to %d",
                        rates->count, GCRA_MAX);
        return false;
    }
    if (bursts->count > 0 && bursts->count != rates->count) {
        rate_api->fault(s, RATE_O_BURST, 0,
                        "burst has %zu, expected one for each of the %zu rates, or none",
                        bursts->count, rates->count);
        return false;
    }
    for (size_t i = 0; i < rates->count; i++)
        ok = read_window(s, values, i, g) && ok;
    return ok;
}

/* ---- the table ---- */

struct table_size {
    size_t keys;
    unsigned words;
};

static void *make_table(void *arg)
{
    const struct table_size *size = arg;
    return slots_new(size->keys, size->words);
}

static void free_table(void *table)
{
    slots_free(table);
}

/* Equal names have equal words in the table, so they go on with it after a reload. Burst and
 * cost are not in the words. */
static struct slots *table_of(struct postern_setup *s, const struct rate_limit *l, size_t keys)
{
    struct table_size size = {keys, l->gcra.count};
    struct postern_str place = rate_api->place(s);
    char by[512], rates[GCRA_MAX * RATE_NAME_MAX];
    size_t n = 0;
    limit_by_name(&l->by, by, sizeof(by));
    for (unsigned i = 0; i < l->gcra.count; i++) {
        n += rate_name(&l->gcra.windows[i], rates + n);
        rates[n++] = i + 1 < l->gcra.count ? ',' : '\0';
    }
    char *name;
    /* What the table's shape depends on stands first: no name of a place can be taken for it.
     */
    if (asprintf(&name, "%u|%zu|%.*s|%s|%s", l->gcra.count, keys, (int)place.n, place.p, rates,
                 by) < 0)
        return NULL;
    struct slots *table = rate_api->shared(s, name, make_table, &size, free_table);
    free(name);
    return table;
}

bool rate_configure(struct postern_setup *s, const struct postern_values *values,
                    void **ret_instance)
{
    struct rate_limit *l = calloc(1, sizeof(*l));
    if (!l) {
        rate_api->fault(s, -1, 0, "out of memory");
        return false;
    }
    bool ok = read_windows(s, values, &l->gcra);
    ok = limit_by_read(rate_api, s, RATE_O_BY, &values[RATE_O_BY], RATE_O_IPV6_PREFIX,
                       &values[RATE_O_IPV6_PREFIX], &l->by) &&
         ok;
    if (!ok)
        goto fail;
    rate_fields_set(&l->fields, &l->gcra);
    l->headers = (enum rate_headers)number(&values[RATE_O_HEADERS]);
    l->dry_run = number(&values[RATE_O_DRY_RUN]);
    l->refused = rate_api->counter(s, "refused", "Requests refused by a limit.");
    l->would_refuse =
        rate_api->counter(s, "would_refuse", "Requests that dry_run let through.");
    l->displaced = rate_api->counter(
        s, "displaced", "Keys forgotten before their time because the table was full.");
    l->table = table_of(s, l, (size_t)number(&values[RATE_O_KEYS]));
    if (!l->table) {
        rate_api->fault(s, RATE_O_KEYS, 0, "no memory for a table of that size");
        goto fail;
    }
    l->down = (enum rate_down)number(&values[RATE_O_REDIS_DOWN]);
    l->without_redis = rate_api->counter(
        s, "without_redis", "Requests decided by redis_down because Redis was away.");
    if (!rate_redis_read(s, values, l, &l->redis))
        goto fail;
    *ret_instance = l;
    return true;
fail:
    free(l);
    return false;
}

void rate_discard(void *instance)
{
    struct rate_limit *l = instance;
    rate_redis_free(l->redis);
    free(l);
}
