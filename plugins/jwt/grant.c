#include "grant.h"

#include <stdlib.h>

struct grant {
    struct postern_str credential, scope;
    size_t fact_count;
    struct postern_header facts[GRANT_FACTS];
    struct postern_str headers[]; /* a value for each rule; .p NULL: none */
};

/* Where text is put: first only counted, then copied. */
struct draft {
    char *out; /* NULL while counting */
    size_t n;
    bool failed;
};

static struct postern_str put(struct draft *draft, struct postern_str prefix,
                              struct postern_str text)
{
    struct postern_str copy = {draft->out ? draft->out + draft->n : "", prefix.n + text.n};

    if (draft->out) {
        memcpy(draft->out + draft->n, prefix.p, prefix.n);
        memcpy(draft->out + draft->n + prefix.n, text.p, text.n);
    }
    draft->n += copy.n;
    return copy;
}

/* RFC 9110 5.5, without a blank at either end. */
static bool is_field_value(struct postern_str text)
{
    if (text.n > 0 && (text.p[0] == ' ' || text.p[text.n - 1] == ' '))
        return false;
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < 0x20 || text.p[i] == 0x7f)
            return false;
    return text.n <= GRANT_VALUE_BYTES;
}

/* The claim's text; .p NULL: there is none, or no memory. */
static struct postern_str put_claim(struct draft *draft, const json_t *claim)
{
    struct postern_str text = {NULL, 0};
    char *own = NULL;

    if (!claim)
        return text;
    text = claims_text(claim, &own);
    if (!text.p)
        draft->failed = true;
    else
        text = put(draft, SPAN(""), text);
    free(own);
    return text;
}

/* Names that a later plugin's options can spell without quoting. */
static bool is_fact_name(struct postern_str name)
{
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];

        if (c <= 0x20 || c >= 0x7f || c == '"' || c == '\\')
            return false;
    }
    return name.n > 0 && name.n <= 64;
}

static void put_facts(struct draft *draft, struct grant *grant, json_t *claims)
{
    const char *key;
    json_t *claim;

    grant->fact_count = 0;
    json_object_foreach(claims, key, claim)
    {
        struct postern_header *fact = &grant->facts[grant->fact_count];
        struct postern_str text;
        char *own = NULL;

        if (grant->fact_count == GRANT_FACTS)
            break;
        if (json_is_null(claim) || json_is_object(claim) || !is_fact_name(span_of(key)))
            continue;
        text = claims_text(claim, &own);
        if (!text.p)
            draft->failed = true;
        if (text.p && text.n <= GRANT_FACT_BYTES) {
            fact->name = put(draft, SPAN("claim."), span_of(key));
            fact->value = put(draft, SPAN(""), text);
            grant->fact_count++;
        }
        free(own);
    }
}

static void fill(struct draft *draft, struct grant *grant, const struct grant_rules *rules,
                 const json_t *claims)
{
    struct postern_str scope;
    char *own;

    for (size_t i = 0; i < rules->header_count; i++)
        grant->headers[i] = put_claim(draft, claims_find(claims, rules->headers[i].claim));
    grant->credential = put_claim(draft, claims_find(claims, rules->credential));
    scope = claims_scope(claims, &own);
    grant->scope = scope.p ? put(draft, SPAN(""), scope) : scope;
    free(own);
    put_facts(draft, grant, (json_t *)claims);
}

enum refusal grant_new(const struct grant_rules *rules, const json_t *claims,
                       struct grant **ret)
{
    size_t size = sizeof(struct grant) + rules->header_count * sizeof(struct postern_str);
    struct grant *grant = malloc(size), *whole;
    struct draft draft = {NULL, 0, false};

    if (!grant)
        return REFUSAL_MEMORY;
    fill(&draft, grant, rules, claims);
    whole = draft.failed ? NULL : realloc(grant, size + draft.n);
    if (!whole) {
        free(grant);
        return REFUSAL_MEMORY;
    }
    draft = (struct draft){(char *)whole + size, 0, false};
    fill(&draft, whole, rules, claims);
    *ret = whole;
    for (size_t i = 0; !draft.failed && i < rules->header_count; i++) {
        if (!is_field_value(whole->headers[i])) {
            free(whole);
            return REFUSAL_VALUE;
        }
    }
    if (!draft.failed && is_field_value(whole->credential))
        return REFUSAL_NONE;
    free(whole);
    return draft.failed ? REFUSAL_MEMORY : REFUSAL_VALUE;
}

void grant_free(struct grant *grant)
{
    free(grant);
}

bool grant_apply(const struct grant *grant, const struct grant_rules *rules,
                 const struct postern_api *api, struct postern_request *r)
{
    bool good = true;

    for (size_t i = 0; i < rules->header_count; i++) {
        if (grant && grant->headers[i].p)
            good &= api->set(r, POSTERN_HEADER, rules->headers[i].name, grant->headers[i]);
        else
            api->remove(r, POSTERN_HEADER, rules->headers[i].name);
    }
    if (!grant)
        return good;
    if (grant->credential.n > 0)
        good &= api->credential(r, grant->credential) &&
                api->fact_set(r, SPAN("consumer"), grant->credential);
    if (grant->scope.p)
        good &= api->fact_set(r, SPAN("scope"), grant->scope);
    for (size_t i = 0; i < grant->fact_count; i++)
        good &= api->fact_set(r, grant->facts[i].name, grant->facts[i].value);
    return good;
}
