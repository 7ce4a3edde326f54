#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sink.h"
#include "base/utf8.h"

#define LINE_TEXT    1024 /* bytes of one message before escaping; longer ones are cut */
#define LINE_MAX_OUT (CLOCK_ISO_LEN + 8 + 4 * LINE_TEXT + 4)
#define BATCH        128 /* lines in one writev */
#define NAP_NS       (10 * NS_PER_MS)
#define NAPS_AWAKE   20 /* naps without a line before the writer sleeps until it is woken */
#define PATIENCE_MS                                                                            \
    200 /* how long a reader may let us wait, once, before lines are dropped                   \
         */
#define WARN_EVERY (60 * NS_PER_S)

enum sink_kind { SINK_ERROR, SINK_ACCESS, SINKS };

/* A record in a ring: this, then `n` bytes of line, padded to 8. */
enum { RECORD_ERROR = SINK_ERROR, RECORD_ACCESS = SINK_ACCESS, RECORD_SKIP };
struct record {
    uint32_t n, kind;
};
#define RECORD_SIZE(n) (sizeof(struct record) + (((n) + 7) & ~(size_t)7))

struct log_ring {
    /* Positions count up for ever; the place in `bytes` is the position modulo `size`. */
    _Atomic uint64_t head; /* written by the worker */
    uint64_t tail_seen;    /* the worker's last look at `tail` */
    uint64_t reserved_at;  /* where the open reservation's record begins */
    size_t reserved;       /* bytes of line it may hold; 0: none is open */
    char apart[64];        /* so that worker and writer do not share a cache line */
    _Atomic uint64_t tail; /* written by who drains, under `lock` */
    struct log_ring *next; /* under `lock` */
    size_t size;
    char *bytes;
};

enum writer_state { AWAKE, NAPPING, SLEEPING };

static struct {
    pthread_mutex_t lock; /* sinks, the list of rings, and the right to drain them */
    struct sink sinks[SINKS];
    struct log_ring *rings;
    _Atomic uint64_t dropped;
    uint64_t warned, warned_at; /* drops already told of, and when; under `lock` */
    _Atomic int last_error;     /* why the latest lines were dropped; 0: a ring was full */
    enum sink_kind failed;      /* the sink of that error; under `lock` */
    _Atomic int level;
    _Atomic bool access_on, started, stop;
    _Atomic uint32_t state; /* enum writer_state; the futex */
    pthread_t thread;
} logs = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .sinks = {{.fd = STDERR_FILENO, .may_block = true}, {.fd = -1}},
    .level = LOG_INFO,
};

static _Thread_local struct log_ring *own_ring;

static void drop(uint64_t lines, int error)
{
    atomic_store_explicit(&logs.last_error, error, memory_order_relaxed);
    atomic_fetch_add_explicit(&logs.dropped, lines, memory_order_relaxed);
}

uint64_t log_dropped(void)
{
    return atomic_load_explicit(&logs.dropped, memory_order_relaxed);
}

/* Before there is a writer the process is not at work yet, and what it has to say may take
 * its time. Under `lock`. */
static int patience(void)
{
    return atomic_load_explicit(&logs.started, memory_order_relaxed) ? PATIENCE_MS : -1;
}

static void write_or_drop(enum sink_kind kind, struct iovec *lines, size_t count)
{
    size_t left;
    int err = sink_write(&logs.sinks[kind], lines, count, patience(), &left);

    if (err < 0) {
        logs.failed = kind;
        drop(left, -err);
    }
}

/* ---- rings: the worker's side ---- */

struct log_ring *log_attach(size_t bytes)
{
    struct log_ring *ring = mem_zalloc(sizeof(*ring));
    size_t size = 16384;

    while (size < bytes && size <= SIZE_MAX / 4)
        size *= 2;
    if (!ring)
        return NULL;
    ring->size = size;
    ring->bytes = mem_alloc(size);
    if (!ring->bytes) {
        mem_free(ring);
        return NULL;
    }
    pthread_mutex_lock(&logs.lock);
    ring->next = logs.rings;
    logs.rings = ring;
    pthread_mutex_unlock(&logs.lock);
    own_ring = ring;
    return ring;
}

static bool ring_has_room(struct log_ring *ring, uint64_t head, size_t need)
{
    if (ring->size - (head - ring->tail_seen) >= need)
        return true;
    ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
    return ring->size - (head - ring->tail_seen) >= need;
}

