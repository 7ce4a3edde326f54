/* key_auth: who asks, by a key that stands in a file. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "key_places.h"
#include "key_source.h"
#include "postern_plugin.h"

#define WORKERS 256

enum option {
    OPTION_FILE,
    OPTION_HEADER,
    OPTION_QUERY,
    OPTION_COOKIE,
    OPTION_SCHEME,
    OPTION_OPTIONAL,
    OPTION_FORWARD_KEY,
    OPTION_REALM,
    OPTION_CONSUMER_HEADER,
    OPTION_SCOPE_HEADER,
    OPTION_METADATA_HEADERS,
};

static const struct postern_option options[] = {
    [OPTION_FILE] = {.name = "file",
                     .type = POSTERN_FILE,
                     .required = true,
                     .help = "The JSON file of keys, made by postern-keys or by hand; it is "
                             "followed when it changes."},
    [OPTION_HEADER] = {.name = "header",
                       .type = POSTERN_TOKEN,
                       .list = true,
                       .help = "Headers that may carry a key; X-Api-Key when no place is "
                               "named at all."},
    [OPTION_QUERY] = {.name = "query",
                      .type = POSTERN_TEXT,
                      .list = true,
                      .help = "Parameters of the query that may carry a key."},
    [OPTION_COOKIE] = {.name = "cookie",
                       .type = POSTERN_TOKEN,
                       .list = true,
                       .help = "Cookies that may carry a key."},
    [OPTION_SCHEME] = {.name = "scheme",
                       .type = POSTERN_TOKEN,
                       .list = true,
                       .help = "Schemes of the Authorization header whose credential may be a "
                               "key, such as Bearer or ApiKey."},
    [OPTION_OPTIONAL] = {.name = "optional",
                         .type = POSTERN_BOOL,
                         .default_text = "false",
                         .help = "true: a request without a key goes on, with no consumer; a "
                                 "wrong key is refused all the same."},
    [OPTION_FORWARD_KEY] = {.name = "forward_key",
                            .type = POSTERN_BOOL,
                            .default_text = "false",
                            .help = "true: the upstream gets the key as well."},
    [OPTION_REALM] = {.name = "realm",
                      .type = POSTERN_TEXT,
                      .default_text = "postern",
                      .help = "The realm that WWW-Authenticate names."},
    [OPTION_CONSUMER_HEADER] = {.name = "consumer_header",
                                .type = POSTERN_TOKEN,
                                .default_text = "X-Consumer",
                                .help =
                                    "The header that tells the upstream whose key it was; a "
                                    "client's own is replaced. off: none."},
    [OPTION_SCOPE_HEADER] = {.name = "scope_header",
                             .type = POSTERN_TOKEN,
                             .default_text = "off",
                             .help =
                                 "The header that tells the upstream the key's scopes, with "
                                 "spaces between them. off: none."},
    [OPTION_METADATA_HEADERS] = {.name = "metadata_headers",
                                 .type = POSTERN_TEXT,
                                 .list = true,
                                 .help = "\"Header: member\": headers that tell the upstream "
                                         "members of the key's metadata; a client's own are "
                                         "taken away in any case."},
};

enum refusal { MISSING, MULTIPLE, UNKNOWN, DISABLED, EXPIRED };

static const struct postern_reason reasons[] = {
    [MISSING] = {"auth.missing", "No credentials"},
    [MULTIPLE] = {"auth.multiple", "More than one credential"},
    [UNKNOWN] = {"auth.unknown", "Unknown key"},
    [DISABLED] = {"auth.disabled", "Disabled key"},
    [EXPIRED] = {"auth.expired", "Expired credentials"},
};

struct metadata_header {
    struct postern_str header;
    char *member;
};

struct key_auth {
    struct key_source *source; /* shared with other sections, and over reloads */
    struct key_places places;
    bool is_optional, keeps_key;
    bool has_scheme; /* its challenge can say what else is missing, RFC 6750 3 */
    struct postern_str consumer_header, scope_header; /* .p NULL: off */
    struct metadata_header *metadata;
    size_t metadata_count;
    struct key_hasher *hashers[WORKERS]; /* each its worker's own */
};

static const struct postern_api *api;

static bool load(const struct postern_api *host)
{
    api = host;
    return true;
}

/* ---- configure ---- */

struct said {
    struct postern_setup *setup; /* NULL: to the log */
    const char *path;
};

static void say(void *arg, unsigned line, const char *text)
{
    const struct said *said = arg;
    char where[16] = "";
    if (line)
        snprintf(where, sizeof(where), ":%u", line);
    if (said->setup)
        api->fault(said->setup, OPTION_FILE, 0, "%s%s: %s", said->path, where, text);
    else
        api->log(&postern_plugin, POSTERN_ERROR, "%s%s: %s", said->path, where, text);
}

