/* bench_jwt [COUNT]: what a token costs beside OpenSSL's own work.
 *
 * An ES256 token is checked as the plugin jwt does it, from its text to what it grants, and
 * beside it EVP_DigestVerify alone checks the same signature: the ratio says what is ours. Then
 * the same token from the cache. For instructions: valgrind --tool=callgrind with a small
 * COUNT. */
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "grant.h"
#include "keyset.h"
#include "memo/memo.h"
#include "signature.h"
#include "token.h"

/* RFC 7515 A.3's key and token; it has expired, so it is checked as if in 2010. */
static const char jwk[] = "{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"k\",\"use\":\"sig\","
                          "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
                          "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}";
static const char text[] =
    "eyJhbGciOiJFUzI1NiJ9."
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cn"
    "Vl"
    "fQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
#define NOW UINT64_C(1300000000000)

static struct postern_str issuers[] = {SPAN("joe")};
static const struct claims_rules rules = {.issuers = {issuers, 1}, .expiry_required = true};
static const struct grant_pair headers[] = {{SPAN("iss"), SPAN("X-User")}};
static const struct grant_rules gives = {headers, NULL, 1, 0, SPAN("iss")};

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "bench_jwt: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static struct grant *check(const struct keyset *keys)
{
    struct token token;
    struct token_header header;
    const struct jwk *tries[KEYSET_TRIES];
    struct grant *grant = NULL;
    uint64_t expires;
    json_t *claims;

    must(token_split((struct postern_str){text, sizeof(text) - 1}, &token), "split");
    must(token_read_header(&token, &header) == REFUSAL_NONE, "header");
    must(keyset_find(keys, header.kid, header.alg, NOW, tries) == 1, "key");
    must(signature_is_good(tries[0], header.alg, token.input, token.signature), "signature");
    json_decref(header.json);
    claims = token_read_payload(&token);
    must(claims_check(&rules, claims, NOW, &expires) == REFUSAL_NONE, "claims");
    must(grant_new(&gives, claims, &grant) == REFUSAL_NONE, "grant");
    json_decref(claims);
    return grant;
}

/* The signature as OpenSSL wants it, made once. */
static size_t der_of(unsigned char *out)
{
    unsigned char raw[66];
    ECDSA_SIG *pair = ECDSA_SIG_new();
    int n;

    must(EVP_DecodeBlock(
             raw,
             (const unsigned char *)"DtEhU3ljbEg8L38VWAfUAqOyKAM6+Xx+F4GawxaepmXFCgfTj"
                                    "Dxw5djxLa8ISlSApmWQxfKTUJqPP3+Kg6NU1Q==",
             88) == 66,
         "base64");
    must(pair && ECDSA_SIG_set0(pair, BN_bin2bn(raw, 32, NULL), BN_bin2bn(raw + 32, 32, NULL)),
         "pair");
    n = i2d_ECDSA_SIG(pair, &out);
    ECDSA_SIG_free(pair);
    return (size_t)n;
}

static double openssl_alone(const struct keyset *keys, unsigned long count)
{
    unsigned char der[80];
    size_t n = der_of(der), signed_bytes = (size_t)(strrchr(text, '.') - text);
    double start = now();

    for (unsigned long i = 0; i < count; i++) {
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();

        must(EVP_DigestVerifyInit_ex(ctx, NULL, "SHA256", NULL, NULL, keys->keys[0].pkey,
                                     NULL) == 1 &&
                 EVP_DigestVerify(ctx, der, n, (const unsigned char *)text, signed_bytes) == 1,
             "EVP_DigestVerify");
        EVP_MD_CTX_free(ctx);
    }
    return (now() - start) / (double)count;
}

static void free_grant(void *grant)
{
    grant_free(grant);
}

int main(int argc, char **argv)
{
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 5000;
    const char *wrong = NULL;
    size_t skipped;
    struct keyset *keys =
        keyset_from_json((struct postern_str){jwk, sizeof(jwk) - 1}, true, &skipped, &wrong);
    struct memo *cache = memo_new(1000, 1, 32, free_grant);
    struct postern_str token = {text, sizeof(text) - 1};
    double start, whole, alone = 0, cached;

    must(keys && cache && count > 0, "setup");
    whole = 0;
    for (int round = 0; round < 5; round++) { /* in turn, so that both meet the same machine */
        start = now();
        for (unsigned long i = 0; i < count / 5 + 1; i++)
            grant_free(check(keys));
        whole += (now() - start) / (double)(count / 5 + 1) / 5;
        alone += openssl_alone(keys, count / 5 + 1) / 5;
    }
    must(memo_put(cache, token, check(keys), UINT64_MAX, 1), "put");
    start = now();
    for (unsigned long i = 0; i < count * 100; i++)
        must(memo_find(cache, token, NOW, 1) != NULL, "cache");
    cached = (now() - start) / (double)(count * 100);
    printf("ES256, not cached    %8.2f us\n", whole * 1e6);
    printf("EVP_DigestVerify     %8.2f us\n", alone * 1e6);
    printf("ratio                %8.3f\n", whole / alone);
    printf("from the cache       %8.1f ns\n", cached * 1e9);
    memo_free(cache);
    keyset_free(keys);
    return 0;
}
