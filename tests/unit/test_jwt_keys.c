#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "jwt.h"
#include "jwt_test.h"

static char path[] = "/tmp/postern-jwt-XXXXXX";

static void write_file(const char *text, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
}

static const char *wrong_with(struct jwt *jwt, const char *text, size_t n)
{
    const char *wrong = NULL;
    struct keyset *keys;
    write_file(text, n);
    keys = jwt_read_keys(jwt, &wrong);
    assert_true((keys == NULL) == (wrong != NULL));
    keyset_free(keys);
    return wrong ? wrong : "";
}

static void reads_each_kind_of_file(void **state)
{
    struct jwt jwt = {.file = path, .from = KEYS_JSON};
    char *jwk = jwk_text(KEY_P256, "");
    (void)state;
    assert_string_equal(wrong_with(&jwt, jwk, strlen(jwk)), "");
    jwt.from = KEYS_PEM;
    assert_string_equal(wrong_with(&jwt, jwk, strlen(jwk)),
                        "it holds no public key or certificate in PEM");
    jwt.from = KEYS_SECRET_FILE;
    assert_string_equal(wrong_with(&jwt, SECRET_64, 64), "");
    free(jwk);
}

static void a_newline_at_the_end_is_no_part_of_a_secret(void **state)
{
    struct jwt jwt = {.file = path, .from = KEYS_SECRET_FILE};
    const char *wrong;
    struct keyset *with, *without;
    (void)state;
    write_file(SECRET_64 "\n", 65);
    with = jwt_read_keys(&jwt, &wrong);
    without = jwt_secret_keys(SPAN(SECRET_64), &wrong);
    assert_int_equal(with->keys[0].bytes, 64);
    assert_int_equal(without->keys[0].bytes, 64);
    keyset_free(with);
    keyset_free(without);
}

static void says_what_is_wrong_with_a_file(void **state)
{
    struct jwt jwt = {.file = path, .from = KEYS_JSON};
    struct jwt none = {.file = "/nowhere/at/all", .from = KEYS_JSON};
    char *large = calloc(1, (1 << 20) + 1);
    const char *wrong;
    (void)state;
    assert_string_equal(wrong_with(&jwt, "", 0), "it is empty");
    assert_string_equal(wrong_with(&jwt, large, (1 << 20) + 1), "it is larger than 1 MiB");
    assert_string_equal(wrong_with(&jwt, "{", 1), "it is no JSON object");
    assert_string_equal(wrong_with(&jwt, "{}", 2), "it is neither a JWK set nor a JWK");
    assert_null(jwt_read_keys(&none, &wrong));
    assert_string_equal(wrong, "it cannot be opened");
    none.file = "/tmp";
    assert_null(jwt_read_keys(&none, &wrong));
    assert_string_equal(wrong, "it cannot be read");
    free(large);
}

static void tells_whether_keys_serve(void **state)
{
    struct jwt jwt = {.allowed = {[ALG_HS384] = true}};
    const char *wrong;
    struct keyset *keys = jwt_secret_keys((struct postern_str){SECRET_64, 40}, &wrong);
    (void)state;
    assert_false(jwt_keys_serve(&jwt, keys));
    jwt.allowed[ALG_HS256] = true;
    assert_true(jwt_keys_serve(&jwt, keys));
    keyset_free(keys);
}

static int prepare(void **state)
{
    (void)state;
    close(mkstemp(path));
    return 0;
}

static int clean(void **state)
{
    (void)state;
    unlink(path);
    free_private_keys();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_each_kind_of_file),
        cmocka_unit_test(a_newline_at_the_end_is_no_part_of_a_secret),
        cmocka_unit_test(says_what_is_wrong_with_a_file),
        cmocka_unit_test(tells_whether_keys_serve),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
