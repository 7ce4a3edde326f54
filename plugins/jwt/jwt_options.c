#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "jwt.h"
#include "reading/reading.h"
#include "web_url.h"

/* OPTIONS(X): X(symbol, type, name, list, required, default, min, max, words, help) */
#define OPTIONS(X)                                                                             \
    X(ALGORITHMS, WORD, "algorithms", true, true, NULL, 0, 0, alg_names,                       \
      "The algorithms that tokens may be signed with; none that are not named.")               \
    X(KEY, FILE, "key", false, false, NULL, 0, 0, NULL,                                        \
      "A file with a public key or a certificate in PEM. Followed when it changes.")           \
    X(KEYS_FILE, FILE, "keys_file", false, false, NULL, 0, 0, NULL,                            \
      "A file with a JWK set or one JWK. Followed when it changes.")                           \
    X(SECRET_FILE, FILE, "secret_file", false, false, NULL, 0, 0, NULL,                        \
      "A file with the secret of HS algorithms; a newline at its end is not part of it.")      \
    X(SECRET, SECRET, "secret", false, false, NULL, 0, 0, NULL,                                \
      "The secret of HS algorithms; in a file of its own it is safer.")                        \
    X(JWKS_URL, TEXT, "jwks_url", false, false, NULL, 0, 0, NULL,                              \
      "A URL with a JWK set. Fetched when it is due and when a token names an unknown key.")   \
    X(ISSUER, TEXT, "issuer", true, false, NULL, 0, 0, NULL,                                   \
      "What iss must be, one of these. Without another source of keys it is the URL of an "    \
      "OpenID provider, whose discovery says where its keys are.")                             \
    X(JWKS_ORIGINS, TEXT, "jwks_origins", true, false, NULL, 0, 0, NULL,                       \
      "Where else than at the issuer the discovery may say that the keys are.")                \
    X(AUDIENCE, TEXT, "audience", true, false, NULL, 0, 0, NULL,                               \
      "What aud must name, one of these.")                                                     \
    X(TYPE, TEXT, "type", false, false, NULL, 0, 0, NULL,                                      \
      "What the header's typ must be, such as at+jwt.")                                        \
    X(REQUIRED_CLAIMS, TEXT, "required_claims", true, false, NULL, 0, 0, NULL,                 \
      "Claims that must be there: \"tenant\", or \"tenant: acme\" with that value or a list "  \
      "with it. A dot goes into objects.")                                                     \
    X(SCOPES, TEXT, "scopes", true, false, NULL, 0, 0, NULL,                                   \
      "Scopes that the token must have, all of them.")                                         \
    X(EXPIRY_REQUIRED, BOOL, "expiry_required", false, false, "true", 0, 0, NULL,              \
      "Whether a token without exp is refused.")                                               \
    X(LEEWAY, TIME, "leeway", false, false, "30s", 0, 3600000, NULL,                           \
      "How far clocks may differ when exp, nbf and iat are compared.")                         \
    X(HEADER, TOKEN, "header", false, false, "Authorization", 0, 0, NULL,                      \
      "The header with the token; in Authorization behind \"Bearer\". off: none.")             \
    X(QUERY, TOKEN, "query", false, false, NULL, 0, 0, NULL,                                   \
      "A parameter of the query that may have the token.")                                     \
    X(COOKIE, TOKEN, "cookie", false, false, NULL, 0, 0, NULL,                                 \
      "A cookie that may have the token.")                                                     \
    X(TOKEN_BYTES, SIZE, "token_bytes", false, false, "8k", 256, 65536, NULL,                  \
      "The longest token.")                                                                    \
    X(OPTIONAL, BOOL, "optional", false, false, "false", 0, 0, NULL,                           \
      "Whether a request without a token goes on, with nobody's name.")                        \
    X(FORWARD_TOKEN, BOOL, "forward_token", false, false, "true", 0, 0, NULL,                  \
      "Whether the backend gets the token too.")                                               \
    X(CLAIMS_TO_HEADERS, TEXT, "claims_to_headers", true, false, NULL, 0, 0, NULL,             \
      "\"claim: Header\": what the backend gets. A client's own header of that name never "    \
      "crosses.")                                                                              \
    X(FACTS, TEXT, "facts", true, false, NULL, 0, 0, NULL,                                     \
      "Claims that later plugins get, as the facts claim.NAME.")                               \
    X(CREDENTIAL_CLAIM, TEXT, "credential_claim", false, false, "sub", 0, 0, NULL,             \
      "The claim that says who asks, for other plugins and the access log.")                   \
    X(REALM, TEXT, "realm", false, false, "postern", 0, 0, NULL,                               \
      "The realm in WWW-Authenticate.")                                                        \
    X(CACHE, NUMBER, "cache", false, false, "1000", 0, 1000000, NULL,                          \
      "How many verified tokens each worker remembers; 0: none.")                              \
    X(REFRESH, TIME, "refresh", false, false, "5m", 1000, 86400000, NULL,                      \
      "The longest time between two fetches of keys; Cache-Control may ask for a shorter "     \
      "one.")                                                                                  \
    X(FLOOR, TIME, "floor", false, false, "10s", 1000, 3600000, NULL,                          \
      "The shortest time between two fetches that unknown keys or Cache-Control ask for.")     \
    X(GRACE, TIME, "grace", false, false, "5m", 0, 86400000, NULL,                             \
      "How long a key is good that the URL no longer has.")                                    \
    X(FETCH_TIMEOUT, TIME, "fetch_timeout", false, false, "3s", 10, 60000, NULL,               \
      "How long a fetch may take.")                                                            \
    X(JWKS_BYTES, SIZE, "jwks_bytes", false, false, "256k", 1024, 1048576, NULL,               \
      "The largest answer to a fetch.")                                                        \
    X(WAIT, TIME, "wait", false, false, "2s", 0, 60000, NULL,                                  \
      "How long a request waits for keys before it gets a 503; less than deadline.")           \
    X(WAITING, NUMBER, "waiting", false, false, "1000", 0, 100000, NULL,                       \
      "How many requests of each worker may wait for keys; more get a 503 at once.")

