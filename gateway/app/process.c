#include "app/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/sock.h"

#define FILES_SPARE 32 /* logs, event loops, libraries */

static void fault(struct conf_where where, struct conf_faults *faults, const char *what,
                  const char *name, const char *why)
{
    conf_fault(faults, where, "%s \"%s\": %s", what, name, why);
}

static uint64_t files_needed(const struct conf *conf)
{
    uint64_t addrs = 1, warm = 0;
    for (size_t i = 0; i < conf->listener_count; i++)
        addrs += conf->listeners[i].addr_count;
    for (size_t i = 0; i < conf->upstream_count; i++)
        warm += (uint64_t)conf->upstreams[i].pool.warm * conf->upstreams[i].server_count;
    return FILES_SPARE + conf->workers * (addrs + 3) + warm;
}

int process_limits(const struct conf *conf, struct conf_faults *faults)
{
    struct rlimit limit;
    uint64_t needed = files_needed(conf);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    needed += sock_limit(limit.rlim_cur);
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed)
        return 0;
    conf_fault(
        faults, (struct conf_where){conf->file, 0},
        "the limit of open files is %llu, but listeners, warm connections and what is kept "
        "for the admin listener and logs alone need %llu: raise it (ulimit -n, LimitNOFILE=) "
        "or lower pool.warm or workers",
        (unsigned long long)limit.rlim_cur, (unsigned long long)needed);
    return -1;
}

int process_open_logs(const struct conf *conf, struct conf_faults *faults)
{
    const char *path = "";
    int rc = log_set_paths(conf->error_log.path, conf->access_log.path, &path);
    if (rc == 0)
        return 0;
    bool of_access = path == conf->access_log.path;
    fault(of_access ? conf->access_log.path_at : conf->error_log.path_at, faults,
          of_access ? "access_log: cannot open" : "error_log: cannot open", path,
          strerror(-rc));
    return -1;
}

int process_write_pid(const struct conf *conf, struct conf_faults *faults)
{
    if (!conf->pid_file)
        return 0;
    char text[32];
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    int fd = open(conf->pid_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    bool ok = fd >= 0 && write(fd, text, (size_t)n) == n;
    if (!ok)
        fault(conf->pid_file_at, faults, "cannot write pid_file", conf->pid_file,
              strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok ? 0 : -1;
}

void process_remove_pid(const char *path)
{
    if (path)
        unlink(path);
}

/* USR1 opens log files anew when root is given up already: they are the user's. */
static void give_log(const char *path, const struct passwd *user)
{
    if (!path || strcmp(path, "-") == 0 || strcmp(path, "off") == 0)
        return;
    if (chown(path, user->pw_uid, user->pw_gid) < 0)
        log_warn("cannot give log %s to user \"%s\": %s", path, user->pw_name, strerror(errno));
}

int process_drop_root(const struct conf *conf, struct conf_faults *faults)
{
    if (!conf->user || geteuid() != 0)
        return 0;
    errno = 0;
    const struct passwd *user = getpwnam(conf->user);
    if (!user) {
        fault(conf->user_at, faults, "user", conf->user,
              errno ? strerror(errno) : "there is no such user on this system");
        return -1;
    }
    give_log(conf->error_log.path, user);
    give_log(conf->access_log.path, user);
    if (initgroups(conf->user, user->pw_gid) < 0 || setgid(user->pw_gid) < 0 ||
        setuid(user->pw_uid) < 0) {
        fault(conf->user_at, faults, "cannot become user", conf->user, strerror(errno));
        return -1;
    }
    return 0;
}
