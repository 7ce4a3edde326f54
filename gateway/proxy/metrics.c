#include "proxy/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "http/h2_guard.h"
#include "http/leg.h"
#include "http/reason.h"
#include "proxy/names.h"
#include "proxy/proc.h"

#define LABELS 4
#define BOUNDS (HISTOGRAM_BUCKETS - 1)
#define US     1000ull
#define MS     NS_PER_MS
#define S      NS_PER_S

static const uint64_t request_bounds[BOUNDS] = {
    500 * US, 1 * MS,   5 * MS / 2, 5 * MS,    10 * MS, 25 * MS, 50 * MS, 100 * MS,
    250 * MS, 500 * MS, 1 * S,      5 * S / 2, 5 * S,   10 * S,  30 * S,
};
/* What the gateway itself adds is tens of microseconds when all is well. */
static const uint64_t gateway_bounds[BOUNDS] = {
    10 * US, 25 * US, 50 * US, 100 * US, 250 * US, 500 * US, 1 * MS, 5 * MS / 2,
    5 * MS,  10 * MS, 25 * MS, 50 * MS,  100 * MS, 500 * MS, 1 * S,
};

enum type { COUNTER, GAUGE, HISTOGRAM };
static const char *const type_names[] = {"counter", "gauge", "histogram"};

/* `kinds`: one letter for each label, as metrics.h lists them. */
static const struct family {
    const char *name;
    enum type type;
    const char *kinds;
    const char *labels[LABELS];
    const char *help;
    const uint64_t *bounds;
} families[METRIC_COUNT] = {
    [METRIC_REQUESTS] = {"postern_requests_total",
                         COUNTER,
                         "llmc",
                         {"listener", "route", "method", "code"},
                         "Requests answered, by the status sent to the client.",
                         NULL},
    [METRIC_RESPONSES] = {"postern_responses_total",
                          COUNTER,
                          "lr",
                          {"route", "reason"},
                          "Requests ended, by the gateway's reason when it refused or failed.",
                          NULL},
    [METRIC_REQUEST_DURATION] = {"postern_request_duration_seconds",
                                 HISTOGRAM,
                                 "l",
                                 {"route"},
                                 "From a request's first byte to its answer's last.",
                                 request_bounds},
    [METRIC_GATEWAY_DURATION] = {"postern_gateway_duration_seconds",
                                 HISTOGRAM,
                                 "l",
                                 {"route"},
                                 "The gateway's own part of a request's duration.",
                                 gateway_bounds},
    [METRIC_UPSTREAM_REQUESTS] = {"postern_upstream_requests_total",
                                  COUNTER,
                                  "llc",
                                  {"upstream", "server", "code"},
                                  "Requests answered by a server, by its status.",
                                  NULL},
    [METRIC_UPSTREAM_DURATION] =
        {"postern_upstream_duration_seconds",
         HISTOGRAM,
         "l",
         {"upstream"},
         "From a request's first byte to a server to its answer's last.",
         request_bounds},
    [METRIC_UPSTREAM_OPENED] = {"postern_upstream_connections_opened_total",
                                COUNTER,
                                "ll",
                                {"upstream", "server"},
                                "Connections opened to a server.",
                                NULL},
    [METRIC_UPSTREAM_REUSES] = {"postern_upstream_connection_reuses_total",
                                COUNTER,
                                "ll",
                                {"upstream", "server"},
                                "Requests sent on a connection that had served before.",
                                NULL},
    [METRIC_UPSTREAM_CONNECTIONS] = {"postern_upstream_connections",
                                     GAUGE,
                                     "lls",
                                     {"upstream", "server", "state"},
                                     "Connections open to a server now.",
                                     NULL},
    [METRIC_UPSTREAM_RETRIES] = {"postern_upstream_retries_total",
                                 COUNTER,
                                 "l",
                                 {"upstream"},
                                 "Tries after a request's first.",
                                 NULL},
    [METRIC_RETRIES_REFUSED] = {"postern_upstream_retries_refused_total",
                                COUNTER,
                                "l",
                                {"upstream"},
                                "Tries that retry.budget did not allow.",
                                NULL},
    [METRIC_UPSTREAM_OVERFLOWS] = {"postern_upstream_overflows_total",
                                   COUNTER,
                                   "lo",
                                   {"upstream", "limit"},
                                   "Requests refused because there were too many, by the limit "
                                   "that was met.",
                                   NULL},
    [METRIC_DOWNSTREAM_CONNECTIONS] = {"postern_downstream_connections",
                                       GAUGE,
                                       "l",
                                       {"listener"},
                                       "Client connections open now.",
                                       NULL},
    [METRIC_DOWNSTREAM_BYTES] = {"postern_downstream_bytes_total",
                                 COUNTER,
                                 "ld",
                                 {"listener", "direction"},
                                 "Body bytes received from (in) and sent to (out) clients.",
                                 NULL},
    [METRIC_HTTP2_FLOODS] = {"postern_http2_floods_total",
                             COUNTER,
                             "lf",
                             {"listener", "kind"},
                             "HTTP/2 connections ended for what their clients overdid.",
                             NULL},
    [METRIC_TLS_HANDSHAKES] = {"postern_tls_handshakes_total",
                               COUNTER,
                               "lh",
                               {"listener", "outcome"},
                               "TLS handshakes of clients, by how they ended.",
                               NULL},
};

