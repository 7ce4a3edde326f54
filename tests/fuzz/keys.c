/* A keys file: whatever it holds, it is keys that are all found, or it has faults. */
#include <stdlib.h>
#include <string.h>

#include "key_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void hear(void *arg, unsigned line, const char *text)
{
    (void)arg;
    (void)line;
    if (strlen(text) >= 512)
        abort();
}

/* A key that stands in plain text opens its own entry. */
static void check(struct key_file *file, struct key_report *report)
{
    char key[KEY_BYTES + 1] = "";
    size_t at = 0;
    for (size_t i = 0; i < file->count && !*key; i++) {
        at = i;
        if (file->entries[i].key)
            strcpy(key, file->entries[i].key);
    }
    struct key_table *table = key_table_new(file, report);
    if (table && *key &&
        key_table_known(table, key, strlen(key)) != &key_table_file(table)->entries[at])
        abort();
    if (!table && !report->count)
        abort();
    key_table_free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct key_report report = {.say = hear};
    struct key_file *file = key_file_parse((const char *)data, size, &report);
    if ((file == NULL) != (report.count > 0))
        abort();
    if (file)
        check(file, &report);
    return 0;
}
