#include "key_edit.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "key_file.h"

#define KEY_SALT_MAX 129 /* of a file that was checked, with its NUL */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

bool key_edit_random(const char *prefix, char out[KEY_NEW_BYTES])
{
    uint8_t bytes[32];
    size_t n = strlen(prefix);
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes) || n + 44 > KEY_NEW_BYTES)
        return false;
    memcpy(out, prefix, n);
    /* base64url without padding, RFC 4648 5 */
    unsigned held = 0, bits = 0;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        held = held << 8 | bytes[i];
        for (bits += 8; bits >= 6; bits -= 6)
            out[n++] = digits[held >> (bits - 6) & 63];
    }
    out[n++] = digits[held << (6 - bits) & 63];
    out[n] = '\0';
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return true;
}

json_t *key_edit_entries(json_t *root)
{
    json_t *entries = json_is_array(root) ? root : json_object_get(root, "keys");
    return json_is_array(entries) ? entries : NULL;
}

json_t *key_edit_new(void)
{
    char salt[KEY_NEW_BYTES];
    return key_edit_random("", salt) ? json_pack("{s:s, s:[]}", "salt", salt, "keys") : NULL;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static const char *salt_of_another(const json_t *entries)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(entries, i, entry) if (text_of(entry, "salt")) return text_of(entry,
                                                                                     "salt");
    return NULL;
}

static bool has_unsalted(const json_t *entries)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(entries, i, entry) if (!json_object_get(entry, "key") &&
                                              !json_object_get(entry, "salt")) return true;
    return false;
}

/* The salt for the next hash: the document's, and where it has none a new one. A bare array has
 * no place for it, and beside entries that are hashed without one it would change their
 * meaning: there it stands in the entry. */
static int give_salt(json_t *root, json_t *entry, char out[KEY_SALT_MAX])
{
    const char *salt = text_of(root, "salt");
    bool is_own = !salt && (json_is_array(root) || has_unsalted(key_edit_entries(root)));
    char fresh[KEY_NEW_BYTES];
    if (salt) {
        snprintf(out, KEY_SALT_MAX, "%s", salt);
        return 0;
    }
    if (is_own)
        salt = salt_of_another(key_edit_entries(root));
    if (!salt && !key_edit_random("", fresh))
        return -EIO;
    snprintf(out, KEY_SALT_MAX, "%s", salt ? salt : fresh);
    return json_object_set_new(is_own ? entry : root, "salt", json_string(out)) ? -ENOMEM : 0;
}

int key_edit_set_hash(json_t *root, json_t *entry, const char *key)
{
    char salt[KEY_SALT_MAX], text[7 + 2 * KEY_HASH + 1] = "sha256:";
    uint8_t hash[KEY_HASH];
    int err = 0;
    const char *own = text_of(entry, "salt");
    if (own)
        snprintf(salt, sizeof(salt), "%s", own);
    else
        err = give_salt(root, entry, salt);
    if (err)
        return err;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1 ||
        EVP_DigestUpdate(ctx, salt, strlen(salt)) != 1 ||
        EVP_DigestUpdate(ctx, key, strlen(key)) != 1 ||
        EVP_DigestFinal_ex(ctx, hash, NULL) != 1)
        err = -ENOMEM;
    EVP_MD_CTX_free(ctx);
    for (size_t i = 0; !err && i < KEY_HASH; i++)
        snprintf(text + 7 + 2 * i, 3, "%02x", hash[i]);
    if (!err && json_object_set_new(entry, "hash", json_string(text)))
        err = -ENOMEM;
    return err;
}

void key_edit_name(const json_t *entry, size_t i, char *out, size_t size)
{
    const char *id = text_of(entry, "id");
    if (id)
        snprintf(out, size, "%s", id);
    else
        snprintf(out, size, "#%zu", i + 1);
}

static const char *consumer_of(const json_t *entry)
{
    const char *consumer = text_of(entry, "consumer");
    return consumer ? consumer : text_of(entry, "name");
}

size_t key_edit_each(json_t *entries, const char *name, bool is_consumer,
                     void (*act)(json_t *entries, size_t i))
{
    size_t found = 0;
    for (size_t i = json_array_size(entries); i-- > 0;) {
        char id[300];
        const json_t *entry = json_array_get(entries, i);
        key_edit_name(entry, i, id, sizeof(id));
        const char *has = is_consumer ? consumer_of(entry) : id;
        if (has && strcmp(has, name) == 0) {
            act(entries, i);
            found++;
        }
    }
    return found;
}

void key_edit_revoke(json_t *entries, size_t i)
{
    json_array_remove(entries, i);
}

static void set_enabled(json_t *entries, size_t i, bool enabled)
{
    json_t *entry = json_array_get(entries, i);
    json_object_del(entry, "disabled");
    json_object_del(entry, "enabled");
    if (!enabled)
        json_object_set_new(entry, "enabled", json_false());
}

void key_edit_disable(json_t *entries, size_t i)
{
    set_enabled(entries, i, false);
}

void key_edit_enable(json_t *entries, size_t i)
{
    set_enabled(entries, i, true);
}

int key_edit_hash_all(json_t *root)
{
    int count = 0;
    size_t i;
    json_t *entry, *entries = key_edit_entries(root);
    json_array_foreach(entries, i, entry)
    {
        const char *key = text_of(entry, "key");
        int err = key ? key_edit_set_hash(root, entry, key) : 0;
        if (err)
            return err;
        count += key != NULL;
        json_object_del(entry, "key");
    }
    return count;
}
