#include "key_store.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* A lock on the file that the path names now: who waited may hold one on a file that was
 * replaced meanwhile. */
static int open_locked(struct key_store *store)
{
    for (;;) {
        struct stat now;
        store->fd = open(store->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (store->fd < 0)
            return errno == ENOENT ? 0 : -errno;
        if (flock(store->fd, LOCK_EX) < 0 || fstat(store->fd, &store->st) < 0)
            return -errno;
        if (stat(store->path, &now) == 0 && now.st_ino == store->st.st_ino &&
            now.st_dev == store->st.st_dev)
            return S_ISREG(now.st_mode) ? 0 : -EINVAL;
        close(store->fd);
    }
}

int key_store_open(struct key_store *store, const char *path)
{
    store->fd = -1;
    store->path = realpath(path, NULL);
    if (!store->path && errno == ENOENT)
        store->path = strdup(path);
    if (!store->path)
        return -errno;
    int err = open_locked(store);
    if (err)
        key_store_close(store);
    return err;
}

void key_store_close(struct key_store *store)
{
    if (store->fd >= 0)
        close(store->fd);
    free(store->path);
    store->fd = -1;
    store->path = NULL;
}

static int write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, text, n);
        if (done < 0 && errno != EINTR)
            return -errno;
        text += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

/* Mode, owner and group as they were; a new file is not for everyone to read. */
static int dress(const struct key_store *store, int fd)
{
    struct stat st;
    mode_t mode = store->fd >= 0 ? store->st.st_mode & 07777 : 0640;
    if (store->fd >= 0) {
        if (fstat(fd, &st) < 0)
            return -errno;
        if ((st.st_uid != store->st.st_uid || st.st_gid != store->st.st_gid) &&
            fchown(fd, store->st.st_uid, store->st.st_gid) < 0)
            return -errno;
    }
    return fchmod(fd, mode) < 0 ? -errno : 0;
}

/* Makes the rename itself last over a loss of power. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    int fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

int key_store_replace(struct key_store *store, const char *text, size_t n)
{
    char *temp;
    if (asprintf(&temp, "%s.XXXXXX", store->path) < 0)
        return -ENOMEM;
    int err, fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        err = -errno;
        free(temp);
        return err;
    }
    err = dress(store, fd);
    if (!err)
        err = write_all(fd, text, n);
    close(fd);
    /* A new file must not take the place of one that came meanwhile. */
    if (!err && (store->fd >= 0 ? rename(temp, store->path) : link(temp, store->path)) < 0)
        err = -errno;
    if (err || store->fd < 0)
        unlink(temp);
    if (!err)
        sync_folder(store->path);
    free(temp);
    return err;
}
