#include "key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "key_lines.h"

struct reader {
    struct key_file *file;
    struct key_report *report;
    const char *salt;        /* of the whole file, or NULL */
    struct key_entry *entry; /* the one at hand */
    size_t number;           /* of it, from 1 */
    const char *own_salt;    /* of it, or NULL */
    bool has_hash;
};

void key_report_fault(struct key_report *report, unsigned line, const char *fmt, ...)
{
    char text[512];
    if (report->count++ >= KEY_FAULTS)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    report->say(report->arg, line, text);
}

#define FAULT(r, fmt, ...)                                                                     \
    key_report_fault((r)->report, (r)->entry->line, "entry %zu: " fmt,                         \
                     (r)->number __VA_OPT__(, ) __VA_ARGS__)

static void no_memory(struct key_report *report)
{
    key_report_fault(report, 0, "out of memory");
}

static char *copy(struct reader *r, const char *text)
{
    char *it = strdup(text);
    if (!it)
        no_memory(r->report);
    return it;
}

/* What may become a header's value as it stands. */
static bool is_field(const char *text, size_t n)
{
    if (n == 0 || text[0] == ' ' || text[n - 1] == ' ')
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return true;
}

/* A text of 1 to `max` bytes without control bytes, or NULL and a fault. */
static const char *field(struct reader *r, const char *name, const json_t *value, size_t max)
{
    size_t n = json_string_length(value);
    if (!json_is_string(value) || n > max || !is_field(json_string_value(value), n)) {
        FAULT(r,
              "%s: expected a text of 1 to %zu bytes, without control characters and spaces at "
              "its ends",
              name, max);
        return NULL;
    }
    return json_string_value(value);
}

static void take_text(struct reader *r, const char *name, const json_t *value, char **ret)
{
    const char *text = field(r, name, value, 256);
    if (!text)
        return;
    if (*ret)
        FAULT(r, "%s: stands twice, under two names", name);
    else
        *ret = copy(r, text);
}

static void take_consumer(struct reader *r, const char *name, const json_t *value)
{
    take_text(r, name, value, &r->entry->consumer);
}

static void take_id(struct reader *r, const char *name, const json_t *value)
{
    take_text(r, name, value, &r->entry->id);
}

static void take_key(struct reader *r, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    bool visible = text && n > 0 && n <= KEY_BYTES;
    for (size_t i = 0; visible && i < n; i++)
        visible = text[i] > 0x20 && text[i] < 0x7f;
    if (!visible)
        FAULT(r, "%s: expected a text of 1 to %u visible ASCII characters", name, KEY_BYTES);
    else if ((r->entry->key = copy(r, text)))
        r->file->plain_count++;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void take_hash(struct reader *r, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && strncmp(text, "sha256:", 7) == 0)
        text += 7;
    bool is_hex = text && strlen(text) == 2 * (size_t)KEY_HASH;
    for (size_t i = 0; is_hex && i < KEY_HASH; i++) {
        int high = hex(text[2 * i]), low = hex(text[2 * i + 1]);
        is_hex = high >= 0 && low >= 0;
        r->entry->hash[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
    }
    if (!is_hex)
        FAULT(r, "%s: expected \"sha256:\" and 64 hexadecimal digits", name);
    if (r->has_hash)
        FAULT(r, "%s: a second hash in one entry", name);
    r->has_hash = true;
}

static void take_salt(struct reader *r, const char *name, const json_t *value)
{
    r->own_salt = field(r, name, value, 128);
}

/* RFC 6749 3.3 */
static bool is_scope(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p < 0x21 || *p > 0x7e || *p == '"' || *p == '\\')
            return false;
    return *text;
}

static bool add_scope(struct reader *r, const char *token)
{
    char *old = r->entry->scope, *scope;
    if (asprintf(&scope, "%s%s%s", old ? old : "", old ? " " : "", token) < 0) {
        no_memory(r->report);
        return false;
    }
    free(old);
    r->entry->scope = scope;
    return true;
}

/* An array of scopes, or one text with spaces between them. */
static void take_scope(struct reader *r, const char *name, const json_t *value)
{
    size_t i;
    const json_t *one;
    char *words = NULL, *rest = NULL;
    bool right = json_is_array(value) || json_is_string(value);
    json_array_foreach(value, i, one)
    {
        right = right && json_is_string(one) && is_scope(json_string_value(one));
        if (right && !add_scope(r, json_string_value(one)))
            return;
    }
    if (json_is_string(value) && !(words = copy(r, json_string_value(value))))
        return;
    for (char *word = words ? strtok_r(words, " ", &rest) : NULL; word;
         word = strtok_r(NULL, " ", &rest)) {
        right = right && is_scope(word);
        if (right && !add_scope(r, word))
            break;
    }
    free(words);
    if (!right)
        FAULT(r,
              "%s: expected scopes of visible ASCII characters, as an array or as one text "
              "with spaces between",
              name);
}