/* A record lies in one piece: what is left at the end of `bytes` is skipped when too short. */
char *log_line_reserve(struct log_ring *ring, size_t max)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    size_t at = head & (ring->size - 1);
    size_t skip, need;

    assert(ring->reserved == 0);
    if (max == 0 || max > ring->size / 2) {
        drop(1, 0);
        return NULL;
    }
    need = RECORD_SIZE(max);
    skip = ring->size - at < need ? ring->size - at : 0;
    if (!ring_has_room(ring, head, skip + need)) {
        drop(1, 0);
        return NULL;
    }
    if (skip > 0) {
        struct record *record = (struct record *)(ring->bytes + at);
        record->kind = RECORD_SKIP;
        record->n = (uint32_t)(skip - sizeof(*record));
    }
    ring->reserved_at = head + skip;
    ring->reserved = max;
    return ring->bytes + (ring->reserved_at & (ring->size - 1)) + sizeof(struct record);
}

static void writer_wake(void)
{
    if (atomic_exchange(&logs.state, AWAKE) != AWAKE)
        syscall(SYS_futex, &logs.state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* The line becomes visible to the writer, who is woken only from a sleep, or from a nap when
 * the ring would not last to its end. Sequentially consistent, head before state: the writer
 * stores its state before it looks at the head, so one of the two sees the other. */
static void ring_commit(struct log_ring *ring, size_t n, uint32_t kind)
{
    struct record *record =
        (struct record *)(ring->bytes + (ring->reserved_at & (ring->size - 1)));
    uint64_t head = ring->reserved_at + RECORD_SIZE(n);
    uint32_t state;

    assert(n <= ring->reserved);
    ring->reserved = 0;
    if (n == 0)
        return;
    record->n = (uint32_t)n;
    record->kind = kind;
    atomic_store(&ring->head, head);
    state = atomic_load(&logs.state);
    if (state == SLEEPING || (state == NAPPING && !ring_has_room(ring, head, ring->size / 2)))
        writer_wake();
}

void log_line_commit(struct log_ring *ring, size_t n)
{
    ring_commit(ring, n, RECORD_ACCESS);
}

/* ---- rings: who drains, under `lock` ---- */

struct batch {
    struct iovec lines[BATCH];
    size_t count;
};

static void batches_write(struct batch *batches)
{
    for (int i = 0; i < SINKS; i++) {
        write_or_drop((enum sink_kind)i, batches[i].lines, batches[i].count);
        batches[i].count = 0;
    }
}

/* Writes out what the ring holds now. Returns whether there was anything. */
static bool ring_drain(struct log_ring *ring)
{
    uint64_t head = atomic_load(&ring->head);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    struct batch batches[SINKS];
    bool any = head != tail;

    batches[SINK_ERROR].count = batches[SINK_ACCESS].count = 0;
    while (tail != head) {
        struct record *record = (struct record *)(ring->bytes + (tail & (ring->size - 1)));
        if (record->kind != RECORD_SKIP) {
            struct batch *batch = &batches[record->kind];
            batch->lines[batch->count++] =
                (struct iovec){.iov_base = record + 1, .iov_len = record->n};
        }
        tail += RECORD_SIZE(record->n);
        if (tail == head || batches[SINK_ERROR].count == BATCH ||
            batches[SINK_ACCESS].count == BATCH) {
            batches_write(batches);
            atomic_store_explicit(&ring->tail, tail, memory_order_release);
        }
    }
    return any;
}

void log_detach(struct log_ring *ring)
{
    struct pipe_guard guard;
    struct log_ring **at = &logs.rings;

    if (!ring)
        return;
    if (own_ring == ring)
        own_ring = NULL;
    pipe_guard_enter(&guard);
    pthread_mutex_lock(&logs.lock);
    ring_drain(ring);
    while (*at != ring)
        at = &(*at)->next;
    *at = ring->next;
    pthread_mutex_unlock(&logs.lock);
    pipe_guard_leave(&guard);
    mem_free(ring->bytes);
    mem_free(ring);
}

/* ---- the error log ---- */

static const char *const level_names[] = {"debug", "info", "warn", "error"};

bool log_is_on(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&logs.level, memory_order_relaxed);
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&logs.level, (int)level, memory_order_relaxed);
}

/* U+0080 to U+009F command terminals as much as the control bytes below a blank do. */
static bool is_control(const char *p, size_t n)
{
    unsigned char c = (unsigned char)p[0];

    return n == 1 ? c < 0x20 || c == 0x7f : n == 2 && c == 0xc2 && (unsigned char)p[1] < 0xa0;
}

static size_t escape(char *out, const char *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    char *o = out;

    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(text + i, n - i);
        if (len > 0 && !is_control(text + i, len)) {
            memcpy(o, text + i, len);
            o += len;
            i += len;
            continue;
        }
        *o++ = '\\';
        *o++ = 'x';
        *o++ = hex[(unsigned char)text[i] >> 4];
        *o++ = hex[(unsigned char)text[i] & 15];
        i++;
    }
    return (size_t)(o - out);
}

