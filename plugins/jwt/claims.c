#include "claims.h"

#include <stdlib.h>

/* A NumericDate (RFC 7519 2) in milliseconds; beyond what can be counted it is the end of
 * time. False: it is no number, or before 1970. */
static bool read_date(const json_t *claim, uint64_t *ret_ms)
{
    double seconds = json_number_value(claim);

    if (!json_is_number(claim) || !(seconds >= 0))
        return false;
    *ret_ms = seconds >= 1e15 ? UINT64_MAX : (uint64_t)(seconds * 1000);
    return true;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static enum refusal check_times(const struct claims_rules *rules, const json_t *claims,
                                uint64_t now_ms, uint64_t *ret_expires_ms)
{
    static const char *const starts[] = {"nbf", "iat"};
    const json_t *claim = json_object_get(claims, "exp");
    uint64_t ms = UINT64_MAX;

    if (claim && !read_date(claim, &ms))
        return REFUSAL_PAYLOAD;
    if (!claim && rules->expiry_required)
        return REFUSAL_NO_EXPIRY;
    *ret_expires_ms = later(ms, rules->leeway_ms);
    if (now_ms >= *ret_expires_ms)
        return REFUSAL_EXPIRED;
    for (size_t i = 0; i < 2; i++) {
        claim = json_object_get(claims, starts[i]);
        if (claim && !read_date(claim, &ms))
            return REFUSAL_PAYLOAD;
        if (claim && later(now_ms, rules->leeway_ms) < ms)
            return REFUSAL_NOT_YET;
    }
    return REFUSAL_NONE;
}

/* Whether a claim is that text, or a list with it. */
static bool says(const json_t *claim, struct postern_str text)
{
    const json_t *each;
    char *own = NULL;
    size_t i;
    bool same;

    json_array_foreach(claim, i,
                       each) if (!json_is_array(each) && says(each, text)) return true;
    if (!claim || json_is_array(claim))
        return false;
    same = span_eq(claims_text(claim, &own), text);
    free(own);
    return same;
}

static bool says_one_of(const json_t *claim, const struct claims_list *wanted)
{
    for (size_t i = 0; i < wanted->count; i++)
        if (says(claim, wanted->list[i]))
            return true;
    return wanted->count == 0;
}

static bool has_word(struct postern_str words, struct postern_str word)
{
    size_t start = 0;

    for (size_t i = 0; words.p && i <= words.n; i++) {
        if (i < words.n && words.p[i] != ' ')
            continue;
        if (span_eq((struct postern_str){words.p + start, i - start}, word))
            return true;
        start = i + 1;
    }
    return false;
}

static enum refusal check_scopes(const struct claims_rules *rules, const json_t *claims)
{
    char *own = NULL;
    struct postern_str scope;
    enum refusal refusal = REFUSAL_NONE;

    if (rules->scopes.count == 0)
        return REFUSAL_NONE;
    scope = claims_scope(claims, &own);
    for (size_t i = 0; i < rules->scopes.count; i++)
        if (!has_word(scope, rules->scopes.list[i]))
            refusal = REFUSAL_SCOPE;
    free(own);
    return refusal;
}

enum refusal claims_check(const struct claims_rules *rules, const json_t *claims,
                          uint64_t now_ms, uint64_t *ret_expires_ms)
{
    enum refusal refusal = check_times(rules, claims, now_ms, ret_expires_ms);
    const json_t *issuer = json_object_get(claims, "iss");

    if (refusal != REFUSAL_NONE)
        return refusal;
    /* An issuer is one (RFC 7519 4.1.1); only audiences may be many. */
    if ((issuer && !json_is_string(issuer)) || !says_one_of(issuer, &rules->issuers))
        return REFUSAL_ISSUER;
    if (!says_one_of(json_object_get(claims, "aud"), &rules->audiences))
        return REFUSAL_AUDIENCE;
    for (size_t i = 0; i < rules->required_count; i++) {
        const struct claims_rule *rule = &rules->required[i];
        const json_t *claim = claims_find(claims, rule->path);

        if (!claim || (rule->value.p && !says(claim, rule->value)))
            return REFUSAL_CLAIM;
    }
    return check_scopes(rules, claims);
}

const json_t *claims_find(const json_t *claims, struct postern_str path)
{
    const json_t *found = json_object_getn(claims, path.p, path.n);

    for (size_t i = 0; !found && i < path.n; i++) {
        if (path.p[i] == '.')
            found = claims_find(json_object_getn(claims, path.p, i),
                                (struct postern_str){path.p + i + 1, path.n - i - 1});
    }
    return json_is_null(found) ? NULL : found;
}

struct postern_str claims_text(const json_t *claim, char **ret_own)
{
    *ret_own = NULL;
    if (json_is_string(claim))
        return (struct postern_str){json_string_value(claim), json_string_length(claim)};
    *ret_own = json_dumps(claim, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    return span_of(*ret_own);
}

static struct postern_str join(const json_t *list, char **ret_own)
{
    const json_t *each;
    size_t i, n = 0;
    char *out;

    json_array_foreach(list, i, each) n += json_string_length(each) + 1;
    if (n == 0 || !(*ret_own = out = malloc(n)))
        return (struct postern_str){NULL, 0};
    n = 0;
    json_array_foreach(list, i, each)
    {
        /* One with a blank in it would be read as two. */
        if (!json_is_string(each) || strchr(json_string_value(each), ' '))
            continue;
        if (n > 0)
            out[n++] = ' ';
        memcpy(out + n, json_string_value(each), json_string_length(each));
        n += json_string_length(each);
    }
    return (struct postern_str){out, n};
}

struct postern_str claims_scope(const json_t *claims, char **ret_own)
{
    const json_t *scope = json_object_get(claims, "scope");

    *ret_own = NULL;
    if (!scope)
        scope = json_object_get(claims, "scp");
    if (json_is_array(scope))
        return join(scope, ret_own);
    if (json_is_string(scope))
        return (struct postern_str){json_string_value(scope), json_string_length(scope)};
    return (struct postern_str){NULL, 0};
}