static void say_how_many_more(struct said *said, const struct key_report *report)
{
    char text[64];
    if (report->count <= KEY_FAULTS)
        return;
    snprintf(text, sizeof(text), "and %u faults more", report->count - KEY_FAULTS);
    say(said, 0, text);
}

static void free_table(void *table)
{
    key_table_free(table);
}

/* As key_source_refresh, with what it has to say said. */
static int refresh(struct key_source *source, struct postern_setup *setup)
{
    struct said said = {setup, key_source_path(source)};
    struct key_report report = {.say = say, .arg = &said};
    struct key_table *old = NULL;
    int result = key_source_refresh(source, setup != NULL, &report, &old);
    say_how_many_more(&said, &report);
    if (old)
        api->retire(old, free_table);
    return result;
}

static void warn_of_plain_keys(struct postern_setup *setup, const struct key_source *source)
{
    size_t count = key_table_file(key_source_table(source))->plain_count;
    if (count)
        api->warn(setup, OPTION_FILE, 0,
                  "%s: %zu %s in plain text%s; hashed ones are safer: postern-keys hash %s",
                  key_source_path(source), count, count == 1 ? "key stands" : "keys stand",
                  key_source_is_open(source) ? ", for every user of this machine to read" : "",
                  key_source_path(source));
}

static void *make_source(void *path)
{
    return key_source_new(path);
}

static void free_source(void *source)
{
    key_source_free(source);
}

static void no_memory(struct postern_setup *setup)
{
    api->fault(setup, -1, 0, "out of memory");
}

static bool configure_source(struct key_auth *it, struct postern_setup *setup,
                             const struct postern_values *values)
{
    const char *path = values[OPTION_FILE].list[0].text.p;
    it->source = api->shared(setup, path, make_source, (void *)path, free_source);
    if (!it->source) {
        no_memory(setup);
        return false;
    }
    int result = refresh(it->source, setup);
    if (result < 0)
        return false;
    if (result > 0)
        warn_of_plain_keys(setup, it->source);
    api->follow(setup, path);
    return true;
}

static bool configure_places(struct key_auth *it, struct postern_setup *setup,
                             const struct postern_values *values)
{
    static const struct postern_value x_api_key = {.text = {"X-Api-Key", 9}};
    static const struct postern_values fallback = {sizeof(fallback), &x_api_key, 1};
    bool has_any = values[OPTION_HEADER].count || values[OPTION_QUERY].count ||
                   values[OPTION_COOKIE].count || values[OPTION_SCHEME].count;
    const struct postern_values *headers = has_any ? &values[OPTION_HEADER] : &fallback;
    for (size_t i = 0; i < headers->count; i++) {
        if (strcasecmp(headers->list[i].text.p, "Authorization") == 0) {
            api->fault(setup, OPTION_HEADER, i,
                       "Authorization has a scheme before the key; expected scheme = Bearer, "
                       "or whichever it is");
            return false;
        }
    }
    bool hidden = true;
    for (size_t i = 0; i < values[OPTION_QUERY].count; i++)
        hidden &= api->secret_parameter(setup, values[OPTION_QUERY].list[i].text);
    if (hidden && key_places_add(&it->places, POSTERN_HEADER, false, headers) &&
        key_places_add(&it->places, POSTERN_HEADER, true, &values[OPTION_SCHEME]) &&
        key_places_add(&it->places, POSTERN_PARAMETER, false, &values[OPTION_QUERY]) &&
        key_places_add(&it->places, POSTERN_COOKIE, false, &values[OPTION_COOKIE]) &&
        key_places_finish(&it->places, values[OPTION_REALM].list[0].text))
        return true;
    no_memory(setup);
    return false;
}

/* A header that tells the upstream something: not one that a credential stands in, and none of
 * the gateway's own. */
static bool may_be_written(const struct key_auth *it, const char *name, size_t n)
{
    static const char *const taken[] = {"Authorization", "Cookie"};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (strlen(taken[i]) == n && strncasecmp(taken[i], name, n) == 0)
            return false;
    if (!api->may_put(POSTERN_HEADER, (struct postern_str){name, n}))
        return false;
    for (size_t i = 0; i < it->places.count; i++) {
        const struct key_place *place = &it->places.list[i];
        if (place->part == POSTERN_HEADER && !place->is_scheme && place->name.n == n &&
            strncasecmp(place->name.p, name, n) == 0)
            return false;
    }
    return true;
}

static bool configure_header(const struct key_auth *it, struct postern_setup *setup,
                             const struct postern_values *values, enum option option,
                             struct postern_str *ret)
{
    struct postern_str name = values[option].list[0].text;
    if (strcmp(name.p, "off") == 0)
        return true;
    if (!may_be_written(it, name.p, name.n)) {
        api->fault(setup, option, 0, "%s has another meaning; expected a header of its own",
                   name.p);
        return false;
    }
    *ret = (struct postern_str){strdup(name.p), name.n};
    if (!ret->p)
        no_memory(setup);
    return ret->p;
}

