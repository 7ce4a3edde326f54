#include "token.h"

#include <stdlib.h>

#include "base64url.h"

bool token_split(struct postern_str text, struct token *ret)
{
    const char *end = text.p + text.n, *first, *second;

    if (text.n == 0)
        return false;
    first = memchr(text.p, '.', text.n);
    second = first ? memchr(first + 1, '.', (size_t)(end - first - 1)) : NULL;
    if (!second || memchr(second + 1, '.', (size_t)(end - second - 1)))
        return false;
    *ret = (struct token){
        .header = {text.p, (size_t)(first - text.p)},
        .payload = {first + 1, (size_t)(second - first - 1)},
        .signature = {second + 1, (size_t)(end - second - 1)},
        .input = {text.p, (size_t)(second - text.p)},
    };
    return ret->header.n > 0 && ret->payload.n > 0 && ret->signature.n > 0;
}

static json_t *read_part(struct postern_str part)
{
    size_t n = base64url_size(part.n);
    uint8_t *bytes = malloc(n ? n : 1);
    json_t *json = NULL;

    if (bytes && base64url_decode(part, bytes))
        json = bounded_object((struct postern_str){(const char *)bytes, n});
    free(bytes);
    return json;
}

enum refusal token_read_header(const struct token *token, struct token_header *ret)
{
    json_t *json = read_part(token->header), *kid;
    struct postern_str alg = bounded_string(json, "alg");
    enum refusal refusal = REFUSAL_NONE;

    kid = json_object_get(json, "kid");
    /* No extension is understood here, so any that must be (RFC 7515 4.1.11) is one too many.
     */
    if (json_object_get(json, "crit"))
        refusal = REFUSAL_CRITICAL;
    else if (!alg.p || (kid && !json_is_string(kid)))
        refusal = REFUSAL_HEADER;
    if (refusal != REFUSAL_NONE) {
        json_decref(json);
        return refusal;
    }
    *ret = (struct token_header){
        .json = json,
        .alg = alg_find(alg),
        .kid = bounded_string(json, "kid"),
        .type = bounded_string(json, "typ"),
    };
    return REFUSAL_NONE;
}

json_t *token_read_payload(const struct token *token)
{
    return read_part(token->payload);
}
