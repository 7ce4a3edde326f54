/* What postern-keys does to a keys file, as changes of its JSON. What it does not understand
 * stays as it is. One thread. */
#ifndef POSTERN_KEY_AUTH_KEY_EDIT_H
#define POSTERN_KEY_AUTH_KEY_EDIT_H

#include <jansson.h>
#include <stdbool.h>

#define KEY_NEW_BYTES 64 /* holds a new key or salt, with its NUL */

/* 256 bits from the system as text behind `prefix`. False: it gives none. */
bool key_edit_random(const char *prefix, char out[KEY_NEW_BYTES]);

/* The entries of a document, or NULL: it has none. */
json_t *key_edit_entries(json_t *root);
json_t *key_edit_new(void); /* a document without keys; NULL: no memory */

/* Gives an entry the hash of `key`, under the salt of the file or, in a bare array, of another
 * entry; makes one if there is none. 0 or -errno. */
int key_edit_set_hash(json_t *root, json_t *entry, const char *key);

/* An entry's id, or "#3" where it has none. */
void key_edit_name(const json_t *entry, size_t i, char *out, size_t size);

/* Calls act(entries, i) for each entry of that name, or with that consumer, from the last to
 * the first; returns how many there were. */
size_t key_edit_each(json_t *entries, const char *name, bool is_consumer,
                     void (*act)(json_t *entries, size_t i));
void key_edit_revoke(json_t *entries, size_t i);
void key_edit_disable(json_t *entries, size_t i);
void key_edit_enable(json_t *entries, size_t i);

/* Hashes all that stands in plain text. How many, or -errno. */
int key_edit_hash_all(json_t *root);

#endif