/* RFC 9110 5.6.2 */
static bool is_token(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] <= 0x20 || p[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", p[i]))
            return false;
    return n > 0;
}

/* "Header: member" */
static bool configure_metadata(struct key_auth *it, struct postern_setup *setup,
                               const struct postern_values *values)
{
    const struct postern_values *texts = &values[OPTION_METADATA_HEADERS];
    it->metadata = calloc(texts->count + 1, sizeof(*it->metadata));
    if (!it->metadata) {
        no_memory(setup);
        return false;
    }
    for (size_t i = 0; i < texts->count; i++) {
        const char *text = texts->list[i].text.p;
        size_t n = strcspn(text, ":");
        const char *member = text + n + (text[n] == ':');
        member += strspn(member, " ");
        if (!is_token(text, n) || !*member || !may_be_written(it, text, n)) {
            api->fault(setup, OPTION_METADATA_HEADERS, i,
                       "\"%s\"; expected \"Header: member\", such as \"X-Plan: plan\", with a "
                       "header of its own",
                       text);
            return false;
        }
        struct metadata_header *header = &it->metadata[it->metadata_count++];
        header->header = (struct postern_str){strndup(text, n), n};
        header->member = strdup(member);
        if (!header->header.p || !header->member) {
            no_memory(setup);
            return false;
        }
    }
    return true;
}

static void discard(void *instance)
{
    struct key_auth *it = instance;
    for (size_t i = 0; i < it->metadata_count; i++) {
        free((char *)it->metadata[i].header.p);
        free(it->metadata[i].member);
    }
    free(it->metadata);
    free((char *)it->consumer_header.p);
    free((char *)it->scope_header.p);
    key_places_done(&it->places);
    free(it);
}

static bool configure(struct postern_setup *setup, const struct postern_values *values,
                      void **ret_instance)
{
    struct key_auth *it = calloc(1, sizeof(*it));
    if (!it) {
        no_memory(setup);
        return false;
    }
    it->is_optional = values[OPTION_OPTIONAL].list[0].number;
    it->keeps_key = values[OPTION_FORWARD_KEY].list[0].number;
    it->has_scheme = values[OPTION_SCHEME].count > 0;
    bool right = configure_places(it, setup, values);
    right = right &&
            configure_header(it, setup, values, OPTION_CONSUMER_HEADER, &it->consumer_header);
    right =
        right && configure_header(it, setup, values, OPTION_SCOPE_HEADER, &it->scope_header);
    right = right && configure_metadata(it, setup, values);
    /* Also with a fault before, so that all of them are told. */
    right = configure_source(it, setup, values) && right;
    if (right)
        *ret_instance = it;
    else
        discard(it);
    return right;
}

static void on_change(void *instance, const char *path)
{
    struct key_auth *it = instance;
    (void)path;
    int result = refresh(it->source, NULL);
    if (result > 0) {
        size_t count = key_table_file(key_source_table(it->source))->count;
        api->log(&postern_plugin, POSTERN_INFO, "%s: %zu %s in force",
                 key_source_path(it->source), count, count == 1 ? "key" : "keys");
    } else if (result < 0) {
        api->log(&postern_plugin, POSTERN_ERROR, "%s: the keys it had stay in force",
                 key_source_path(it->source));
    }
}

/* ---- requests ---- */

static void start(void *instance, struct postern_worker *w)
{
    struct key_auth *it = instance;
    unsigned index = api->worker_index(w);
    if (index < WORKERS)
        it->hashers[index] = key_hasher_new();
}

static void stop(void *instance, struct postern_worker *w)
{
    struct key_auth *it = instance;
    unsigned index = api->worker_index(w);
    if (index < WORKERS) {
        key_hasher_free(it->hashers[index]);
        it->hashers[index] = NULL;
    }
}

static enum postern_verdict refuse(const struct key_auth *it, struct postern_request *r,
                                   enum refusal refusal)
{
    static const char *const details[] = {
        [MULTIPLE] = "The request carries more than one credential.",
        [UNKNOWN] = "The key is not known.",
        [DISABLED] = "The key is disabled.",
        [EXPIRED] = "The key has expired.",
    };
    char missing[512];
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = 401,
        .reason = reasons[refusal].name,
        .headers = refusal == MISSING    ? it->places.challenges
                   : refusal == MULTIPLE ? it->places.multiples
                                         : it->places.refusals,
        .header_count = it->places.challenge_count,
    };
    if (refusal == MISSING) {
        snprintf(missing, sizeof(missing), "The request carries no key; expected in %s.",
                 it->places.expected);
        answer.detail = (struct postern_str){missing, strlen(missing)};
    } else {
        answer.detail = (struct postern_str){details[refusal], strlen(details[refusal])};
    }
    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static struct postern_str str(const char *text)
{
    return (struct postern_str){text, text ? strlen(text) : 0};
}