enum option { OPTIONS(READING_NUMBER) OPT_COUNT };

_Static_assert(OPT_COUNT == JWT_OPTIONS, "the plugin's table has them all");

const struct postern_option jwt_options[JWT_OPTIONS] = {OPTIONS(READING_OPTION)};

static const struct postern_api *api;

void jwt_options_use(const struct postern_api *a)
{
    api = a;
}

static void read_list(struct reading *reading, enum option option, struct claims_list *ret)
{
    const struct postern_values *values = &reading->values[option];

    ret->list = reading_array(reading, values->count, sizeof(*ret->list));
    for (size_t i = 0; ret->list && i < values->count; i++)
        ret->list[ret->count++] = reading_keep(reading, values->list[i].text);
}

static struct postern_str trim(struct postern_str s)
{
    while (s.n > 0 && s.p[0] == ' ')
        s = (struct postern_str){s.p + 1, s.n - 1};
    while (s.n > 0 && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* "left: right"; right.p NULL: there is no ": ". Claims' names may have a colon in them, as
 * URLs have; the last ": " counts. */
static void split_pair(struct postern_str text, struct postern_str *left,
                       struct postern_str *right)
{
    *left = trim(text);
    *right = (struct postern_str){NULL, 0};
    for (size_t i = text.n; i-- > 1;) {
        if (text.p[i - 1] != ':' || text.p[i] != ' ')
            continue;
        *left = trim((struct postern_str){text.p, i - 1});
        *right = trim((struct postern_str){text.p + i, text.n - i});
        return;
    }
}

static void read_required(struct reading *reading)
{
    const struct postern_values *values = &reading->values[OPT_REQUIRED_CLAIMS];
    struct jwt *jwt = reading->self;
    struct claims_rules *rules = &jwt->rules;
    struct postern_str path, value;

    rules->required = reading_array(reading, values->count, sizeof(*rules->required));
    for (size_t i = 0; rules->required && i < values->count; i++) {
        split_pair(values->list[i].text, &path, &value);
        if (path.n == 0 || (value.p && value.n == 0)) {
            READING_FAULT(
                reading, OPT_REQUIRED_CLAIMS, i,
                "expected \"claim\" or \"claim: value\", with a blank behind the colon");
            return;
        }
        rules->required[i].path = reading_keep(reading, path);
        if (value.p)
            rules->required[i].value = reading_keep(reading, value);
        rules->required_count++;
    }
}

static bool is_token(struct postern_str s)
{
    static const char others[] = "!#$%&'*+-.^_`|~"; /* RFC 9110 5.6.2 */

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (!(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') &&
            !(c && strchr(others, c)))
            return false;
    }
    return s.n > 0;
}

static void read_headers(struct reading *reading)
{
    const struct postern_values *values = &reading->values[OPT_CLAIMS_TO_HEADERS];
    struct jwt *jwt = reading->self;
    struct postern_str claim, name;

    jwt->headers = reading_array(reading, values->count, sizeof(*jwt->headers));
    for (size_t i = 0; jwt->headers && i < values->count; i++) {
        split_pair(values->list[i].text, &claim, &name);
        if (claim.n > 0 && name.p && is_token(name) && !api->may_put(POSTERN_HEADER, name)) {
            READING_FAULT(reading, OPT_CLAIMS_TO_HEADERS, i,
                          "%.*s is the gateway's own; expected another header", (int)name.n,
                          name.p);
            return;
        }
        if (claim.n == 0 || !name.p || !is_token(name)) {
            READING_FAULT(
                reading, OPT_CLAIMS_TO_HEADERS, i,
                "expected \"claim: Header\", with a blank behind the colon and a header's "
                "name");
            return;
        }
        jwt->headers[i] =
            (struct grant_pair){reading_keep(reading, claim), reading_keep(reading, name)};
        jwt->grants.header_count++;
    }
    jwt->grants.headers = jwt->headers;
}

static void read_facts(struct reading *reading)
{
    const struct postern_values *values = &reading->values[OPT_FACTS];
    struct jwt *jwt = reading->self;

    jwt->facts = reading_array(reading, values->count, sizeof(*jwt->facts));
    for (size_t i = 0; jwt->facts && i < values->count; i++) {
        struct postern_str claim = values->list[i].text;
        char name[512];
        int n = snprintf(name, sizeof(name), "claim.%.*s", (int)claim.n, claim.p);

        if ((size_t)n >= sizeof(name)) {
            READING_FAULT(reading, OPT_FACTS, i,
                          "expected a claim's name of 500 bytes at most");
            return;
        }
        jwt->facts[i] =
            (struct grant_pair){reading_keep(reading, claim),
                                reading_keep(reading, (struct postern_str){name, (size_t)n})};
        jwt->grants.fact_count++;
    }
    jwt->grants.facts = jwt->facts;
}

/* Text that stands between quotes in WWW-Authenticate. */
static bool is_quotable(struct postern_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '"' || s.p[i] == '\\' || (unsigned char)s.p[i] >= 0x7f)
            return false;
    return s.n <= 128;
}

static void read_scopes(struct reading *reading)
{
    const struct postern_values *values = &reading->values[OPT_SCOPES];
    struct jwt *jwt = reading->self;
    char text[256] = "";
    size_t n = 0;

    read_list(reading, OPT_SCOPES, &jwt->rules.scopes);
    for (size_t i = 0; i < values->count; i++) {
        struct postern_str scope = values->list[i].text;

        if (!is_quotable(scope) || memchr(scope.p, ' ', scope.n)) {
            READING_FAULT(
                reading, OPT_SCOPES, i,
                "expected one scope: no blank, quote or backslash, ASCII, 128 bytes at most");
        } else if (n + scope.n + 2 <= sizeof(text)) {
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.*s", n ? " " : "",
                                  (int)scope.n, scope.p);
        } else {
            READING_FAULT(reading, OPT_SCOPES, i,
                          "expected scopes of 254 bytes in all at most");
        }
    }
    jwt->scope_text = reading_keep(reading, (struct postern_str){text, n}).p;
}