static void take_expires(struct reader *r, const char *name, const json_t *value)
{
    static const json_int_t max = 253402300799; /* the year 9999 */
    json_int_t seconds = json_integer_value(value);
    if (json_is_null(value))
        return;
    if (json_is_string(value) &&
        key_time_parse(json_string_value(value), &r->entry->expires_ms))
        return;
    if (json_is_integer(value) && seconds >= 0 && seconds <= max) {
        r->entry->expires_ms = (int64_t)seconds * 1000;
        return;
    }
    FAULT(r,
          "%s: expected a time as \"2027-01-31T12:00:00Z\" or \"2027-01-31\", or seconds since "
          "1970",
          name);
}

static void take_enabled(struct reader *r, const char *name, const json_t *value)
{
    if (!json_is_boolean(value))
        FAULT(r, "%s: expected true or false", name);
    else if (json_is_true(value) != (name[0] == 'e'))
        r->entry->enabled = false;
}

/* A member of "metadata" as text; NULL: neither text, number nor boolean. */
static char *plain_text(const json_t *value)
{
    char *text = NULL;
    if (json_is_string(value))
        return is_field(json_string_value(value), json_string_length(value))
                   ? strdup(json_string_value(value))
                   : NULL;
    if (json_is_boolean(value))
        return strdup(json_is_true(value) ? "true" : "false");
    if (json_is_number(value))
        text = json_dumps(value, JSON_ENCODE_ANY);
    return text;
}

static void take_metadata(struct reader *r, const char *name, const json_t *value)
{
    const char *member;
    json_t *one;
    if (!json_is_object(value) || json_object_size(value) > KEY_META) {
        FAULT(r, "%s: expected an object of at most %u members", name, KEY_META);
        return;
    }
    r->entry->meta = calloc(json_object_size(value) + 1, sizeof(*r->entry->meta));
    if (!r->entry->meta) {
        no_memory(r->report);
        return;
    }
    json_object_foreach((json_t *)value, member, one)
    {
        struct key_meta *meta = &r->entry->meta[r->entry->meta_count++];
        meta->name = copy(r, member);
        meta->value = plain_text(one);
        if (!meta->value || strlen(meta->value) > 1024)
            FAULT(r,
                  "%s: member \"%.64s\": expected a number, true, false, or a text of 1 to "
                  "1024 bytes without "
                  "control characters and spaces at its ends",
                  name, member);
    }
}

static void ignore(struct reader *r, const char *name, const json_t *value)
{
    (void)r;
    (void)name;
    (void)value;
}

static const struct {
    const char *name;
    void (*take)(struct reader *r, const char *name, const json_t *value);
} members[] = {
    {"key", take_key},         {"hash", take_hash},         {"sha256", take_hash},
    {"salt", take_salt},       {"consumer", take_consumer}, {"name", take_consumer},
    {"id", take_id},           {"scope", take_scope},       {"scopes", take_scope},
    {"expires", take_expires}, {"enabled", take_enabled},   {"disabled", take_enabled},
    {"comment", ignore},       {"metadata", take_metadata}, {"created", ignore},
};
#define EXPECTED                                                                               \
    "expected key or hash, salt, consumer, id, scopes, expires, enabled, metadata, created, "  \
    "comment"

static void take_member(struct reader *r, const char *name, const json_t *value)
{
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (strcmp(members[i].name, name) == 0) {
            members[i].take(r, name, value);
            return;
        }
    }
    FAULT(r, "unknown member \"%.64s\"; " EXPECTED, name);
}

/* The salt's place in the file's list. */
static void find_salt(struct reader *r)
{
    struct key_file *file = r->file;
    const char *salt = r->own_salt ? r->own_salt : r->salt ? r->salt : "";
    for (unsigned i = 0; i < file->salt_count; i++) {
        if (strcmp(file->salts[i], salt) == 0) {
            r->entry->salt = i;
            return;
        }
    }
    if (file->salt_count == KEY_SALTS) {
        FAULT(r,
              "salt: more than %u different ones; expected one \"salt\" for the whole file, "
              "beside \"keys\"",
              KEY_SALTS);
        return;
    }
    file->salts[file->salt_count] = copy(r, salt);
    if (file->salts[file->salt_count])
        r->entry->salt = file->salt_count++;
}

static void take_entry(struct reader *r, json_t *value)
{
    const char *name;
    json_t *member;
    r->entry->enabled = true;
    r->entry->expires_ms = KEY_NEVER;
    r->own_salt = NULL;
    r->has_hash = false;
    if (!json_is_object(value)) {
        FAULT(r, "expected an object such as {\"key\": \"...\", \"consumer\": \"alice\"}");
        return;
    }
    unsigned before = r->report->count;
    json_object_foreach(value, name, member) take_member(r, name, member);
    if (r->report->count != before)
        return; /* what is missing may be what was wrong */
    if (!r->entry->consumer)
        FAULT(r, "no \"consumer\": expected the name of who has this key");
    if (!r->entry->key && !r->has_hash)
        FAULT(r, "no \"hash\" and no \"key\": expected one of them");
    if (r->entry->key && r->has_hash)
        FAULT(r, "both \"key\" and \"hash\": expected one of them");
    if (r->has_hash)
        find_salt(r);
}

