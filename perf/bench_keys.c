/* bench_keys [COUNT]: does it show in the time how much of a wrong key was right?
 *
 * COUNT times (1,000,000) each, in an order drawn by lot, key_auth looks up a key of the file
 * whose first byte is wrong and one whose last byte is, as it does for a request. Welch's t of
 * both times says whether they differ: below 4.5 nobody can tell. The same is done with a
 * comparison that stops at the first difference, which must show, or the measurement sees
 * nothing. The slowest tenth of all times is left out: the machine was elsewhere. Exits 1 when
 * either is not so. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "key_table.h"

#define KEYS  4096 /* many: where a wrong key falls in the table is by chance, and fixed */
#define LEN   32
#define BATCH 512

static char keys[KEYS][LEN + 1];

struct subject {
    struct key_table *table;
    struct key_hasher *hasher;
};

static uint64_t ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static bool by_table(const struct subject *subject, const char *key, unsigned which)
{
    (void)which;
    return key_table_known(subject->table, key, LEN) ||
           key_table_verify(subject->table, subject->hasher, key, LEN);
}

/* What must never be written: the more of the key is right, the longer it takes. */
static bool by_bytes(const struct subject *subject, const char *key, unsigned which)
{
    const volatile char *own = keys[which];

    (void)subject;
    for (size_t i = 0; i < LEN; i++)
        if (own[i] != key[i])
            return false;
    return true;
}

static void say(void *arg, unsigned line, const char *text)
{
    (void)arg;
    fprintf(stderr, "bench_keys: %u: %s\n", line, text);
    exit(2);
}

static struct subject open_subject(void)
{
    struct key_report report = {.say = say};
    size_t size = (size_t)KEYS * 128 + 256, n;
    char *text = malloc(size);
    struct subject subject = {0};

    if (!text)
        exit(2);
    n = (size_t)snprintf(text, size, "{\"keys\":[");
    for (unsigned i = 0; i < KEYS; i++) {
        for (unsigned c = 0; c < LEN; c++)
            keys[i][c] = "abcdefghijklmnop"[rand() % 16];
        n += (size_t)snprintf(text + n, size - n, "%s{\"key\":\"%s\",\"consumer\":\"c%u\"}",
                              i ? "," : "", keys[i], i);
    }
    /* One that is only known by its hash, so that strangers are hashed, too. */
    n += (size_t)snprintf(text + n, size - n,
                          ",{\"hash\":\"sha256:%064x\",\"consumer\":\"hashed\"}]}", 1);
    struct key_file *file = key_file_parse(text, n, &report);
    free(text);
    subject.table = file ? key_table_new(file, &report) : NULL;
    subject.hasher = key_hasher_new();
    if (!subject.table || !subject.hasher)
        exit(2);
    return subject;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Welch's t of both kinds' times, each without what is over `most`. */
static double welch(double *const times[2], size_t count, double most, double ret_mean[2])
{
    double var[2], n[2];

    for (int kind = 0; kind < 2; kind++) {
        double sum = 0, squares = 0;
        n[kind] = 0;
        for (size_t i = 0; i < count; i++) {
            if (times[kind][i] > most)
                continue;
            n[kind]++;
            double delta = times[kind][i] - sum;
            sum += delta / n[kind];
            squares += delta * (times[kind][i] - sum);
        }
        ret_mean[kind] = sum;
        var[kind] = squares / (n[kind] - 1);
    }
    return (ret_mean[0] - ret_mean[1]) / sqrt(var[0] / n[0] + var[1] / n[1]);
}

struct attempt {
    char key[LEN];
    unsigned which;
    int kind; /* 0: the first byte is wrong, 1: the last */
};

/* Well before they are looked up: a byte that was just written is slower to read with its
 * neighbours, and it would be another one in each kind. */
static void draw(struct attempt *attempts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct attempt *attempt = &attempts[i];
        attempt->kind = rand() & 1;
        attempt->which = (unsigned)rand() % KEYS;
        memcpy(attempt->key, keys[attempt->which], LEN);
        attempt->key[attempt->kind ? LEN - 1 : 0] = (char)(128 + rand() % 128);
    }
}

static double measure(const char *name, const struct subject *subject, size_t count,
                      bool (*is_right)(const struct subject *, const char *, unsigned))
{
    static struct attempt attempts[BATCH];
    double *times[2] = {calloc(count + BATCH, sizeof(double)),
                        calloc(count + BATCH, sizeof(double))};
    double *all = calloc(2 * count, sizeof(double)), mean[2];
    size_t done[2] = {0, 0};

    if (!times[0] || !times[1] || !all)
        exit(2);
    while (done[0] < count || done[1] < count) {
        draw(attempts, BATCH);
        for (size_t i = 0; i < BATCH; i++) {
            const struct attempt *attempt = &attempts[i];
            uint64_t begun = ns();
            bool right = is_right(subject, attempt->key, attempt->which);
            uint64_t took = ns() - begun;
            if (right)
                exit(2);
            if (done[attempt->kind] < count)
                times[attempt->kind][done[attempt->kind]++] = (double)took;
        }
    }
    memcpy(all, times[0], count * sizeof(double));
    memcpy(all + count, times[1], count * sizeof(double));
    qsort(all, 2 * count, sizeof(double), by_size);
    double t = welch(times, count, all[2 * count * 9 / 10], mean);
    printf("%-34s first byte wrong %.1f ns, last byte wrong %.1f ns, t = %.2f\n", name, mean[0],
           mean[1], t);
    free(times[0]);
    free(times[1]);
    free(all);
    return t;
}

int main(int argc, char **argv)
{
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;

    if (count < 1000) {
        fprintf(stderr, "usage: %s [COUNT], 1000 or more\n", argv[0]);
        return 2;
    }
    srand(28);
    struct subject subject = open_subject();
    double ours = measure("key_auth", &subject, count, by_table);
    double naive = measure("stops at the first difference", &subject, count, by_bytes);
    key_hasher_free(subject.hasher);
    key_table_free(subject.table);
    return fabs(ours) < 4.5 && fabs(naive) > 4.5 ? 0 : 1;
}