/* ---- where keys come from ---- */

static void load_keys(struct reading *reading, enum option option)
{
    struct jwt *jwt = reading->self;
    const char *wrong = NULL;
    struct keyset *keys;

    if (option == OPT_SECRET) {
        keys = jwt_secret_keys(reading_one(reading, option)->text, &wrong);
    } else {
        jwt->file = reading_keep_option(reading, option).p;
        keys = jwt_read_keys(jwt, &wrong);
        api->follow(reading->s, jwt->file);
    }
    if (!keys) {
        READING_FAULT(reading, option, 0, "%s%s%s", jwt->file ? jwt->file : "",
                      jwt->file ? ": " : "", wrong);
        return;
    }
    atomic_store(&jwt->keys, keys);
    if (!jwt_keys_serve(jwt, keys))
        READING_FAULT(
            reading, option, 0,
            "no key serves one of the algorithms; the first is %s (an HS algorithm needs as "
            "many bytes as its digest has)",
            key_kind_names[keys->keys[0].kind]);
}

static void add_origin(struct reading *reading, enum option option, size_t i,
                       const struct web_url *url)
{
    struct jwt *jwt = reading->self;
    struct jwks_plan *plan = &jwt->plan;
    struct postern_origin *origin;

    if (plan->origin_count == JWKS_ORIGINS) {
        READING_FAULT(reading, option, i, "expected at most %d", JWKS_ORIGINS - 1);
        return;
    }
    if (!web_url_is_safe(url))
        api->warn(reading->s, option, i,
                  "over plain http anybody on the way can replace the keys");
    origin = api->origin(reading->s, option, i, url->origin);
    if (!origin)
        reading->failed = true; /* reported */
    plan->origins[plan->origin_count].name = reading_keep(reading, url->origin);
    plan->origins[plan->origin_count++].origin = origin;
}