/* ---- a worker's cells ---- */

struct cell {
    enum metric metric;
    unsigned labels[LABELS];
    struct series series;
    struct histogram *histogram; /* with a histogram's metric, else NULL */
    _Atomic bool gone;           /* nobody counts here; until somebody asks for it again */
};

/* Cells never move: a full chunk gets a successor. A cell is complete before `used` counts it.
 */
#define CHUNK_CELLS 64
struct chunk {
    _Atomic(struct chunk *) next;
    _Atomic unsigned used;
    struct cell cells[CHUNK_CELLS];
};

struct metrics {
    struct chunk *first, *last;
    struct cell **index; /* the worker's own: open addressing, a power of two */
    size_t index_size, count;
    uint64_t seed;
    struct series lost_series; /* written to when there was no memory, never read */
    struct histogram lost_histogram;
};

static void histogram_init(struct histogram *histogram, const uint64_t *bounds)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->bounds = bounds;
}

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
        seed = clock_ns() ^ (uint64_t)getpid() << 32;
    return seed;
}

struct metrics *metrics_new(void)
{
    struct metrics *metrics = mem_zalloc(sizeof(*metrics));
    if (!metrics)
        return NULL;
    metrics->index_size = 256;
    metrics->index = mem_zalloc(metrics->index_size * sizeof(struct cell *));
    metrics->first = metrics->last = mem_zalloc(sizeof(struct chunk));
    if (!metrics->index || !metrics->first) {
        mem_free(metrics->index);
        mem_free(metrics->first);
        mem_free(metrics);
        return NULL;
    }
    metrics->seed = random_seed();
    histogram_init(&metrics->lost_histogram, request_bounds);
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (!metrics)
        return;
    for (struct chunk *chunk = metrics->first, *next; chunk; chunk = next) {
        unsigned used = atomic_load_explicit(&chunk->used, memory_order_acquire);
        next = atomic_load_explicit(&chunk->next, memory_order_acquire);
        for (unsigned i = 0; i < used; i++)
            mem_free(chunk->cells[i].histogram);
        mem_free(chunk);
    }
    mem_free(metrics->index);
    mem_free(metrics);
}

static inline uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 32;
}

static uint64_t key_hash(uint64_t seed, enum metric metric, const unsigned labels[LABELS])
{
    uint64_t h = mix(seed, metric);
    h = mix(h, (uint64_t)labels[0] << 32 | labels[1]);
    return mix(h, (uint64_t)labels[2] << 32 | labels[3]);
}

