#include "key_source.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct key_source {
    char *path;
    uint8_t seen[KEY_HASH]; /* SHA-256 of what was read last */
    int error;              /* why it could not be read then, or 0 */
    bool has_failed;
    bool is_open;
    _Atomic(struct key_table *) table;
};

struct key_source *key_source_new(const char *path)
{
    struct key_source *source = calloc(1, sizeof(*source));
    if (!source)
        return NULL;
    source->path = strdup(path);
    if (!source->path) {
        free(source);
        return NULL;
    }
    return source;
}

void key_source_free(struct key_source *source)
{
    if (!source)
        return;
    key_table_free(atomic_load(&source->table));
    free(source->path);
    free(source);
}

static const char *reading_failed(int error)
{
    switch (error) {
    case -EFBIG:
        return "larger than 32 MiB";
    case -EINVAL:
        return "no regular file";
    case -EAGAIN:
        return "it changes while it is read";
    default:
        return strerror(-error);
    }
}

/* Whether these are the bytes of the last time. */
static bool is_seen(struct key_source *source, const char *text, size_t n)
{
    uint8_t hash[KEY_HASH];
    if (EVP_Digest(text, n, hash, NULL, EVP_sha256(), NULL) != 1)
        return false;
    bool is_same = memcmp(hash, source->seen, sizeof(hash)) == 0;
    memcpy(source->seen, hash, sizeof(hash));
    return is_same;
}

int key_source_refresh(struct key_source *source, bool again, struct key_report *report,
                       struct key_table **ret_old)
{
    char *text;
    size_t n;
    struct stat st;
    int before = source->error;
    source->error = key_file_read(source->path, &text, &n, &st);
    if (source->error) {
        if (source->error == before && !again)
            return 0;
        memset(source->seen, 0, sizeof(source->seen));
        key_report_fault(report, 0, "%s", reading_failed(source->error));
        return -1;
    }
    source->is_open = st.st_mode & S_IROTH;
    struct key_table *table = NULL;
    bool is_news = !is_seen(source, text, n) || (again && source->has_failed);
    struct key_file *file = is_news ? key_file_parse(text, n, report) : NULL;
    OPENSSL_cleanse(text, n);
    free(text);
    if (!is_news)
        return 0;
    table = file ? key_table_new(file, report) : NULL;
    source->has_failed = !table;
    if (!table)
        return -1;
    *ret_old = atomic_exchange_explicit(&source->table, table, memory_order_acq_rel);
    return 1;
}

struct key_table *key_source_table(const struct key_source *source)
{
    return atomic_load_explicit(&source->table, memory_order_acquire);
}

const char *key_source_path(const struct key_source *source)
{
    return source->path;
}

bool key_source_is_open(const struct key_source *source)
{
    return source->is_open;
}
