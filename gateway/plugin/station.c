#include "plugin/station.h"

static struct postern_worker *stations[STATIONS_MAX];

struct postern_worker *station_open(struct loop *loop, unsigned index, unsigned count,
                                    void *owner)
{
    struct postern_worker *worker =
        index < STATIONS_MAX && !stations[index] ? mem_zalloc(sizeof(*worker)) : NULL;
    if (!worker)
        return NULL;
    worker->loop = loop;
    worker->index = index;
    worker->count = count;
    worker->owner = owner;
    stations[index] = worker;
    return worker;
}

void station_close(struct postern_worker *worker)
{
    worker->loop = NULL;
}

size_t station_counters(struct counters *ret[STATIONS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < STATIONS_MAX; i++)
        if (stations[i])
            ret[count++] = &stations[i]->counters;
    return count;
}

void stations_free(void)
{
    for (size_t i = 0; i < STATIONS_MAX; i++) {
        if (!stations[i])
            continue;
        counters_done(&stations[i]->counters);
        mem_free(stations[i]);
        stations[i] = NULL;
    }
}

static unsigned api_worker_index(const struct postern_worker *w)
{
    return w->index;
}

static unsigned api_worker_count(const struct postern_worker *w)
{
    return w->count;
}

static void api_count(struct postern_worker *w, int counter, uint64_t n)
{
    counters_add(&w->counters, counter, n);
}

void station_fill(struct postern_api *api)
{
    api->worker_index = api_worker_index;
    api->worker_count = api_worker_count;
    api->count = api_count;
}