static bool key_eq(const struct cell *cell, enum metric metric, const unsigned labels[LABELS])
{
    return cell->metric == metric && memcmp(cell->labels, labels, sizeof(cell->labels)) == 0;
}

/* The place of the key, or the empty one where it belongs. There always is an empty one. */
static struct cell **index_find(struct cell **index, size_t size, uint64_t seed,
                                enum metric metric, const unsigned labels[LABELS])
{
    size_t i = key_hash(seed, metric, labels) & (size - 1);
    while (index[i] && !key_eq(index[i], metric, labels))
        i = (i + 1) & (size - 1);
    return &index[i];
}

static bool index_grow(struct metrics *metrics)
{
    size_t size = metrics->index_size * 2;
    struct cell **index = mem_zalloc(size * sizeof(struct cell *));
    if (!index)
        return false;
    for (size_t i = 0; i < metrics->index_size; i++) {
        struct cell *cell = metrics->index[i];
        if (cell)
            *index_find(index, size, metrics->seed, cell->metric, cell->labels) = cell;
    }
    mem_free(metrics->index);
    metrics->index = index;
    metrics->index_size = size;
    return true;
}

/* A cell at the chain's end, not yet to be seen by the main thread. NULL: no memory. */
static struct cell *cell_append(struct metrics *metrics)
{
    struct chunk *last = metrics->last;
    unsigned used = atomic_load_explicit(&last->used, memory_order_relaxed);

    if (used == CHUNK_CELLS) {
        last = mem_zalloc(sizeof(*last));
        if (!last)
            return NULL;
        atomic_store_explicit(&metrics->last->next, last, memory_order_release);
        metrics->last = last;
        used = 0;
    }
    return &last->cells[used];
}

static struct cell *cell_new(struct metrics *metrics, enum metric metric,
                             const unsigned labels[LABELS])
{
    const uint64_t *bounds = families[metric].bounds;
    struct histogram *histogram = NULL;
    struct cell *cell;
    if (metrics->count >= metrics->index_size / 4 * 3 && !index_grow(metrics))
        return NULL;
    if (bounds && !(histogram = mem_alloc(sizeof(*histogram))))
        return NULL;
    cell = cell_append(metrics);
    if (!cell) {
        mem_free(histogram);
        return NULL;
    }
    if (bounds)
        histogram_init(histogram, bounds);
    cell->metric = metric;
    memcpy(cell->labels, labels, sizeof(cell->labels));
    cell->histogram = histogram;
    *index_find(metrics->index, metrics->index_size, metrics->seed, metric, labels) = cell;
    metrics->count++;
    atomic_store_explicit(&metrics->last->used, (unsigned)(cell - metrics->last->cells) + 1,
                          memory_order_release);
    return cell;
}

static struct cell *cell_of(struct metrics *metrics, enum metric metric,
                            const unsigned labels[LABELS])
{
    struct cell *cell =
        *index_find(metrics->index, metrics->index_size, metrics->seed, metric, labels);

    if (!cell)
        return cell_new(metrics, metric, labels);
    if (atomic_load_explicit(&cell->gone, memory_order_relaxed))
        atomic_store_explicit(&cell->gone, false, memory_order_relaxed);
    return cell;
}

/* Labels past those that the metric has count as 0, whatever the caller left there. */
static void key_trim(unsigned out[LABELS], enum metric metric, const unsigned labels[LABELS])
{
    size_t n = strlen(families[metric].kinds);

    memset(out, 0, LABELS * sizeof(*out));
    memcpy(out, labels, n * sizeof(*out));
}

struct series *metrics_series(struct metrics *metrics, enum metric metric,
                              const unsigned labels[4])
{
    unsigned key[LABELS];
    struct cell *cell;
    assert(!families[metric].bounds);
    key_trim(key, metric, labels);
    cell = cell_of(metrics, metric, key);
    return cell ? &cell->series : &metrics->lost_series;
}