/* The last sequence of a text that was cut may be torn: without it. */
static size_t cut_at_character(const char *text, size_t n)
{
    for (size_t back = 1; back <= 4 && back <= n; back++) {
        if (((unsigned char)text[n - back] & 0xc0) != 0x80)
            return utf8_len(text + n - back, back) == 0 ? n - back : n;
    }
    return n;
}

static size_t line_format(char out[LINE_MAX_OUT], enum log_level level, const char *fmt,
                          va_list args)
{
    char text[LINE_TEXT];
    int len = vsnprintf(text, sizeof(text), fmt, args);
    bool cut = len >= (int)sizeof(text);
    size_t n = len < 0 ? 0 : cut ? cut_at_character(text, sizeof(text) - 1) : (size_t)len;
    char *o = out + CLOCK_ISO_LEN;

    clock_put_iso(out, clock_wall_ms());
    o += sprintf(o, " %s ", level_names[level]);
    o += escape(o, text, n);
    if (cut) {
        memcpy(o, "...", 3);
        o += 3;
    }
    *o++ = '\n';
    return (size_t)(o - out);
}

static void write_at_once(char *line, size_t n)
{
    struct iovec iov = {.iov_base = line, .iov_len = n};
    struct pipe_guard guard;

    pipe_guard_enter(&guard);
    pthread_mutex_lock(&logs.lock);
    write_or_drop(SINK_ERROR, &iov, 1);
    pthread_mutex_unlock(&logs.lock);
    pipe_guard_leave(&guard);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    int saved = errno; /* so that a caller may log first and return -errno after */
    struct log_ring *ring = own_ring;
    char line[LINE_MAX_OUT], *room;
    va_list args;
    size_t n;

    if (!log_is_on(level))
        return;
    va_start(args, fmt);
    n = line_format(line, level, fmt, args);
    va_end(args);
    if (!ring || !atomic_load_explicit(&logs.started, memory_order_relaxed)) {
        write_at_once(line, n);
    } else {
        room = log_line_reserve(ring, n);
        if (room) {
            memcpy(room, line, n);
            ring_commit(ring, n, RECORD_ERROR);
        }
    }
    errno = saved;
}

bool log_access_is_on(void)
{
    return atomic_load_explicit(&logs.access_on, memory_order_relaxed);
}

/* ---- paths ---- */

/* Puts new sinks in the place of old ones; `fresh` with fd -2 leaves that one as it is. */
static void sinks_swap(struct sink fresh[SINKS])
{
    pthread_mutex_lock(&logs.lock);
    for (int i = 0; i < SINKS; i++) {
        struct sink old = logs.sinks[i];
        if (fresh[i].fd == -2)
            continue;
        logs.sinks[i] = fresh[i];
        fresh[i] = old;
    }
    atomic_store_explicit(&logs.access_on, logs.sinks[SINK_ACCESS].fd >= 0,
                          memory_order_relaxed);
    pthread_mutex_unlock(&logs.lock);
    for (int i = 0; i < SINKS; i++)
        sink_close(&fresh[i]);
}

/* Opens each path that is not NULL; all of them or none. */
static int sinks_replace(const char *const paths[SINKS], const char **ret_path)
{
    static const int standard[SINKS] = {STDERR_FILENO, STDOUT_FILENO};
    struct sink fresh[SINKS] = {{.fd = -2}, {.fd = -2}};

    for (int i = 0; i < SINKS; i++) {
        int err = paths[i] ? sink_open(paths[i], standard[i], &fresh[i]) : 0;
        if (err < 0) {
            *ret_path = paths[i];
            if (i == SINK_ACCESS)
                sink_close(&fresh[SINK_ERROR]);
            return err;
        }
    }
    sinks_swap(fresh);
    return 0;
}

/* A path that stays the same stays open: after root was given up it might not open again. */
static const char *unless_open(enum sink_kind kind, const char *path)
{
    const char *now = logs.sinks[kind].path; /* changed by this, the main thread, only */

    return now && strcmp(now, path) == 0 ? NULL : path;
}

int log_set_paths(const char *error_path, const char *access_path, const char **ret_path)
{
    const char *paths[SINKS] = {
        unless_open(SINK_ERROR, error_path ? error_path : "-"),
        unless_open(SINK_ACCESS, access_path ? access_path : "off"),
    };

    return sinks_replace(paths, ret_path);
}

