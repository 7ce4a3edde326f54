/* What choosing a server costs: the shared counter against the same order under a mutex, with
 * one to eight threads that do nothing else. Nanoseconds of wall time per choice, all threads
 * together; the best of several turns, for what else the machine does only adds. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "up/balance.h"

#define PICKS   2000000u
#define TURNS   5
#define THREADS 8

static struct cluster *cluster;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t locked_counter;
static pthread_barrier_t start;

static int pick_locked(void)
{
    pthread_mutex_lock(&lock);
    int server = cluster->order[locked_counter++ % cluster->order_len];
    pthread_mutex_unlock(&lock);
    return server;
}

struct picker {
    pthread_t thread;
    unsigned picks;
    bool locked;
    uint64_t began, ended;
    uint64_t sum; /* so that nothing is optimised away */
};

static void *run(void *arg)
{
    static const struct tried none;
    struct picker *picker = arg;
    pthread_barrier_wait(&start);
    picker->began = clock_ns();
    for (unsigned i = 0; i < picker->picks; i++)
        picker->sum +=
            (unsigned)(picker->locked ? pick_locked() : balance_pick(cluster, &none, 0, 0));
    picker->ended = clock_ns();
    return NULL;
}

static double turn(unsigned threads, bool locked)
{
    struct picker pickers[THREADS] = {0};
    uint64_t began = UINT64_MAX, ended = 0;
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        pickers[i].picks = PICKS / threads;
        pickers[i].locked = locked;
        if (pthread_create(&pickers[i].thread, NULL, run, &pickers[i]) != 0)
            exit(EXIT_FAILURE);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(pickers[i].thread, NULL);
        began = pickers[i].began < began ? pickers[i].began : began;
        ended = pickers[i].ended > ended ? pickers[i].ended : ended;
    }
    pthread_barrier_destroy(&start);
    return (double)(ended - began) / PICKS;
}

static double best(unsigned threads, bool locked)
{
    double ns = 1e9;
    for (int i = 0; i < TURNS; i++) {
        double now = turn(threads, locked);
        ns = now < ns ? now : ns;
    }
    return ns;
}

int main(void)
{
    struct cluster_server servers[4] = {0};
    struct cluster_spec spec = {.name = "app", .balance = BALANCE_ROUND_ROBIN};
    for (unsigned i = 0; i < 4; i++) {
        char text[32];
        snprintf(text, sizeof(text), "127.0.0.1:%u", 9001 + i);
        addr_parse(str_of(text), &servers[i].addr);
        servers[i].weight = 1;
        servers[i].from = (uint16_t)i;
    }
    cluster = cluster_new(&spec, servers, 4);
    if (!cluster)
        return EXIT_FAILURE;
    printf("%-8s %12s %12s   (ns per pick, %ld cores)\n", "threads", "mutex", "atomic",
           sysconf(_SC_NPROCESSORS_ONLN));
    for (unsigned threads = 1; threads <= THREADS; threads *= 2)
        printf("%-8u %12.1f %12.1f\n", threads, best(threads, true), best(threads, false));
    cluster_unref(cluster);
    return EXIT_SUCCESS;
}
