/* Some threads that do the same at the same time, turn by turn. */
#ifndef POSTERN_THREADS_TEST_H
#define POSTERN_THREADS_TEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THREADS 8

struct crew {
    pthread_barrier_t barrier;
    unsigned turns;
    /* All at once; then, alone, `after`. */
    void (*work)(void *arg, unsigned thread, unsigned turn);
    void (*after)(void *arg, unsigned turn);
    void *arg;
};

struct crew_member {
    pthread_t thread;
    struct crew *crew;
    unsigned index;
};

static void *crew_run(void *arg)
{
    struct crew_member *member = arg;
    struct crew *crew = member->crew;
    for (unsigned turn = 0; turn < crew->turns; turn++) {
        pthread_barrier_wait(&crew->barrier);
        crew->work(crew->arg, member->index, turn);
        if (pthread_barrier_wait(&crew->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            crew->after(crew->arg, turn);
    }
    return NULL;
}

static void crew_work(struct crew *crew)
{
    struct crew_member members[THREADS];
    assert_int_equal(pthread_barrier_init(&crew->barrier, NULL, THREADS), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        members[i] = (struct crew_member){.crew = crew, .index = i};
        assert_int_equal(pthread_create(&members[i].thread, NULL, crew_run, &members[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&crew->barrier);
}

#endif