/* Tells the upstream; with nothing to tell, a client's own header of that name is gone too. */
static bool tell(struct postern_request *r, struct postern_str header, struct postern_str value)
{
    if (!header.p)
        return true;
    if (value.p)
        return api->set(r, POSTERN_HEADER, header, value);
    api->remove(r, POSTERN_HEADER, header);
    return true;
}

static struct postern_str metadata_of(const struct key_entry *entry, const char *name)
{
    for (size_t i = 0; entry && i < entry->meta_count; i++)
        if (strcmp(entry->meta[i].name, name) == 0)
            return str(entry->meta[i].value);
    return str(NULL);
}

/* Later plugins that refuse the request learn what it should have brought. Where nobody has
 * said yet who asks, an earlier plugin's credential would do as well: its challenge stands
 * first. */
static bool tell_challenge(const struct key_auth *it, struct postern_request *r,
                           const struct key_entry *entry)
{
    struct postern_str own = it->places.challenges[0].value;
    struct postern_str other = api->fact(r, str("challenge"));
    if (entry ? !it->has_scheme : api->get(r, POSTERN_CREDENTIAL).p != NULL)
        return true;
    if (entry || !other.p)
        return api->fact_set(r, str("challenge"), own);
    size_t size = other.n + own.n + 3;
    char *both = api->alloc(r, size);
    if (!both)
        return false;
    snprintf(both, size, "%.*s, %.*s", (int)other.n, other.p, (int)own.n, own.p);
    return api->fact_set(r, str("challenge"), str(both));
}

/* The upstream, later plugins and the log learn whose key it was; NULL: nobody's. */
static enum postern_verdict let_through(const struct key_auth *it, struct postern_request *r,
                                        const struct key_entry *entry)
{
    struct postern_str consumer = str(entry ? entry->consumer : NULL);
    struct postern_str scope = str(entry ? entry->scope : NULL);
    bool done = tell(r, it->consumer_header, consumer) && tell(r, it->scope_header, scope);
    for (size_t i = 0; done && i < it->metadata_count; i++)
        done = tell(r, it->metadata[i].header, metadata_of(entry, it->metadata[i].member));
    done = done && tell_challenge(it, r, entry);
    if (done && entry)
        done = api->credential(r, consumer) && api->fact_set(r, str("consumer"), consumer) &&
               (!scope.p || api->fact_set(r, str("scope"), scope));
    return done ? POSTERN_GO_ON : POSTERN_FAILED;
}

/* The slow way, for a key that nobody has shown since the file was read. */
static enum postern_verdict verify(const struct key_auth *it, struct postern_request *r,
                                   struct key_table *table, struct postern_str key,
                                   const struct key_entry **ret)
{
    unsigned index = api->worker_index(api->worker(r));
    if (index >= WORKERS || !it->hashers[index])
        return POSTERN_FAILED;
    *ret = key_table_verify(table, it->hashers[index], key.p, key.n);
    return POSTERN_GO_ON;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    const struct key_auth *it = instance;
    struct key_table *table = key_source_table(it->source);
    struct postern_str key = {NULL, 0};
    unsigned found = key_places_find(&it->places, api, r, it->keeps_key, &key);
    if (found == 0 && it->is_optional)
        return let_through(it, r, NULL);
    if (found == 0 || (found == 1 && key.n == 0))
        return refuse(it, r, MISSING);
    if (found > 1 || (it->is_optional && api->fact(r, str("optional")).p))
        return refuse(it, r, MULTIPLE); /* of several that would do, one */
    if (key.n > KEY_BYTES)
        return refuse(it, r, UNKNOWN);
    const struct key_entry *entry = key_table_known(table, key.p, key.n);
    if (!entry && verify(it, r, table, key, &entry) == POSTERN_FAILED)
        return POSTERN_FAILED;
    if (!entry)
        return refuse(it, r, UNKNOWN);
    if (!entry->enabled)
        return refuse(it, r, DISABLED);
    if (entry->expires_ms != KEY_NEVER && (int64_t)api->wall_ms() >= entry->expires_ms)
        return refuse(it, r, EXPIRED);
    return let_through(it, r, entry);
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "key_auth",
    .version = "1.0",
    .summary = "Finds out who asks by a key in a header, the query or a cookie.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_size = sizeof(options[0]),
    .reasons = reasons,
    .reason_count = sizeof(reasons) / sizeof(reasons[0]),
    .order = POSTERN_ORDER_AUTH,
    .load = load,
    .configure = configure,
    .discard = discard,
    .on_change = on_change,
    .start = start,
    .stop = stop,
    .on_request = on_request,
};
