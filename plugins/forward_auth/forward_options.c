#include "forward_auth.h"

#include <stdlib.h>

#include "reading/reading.h"

static const char *const methods[] = {"GET", "HEAD", "same", NULL};

/* OPTIONS(X): X(symbol, type, name, list, required, default, min, max, words, help) */
#define OPTIONS(X)                                                                             \
    X(UPSTREAM, TEXT, "upstream", false, true, NULL, 0, 0, NULL,                               \
      "Who decides: the name of an upstream, or \"http://HOST[:PORT]\".")                      \
    X(PATH, TEXT, "path", false, false, "/", 0, 0, NULL, "What is asked for there.")           \
    X(METHOD, WORD, "method", false, false, "GET", 0, 0, methods,                              \
      "How it is asked for; same: as the client does. Never with a body.")                     \
    X(REQUEST_HEADERS, TOKEN, "request_headers", true, false, NULL, 0, 0, NULL,                \
      "Headers of the client that are passed on; Authorization and Cookie when left out, * "   \
      "is "                                                                                    \
      "all of them.")                                                                          \
    X(RESPONSE_HEADERS, TOKEN, "response_headers", true, false, NULL, 0, 0, NULL,              \
      "Headers of a 2xx that the backend gets. A client's own header of that name never "      \
      "crosses.")                                                                              \
    X(CLIENT_HEADERS, TOKEN, "client_headers", true, false, NULL, 0, 0, NULL,                  \
      "Headers of a 2xx that the client gets, such as Set-Cookie.")                            \
    X(REFUSAL_HEADERS, TOKEN, "refusal_headers", true, false, NULL, 0, 0, NULL,                \
      "Headers of a 3xx or 4xx that the client gets; WWW-Authenticate, Location, Set-Cookie, " \
      "Cache-Control and Retry-After when left out.")                                          \
    X(CREDENTIAL_HEADER, TOKEN, "credential_header", false, false, NULL, 0, 0, NULL,           \
      "The header of a 2xx that says who asks, for other plugins and the access log.")         \
    X(TIMEOUT, TIME, "timeout", false, false, "2s", 1, 60000, NULL,                            \
      "How long a decision may take; less than deadline.")                                     \
    X(BODY_BYTES, SIZE, "body_bytes", false, false, "64k", 0, 1048576, NULL,                   \
      "The largest body of a decision.")                                                       \
    X(CACHE, TIME, "cache", false, false, "0s", 0, 3600000, NULL,                              \
      "For how long a 2xx counts for the next requests of the same key; Cache-Control may "    \
      "shorten it. 0s: for none.")                                                             \
    X(CACHE_KEY, TEXT, "cache_key", true, false, NULL, 0, 0, NULL,                             \
      "What a decision hangs on: method, host, path, target, client_ip, header:NAME; when "    \
      "left out all that is passed on.")                                                       \
    X(CACHE_ENTRIES, NUMBER, "cache_entries", false, false, "1000", 1, 1000000, NULL,          \
      "How many decisions each worker remembers.")

enum option { OPTIONS(READING_NUMBER) OPT_COUNT };
_Static_assert(OPT_COUNT == FORWARD_OPTIONS, "the plugin's table has them all");

const struct postern_option forward_options[FORWARD_OPTIONS] = {OPTIONS(READING_OPTION)};

static const struct postern_api *api;

void forward_options_use(const struct postern_api *a)
{
    api = a;
}

/* `preset`: when the option is left out; ended by NULL. */
static void read_names(struct reading *reading, enum option option, const char *const *preset,
                       struct names *ret)
{
    const struct postern_values *values = &reading->values[option];
    size_t count = values->count;

    while (!values->count && preset[count])
        count++;
    ret->list = reading_array(reading, count, sizeof(*ret->list));
    for (size_t i = 0; ret->list && i < count; i++) {
        struct postern_str name = {preset[values->count ? 0 : i], 0};

        name.n = name.p ? strlen(name.p) : 0;
        ret->list[ret->count++] =
            reading_keep(reading, values->count ? values->list[i].text : name);
    }
}

/* Names that the gateway would not let anybody write. */
static void check_names(struct reading *reading, enum option option, enum postern_part part)
{
    const struct postern_values *values = &reading->values[option];

    for (size_t i = 0; i < values->count; i++)
        if (!api->may_put(part, values->list[i].text))
            READING_FAULT(reading, option, i, "%s is the gateway's own; expected other headers",
                          values->list[i].text.p);
}

static void read_headers(struct reading *reading)
{
    static const char *const passed[] = {"Authorization", "Cookie", NULL};
    static const char *const refused[] = {"WWW-Authenticate", "Location",    "Set-Cookie",
                                          "Cache-Control",    "Retry-After", NULL};
    static const char *const none[] = {NULL};
    struct forward_auth *auth = reading->self;

    read_names(reading, OPT_REQUEST_HEADERS, passed, &auth->request_headers);
    read_names(reading, OPT_RESPONSE_HEADERS, none, &auth->response_headers);
    read_names(reading, OPT_CLIENT_HEADERS, none, &auth->client_headers);
    read_names(reading, OPT_REFUSAL_HEADERS, refused, &auth->refusal_headers);
    check_names(reading, OPT_RESPONSE_HEADERS, POSTERN_HEADER);
    check_names(reading, OPT_CLIENT_HEADERS, POSTERN_ANSWER_HEADER);
    check_names(reading, OPT_REFUSAL_HEADERS, POSTERN_ANSWER_HEADER);
    auth->all_headers = names_have(&auth->request_headers, TEXT("*"));
    if (auth->all_headers && auth->request_headers.count > 1)
        READING_FAULT(reading, OPT_REQUEST_HEADERS, 0,
                      "\"*\" is all of them; expected it alone");
}

