/* Counters and histograms: plain numbers of each worker, summed when somebody asks.
 *
 * A worker writes only its own cells (relaxed stores, no lock prefix); the main thread reads
 * all of them while they change. Cells live as long as the process, so a pointer to one may
 * be kept. Names that label cells (listeners, routes, upstreams, servers) are interned on the
 * main thread when a configuration is loaded; labels are thus bounded by the configuration. */
#ifndef POSTERN_PROXY_METRICS_H
#define POSTERN_PROXY_METRICS_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/count.h"
#include "base/str.h"
#include "http/head.h"

/* The families and their labels in order; metrics.c has their names. Label values: an interned
 * name, enum method, a status code, enum reason, direction 0 in / 1 out, state 0 idle / 1
 * active, enum fault_limit, enum handshake, enum h2_flood; in the table there 'l', 'm', 'c',
 * 'r', 'd', 's', 'o', 'h', 'f'. */
enum metric {
    METRIC_REQUESTS,               /* listener, route, method, code */
    METRIC_RESPONSES,              /* route, reason */
    METRIC_REQUEST_DURATION,       /* histogram: route */
    METRIC_GATEWAY_DURATION,       /* histogram: route */
    METRIC_UPSTREAM_REQUESTS,      /* upstream, server, code */
    METRIC_UPSTREAM_DURATION,      /* histogram: upstream */
    METRIC_UPSTREAM_OPENED,        /* upstream, server */
    METRIC_UPSTREAM_REUSES,        /* upstream, server */
    METRIC_UPSTREAM_CONNECTIONS,   /* gauge: upstream, server, state */
    METRIC_UPSTREAM_RETRIES,       /* upstream */
    METRIC_RETRIES_REFUSED,        /* upstream */
    METRIC_UPSTREAM_OVERFLOWS,     /* upstream, limit */
    METRIC_DOWNSTREAM_CONNECTIONS, /* gauge: listener */
    METRIC_DOWNSTREAM_BYTES,       /* listener, direction */
    METRIC_TLS_HANDSHAKES,         /* listener, outcome */
    METRIC_HTTP2_FLOODS,           /* listener, kind */
    METRIC_COUNT
};

enum handshake { HANDSHAKE_FULL, HANDSHAKE_RESUMED, HANDSHAKE_FAILED };

/* One number. Only the worker that owns it adds. */
struct series {
    _Atomic uint64_t value;
};
static inline void series_add(struct series *series, uint64_t n) /* gauges: (uint64_t)-1 */
{
    count_add(&series->value, n);
}

#define HISTOGRAM_BUCKETS 16
struct histogram {
    const uint64_t *bounds; /* ns, in ascending order, one fewer than buckets; never changes */
    _Atomic uint64_t buckets[HISTOGRAM_BUCKETS]; /* the last: over every bound */
    _Atomic uint64_t sum_ns;
};
void histogram_add(struct histogram *histogram, uint64_t ns);

/* Main thread: the number that stands for a name from now on; the same name, the same number.
 * 0 is the empty name. */
unsigned metrics_name(struct str name);

/* A worker's cells. */
struct metrics;
/* One user less for each of these names of routes or upstreams. When it was the last, no worker
 * counts under it any more: what was counted is gone, and begins at 0 if the number comes to
 * stand for another name. Main thread. */
void metrics_give(struct metrics *const *workers, size_t count, const unsigned *numbers,
                  size_t n);
/* Nobody counts for that server of that upstream any more (names of both), nor keeps a pointer
 * to such a series: they begin at 0 if its number comes to stand for another one. Worker's
 * thread. */
void metrics_forget(struct metrics *metrics, unsigned upstream, unsigned server);
struct metrics *metrics_new(void); /* NULL: no memory */
/* Nobody may read or keep its cells any more. A process at work never does this. */
void metrics_free(struct metrics *metrics);
/* Finds or makes the cell for these labels (as many as the metric has, in its order). Never
 * NULL: out of memory gives a cell that is thrown away. Worker's thread. */
struct series *metrics_series(struct metrics *metrics, enum metric metric,
                              const unsigned labels[4]);
struct histogram *metrics_histogram(struct metrics *metrics, enum metric metric,
                                    unsigned label);

#define METRIC_ANY UINT32_MAX /* in metrics_sum: whatever this label's value is */
/* Main thread: the sum over workers of the series with these labels, 0 when there is none. */
uint64_t metrics_sum(struct metrics *const *workers, size_t count, enum metric metric,
                     const unsigned labels[4]);
/* Main thread: Prometheus text format 0.0.4 of all families, summed over workers, and the
 * process_* metrics. What is not a worker's (config generation, build info, …) the caller
 * writes itself, with the two functions below. */
void metrics_write(struct metrics *const *workers, size_t count, FILE *out);
void metrics_write_head(FILE *out, const char *name, const char *type, const char *help);
/* One sample; label values are escaped. `labels`: "name", "value" pairs ended by NULL. */
void metrics_write_value(FILE *out, const char *name, const char *const *labels, double value);

#endif
