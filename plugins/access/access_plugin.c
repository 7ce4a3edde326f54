/* access: who may pass, by address, certificate, method, consumer and scope. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "access_rules.h"
#include "postern_plugin.h"

enum option { OPTION_ALLOW, OPTION_DENY };

static const struct postern_option options[] = {
    [OPTION_ALLOW] = {.name = "allow",
                      .type = POSTERN_TEXT,
                      .list = true,
                      .help =
                          "Who may pass: addresses and ranges (10.0.0.0/8, ::1, all, "
                          "unix:), consumer:NAME (consumer:* for any), scope:SCOPE (several "
                          "with spaces between: all of them), method:METHOD, subject:NAME of "
                          "the client's certificate (* for any part)."},
    [OPTION_DENY] = {.name = "deny",
                     .type = POSTERN_TEXT,
                     .list = true,
                     .help = "Who may not, in the same words."},
};

enum refusal { MISSING, ADDRESS, SUBJECT, METHOD, CONSUMER, SCOPE };

static const struct postern_reason reasons[] = {
    [MISSING] = {"auth.missing", "No credentials"},
    [ADDRESS] = {"auth.address", "Address not allowed"},
    [SUBJECT] = {"auth.certificate", "Certificate not allowed"},
    [METHOD] = {"auth.method", "Method not allowed for you"},
    [CONSUMER] = {"auth.consumer", "Consumer not allowed"},
    [SCOPE] = {"auth.scope", "Insufficient scope"},
};

static const char *const details[] = {
    [MISSING] = "Only who says who they are may pass.",
    [ADDRESS] = "Clients from this address may not pass.",
    [SUBJECT] = "Only clients with certain certificates may pass.",
    [METHOD] = "This method may not be used here.",
    [CONSUMER] = "This consumer may not pass.",
    [SCOPE] = "The credential's scopes are not sufficient.",
};

#define CHALLENGE ((struct postern_str){"WWW-Authenticate", 16})

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

static bool add_rules(struct access_rules *rules, struct postern_setup *setup,
                      const struct postern_values *values, enum option option)
{
    bool right = true;
    for (size_t i = 0; i < values[option].count; i++) {
        const char *text = values[option].list[i].text.p, *warning = NULL;
        const char *expected = access_rules_add(
            rules, option == OPTION_ALLOW ? ACCESS_ALLOW : ACCESS_DENY, text, &warning);
        if (expected)
            api->fault(setup, option, i, "\"%s\"; expected %s", text, expected);
        else if (warning)
            api->warn(setup, option, i, "\"%s\" %s", text, warning);
        right = right && !expected;
    }
    return right;
}

static void discard(void *instance)
{
    access_rules_free(instance);
}

static bool configure(struct postern_setup *setup, const struct postern_values *values,
                      void **ret_instance)
{
    struct access_rules *rules = access_rules_new();
    if (!values[OPTION_ALLOW].count && !values[OPTION_DENY].count) {
        api->fault(setup, -1, 0, "access says neither what to allow nor what to deny");
        access_rules_free(rules);
        return false;
    }
    bool right = rules != NULL;
    right = right && add_rules(rules, setup, values, OPTION_ALLOW);
    /* Also after a fault, so that all of them are told. */
    right = rules && add_rules(rules, setup, values, OPTION_DENY) && right;
    if (right && access_rules_finish(rules)) {
        *ret_instance = rules;
        return true;
    }
    if (!rules || right)
        api->fault(setup, -1, 0, "out of memory");
    access_rules_free(rules);
    return false;
}

/* The challenge of who found no credential, or one with no details. */
static struct postern_str challenge_of(struct postern_request *r)
{
    struct postern_str challenge = api->fact(r, str("challenge"));
    return challenge.p ? challenge : str("ApiKey realm=\"postern\"");
}

/* RFC 6750 3: what another token would need to have; only a Bearer challenge has a place for
 * it. .p NULL: no challenge. */
static struct postern_str insufficient(struct postern_request *r,
                                       const struct access_rules *rules)
{
    struct postern_str challenge = api->fact(r, str("challenge"));
    const char *scope = access_rules_scope(rules);
    if (challenge.n < 7 || strncasecmp(challenge.p, "Bearer ", 7) != 0)
        return (struct postern_str){NULL, 0};
    size_t size = challenge.n + 64 + (scope ? strlen(scope) : 0);
    char *text = api->alloc(r, size);
    if (!text)
        return (struct postern_str){NULL, 0};
    snprintf(text, size, "%.*s, error=\"insufficient_scope\"%s%s%s", (int)challenge.n,
             challenge.p, scope ? ", scope=\"" : "", scope ? scope : "", scope ? "\"" : "");
    return str(text);
}

static enum postern_verdict refuse(const struct access_rules *rules, struct postern_request *r,
                                   enum refusal refusal)
{
    struct postern_header header = {.name = CHALLENGE};
    if (refusal == MISSING)
        header.value = challenge_of(r);
    else if (refusal == SCOPE)
        header.value = insufficient(r, rules);
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = refusal == MISSING ? 401 : 403,
        .reason = reasons[refusal].name,
        .detail = str(details[refusal]),
        .headers = &header,
        .header_count = header.value.p ? 1 : 0,
    };
    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    static const enum refusal refusals[] = {
        [ACCESS_ADDRESS] = ADDRESS,   [ACCESS_SUBJECT] = SUBJECT, [ACCESS_METHOD] = METHOD,
        [ACCESS_CONSUMER] = CONSUMER, [ACCESS_SCOPE] = SCOPE,
    };
    const struct access_rules *rules = instance;
    enum access_kind kind = ACCESS_ADDRESS;
    struct access_who who = {
        .method = api->get(r, POSTERN_METHOD),
        .consumer = api->fact(r, str("consumer")),
    };
    if (!who.consumer.p)
        who.consumer = api->get(r, POSTERN_CREDENTIAL);
    if (access_rules_need(rules, ACCESS_ADDRESS))
        who.address_width = api->address(r, who.address);
    if (access_rules_need(rules, ACCESS_SCOPE))
        who.scope = api->fact(r, str("scope"));
    if (access_rules_need(rules, ACCESS_SUBJECT))
        who.subject = api->get(r, POSTERN_TLS_SUBJECT);
    switch (access_rules_check(rules, &who, &kind)) {
    case ACCESS_PASS:
        return POSTERN_GO_ON;
    case ACCESS_UNIDENTIFIED:
        return refuse(rules, r, MISSING);
    case ACCESS_REFUSED:
        break;
    }
    return refuse(rules, r, refusals[kind]);
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "access",
    .version = "1.0",
    .summary = "Decides who may pass by address, certificate, method, consumer and scope.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_size = sizeof(options[0]),
    .reasons = reasons,
    .reason_count = sizeof(reasons) / sizeof(reasons[0]),
    .order = POSTERN_ORDER_ACCESS,
    .load = load,
    .configure = configure,
    .discard = discard,
    .on_request = on_request,
};
