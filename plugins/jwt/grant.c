#include "grant.h"

#include <stdlib.h>

struct grant {
    struct postern_str credential, scope;
    struct postern_str values[]; /* of the headers, then of the facts; .p NULL: none */
};

/* Where text is put: first only counted, then copied. */
struct draft {
    char *out; /* NULL while counting */
    size_t n;
    bool failed;
};

static struct postern_str put(struct draft *draft, struct postern_str text)
{
    struct postern_str copy = {draft->out ? draft->out + draft->n : "", text.n};

    if (draft->out)
        memcpy(draft->out + draft->n, text.p, text.n);
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
        text = put(draft, text);
    free(own);
    return text;
}

static void fill(struct draft *draft, struct grant *grant, const struct grant_rules *rules,
                 const json_t *claims)
{
    struct postern_str scope;
    char *own;

    for (size_t i = 0; i < rules->header_count; i++)
        grant->values[i] = put_claim(draft, claims_find(claims, rules->headers[i].claim));
    for (size_t i = 0; i < rules->fact_count; i++)
        grant->values[rules->header_count + i] =
            put_claim(draft, claims_find(claims, rules->facts[i].claim));
    grant->credential = put_claim(draft, claims_find(claims, rules->credential));
    scope = claims_scope(claims, &own);
    grant->scope = scope.p ? put(draft, scope) : scope;
    free(own);
}

enum refusal grant_new(const struct grant_rules *rules, const json_t *claims,
                       struct grant **ret)
{
    size_t values = rules->header_count + rules->fact_count;
    size_t size = sizeof(struct grant) + values * sizeof(struct postern_str);
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
        if (!is_field_value(whole->values[i])) {
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
        if (grant && grant->values[i].p)
            good &= api->set(r, POSTERN_HEADER, rules->headers[i].name, grant->values[i]);
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
    for (size_t i = 0; i < rules->fact_count; i++)
        if (grant->values[rules->header_count + i].p)
            good &=
                api->fact_set(r, rules->facts[i].name, grant->values[rules->header_count + i]);
    return good;
}
