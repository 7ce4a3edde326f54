/* The error log: what an operator must know. And the machinery under both logs that never
 * blocks a worker: each worker has a ring of bytes, one thread writes them out.
 *
 * Lines are complete and end in LF; they are never interleaved. A full ring drops the line
 * and counts it. Nothing a client sends may log above info. */
#ifndef POSTERN_BASE_LOG_H
#define POSTERN_BASE_LOG_H

#include <stdio.h>

#include "base/str.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Any thread, before and after log_start. "TIMESTAMP level message". From a thread that has a
 * ring (log_attach) it goes through that ring; from others it is written at once. Control bytes
 * and bytes that are not UTF-8 in the arguments come out as \xNN. */
void log_write(enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define log_debug(...) (log_is_on(LOG_DEBUG) ? log_write(LOG_DEBUG, __VA_ARGS__) : (void)0)
#define log_info(...)  (log_is_on(LOG_INFO) ? log_write(LOG_INFO, __VA_ARGS__) : (void)0)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
bool log_is_on(enum log_level level);
void log_set_level(enum log_level level);

/* Where lines go. `error_path`: "-" or NULL standard error, else a file (appended, mode 0640).
 * `access_path`: "-" standard output, "off" or NULL nowhere. Called again to change them, on
 * reload (log_set_paths) and on USR1 (log_reopen). Main thread. 0 or -errno, with *ret_path the
 * one that could not be opened and the old ones kept. */
int log_set_paths(const char *error_path, const char *access_path, const char **ret_path);
int log_reopen(const char **ret_path);
/* Main thread. Start the writer thread; stop writes out what waits. */
int log_start(void);
void log_stop(void);

/* A worker's ring. `bytes` is rounded up to a power of two. NULL: no memory. */
struct log_ring;
struct log_ring *log_attach(size_t bytes); /* on the worker's thread; becomes log_write's too */
void log_detach(struct log_ring *ring);    /* on the worker's thread, when it ends */

/* Room for one access line of at most `max` bytes, or NULL when the ring is full (counted as
 * dropped). Write into it, then commit the bytes written (0: forget it). The line needs its LF.
 */
char *log_line_reserve(struct log_ring *ring, size_t max);
void log_line_commit(struct log_ring *ring, size_t n);
/* Whether access lines go anywhere. Cheap; any thread. */
bool log_access_is_on(void);
/* Lines dropped so far, all rings together, also of those detached. Any thread. */
uint64_t log_dropped(void);

#endif
