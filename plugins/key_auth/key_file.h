/* The file of keys: from JSON to checked entries.
 *
 *   { "salt": "…", "keys": [ { "hash": "sha256:…", "consumer": "alice" }, … ] }
 *
 * Tolerant in shape (a bare array, a salt of each entry's own, keys in plain text), strict in
 * meaning: whatever is not understood is a fault that names line and entry, for a misspelt
 * "expires" would else be a key that lasts for ever. A key itself never stands in a fault.
 *
 * Everything belongs to the struct key_file. Any thread, one at a time. */
#ifndef POSTERN_KEY_AUTH_KEY_FILE_H
#define POSTERN_KEY_AUTH_KEY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_FILE_BYTES (32u << 20)
#define KEY_ENTRIES    1000000u
#define KEY_BYTES      1024u /* of one key */
#define KEY_SALTS      16u   /* different ones; each costs an unknown key one more hash */
#define KEY_META       32u
#define KEY_HASH       32u
#define KEY_NEVER      INT64_MAX

struct key_meta {
    char *name, *value;
};

struct key_entry {
    char *consumer, *id, *scope; /* id, scope: NULL: none; scope: separated by one space */
    struct key_meta *meta;
    size_t meta_count;
    int64_t expires_ms; /* since 1970, or KEY_NEVER */
    bool enabled;
    char *key;              /* in plain text; NULL: only its hash is known */
    uint8_t hash[KEY_HASH]; /* SHA-256 of the salt's bytes and the key's */
    unsigned salt;          /* index into the file's */
    unsigned line;          /* 0: not known */
};

struct key_file {
    struct key_entry *entries;
    size_t count, plain_count;
    char *salts[KEY_SALTS];
    unsigned salt_count;
};

/* Who hears of faults. `line` 0: of the file as a whole. */
struct key_report {
    void (*say)(void *arg, unsigned line, const char *text);
    void *arg;
    unsigned count; /* said so far; after KEY_FAULTS of them only counted */
};
#define KEY_FAULTS 20u

void key_report_fault(struct key_report *report, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* NULL: at least one fault was reported. */
struct key_file *key_file_parse(const char *text, size_t n, struct key_report *report);
void key_file_free(struct key_file *file); /* keys are wiped; NULL is fine */
void key_file_wipe(struct key_file *file); /* the plain keys only; their entries stay */

/* A whole file at most KEY_FILE_BYTES long, in *ret_text (free() it), with what stat says in
 * *ret_stat. 0 or -errno: -EFBIG, and -EINVAL when it is no regular file. */
struct stat;
int key_file_read(const char *path, char **ret_text, size_t *ret_n, struct stat *ret_stat);

/* "2027-01-31", "2027-01-31T12:00:00Z", "…+01:00" to milliseconds since 1970. */
bool key_time_parse(const char *text, int64_t *ret_ms);

#endif