int log_reopen(const char **ret_path)
{
    const char *paths[SINKS];

    for (int i = 0; i < SINKS; i++) {
        const char *path = logs.sinks[i].path;
        bool is_file = path && strcmp(path, "-") != 0 && logs.sinks[i].fd >= 0;
        paths[i] = is_file ? path : NULL;
    }
    return sinks_replace(paths, ret_path);
}

/* ---- the writer ---- */

/* Which log, and what is the matter with it. Under `lock`. */
static void drop_cause(int error, char *out, size_t n)
{
    const char *path = logs.sinks[logs.failed].path;
    bool is_file = path && strcmp(path, "-") != 0;
    char room[64];

    if (error == 0)
        snprintf(out, n, "they came faster than the log takes them");
    else
        snprintf(out, n, "the %s log%s%.256s: %s",
                 logs.failed == SINK_ACCESS ? "access" : "error", is_file ? " " : "",
                 is_file ? path : "",
                 error == ETIMEDOUT ? "its reader does not read"
                                    : strerror_r(error, room, sizeof(room)));
}

/* One line says that lines were lost, not one for each. Under `lock`. */
static void warn_of_drops(bool last)
{
    uint64_t dropped = log_dropped(), now = clock_ns();
    int error = atomic_load_explicit(&logs.last_error, memory_order_relaxed);
    char line[512], why[384];
    struct iovec iov = {.iov_base = line};
    size_t left;

    if (dropped == logs.warned ||
        (logs.warned_at != 0 && !last && now - logs.warned_at < WARN_EVERY))
        return;
    drop_cause(error, why, sizeof(why));
    clock_put_iso(line, clock_wall_ms());
    iov.iov_len = CLOCK_ISO_LEN;
    iov.iov_len += (size_t)snprintf(line + CLOCK_ISO_LEN, sizeof(line) - CLOCK_ISO_LEN,
                                    " warn %llu log lines dropped: %s\n",
                                    (unsigned long long)(dropped - logs.warned), why);
    logs.warned = dropped;
    logs.warned_at = now;
    sink_write(&logs.sinks[SINK_ERROR], &iov, 1, patience(), &left);
}

static bool drain_all(bool last)
{
    bool any = false;

    pthread_mutex_lock(&logs.lock);
    for (struct log_ring *ring = logs.rings; ring; ring = ring->next)
        any |= ring_drain(ring);
    warn_of_drops(last);
    pthread_mutex_unlock(&logs.lock);
    return any;
}

static bool is_anything_waiting(void)
{
    bool any = false;

    pthread_mutex_lock(&logs.lock);
    for (struct log_ring *ring = logs.rings; ring && !any; ring = ring->next)
        any =
            atomic_load(&ring->head) != atomic_load_explicit(&ring->tail, memory_order_relaxed);
    pthread_mutex_unlock(&logs.lock);
    return any;
}

/* Until a worker wakes us, log_stop does, or the time is over. */
static void writer_wait(uint32_t state, const struct timespec *limit)
{
    atomic_store(&logs.state, state);
    if (!atomic_load(&logs.stop) && (state == NAPPING || !is_anything_waiting()))
        syscall(SYS_futex, &logs.state, FUTEX_WAIT_PRIVATE, state, limit, NULL, 0);
}

/* Naps gather lines into batches, and workers need not wake us meanwhile. So a sleep ends in
 * a nap too: the worker whose line woke us has more to do, and a write now might take its
 * processor away in the middle of that. */
static void writer_rest(unsigned idle)
{
    static const struct timespec nap = {.tv_nsec = NAP_NS};

    if (idle > NAPS_AWAKE)
        writer_wait(SLEEPING, NULL);
    writer_wait(NAPPING, &nap);
    atomic_store(&logs.state, AWAKE);
}

static void *writer_run(void *unused)
{
    unsigned idle = 0;

    (void)unused;
    while (!atomic_load(&logs.stop)) {
        idle = drain_all(false) ? 0 : idle + 1;
        writer_rest(idle);
    }
    drain_all(true);
    return NULL;
}

int log_start(void)
{
    sigset_t all, old;
    int err;

    assert(!atomic_load(&logs.started));
    atomic_store(&logs.stop, false);
    /* The writer takes no signals, and so none for a closed pipe either. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&logs.thread, NULL, writer_run, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err != 0)
        return -err;
    pthread_setname_np(logs.thread, "postern-log");
    atomic_store(&logs.started, true);
    return 0;
}

void log_stop(void)
{
    if (!atomic_load(&logs.started))
        return;
    atomic_store(&logs.stop, true);
    writer_wake();
    pthread_join(logs.thread, NULL);
    atomic_store(&logs.started, false);
}