static bool read_item(struct postern_str text, struct key_item *ret)
{
    static const char *const words[] = {"method", "host", "path", "target", "client_ip", NULL};

    for (unsigned i = 0; words[i]; i++) {
        if (text.n == strlen(words[i]) && memcmp(text.p, words[i], text.n) == 0) {
            *ret = (struct key_item){(enum key_part)i, {NULL, 0}};
            return true;
        }
    }
    if (text.n <= 7 || memcmp(text.p, "header:", 7) != 0)
        return false;
    *ret = (struct key_item){KEY_HEADER, {text.p + 7, text.n - 7}};
    return true;
}

/* Left out: all that who decides gets to know. */
static void default_key(struct reading *reading)
{
    static const enum key_part parts[] = {KEY_METHOD, KEY_SCHEME, KEY_AUTHORITY, KEY_TARGET,
                                          KEY_CLIENT_IP};
    const size_t count = sizeof(parts) / sizeof(parts[0]);
    struct forward_auth *auth = reading->self;

    if (auth->all_headers && auth->cache_ms > 0)
        READING_FAULT(reading, OPT_CACHE, 0,
                      "with all headers passed on no two requests would be the same; expected "
                      "request_headers or cache_key");
    auth->key = reading_array(reading, count + auth->request_headers.count, sizeof(*auth->key));
    for (size_t i = 0; auth->key && i < count; i++)
        auth->key[auth->key_count++].part = parts[i];
    for (size_t i = 0; auth->key && i < auth->request_headers.count; i++)
        auth->key[auth->key_count++] =
            (struct key_item){KEY_HEADER, auth->request_headers.list[i]};
}

static void read_key(struct reading *reading)
{
    const struct postern_values *values = &reading->values[OPT_CACHE_KEY];
    struct forward_auth *auth = reading->self;

    auth->cache_ms = (uint64_t)reading_one(reading, OPT_CACHE)->number;
    auth->cache_entries = (size_t)reading_one(reading, OPT_CACHE_ENTRIES)->number;
    if (!values->count) {
        default_key(reading);
        return;
    }
    if (!auth->cache_ms)
        READING_FAULT(reading, OPT_CACHE_KEY, 0, "without cache it would do nothing");
    auth->key = reading_array(reading, values->count, sizeof(*auth->key));
    for (size_t i = 0; auth->key && i < values->count; i++) {
        struct key_item *item = &auth->key[auth->key_count];

        if (!read_item(values->list[i].text, item)) {
            READING_FAULT(reading, OPT_CACHE_KEY, i,
                          "expected method, host, path, target, client_ip or header:NAME");
            continue;
        }
        if (item->part == KEY_HEADER)
            item->header = reading_keep(reading, item->header);
        auth->key_count++;
    }
}

static void read_question(struct reading *reading)
{
    struct forward_auth *auth = reading->self;
    struct postern_str path = reading_one(reading, OPT_PATH)->text;

    auth->path = reading_keep(reading, path);
    for (size_t i = 0; i < path.n; i++)
        if (path.p[0] != '/' || path.p[i] <= ' ' || path.p[i] > '~' || path.p[i] == '#') {
            READING_FAULT(
                reading, OPT_PATH, 0,
                "expected a path that begins with \"/\", perhaps with a query; no blanks, "
                "ASCII");
            break;
        }
    auth->method = (enum asked_method)reading_one(reading, OPT_METHOD)->number;
    auth->timeout_ms = (uint32_t)reading_one(reading, OPT_TIMEOUT)->number;
    auth->max_bytes = (size_t)reading_one(reading, OPT_BODY_BYTES)->number;
    auth->credential_header = reading_keep_option(reading, OPT_CREDENTIAL_HEADER);
    auth->origin =
        api->origin(reading->s, OPT_UPSTREAM, 0, reading_one(reading, OPT_UPSTREAM)->text);
    if (!auth->origin)
        reading->failed = true; /* reported */
}

bool forward_configure(struct postern_setup *s, const struct postern_values *values,
                       void **ret_instance)
{
    struct forward_auth *auth = calloc(1, sizeof(*auth));
    struct reading reading = {api, s, values, auth, auth ? &auth->notes : NULL, false};

    if (!auth) {
        api->fault(s, -1, 0, "out of memory");
        return false;
    }
    read_question(&reading);
    read_headers(&reading);
    read_key(&reading);
    auth->failed = api->counter(s, "failed", "Requests that nobody decided about.");
    if (reading.failed) {
        forward_discard(auth);
        return false;
    }
    *ret_instance = auth;
    return true;
}

void forward_discard(void *instance)
{
    struct forward_auth *auth = instance;
    struct desks *desks = atomic_load(&auth->desks);

    for (unsigned i = 0; desks && i < desks->count; i++)
        memo_free(desks->caches[i]);
    free(desks);
    free(auth->request_headers.list);
    free(auth->response_headers.list);
    free(auth->client_headers.list);
    free(auth->refusal_headers.list);
    free(auth->key);
    notes_free(auth->notes);
    free(auth);
}
