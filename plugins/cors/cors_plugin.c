/* cors: what browsers may do with answers on behalf of other origins (the Fetch standard's CORS
 * protocol). Preflights are answered here and reach no upstream. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cors_policy.h"
#include "postern_plugin.h"

enum option {
    OPTION_ORIGINS,
    OPTION_METHODS,
    OPTION_HEADERS,
    OPTION_EXPOSE,
    OPTION_CREDENTIALS,
    OPTION_MAX_AGE,
    OPTION_PRIVATE_NETWORK,
};

static const struct postern_option options[] = {
    [OPTION_ORIGINS] = {.name = "origins",
                        .type = POSTERN_TEXT,
                        .list = true,
                        .required = true,
                        .help = "Who may ask: https://app.example.com, https://*.example.com "
                                "for all names below, http://localhost:* for all ports, or * "
                                "for everybody."},
    [OPTION_METHODS] = {.name = "methods",
                        .type = POSTERN_TOKEN,
                        .list = true,
                        .help = "Methods they may use; * for all. Default: GET, HEAD, POST, "
                                "PUT, PATCH and DELETE."},
    [OPTION_HEADERS] = {.name = "headers",
                        .type = POSTERN_TOKEN,
                        .list = true,
                        .help = "Headers they may send besides the harmless ones; * for all, "
                                "which is the default."},
    [OPTION_EXPOSE] = {.name = "expose",
                       .type = POSTERN_TOKEN,
                       .list = true,
                       .help = "Headers of the answer that they may see besides the harmless "
                               "ones."},
    [OPTION_CREDENTIALS] = {.name = "credentials",
                            .type = POSTERN_BOOL,
                            .default_text = "false",
                            .help = "true: with cookies and other credentials of the user. "
                                    "Never together with * among origins."},
    [OPTION_MAX_AGE] = {.name = "max_age",
                        .type = POSTERN_TIME,
                        .default_text = "10m",
                        .min = 0,
                        .max = 86400000,
                        .help = "How long a browser may remember what it may do."},
    [OPTION_PRIVATE_NETWORK] = {.name = "private_network",
                                .type = POSTERN_BOOL,
                                .default_text = "false",
                                .help =
                                    "true: pages of the public network may ask this gateway "
                                    "in a private one."},
};

enum refusal { ORIGIN, METHOD, HEADER };

static const struct postern_reason reasons[] = {
    [ORIGIN] = {"cors.origin", "Origin not allowed"},
    [METHOD] = {"cors.method", "Method not allowed for this origin"},
    [HEADER] = {"cors.header", "Header not allowed for this origin"},
};

struct cors {
    struct cors_origin *origins;
    size_t origin_count;
    bool any, null, with_credentials, private_network;
    struct cors_tokens methods, headers, expose;
    char max_age[24];
};

/* What a request's slot says. */
static char allowed_mark;

static const struct postern_api *api;

static bool load(const struct postern_api *host)
{
    api = host;
    return true;
}

static struct postern_str str(const char *text)
{
    return (struct postern_str){text, strlen(text)};
}

/* ---- configure ---- */

static bool add_origin(struct cors *it, struct postern_setup *setup, const char *text, size_t i)
{
    if (strcmp(text, "*") == 0) {
        it->any = true;
        return true;
    }
    if (strcmp(text, "null") == 0) {
        api->warn(
            setup, OPTION_ORIGINS, i,
            "null is the origin of every sandboxed frame and local file, whoever made it");
        it->null = true;
        return true;
    }
    int err = cors_origin_parse(text, &it->origins[it->origin_count]);
    if (err == -EINVAL)
        api->fault(setup, OPTION_ORIGINS, i,
                   "\"%s\"; expected an origin without a path: https://app.example.com, "
                   "https://*.example.com, http://localhost:*, or *",
                   text);
    else if (err)
        api->fault(setup, -1, 0, "out of memory");
    it->origin_count += !err;
    return !err;
}

static bool add_origins(struct cors *it, struct postern_setup *setup,
                        const struct postern_values *values)
{
    bool right = true;
    it->origins = calloc(values->count + 1, sizeof(*it->origins));
    if (!it->origins) {
        api->fault(setup, -1, 0, "out of memory");
        return false;
    }
    for (size_t i = 0; i < values->count; i++)
        right = add_origin(it, setup, values->list[i].text.p, i) && right;
    if (values->count == 0) {
        api->fault(setup, OPTION_ORIGINS, 0, "expected at least one origin, or *");
        return false;
    }
    if (it->any && it->with_credentials) {
        api->fault(setup, OPTION_CREDENTIALS, 0,
                   "with * among origins every page could act for its visitors; expected "
                   "origins by name, or credentials = false");
        return false;
    }
    return right;
}

