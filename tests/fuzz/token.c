/* A token from a stranger: its form, header, claims and what they give, without a signature in
 * the way. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "grant.h"
#include "token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(promise)                                                                       \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #promise);                      \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

static void check_claims(const json_t *claims)
{
    static struct postern_str issuers[] = {SPAN("https://idp")}, scopes[] = {SPAN("read")};
    static struct claims_rule required[] = {{SPAN("org.role"), SPAN("admin")}};
    static const struct grant_pair headers[] = {{SPAN("email"), SPAN("X-Email")},
                                                {SPAN("org.role"), SPAN("X-Role")}};
    const struct claims_rules rules = {.issuers = {issuers, 1},
                                       .scopes = {scopes, 1},
                                       .required = required,
                                       .required_count = 1};
    const struct grant_rules gives = {headers, headers, 2, 2, SPAN("sub")};
    struct grant *grant = NULL;
    uint64_t expires = 0;

    if (claims_check(&rules, claims, 1800000000000, &expires) == REFUSAL_NONE)
        REQUIRE(expires > 1800000000000);
    if (grant_new(&gives, claims, &grant) == REFUSAL_NONE)
        grant_free(grant);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct postern_str text = {(const char *)data, size};
    struct token token;
    struct token_header header;
    json_t *claims;

    /* The claims as they are, so that the fuzzer need not find base64url first. */
    if (size > 0 && data[0] == '{') {
        claims = bounded_object(text);
        if (claims)
            check_claims(claims);
        json_decref(claims);
        return 0;
    }
    if (!token_split(text, &token))
        return 0;
    REQUIRE(token.header.n + token.payload.n + token.signature.n + 2 == size);
    if (token_read_header(&token, &header) == REFUSAL_NONE) {
        REQUIRE(!json_object_get(header.json, "crit"));
        json_decref(header.json);
    }
    claims = token_read_payload(&token);
    if (claims)
        check_claims(claims);
    json_decref(claims);
    return 0;
}
