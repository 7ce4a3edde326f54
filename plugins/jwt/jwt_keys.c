/* Keys of a section's own: from a file, or a secret in the configuration. */
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "jwt.h"

#define FILE_BYTES_MAX (1 << 20)

/* malloc'd, with *ret_n bytes. NULL: *ret_wrong says why. */
static char *read_file(const char *path, size_t *ret_n, const char **ret_wrong)
{
    FILE *file = fopen(path, "rbe");
    char *text = file ? malloc(FILE_BYTES_MAX + 1) : NULL;

    *ret_wrong = !file ? "it cannot be opened" : !text ? "there is no memory for it" : NULL;
    if (text) {
        *ret_n = fread(text, 1, FILE_BYTES_MAX + 1, file);
        if (ferror(file))
            *ret_wrong = "it cannot be read";
        else if (*ret_n > FILE_BYTES_MAX)
            *ret_wrong = "it is larger than 1 MiB";
        else if (*ret_n == 0)
            *ret_wrong = "it is empty";
    }
    if (file)
        fclose(file);
    if (!*ret_wrong)
        return text;
    free(text);
    return NULL;
}

static struct keyset *from_key(const char *wrong, struct jwk *key, const char **ret_wrong)
{
    struct keyset *keys = wrong ? NULL : keyset_from_key(key);

    *ret_wrong = wrong ? wrong : keys ? NULL : "there is no memory for it";
    return keys;
}

struct keyset *jwt_read_keys(const struct jwt *jwt, const char **ret_wrong)
{
    struct postern_str text;
    struct keyset *keys = NULL;
    struct jwk key;
    size_t n = 0, skipped;
    char *bytes = read_file(jwt->file, &n, ret_wrong);

    if (!bytes)
        return NULL;
    text = (struct postern_str){bytes, n};
    if (jwt->from == KEYS_PEM) {
        keys = from_key(jwk_from_pem(text, &key), &key, ret_wrong);
    } else if (jwt->from == KEYS_JSON) {
        keys = keyset_from_json(text, false, &skipped, ret_wrong);
    } else {
        if (text.p[text.n - 1] == '\n')
            text.n--;
        keys = from_key(jwk_from_secret(text, &key), &key, ret_wrong);
    }
    OPENSSL_cleanse(bytes, n);
    free(bytes);
    return keys;
}

bool jwt_keys_serve(const struct jwt *jwt, const struct keyset *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        for (unsigned alg = 0; alg < ALG_COUNT; alg++)
            if (jwt->allowed[alg] && jwk_fits(&keys->keys[i], (enum alg)alg))
                return true;
    return false;
}

struct keyset *jwt_secret_keys(struct postern_str secret, const char **ret_wrong)
{
    struct jwk key;

    return from_key(jwk_from_secret(secret, &key), &key, ret_wrong);
}