struct histogram *metrics_histogram(struct metrics *metrics, enum metric metric, unsigned label)
{
    const unsigned key[LABELS] = {label};
    struct cell *cell;
    assert(families[metric].bounds);
    cell = cell_of(metrics, metric, key);
    return cell ? cell->histogram : &metrics->lost_histogram;
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
    const uint64_t *bounds = histogram->bounds;
    size_t low = 0;
    static_assert(HISTOGRAM_BUCKETS == 16, "four halvings find one of sixteen");
    for (size_t step = HISTOGRAM_BUCKETS / 2; step > 0; step /= 2)
        low += ns > bounds[low + step - 1] ? step : 0;
    count_add(&histogram->buckets[low], 1);
    count_add(&histogram->sum_ns, ns);
}

unsigned metrics_name(struct str name)
{
    return names_take(name);
}

static void clear(struct cell *cell)
{
    struct histogram *histogram = cell->histogram;
    atomic_store_explicit(&cell->series.value, 0, memory_order_relaxed);
    for (size_t i = 0; histogram && i < HISTOGRAM_BUCKETS; i++)
        atomic_store_explicit(&histogram->buckets[i], 0, memory_order_relaxed);
    if (histogram)
        atomic_store_explicit(&histogram->sum_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->gone, true, memory_order_relaxed);
}

/* A server's own families: the upstream and the server are their first labels. */
static bool is_of_server(enum metric metric)
{
    return metric == METRIC_UPSTREAM_REQUESTS || metric == METRIC_UPSTREAM_OPENED ||
           metric == METRIC_UPSTREAM_REUSES || metric == METRIC_UPSTREAM_CONNECTIONS;
}

void metrics_forget(struct metrics *metrics, unsigned upstream, unsigned server)
{
    for (size_t i = 0; i < metrics->index_size; i++) {
        struct cell *cell = metrics->index[i];
        if (cell && is_of_server(cell->metric) && cell->labels[0] == upstream &&
            cell->labels[1] == server)
            clear(cell);
    }
}

/* ---- reading all workers' cells, on the main thread ---- */

/* One sum: a cell stands for all workers' cells with its key. */
struct sum {
    const struct cell *cell;
    uint64_t values[HISTOGRAM_BUCKETS + 1]; /* buckets and sum_ns, or one value */
};

static void sum_cell(struct sum *sum, const struct cell *cell)
{
    const struct histogram *histogram = cell->histogram;
    if (!histogram) {
        sum->values[0] += atomic_load_explicit(&cell->series.value, memory_order_relaxed);
        return;
    }
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        sum->values[i] += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
    sum->values[HISTOGRAM_BUCKETS] +=
        atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
}

/* Walks the cells of all workers that are there by now. */
struct walk {
    struct metrics *const *workers;
    size_t count, at;
    struct chunk *chunk;
    unsigned i, used;
};

static struct cell *walk_next(struct walk *walk)
{
    while (walk->i == walk->used) {
        if (walk->chunk)
            walk->chunk = atomic_load_explicit(&walk->chunk->next, memory_order_acquire);
        while (!walk->chunk) {
            if (walk->at == walk->count)
                return NULL;
            walk->chunk = walk->workers[walk->at++]->first;
        }
        walk->i = 0;
        walk->used = atomic_load_explicit(&walk->chunk->used, memory_order_acquire);
    }
    return &walk->chunk->cells[walk->i++];
}

static bool is_nameless(const struct cell *cell)
{
    const char *kinds = families[cell->metric].kinds;
    for (size_t i = 0; kinds[i]; i++)
        if (kinds[i] == 'l' && !names_text(cell->labels[i]).p)
            return true;
    return false;
}