static void read_origins(struct reading *reading)
{
    const struct postern_values *values = &reading->values[OPT_JWKS_ORIGINS];
    struct web_url url;

    for (size_t i = 0; i < values->count; i++) {
        if (web_url_split(values->list[i].text, &url) &&
            (url.target.n == 0 || span_eq(url.target, SPAN("/"))))
            add_origin(reading, OPT_JWKS_ORIGINS, i, &url);
        else
            READING_FAULT(reading, OPT_JWKS_ORIGINS, i, "expected \"https://HOST[:PORT]\"");
    }
}

static void plan_target(struct reading *reading, enum option option, const struct web_url *url)
{
    static const char well_known[] = "/.well-known/openid-configuration";
    struct jwt *jwt = reading->self;
    struct jwks_plan *plan = &jwt->plan;
    char text[WEB_URL_MAX + sizeof(well_known)];
    struct postern_str target = url->target;
    const char *query = memchr(target.p, '?', target.n);
    size_t path = query ? (size_t)(query - target.p) : target.n;
    int n;

    if (option == OPT_ISSUER) {
        if (target.n > 0 && target.p[target.n - 1] == '/')
            target.n--;
        n = snprintf(text, sizeof(text), "%.*s%s", (int)target.n, target.p, well_known);
        plan->issuer = reading_keep_option(reading, option);
    } else {
        n = snprintf(text, sizeof(text), "%.*s", (int)target.n, target.p);
    }
    plan->target = reading_keep(reading, (struct postern_str){text, (size_t)n}).p;
    n = snprintf(text, sizeof(text), "%.*s%.*s", (int)url->origin.n, url->origin.p, (int)path,
                 url->target.p);
    plan->shown = reading_keep(reading, (struct postern_str){text, (size_t)n}).p;
}

