#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "jwt_test.h"
#include "token.h"

static void splits_three_parts(void **state)
{
    struct token token;
    (void)state;
    assert_true(token_split(SPAN("aa.bbb.c"), &token));
    assert_true(span_eq(token.header, SPAN("aa")));
    assert_true(span_eq(token.payload, SPAN("bbb")));
    assert_true(span_eq(token.signature, SPAN("c")));
    assert_true(span_eq(token.input, SPAN("aa.bbb")));
}

static void refuses_other_forms(void **state)
{
    static const char *const bad[] = {"",      ".",      "..",   "...",      "a",
                                      "a.b",   "a.b.",   ".b.c", "a..c",     "a.b.c.d",
                                      "a.b..", "a.b.c.", "..c",  "a.b.c.d.e"};
    struct token token;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (token_split(span_of(bad[i]), &token))
            fail_msg("taken: %s", bad[i]);
}

static enum refusal header_of(const char *json, struct token_header *ret)
{
    char *text = encode(json, strlen(json));
    struct token token = {.header = span_of(text)};
    enum refusal refusal = token_read_header(&token, ret);
    free(text);
    return refusal;
}

static void reads_the_header(void **state)
{
    struct token_header header;
    (void)state;
    assert_int_equal(header_of("{\"alg\":\"ES256\",\"kid\":\"k\",\"typ\":\"JWT\"}", &header),
                     REFUSAL_NONE);
    assert_int_equal(header.alg, ALG_ES256);
    assert_true(span_eq(header.kid, SPAN("k")));
    assert_true(span_eq(header.type, SPAN("JWT")));
    json_decref(header.json);
    assert_int_equal(header_of("{\"alg\":\"none\"}", &header), REFUSAL_NONE);
    assert_int_equal(header.alg, ALG_COUNT);
    assert_null(header.kid.p);
    json_decref(header.json);
}

static void refuses_other_headers(void **state)
{
    struct token_header header;
    (void)state;
    assert_int_equal(header_of("{}", &header), REFUSAL_HEADER);
    assert_int_equal(header_of("[]", &header), REFUSAL_HEADER);
    assert_int_equal(header_of("{\"alg\":1}", &header), REFUSAL_HEADER);
    assert_int_equal(header_of("{\"alg\":\"RS256\",\"kid\":1}", &header), REFUSAL_HEADER);
    assert_int_equal(header_of("{\"alg\":\"RS256\",\"alg\":\"none\"}", &header),
                     REFUSAL_HEADER);
    assert_int_equal(header_of("{\"alg\":\"RS256\",\"crit\":[\"exp\"]}", &header),
                     REFUSAL_CRITICAL);
    assert_int_equal(header_of("{\"alg\":\"RS256\",\"crit\":[]}", &header), REFUSAL_CRITICAL);
    assert_int_equal(header_of("{\"alg\":\"RS256\",\"b64\":false,\"crit\":[\"b64\"]}", &header),
                     REFUSAL_CRITICAL);
}

static void reads_a_token_cut_at_every_byte(void **state)
{
    char *text = make_token(ALG_HS256, "{\"alg\":\"HS256\"}", "{\"sub\":\"ann\"}");
    size_t n = strlen(text);
    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        /* A copy of that size, so that reading behind it is seen. */
        char *part = malloc(cut + 1);
        struct token token;
        struct token_header header;
        memcpy(part, text, cut);
        if (token_split((struct postern_str){part, cut}, &token)) {
            assert_int_equal(token_read_header(&token, &header), REFUSAL_NONE);
            json_decref(header.json);
            json_t *claims = token_read_payload(&token);
            assert_non_null(claims);
            json_decref(claims);
        }
        free(part);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_three_parts),
        cmocka_unit_test(refuses_other_forms),
        cmocka_unit_test(reads_the_header),
        cmocka_unit_test(refuses_other_headers),
        cmocka_unit_test(reads_a_token_cut_at_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
