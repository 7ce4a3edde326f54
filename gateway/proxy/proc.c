#include "proxy/proc.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "proxy/metrics.h"

static void write_one(FILE *out, const char *name, const char *type, const char *help,
                      double value)
{
    metrics_write_head(out, name, type, help);
    metrics_write_value(out, name, NULL, value);
}

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n - 1; /* not the one that counts */
}

/* The first line of a file in /proc; empty where there is none. */
static void read_line(const char *path, char *buf, size_t n)
{
    FILE *file = fopen(path, "re");

    buf[0] = '\0';
    if (!file)
        return;
    if (!fgets(buf, (int)n, file))
        buf[0] = '\0';
    fclose(file);
}

/* When the machine began, in seconds since 1970. From the clocks: /proc/stat, which says it
 * too, is not there for services that see only processes in /proc. */
static double boot_time(void)
{
    struct timespec wall, up;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_BOOTTIME, &up);
    return (double)(wall.tv_sec - up.tv_sec) +
           (double)(wall.tv_nsec - up.tv_nsec) / (double)NS_PER_S;
}

/* A number from /proc/self/stat, as proc(5) counts the fields, or NaN where /proc does not
 * tell. */
static double stat_field(int wanted)
{
    char buf[1024], *p;

    read_line("/proc/self/stat", buf, sizeof(buf));
    /* The second one, in parentheses, may hold anything. */
    p = strrchr(buf, ')');
    for (int field = 2; p && field < wanted; field++)
        p = strchr(p + 1, ' ');
    return p ? (double)strtoull(p, NULL, 10) : NAN;
}

/* As boot_time, of this process. */
static double start_time(void)
{
    return boot_time() + stat_field(22) / (double)sysconf(_SC_CLK_TCK);
}

static double most(const struct rlimit *limit)
{
    return limit->rlim_cur == RLIM_INFINITY ? INFINITY : (double)limit->rlim_cur;
}

static double started;

/* Once: a clock that is set meanwhile does not make it another start. */
static void find_start(void)
{
    started = start_time();
}

void proc_write(FILE *out)
{
    double page = (double)sysconf(_SC_PAGESIZE);
    unsigned long pages, resident;
    struct timespec cpu = {0};
    struct rlimit files = {0}, space = {0};
    char statm[128], *rest;
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_start);
    read_line("/proc/self/statm", statm, sizeof(statm));
    pages = strtoul(statm, &rest, 10);
    resident = strtoul(rest, NULL, 10);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_AS, &space);
    write_one(out, "process_cpu_seconds_total", "counter",
              "Total user and system CPU time spent in seconds.",
              (double)cpu.tv_sec + (double)cpu.tv_nsec / (double)NS_PER_S);
    write_one(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
              (double)resident * page);
    write_one(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
              (double)pages * page);
    write_one(out, "process_virtual_memory_max_bytes", "gauge",
              "Maximum amount of virtual memory available in bytes.", most(&space));
    write_one(out, "process_threads", "gauge", "Number of OS threads in the process.",
              stat_field(20));
    write_one(out, "process_open_fds", "gauge", "Number of open file descriptors.",
              open_descriptors());
    write_one(out, "process_max_fds", "gauge", "Maximum number of open file descriptors.",
              most(&files));
    write_one(out, "process_start_time_seconds", "gauge",
              "Start time of the process since unix epoch in seconds.", started);
}
