#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/load.h"

static int read_all(int fd, size_t max, struct str *ret_text)
{
    size_t cap = 4096, n = 0;
    char *text = mem_alloc(cap);
    if (!text)
        return -ENOMEM;
    for (;;) {
        ssize_t got = read(fd, text + n, cap - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 || (n += (size_t)got) > max) {
            int err = got < 0 ? -errno : -EFBIG;
            mem_free(text);
            return err;
        }
        if (got == 0)
            break;
        if (n == cap) {
            char *more = mem_realloc(text, cap *= 2);
            if (!more) {
                mem_free(text);
                return -ENOMEM;
            }
            text = more;
        }
    }
    *ret_text = (struct str){text, n};
    return 0;
}

int include_read(const char *path, size_t max, struct str *ret_text)
{
    /* without O_NONBLOCK a FIFO of that name would hang the start */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    struct stat st;
    int err = fstat(fd, &st) < 0 ? -errno : 0;
    if (err == 0 && S_ISDIR(st.st_mode))
        err = -EISDIR;
    if (err == 0 && !S_ISREG(st.st_mode))
        err = -EINVAL;
    if (err == 0)
        err = read_all(fd, max, ret_text);
    close(fd);
    return err;
}

const char *include_why(int err)
{
    switch (err) {
    case -EISDIR:
        return "it is a directory, expected a file";
    case -EINVAL:
        return "it is a device, a pipe or a socket, expected a file";
    case -EFBIG:
        return "it is larger than a file of its kind may be";
    default:
        return strerror(-err);
    }
}

static size_t dir_length(const char *file, struct str name)
{
    const char *slash = strrchr(file, '/');
    return (name.n && name.p[0] == '/') || !slash ? 0 : (size_t)(slash - file) + 1;
}

char *include_path(struct load *load, const char *file, struct str name)
{
    size_t dir = dir_length(file, name);
    char *path = load_alloc(load, dir + name.n + 1, 1);
    if (!path)
        return NULL;
    memcpy(path, file, dir);
    memcpy(path + dir, name.p, name.n);
    return path;
}

char *include_absolute(struct load *load, const char *file, struct str name)
{
    char cwd[PATH_MAX];
    char *path = include_path(load, file, name);
    if (!path || path[0] == '/' || !getcwd(cwd, sizeof(cwd)))
        return path;
    size_t n = strlen(cwd), more = strlen(path);
    char *joined = load_alloc(load, n + more + 2, 1);
    if (!joined)
        return NULL;
    memcpy(joined, cwd, n);
    joined[n] = '/';
    memcpy(joined + n + 1, path, more);
    return joined;
}

/* As include_path, but the directory's own bytes are no wildcards. */
static char *include_pattern(struct load *load, const char *file, struct str name)
{
    size_t dir = dir_length(file, name), n = 0;
    char *pattern = load_alloc(load, 2 * dir + name.n + 1, 1);
    if (!pattern)
        return NULL;
    for (size_t i = 0; i < dir; i++) {
        if (strchr("*?[\\", file[i]))
            pattern[n++] = '\\';
        pattern[n++] = file[i];
    }
    memcpy(pattern + n, name.p, name.n);
    return pattern;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int on_glob_error(const char *path, int err)
{
    (void)path;
    errno = err;
    return 1; /* glob returns at once, errno still tells why */
}

void include_each(struct load *load, struct conf_where where, struct str name,
                  void (*on_file)(void *arg, const char *path), void *arg)
{
    char *pattern = include_pattern(load, where.file, name);
    if (!pattern)
        return;
    glob_t found = {0};
    errno = 0;
    int rc = glob(pattern, GLOB_NOSORT, on_glob_error, &found);
    /* a directory without files is fine, a file that is named and missing is not */
    if (rc == GLOB_NOMATCH && !strpbrk(name.p, "*?["))
        conf_fault(load->faults, where, "cannot read %s: %s", pattern, strerror(ENOENT));
    else if (rc != 0 && rc != GLOB_NOMATCH)
        conf_fault(load->faults, where, "cannot look for %s: %s", pattern,
                   rc == GLOB_NOSPACE ? strerror(ENOMEM) : strerror(errno));
    if (rc == 0) {
        /* not in glob's own order: that follows the locale */
        qsort(found.gl_pathv, found.gl_pathc, sizeof(char *), compare_names);
        for (size_t i = 0; i < found.gl_pathc; i++)
            on_file(arg, found.gl_pathv[i]);
    }
    globfree(&found);
}