/* The array of entries, and the salt beside it; NULL: a fault. */
static json_t *find_entries(struct reader *r, json_t *root)
{
    const char *name;
    json_t *value, *keys = json_is_array(root) ? root : json_object_get(root, "keys");
    if (!json_is_array(keys)) {
        key_report_fault(
            r->report, 1,
            "expected {\"keys\": [{\"key\": \"...\", \"consumer\": \"alice\"}, ...]}");
        return NULL;
    }
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "salt") == 0) {
            r->salt = json_string_value(value);
            if (!r->salt || !*r->salt || json_string_length(value) > 128) {
                key_report_fault(r->report, 1, "salt: expected a text of 1 to 128 bytes");
                return NULL;
            }
        } else if (strcmp(name, "keys") != 0 && strcmp(name, "comment") != 0) {
            key_report_fault(r->report, 1,
                             "unknown member \"%.64s\"; expected keys, salt, comment", name);
            return NULL;
        }
    }
    if (json_array_size(keys) > KEY_ENTRIES) {
        key_report_fault(r->report, 1, "%zu entries, at most %u", json_array_size(keys),
                         KEY_ENTRIES);
        return NULL;
    }
    return keys;
}

static void take_entries(struct reader *r, json_t *root, const char *text, size_t n)
{
    json_t *keys = find_entries(r, root);
    size_t count = json_array_size(keys);
    if (!keys)
        return;
    unsigned *lines = calloc(count + 1, sizeof(*lines));
    r->file->entries = calloc(count + 1, sizeof(*r->file->entries));
    if (lines && r->file->entries) {
        key_lines(text, n, lines, count);
        r->file->count = count;
        for (size_t i = 0; i < count; i++) {
            r->entry = &r->file->entries[i];
            r->entry->line = lines[i];
            r->number = i + 1;
            take_entry(r, json_array_get(keys, i));
        }
    } else {
        no_memory(r->report);
    }
    free(lines);
}

struct key_file *key_file_parse(const char *text, size_t n, struct key_report *report)
{
    json_error_t error;
    unsigned before = report->count;
    struct reader r = {.report = report, .file = calloc(1, sizeof(*r.file))};
    if (!r.file) {
        no_memory(report);
        return NULL;
    }
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        /* What jansson quotes of the text may be a key. */
        char *near = strstr(error.text, " near '");
        if (near)
            *near = '\0';
        key_report_fault(report, error.line > 0 ? (unsigned)error.line : 1, "no JSON: %s",
                         error.text);
    } else {
        take_entries(&r, root, text, n);
        json_decref(root);
    }
    if (report->count == before)
        return r.file;
    key_file_free(r.file);
    return NULL;
}

static void wipe(char **key)
{
    if (*key) {
        OPENSSL_cleanse(*key, strlen(*key));
        free(*key);
        *key = NULL;
    }
}

void key_file_wipe(struct key_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        wipe(&file->entries[i].key);
}

void key_file_free(struct key_file *file)
{
    if (!file)
        return;
    key_file_wipe(file);
    for (size_t i = 0; i < file->count; i++) {
        struct key_entry *entry = &file->entries[i];
        for (size_t j = 0; j < entry->meta_count; j++) {
            free(entry->meta[j].name);
            free(entry->meta[j].value);
        }
        free(entry->meta);
        free(entry->consumer);
        free(entry->id);
        free(entry->scope);
    }
    for (unsigned i = 0; i < file->salt_count; i++)
        free(file->salts[i]);
    free(file->entries);
    free(file);
}

int key_file_read(const char *path, char **ret_text, size_t *ret_n, struct stat *ret_stat)
{
    struct stat st;
    size_t n = 0;
    char *text = NULL;
    int err = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        err = -errno;
    else if (!S_ISREG(st.st_mode))
        err = -EINVAL;
    else if (st.st_size > KEY_FILE_BYTES)
        err = -EFBIG;
    else if (!(text = malloc((size_t)st.st_size + 1)))
        err = -ENOMEM;
    while (!err) {
        ssize_t got = read(fd, text + n, (size_t)st.st_size + 1 - n);
        if (got < 0 && errno != EINTR)
            err = -errno;
        if (got == 0)
            break;
        n += got > 0 ? (size_t)got : 0;
        if (n > (size_t)st.st_size)
            err = -EAGAIN; /* it grows while it is read */
    }
    close(fd);
    if (err) {
        free(text);
        return err;
    }
    *ret_text = text;
    *ret_n = n;
    *ret_stat = st;
    return 0;
}