void metrics_give(struct metrics *const *workers, size_t count, const unsigned *numbers,
                  size_t n)
{
    struct walk walk = {.workers = workers, .count = count};
    struct cell *cell;
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= names_give(numbers[i]);
    while (any && (cell = walk_next(&walk)))
        if (is_nameless(cell))
            clear(cell);
}

static bool key_matches(const struct cell *cell, enum metric metric, const unsigned *key)
{
    if (cell->metric != metric)
        return false;
    for (size_t i = 0; i < LABELS; i++)
        if (key[i] != METRIC_ANY && key[i] != cell->labels[i])
            return false;
    return true;
}

uint64_t metrics_sum(struct metrics *const *workers, size_t count, enum metric metric,
                     const unsigned labels[4])
{
    struct walk walk = {.workers = workers, .count = count};
    const struct cell *cell;
    unsigned key[LABELS];
    uint64_t sum = 0;
    key_trim(key, metric, labels);
    while ((cell = walk_next(&walk)))
        if (key_matches(cell, metric, key))
            sum += atomic_load_explicit(&cell->series.value, memory_order_relaxed);
    return sum;
}

static int cell_cmp(const void *pa, const void *pb)
{
    const struct cell *a = *(const struct cell *const *)pa;
    const struct cell *b = *(const struct cell *const *)pb;

    if (a->metric != b->metric)
        return a->metric < b->metric ? -1 : 1;
    for (size_t i = 0; i < LABELS; i++)
        if (a->labels[i] != b->labels[i])
            return a->labels[i] < b->labels[i] ? -1 : 1;
    return 0;
}

/* All cells, equal keys next to each other. NULL: no memory (or none at all). */
static const struct cell **cells_sorted(struct metrics *const *workers, size_t count,
                                        size_t *ret_n)
{
    struct walk walk = {.workers = workers, .count = count};
    const struct cell **list = NULL, **grown;
    const struct cell *cell;
    size_t n = 0, room = 0;
    while ((cell = walk_next(&walk))) {
        if (atomic_load_explicit(&cell->gone, memory_order_relaxed))
            continue;
        if (n == room) {
            room = room ? room * 2 : 256;
            grown = mem_realloc(list, room * sizeof(*list));
            if (!grown) {
                mem_free(list);
                *ret_n = 0;
                return NULL;
            }
            list = grown;
        }
        list[n++] = cell;
    }
    if (n > 0)
        qsort(list, n, sizeof(*list), cell_cmp);
    *ret_n = n;
    return list;
}

/* ---- text format 0.0.4 ---- */

static void write_number(FILE *out, double value)
{
    if (isnan(value))
        fputs("NaN", out);
    else if (isinf(value))
        fputs(value > 0 ? "+Inf" : "-Inf", out);
    else if (value == trunc(value) && fabs(value) < 9007199254740992.0)
        fprintf(out, "%.0f", value);
    else
        fprintf(out, "%.17g", value);
}

static void write_label_value(FILE *out, struct str value)
{
    for (size_t i = 0, n; i < value.n; i += n) {
        char c = value.p[i];
        n = utf8_len(value.p + i, value.n - i);
        if (n == 0) {
            fputs("\xef\xbf\xbd", out); /* U+FFFD: the format is UTF-8 throughout */
            n = 1;
        } else if (c == '\n') {
            fputs("\\n", out);
        } else {
            if (c == '\\' || c == '"')
                putc('\\', out);
            fwrite(value.p + i, 1, n, out);
        }
    }
}

