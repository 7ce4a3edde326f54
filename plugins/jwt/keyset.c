#include "keyset.h"

#include <stdlib.h>

static struct keyset *keyset_new(size_t room)
{
    struct keyset *set = malloc(sizeof(*set) + room * sizeof(struct jwk));

    if (set)
        *set = (struct keyset){.generation = 1};
    return set;
}

void keyset_free(void *object)
{
    struct keyset *set = object;

    for (size_t i = 0; set && i < set->count; i++)
        jwk_done(&set->keys[i]);
    free(set);
}

struct keyset *keyset_from_key(struct jwk *key)
{
    struct keyset *set = keyset_new(1);

    if (set)
        set->keys[set->count++] = *key;
    else
        jwk_done(key);
    return set;
}

static struct keyset *from_array(const json_t *keys, bool public_only, size_t *ret_skipped,
                                 const char **ret_wrong)
{
    struct keyset *set = keyset_new(json_array_size(keys));
    const json_t *jwk;
    size_t i;

    *ret_wrong = "there is no memory for it";
    if (!set)
        return NULL;
    *ret_wrong = json_array_size(keys) ? NULL : "it holds no key";
    *ret_skipped = 0;
    json_array_foreach(keys, i, jwk)
    {
        struct jwk *key = &set->keys[set->count];
        const char *wrong = jwk_from_jwk(jwk, key);

        if (!wrong && public_only && key->kind == KEY_HMAC) {
            jwk_done(key);
            wrong = "a secret must not be published";
        }
        if (!wrong)
            set->count++;
        else if (++*ret_skipped == 1)
            *ret_wrong = wrong;
    }
    if (set->count > 0)
        return set;
    keyset_free(set);
    return NULL;
}

struct keyset *keyset_from_json(struct postern_str text, bool public_only, size_t *ret_skipped,
                                const char **ret_wrong)
{
    json_t *json = bounded_object(text), *keys;
    struct keyset *set = NULL;

    keys = json_object_get(json, "keys");
    if (keys)
        json_incref(keys);
    else if (json_object_get(json, "kty"))
        keys = json_pack("[O]", json);
    if (!json)
        *ret_wrong = "it is no JSON object";
    else if (!json_is_array(keys))
        *ret_wrong = "it is neither a JWK set nor a JWK";
    else if (json_array_size(keys) > KEYSET_MAX)
        *ret_wrong = "it has more than 64 keys";
    else
        set = from_array(keys, public_only, ret_skipped, ret_wrong);
    json_decref(keys);
    json_decref(json);
    return set;
}

static bool has(const struct keyset *set, const struct jwk *key)
{
    for (size_t i = 0; i < set->count; i++)
        if (jwk_is_same(&set->keys[i], key))
            return true;
    return false;
}

struct keyset *keyset_merge(const struct keyset *fresh, const struct keyset *old,
                            uint64_t now_ms, uint64_t until_ms)
{
    struct keyset *set = keyset_new(2 * KEYSET_MAX);

    if (!set)
        return NULL;
    for (size_t i = 0; i < fresh->count; i++) {
        if (!jwk_copy(&fresh->keys[i], &set->keys[set->count]))
            goto fail;
        set->count++;
    }
    for (size_t i = 0; old && i < old->count && set->count < 2 * (size_t)KEYSET_MAX; i++) {
        const struct jwk *key = &old->keys[i];
        uint64_t until = key->until_ms ? key->until_ms : until_ms;

        if (until <= now_ms || has(fresh, key))
            continue;
        if (!jwk_copy(key, &set->keys[set->count]))
            goto fail;
        set->keys[set->count++].until_ms = until;
    }
    set->generation = old ? old->generation + 1 : 1;
    return set;
fail:
    keyset_free(set);
    return NULL;
}

size_t keyset_find(const struct keyset *set, struct postern_str kid, enum alg alg,
                   uint64_t now_ms, const struct jwk *ret[KEYSET_TRIES])
{
    size_t n = 0;

    /* Those of the same kid first; only when there are none those without. */
    for (int round = 0; set && n == 0 && round < 2; round++) {
        for (size_t i = 0; i < set->count && n < KEYSET_TRIES; i++) {
            const struct jwk *key = &set->keys[i];
            bool named = key->kid.p && kid.p && span_eq(key->kid, kid);

            if (key->until_ms && key->until_ms <= now_ms)
                continue;
            if (jwk_fits(key, alg) && (!kid.p || (round == 0 ? named : !key->kid.p)))
                ret[n++] = key;
        }
    }
    return n;
}