static void plan_fetches(struct reading *reading, enum option option)
{
    struct jwt *jwt = reading->self;
    struct jwks_plan *plan = &jwt->plan;
    struct postern_str where = reading_one(reading, option)->text;
    char name[WEB_URL_MAX + 8];
    struct web_url url;

    if (!web_url_split(where, &url) || (option == OPT_JWKS_URL && url.target.n == 0) ||
        (option == OPT_ISSUER && memchr(url.target.p, '?', url.target.n))) {
        READING_FAULT(reading, option, 0, "expected \"https://HOST[:PORT]%s\"",
                      option == OPT_ISSUER
                          ? "[/PATH], without a query, for the keys have no other source"
                          : "/PATH");
        return;
    }
    for (unsigned alg = ALG_HS256; alg <= ALG_HS512; alg++)
        if (jwt->allowed[alg])
            READING_FAULT(reading, OPT_ALGORITHMS, 0,
                          "%s needs a secret, and what a URL publishes is none",
                          alg_names[alg]);
    add_origin(reading, option, 0, &url);
    plan->origin = plan->origins[0].origin;
    if (option == OPT_ISSUER)
        read_origins(reading);
    plan_target(reading, option, &url);
    plan->max_bytes = (size_t)reading_one(reading, OPT_JWKS_BYTES)->number;
    plan->max_waiting = (size_t)reading_one(reading, OPT_WAITING)->number;
    plan->refresh_ms = (uint64_t)reading_one(reading, OPT_REFRESH)->number;
    plan->floor_ms = (uint64_t)reading_one(reading, OPT_FLOOR)->number;
    plan->grace_ms = (uint64_t)reading_one(reading, OPT_GRACE)->number;
    plan->timeout_ms = (uint32_t)reading_one(reading, OPT_FETCH_TIMEOUT)->number;
    snprintf(name, sizeof(name), "%s %.*s", option == OPT_ISSUER ? "issuer" : "jwks",
             (int)where.n, where.p);
    jwt->jwks = api->shared(reading->s, name, jwks_new, NULL, jwks_unref);
    if (!jwt->jwks)
        READING_FAULT(reading, option, 0, "out of memory");
}

/* Keys come from exactly one source. */
static void read_source(struct reading *reading)
{
    static const struct {
        enum option option;
        enum jwt_keys from;
    } sources[] = {{OPT_KEY, KEYS_PEM},
                   {OPT_KEYS_FILE, KEYS_JSON},
                   {OPT_SECRET_FILE, KEYS_SECRET_FILE},
                   {OPT_SECRET, KEYS_SECRET},
                   {OPT_JWKS_URL, KEYS_URL}};
    enum option found = OPT_ISSUER;
    struct jwt *jwt = reading->self;

    jwt->from = KEYS_URL;
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        if (!reading_has(reading, sources[i].option))
            continue;
        if (found != OPT_ISSUER) {
            READING_FAULT(reading, sources[i].option, 0,
                          "keys come from \"%s\" already; expected one "
                          "source",
                          jwt_options[found].name);
            return;
        }
        found = sources[i].option;
        jwt->from = sources[i].from;
    }
    if (found == OPT_ISSUER && reading->values[OPT_ISSUER].count != 1)
        READING_FAULT(
            reading, -1, 0,
            "expected where keys come from: key, keys_file, secret_file, secret, jwks_url or "
            "one issuer");
    else if (jwt->from == KEYS_URL)
        plan_fetches(reading, found);
    else
        load_keys(reading, found);
    if (found != OPT_ISSUER && reading_has(reading, OPT_JWKS_ORIGINS))
        READING_FAULT(reading, OPT_JWKS_ORIGINS, 0,
                      "there is no discovery, so it would do nothing");
}