static void write_label(FILE *out, const char *name, char kind, unsigned value)
{
    static const char *const limits[FAULT_LIMITS] = {"", "pending", "requests", "connections"};
    static const char *const directions[] = {"in", "out"}, *const states[] = {"idle", "active"},
                             *const outcomes[] = {"full", "resumed", "failed"};

    fprintf(out, "%s=\"", name);
    switch (kind) {
    case 'l':
        write_label_value(out, names_text(value));
        break;
    case 'm':
        write_label_value(out, value > M_OTHER && value < METHOD_COUNT ? method_names[value]
                                                                       : STR("OTHER"));
        break;
    case 'r':
        if (value < REASON_MAX && reason_texts[value].name)
            write_label_value(out, str_of(reason_texts[value].name));
        break;
    case 'd':
        fputs(directions[value & 1], out);
        break;
    case 'f':
        fputs(value < H2_FLOOD_COUNT ? h2_flood_names[value] : "", out);
        break;
    case 'o':
        fputs(limits[value % FAULT_LIMITS], out);
        break;
    case 's':
        fputs(states[value & 1], out);
        break;
    case 'h':
        fputs(value <= HANDSHAKE_FAILED ? outcomes[value] : "", out);
        break;
    default:
        fprintf(out, "%u", value);
    }
    putc('"', out);
}

/* {a="x",b="y"}; a histogram's buckets get an `le` as well. */
static void write_labels(FILE *out, const struct cell *cell, const char *le)
{
    const struct family *family = &families[cell->metric];
    for (size_t i = 0; family->kinds[i]; i++) {
        putc(i == 0 ? '{' : ',', out);
        write_label(out, family->labels[i], family->kinds[i], cell->labels[i]);
    }
    if (le)
        fprintf(out, ",le=\"%s\"", le);
    fputs("} ", out);
}

static void write_histogram(FILE *out, const struct sum *sum)
{
    const struct family *family = &families[sum->cell->metric];
    uint64_t total = 0;
    char le[32] = "+Inf";

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        total += sum->values[i];
        if (i < BOUNDS)
            snprintf(le, sizeof(le), "%g", (double)family->bounds[i] / (double)S);
        else
            strcpy(le, "+Inf");
        fprintf(out, "%s_bucket", family->name);
        write_labels(out, sum->cell, le);
        fprintf(out, "%" PRIu64 "\n", total);
    }
    fprintf(out, "%s_sum", family->name);
    write_labels(out, sum->cell, NULL);
    write_number(out, (double)sum->values[HISTOGRAM_BUCKETS] / (double)S);
    fprintf(out, "\n%s_count", family->name);
    write_labels(out, sum->cell, NULL);
    fprintf(out, "%" PRIu64 "\n", total);
}

static void write_sum(FILE *out, const struct sum *sum)
{
    const struct family *family = &families[sum->cell->metric];
    if (family->type == HISTOGRAM) {
        write_histogram(out, sum);
        return;
    }
    fputs(family->name, out);
    write_labels(out, sum->cell, NULL);
    if (family->type == GAUGE)
        fprintf(out, "%" PRId64 "\n", (int64_t)sum->values[0]);
    else
        fprintf(out, "%" PRIu64 "\n", sum->values[0]);
}

void metrics_write_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_write_value(FILE *out, const char *name, const char *const *labels, double value)
{
    fputs(name, out);
    for (size_t i = 0; labels && labels[i]; i += 2) {
        fprintf(out, "%c%s=\"", i == 0 ? '{' : ',', labels[i]);
        write_label_value(out, str_of(labels[i + 1]));
        putc('"', out);
    }
    if (labels && labels[0])
        putc('}', out);
    putc(' ', out);
    write_number(out, value);
    putc('\n', out);
}

void metrics_write(struct metrics *const *workers, size_t count, FILE *out)
{
    size_t n, i = 0;
    const struct cell **cells = cells_sorted(workers, count, &n);

    for (unsigned m = 0; m < METRIC_COUNT; m++) {
        const struct family *family = &families[m];
        metrics_write_head(out, family->name, type_names[family->type], family->help);
        while (i < n && cells[i]->metric == m) {
            struct sum sum = {.cell = cells[i]};
            while (i < n && cell_cmp(&cells[i], &sum.cell) == 0)
                sum_cell(&sum, cells[i++]);
            write_sum(out, &sum);
        }
    }
    mem_free(cells);
    proc_write(out);
}
