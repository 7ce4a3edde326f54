/* Where log lines go: a file, standard output or standard error, whatever these are (file,
 * pipe, terminal, socket). One user at a time; log.c holds its lock.
 *
 * Writing waits at most a bounded time for a slow reader, never dies of a closed pipe, and
 * never changes the flags of a descriptor that other processes hold too. */
#ifndef POSTERN_BASE_SINK_H
#define POSTERN_BASE_SINK_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

struct sink {
    int fd;         /* -1: nowhere */
    bool own;       /* fd is ours to close */
    bool is_socket; /* journald: a stream socket */
    bool may_block; /* a descriptor shared with others, whose flags are not ours to change */
    bool stuck;     /* its reader used up our patience */
    bool torn;      /* the last line got out only in part */
    char *path;     /* "-", "off", a file, or NULL: the default */
};

/* `path`: "-" is the descriptor `standard`, "off" nowhere, else a file (appended, mode 0640).
 * 0 or -errno. */
int sink_open(const char *path, int standard, struct sink *ret_sink);
void sink_close(struct sink *sink);
/* Writes whole lines; `lines` is used up. Waits for a slow reader `patience_ms` (-1: for
 * ever), but only once until it reads again. 0, or -errno with *ret_left lines not written. */
int sink_write(struct sink *sink, struct iovec *lines, size_t count, int patience_ms,
               size_t *ret_left);

/* Around sink_write on threads that do not block SIGPIPE: a closed pipe must not kill a
 * process that left the signal as it was. */
struct pipe_guard {
    sigset_t old;
    bool pending;
};
void pipe_guard_enter(struct pipe_guard *guard);
void pipe_guard_leave(const struct pipe_guard *guard);

#endif
