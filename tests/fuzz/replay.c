/* Runs a fuzz target over the files of its corpus: what once crashed must stay mended, with
 * no fuzzer installed. Arguments are files or directories; no input at all is a failure. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned replayed;

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    size_t size = 0, cap = 65536;
    uint8_t *data = malloc(cap);
    for (size_t n; data && (n = fread(data + size, 1, cap - size, file)) > 0;) {
        size += n;
        if (size == cap) {
            uint8_t *more = realloc(data, cap *= 2);
            if (!more)
                free(data);
            data = more;
        }
    }
    fclose(file);
    if (!data) {
        fprintf(stderr, "%s: %s\n", path, strerror(ENOMEM));
        return -1;
    }
    /* An exact copy, so that a read behind the input is a read behind an allocation. */
    uint8_t *exact = malloc(size ? size : 1);
    if (exact) {
        if (size)
            memcpy(exact, data, size);
        printf("%s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(exact, size);
        replayed++;
    }
    free(exact);
    free(data);
    return exact ? 0 : -1;
}

static int replay(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return replay_file(path);
    int err = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        int n = snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        if (n < 0 || (size_t)n >= sizeof(inner) || replay_file(inner) < 0)
            err = -1;
    }
    closedir(dir);
    return err;
}

int main(int argc, char **argv)
{
    int err = 0;
    for (int i = 1; i < argc; i++)
        err |= replay(argv[i]);
    printf("%u inputs\n", replayed);
    return err || !replayed ? EXIT_FAILURE : EXIT_SUCCESS;
}