static bool add_tokens(struct cors_tokens *tokens, struct postern_setup *setup,
                       const struct postern_values *values, const char *const *fallback,
                       size_t fallback_count)
{
    const char **texts = calloc(values->count + 1, sizeof(*texts));
    bool done = texts;
    for (size_t i = 0; texts && i < values->count; i++)
        texts[i] = values->list[i].text.p;
    if (done)
        done = cors_tokens_make(tokens, values->count ? texts : fallback,
                                values->count ? values->count : fallback_count);
    free((void *)texts);
    if (!done)
        api->fault(setup, -1, 0, "out of memory");
    return done;
}

static void discard(void *instance)
{
    struct cors *it = instance;
    for (size_t i = 0; i < it->origin_count; i++)
        cors_origin_done(&it->origins[i]);
    free(it->origins);
    cors_tokens_done(&it->methods);
    cors_tokens_done(&it->headers);
    cors_tokens_done(&it->expose);
    free(it);
}

static bool configure(struct postern_setup *setup, const struct postern_values *values,
                      void **ret_instance)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};
    static const char *const any[] = {"*"};
    struct cors *it = calloc(1, sizeof(*it));
    if (!it) {
        api->fault(setup, -1, 0, "out of memory");
        return false;
    }
    it->with_credentials = values[OPTION_CREDENTIALS].list[0].number;
    it->private_network = values[OPTION_PRIVATE_NETWORK].list[0].number;
    snprintf(it->max_age, sizeof(it->max_age), "%lld",
             (long long)(values[OPTION_MAX_AGE].list[0].number / 1000));
    if (add_origins(it, setup, &values[OPTION_ORIGINS]) &&
        add_tokens(&it->methods, setup, &values[OPTION_METHODS], methods, 6) &&
        add_tokens(&it->headers, setup, &values[OPTION_HEADERS], any, 1) &&
        add_tokens(&it->expose, setup, &values[OPTION_EXPOSE], NULL, 0)) {
        *ret_instance = it;
        return true;
    }
    discard(it);
    return false;
}

/* ---- requests ---- */

/* The request's origin, when there is one and it may ask; .p NULL otherwise. */
static bool is_allowed(const struct cors *it, struct postern_str origin)
{
    if (it->any)
        return true;
    if (origin.n == 4 && memcmp(origin.p, "null", 4) == 0)
        return it->null;
    for (size_t i = 0; i < it->origin_count; i++)
        if (cors_origin_is(&it->origins[i], origin))
            return true;
    return false;
}

/* The one Origin field; two of them are no origin. */
static struct postern_str origin_of(struct postern_request *r)
{
    struct postern_str origin = api->value(r, POSTERN_HEADER, str("Origin"), 0);
    if (origin.p && api->value(r, POSTERN_HEADER, str("Origin"), 1).p)
        return (struct postern_str){"", 0};
    return origin;
}

struct fields {
    struct postern_header list[8];
    size_t count;
};

static void put(struct fields *fields, const char *name, struct postern_str value)
{
    fields->list[fields->count++] = (struct postern_header){str(name), value};
}

/* Who may read the answer; in an answer for everybody the origin does not matter. */
static void put_origin(const struct cors *it, struct fields *fields, struct postern_str origin)
{
    put(fields, "Access-Control-Allow-Origin", it->any ? str("*") : origin);
    if (it->with_credentials)
        put(fields, "Access-Control-Allow-Credentials", str("true"));
}

