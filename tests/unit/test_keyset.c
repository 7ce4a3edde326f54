#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "jwt_test.h"
#include "keyset.h"

static struct keyset *read_set(const char *text, size_t *skipped)
{
    const char *wrong = NULL;
    struct keyset *set = keyset_from_json(span_of(text), true, skipped, &wrong);
    assert_true(set || wrong);
    return set;
}

/* A set of those keys. */
static struct keyset *set_of(const char *one, const char *two)
{
    char *text;
    size_t skipped;
    struct keyset *set;
    assert_true(asprintf(&text, "{\"keys\":[%s%s%s]}", one, two ? "," : "", two ? two : "") >
                0);
    set = read_set(text, &skipped);
    assert_non_null(set);
    free(text);
    return set;
}

static void leaves_out_what_it_cannot_use(void **state)
{
    char *good = jwk_text(KEY_P256, ",\"kid\":\"a\""), *secret = jwk_text(KEY_HMAC, ""), *text;
    size_t skipped = 0;
    struct keyset *set;
    (void)state;
    assert_true(asprintf(&text, "{\"keys\":[{\"kty\":\"new\"},7,%s,%s]}", good, secret) > 0);
    set = read_set(text, &skipped);
    assert_non_null(set);
    assert_int_equal(set->count, 1);
    assert_int_equal(skipped, 3);
    keyset_free(set);
    free(text);
    free(good);
    free(secret);
}

static void takes_one_jwk_and_a_secret_from_a_file(void **state)
{
    char *secret = jwk_text(KEY_HMAC, "");
    const char *wrong;
    size_t skipped;
    struct keyset *set = keyset_from_json(span_of(secret), false, &skipped, &wrong);
    (void)state;
    assert_non_null(set);
    assert_int_equal(set->count, 1);
    keyset_free(set);
    assert_null(read_set(secret, &skipped)); /* what is published is no secret */
    free(secret);
}

static void refuses_what_is_no_set(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"keys\":{}}",
                                      "{\"keys\":[]}",
                                      "{\"keys\":[{\"kty\":\"x\"}]}",
                                      "<html>",
                                      "{\"keys\":"};
    size_t skipped;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_null(read_set(bad[i], &skipped));
}

static void refuses_too_many_keys(void **state)
{
    char text[2048] = "{\"keys\":[0";
    size_t skipped;
    (void)state;
    for (int i = 0; i < KEYSET_MAX; i++)
        strcat(text, ",0");
    strcat(text, "]}");
    assert_null(read_set(text, &skipped));
}

static void finds_by_kid_and_algorithm(void **state)
{
    char *a = jwk_text(KEY_P256, ",\"kid\":\"a\""), *b = jwk_text(KEY_RSA, ",\"kid\":\"b\"");
    struct keyset *set = set_of(a, b);
    const struct jwk *found[KEYSET_TRIES];
    (void)state;
    assert_int_equal(keyset_find(set, SPAN("a"), ALG_ES256, 0, found), 1);
    assert_ptr_equal(found[0], &set->keys[0]);
    assert_int_equal(keyset_find(set, SPAN("a"), ALG_RS256, 0, found), 0);
    assert_int_equal(keyset_find(set, SPAN("c"), ALG_ES256, 0, found), 0);
    assert_int_equal(keyset_find(set, SPAN(""), ALG_ES256, 0, found), 0);
    /* A token that names none is tried with each that fits. */
    assert_int_equal(keyset_find(set, (struct postern_str){NULL, 0}, ALG_PS512, 0, found), 1);
    assert_ptr_equal(found[0], &set->keys[1]);
    assert_int_equal(keyset_find(NULL, SPAN("a"), ALG_ES256, 0, found), 0);
    keyset_free(set);
    free(a);
    free(b);
}

static void takes_keys_without_a_name_for_any(void **state)
{
    char *a = jwk_text(KEY_P256, ",\"kid\":\"a\""), *b = jwk_text(KEY_P256, "");
    struct keyset *set = set_of(a, b);
    const struct jwk *found[KEYSET_TRIES];
    (void)state;
    assert_int_equal(keyset_find(set, SPAN("x"), ALG_ES256, 0, found), 1);
    assert_ptr_equal(found[0], &set->keys[1]);
    assert_int_equal(keyset_find(set, SPAN("a"), ALG_ES256, 0, found), 1);
    assert_ptr_equal(found[0], &set->keys[0]);
    keyset_free(set);
    free(a);
    free(b);
}

static void keeps_old_keys_for_a_while(void **state)
{
    char *a = jwk_text(KEY_P256, ",\"kid\":\"a\""), *b = jwk_text(KEY_RSA, ",\"kid\":\"b\"");
    struct keyset *old = set_of(a, NULL), *fresh = set_of(b, NULL), *both, *again, *third;
    const struct jwk *found[KEYSET_TRIES];
    (void)state;
    both = keyset_merge(fresh, old, 100, 200);
    assert_int_equal(both->count, 2);
    assert_int_equal(both->generation, old->generation + 1);
    assert_int_equal(keyset_find(both, SPAN("a"), ALG_ES256, 199, found), 1);
    assert_int_equal(keyset_find(both, SPAN("a"), ALG_ES256, 200, found), 0);
    assert_int_equal(keyset_find(both, SPAN("b"), ALG_RS256, 200, found), 1);
    /* The next fetch does not give it more time. */
    again = keyset_merge(fresh, both, 150, 250);
    assert_int_equal(again->count, 2);
    assert_true(again->keys[1].until_ms == 200);
    third = keyset_merge(fresh, again, 200, 300);
    assert_int_equal(third->count, 1);
    keyset_free(third);
    /* It came back: it stays. */
    third = keyset_merge(old, again, 150, 250);
    assert_int_equal(third->count, 2);
    assert_true(third->keys[0].until_ms == 0);
    keyset_free(third);
    keyset_free(again);
    keyset_free(both);
    keyset_free(fresh);
    keyset_free(old);
    free(a);
    free(b);
}

static int clean(void **state)
{
    (void)state;
    free_private_keys();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_out_what_it_cannot_use),
        cmocka_unit_test(takes_one_jwk_and_a_secret_from_a_file),
        cmocka_unit_test(refuses_what_is_no_set),
        cmocka_unit_test(refuses_too_many_keys),
        cmocka_unit_test(finds_by_kid_and_algorithm),
        cmocka_unit_test(takes_keys_without_a_name_for_any),
        cmocka_unit_test(keeps_old_keys_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
