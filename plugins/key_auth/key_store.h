/* A file that is changed by postern-keys: locked while that works, replaced whole, and with the
 * mode, owner and group that it had. One thread. */
#ifndef POSTERN_KEY_AUTH_KEY_STORE_H
#define POSTERN_KEY_AUTH_KEY_STORE_H

#include <stddef.h>
#include <sys/stat.h>

struct key_store {
    char *path; /* behind all symbolic links */
    int fd;     /* locked; -1: there is no such file yet */
    struct stat st;
};

/* 0 or -errno; waits for another one who works on the file. */
int key_store_open(struct key_store *store, const char *path);
/* The file is replaced by these bytes at once, and is on disk when this returns. 0 or -errno;
 * -EEXIST: somebody else made the file meanwhile. */
int key_store_replace(struct key_store *store, const char *text, size_t n);
void key_store_close(struct key_store *store);

#endif