static enum postern_verdict refuse(struct postern_request *r, enum refusal refusal,
                                   const struct fields *fields)
{
    static const char *const details[] = {
        [ORIGIN] = "Pages of this origin may not use this resource.",
        [METHOD] = "Pages of this origin may not use this method here.",
        [HEADER] = "Pages of this origin may not send one of these headers.",
    };
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = 403,
        .reason = reasons[refusal].name,
        .detail = str(details[refusal]),
        .headers = fields->list,
        .header_count = fields->count,
    };
    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static enum postern_verdict preflight(const struct cors *it, struct postern_request *r,
                                      struct postern_str origin, struct postern_str method)
{
    struct fields fields = {.count = 0};
    struct postern_str headers =
        api->value(r, POSTERN_HEADER, str("Access-Control-Request-Headers"), 0);
    struct postern_str private_network =
        api->value(r, POSTERN_HEADER, str("Access-Control-Request-Private-Network"), 0);
    put(&fields, "Vary",
        str("Origin, Access-Control-Request-Method, Access-Control-Request-Headers"));
    if (!is_allowed(it, origin))
        return refuse(r, ORIGIN, &fields);
    *api->slot(r) = &allowed_mark;
    put_origin(it, &fields, origin);
    if (!cors_tokens_has(&it->methods, method, false))
        return refuse(r, METHOD, &fields);
    if (!cors_tokens_have_all(&it->headers, headers))
        return refuse(r, HEADER, &fields);
    /* "*" is spelt out: with credentials it would be a method or header of that name */
    put(&fields, "Access-Control-Allow-Methods",
        it->methods.has_any ? method : str(it->methods.joined));
    if (headers.n > 0)
        put(&fields, "Access-Control-Allow-Headers",
            it->headers.has_any ? headers : str(it->headers.joined));
    put(&fields, "Access-Control-Max-Age", str(it->max_age));
    if (it->private_network && private_network.n == 4 &&
        memcmp(private_network.p, "true", 4) == 0)
        put(&fields, "Access-Control-Allow-Private-Network", str("true"));
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = 204,
        .headers = fields.list,
        .header_count = fields.count,
    };
    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static enum postern_verdict on_preflight(void *instance, struct postern_request *r)
{
    struct postern_str method =
        api->value(r, POSTERN_HEADER, str("Access-Control-Request-Method"), 0);
    return preflight(instance, r, origin_of(r), method);
}

static bool is_options(struct postern_request *r)
{
    struct postern_str method = api->get(r, POSTERN_METHOD);
    return method.n == 7 && memcmp(method.p, "OPTIONS", 7) == 0;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    const struct cors *it = instance;
    struct postern_str origin = origin_of(r);
    struct fields fields = {.count = 0};
    bool done = true;
    if (origin.p && is_options(r)) {
        struct postern_str method =
            api->value(r, POSTERN_HEADER, str("Access-Control-Request-Method"), 0);
        if (method.p)
            return preflight(it, r, origin, method);
    }
    /* A cache must not give one origin's answer to another. */
    if (!it->any)
        done = api->add(r, POSTERN_ANSWER_HEADER, str("Vary"), str("Origin"));
    /* What is for everybody says so to everybody: a cache may keep the answer to a request that
     * had no Origin, and give it to one that has. */
    if (it->any || (origin.p && is_allowed(it, origin))) {
        *api->slot(r) = &allowed_mark;
        put_origin(it, &fields, origin);
        if (it->expose.count)
            put(&fields, "Access-Control-Expose-Headers", str(it->expose.joined));
    }
    for (size_t i = 0; done && i < fields.count; i++)
        done = api->set(r, POSTERN_ANSWER_HEADER, fields.list[i].name, fields.list[i].value);
    return done ? POSTERN_GO_ON : POSTERN_FAILED;
}

/* What the upstream thinks of origins does not count beside this section. Most say nothing, so
 * one look over all headers comes first. */
static void on_response(void *instance, struct postern_request *r)
{
    const struct cors *it = instance;
    bool is_ours = *api->slot(r) == &allowed_mark;
    struct {
        struct postern_str name;
        bool stays, is_there;
    } fields[] = {
        {str("Access-Control-Allow-Origin"), is_ours, false},
        {str("Access-Control-Allow-Credentials"), is_ours && it->with_credentials, false},
        {str("Access-Control-Expose-Headers"), is_ours && it->expose.count, false},
    };
    struct postern_header header;
    for (size_t i = 0; api->header_at(r, POSTERN_ANSWER_HEADER, i, &header); i++)
        for (size_t k = 0; k < 3; k++)
            if (header.name.n == fields[k].name.n &&
                strncasecmp(header.name.p, fields[k].name.p, header.name.n) == 0)
                fields[k].is_there = true;
    for (size_t k = 0; k < 3; k++)
        if (fields[k].is_there && !fields[k].stays)
            api->remove(r, POSTERN_ANSWER_HEADER, fields[k].name);
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "cors",
    .version = "1.0",
    .summary =
        "Tells browsers what pages of other origins may do, and answers their preflights.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_size = sizeof(options[0]),
    .reasons = reasons,
    .reason_count = sizeof(reasons) / sizeof(reasons[0]),
    .order = POSTERN_ORDER_EDGE,
    .load = load,
    .configure = configure,
    .discard = discard,
    .on_request = on_request,
    .on_response = on_response,
    .on_preflight = on_preflight,
};