static void read_places(struct reading *reading)
{
    struct jwt *jwt = reading->self;
    struct postern_str realm = reading_one(reading, OPT_REALM)->text;

    if (!span_eq(reading_one(reading, OPT_HEADER)->text, SPAN("off")))
        jwt->header = reading_keep_option(reading, OPT_HEADER);
    jwt->header_is_bearer =
        strcasecmp(jwt->header.p ? jwt->header.p : "", "Authorization") == 0;
    jwt->query = reading_keep_option(reading, OPT_QUERY);
    if (jwt->query.p && !api->secret_parameter(reading->s, jwt->query))
        READING_FAULT(reading, -1, 0, "out of memory");
    jwt->cookie = reading_keep_option(reading, OPT_COOKIE);
    jwt->type = reading_keep_option(reading, OPT_TYPE);
    jwt->forward_token = reading_one(reading, OPT_FORWARD_TOKEN)->number != 0;
    jwt->optional = reading_one(reading, OPT_OPTIONAL)->number != 0;
    jwt->token_bytes = (size_t)reading_one(reading, OPT_TOKEN_BYTES)->number;
    jwt->cache_entries = (size_t)reading_one(reading, OPT_CACHE)->number;
    jwt->wait_ms = (uint32_t)reading_one(reading, OPT_WAIT)->number;
    if (!is_quotable(realm))
        READING_FAULT(reading, OPT_REALM, 0,
                      "expected ASCII without quote and backslash, 128 bytes at most");
    char challenge[256];
    int n = snprintf(challenge, sizeof(challenge), "Bearer realm=\"%.*s\"",
                     realm.n > 128 ? 128 : (int)realm.n, realm.p);
    jwt->challenge = reading_keep(reading, (struct postern_str){challenge, (size_t)n});
}

bool jwt_configure(struct postern_setup *s, const struct postern_values *values,
                   void **ret_instance)
{
    struct jwt *jwt = calloc(1, sizeof(*jwt));
    struct reading reading = {api, s, values, jwt, jwt ? &jwt->notes : NULL, false};

    if (!jwt) {
        api->fault(s, -1, 0, "out of memory");
        return false;
    }
    for (size_t i = 0; i < values[OPT_ALGORITHMS].count; i++)
        jwt->allowed[values[OPT_ALGORITHMS].list[i].number] = true;
    jwt->rules.leeway_ms = (uint64_t)reading_one(&reading, OPT_LEEWAY)->number;
    jwt->rules.expiry_required = reading_one(&reading, OPT_EXPIRY_REQUIRED)->number != 0;
    jwt->grants.credential = reading_keep_option(&reading, OPT_CREDENTIAL_CLAIM);
    read_places(&reading);
    read_list(&reading, OPT_ISSUER, &jwt->rules.issuers);
    read_list(&reading, OPT_AUDIENCE, &jwt->rules.audiences);
    read_scopes(&reading);
    read_required(&reading);
    read_headers(&reading);
    read_facts(&reading);
    read_source(&reading);
    if (reading.failed) {
        jwt_discard(jwt);
        return false;
    }
    *ret_instance = jwt;
    return true;
}

void jwt_discard(void *instance)
{
    struct jwt *jwt = instance;
    struct jwt_desks *desks = atomic_load(&jwt->desks);

    for (unsigned i = 0; desks && i < desks->count; i++)
        memo_free(desks->desks[i].cache);
    free(desks);
    keyset_free(atomic_load(&jwt->keys));
    free(jwt->rules.issuers.list);
    free(jwt->rules.audiences.list);
    free(jwt->rules.scopes.list);
    free(jwt->rules.required);
    free(jwt->headers);
    free(jwt->facts);
    notes_free(jwt->notes);
    free(jwt);
}
