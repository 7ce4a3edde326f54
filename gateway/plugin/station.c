#include "plugin/station.h"

#include <sched.h>

#include "base/log.h"
#include "net/fdwatch.h"
#include "plugin/watchdog.h"

static struct postern_worker *_Atomic stations[STATIONS_MAX];

static struct postern_worker *at(unsigned index)
{
    return index < STATIONS_MAX ? atomic_load_explicit(&stations[index], memory_order_acquire)
                                : NULL;
}

/* ---- letters ---- */

/* Between enter and leave the worker's loop is there to post to. */
static bool enter(struct postern_worker *worker)
{
    atomic_fetch_add(&worker->posting, 1);
    if (atomic_load(&worker->open))
        return true;
    atomic_fetch_sub(&worker->posting, 1);
    return false;
}

static void leave(struct postern_worker *worker)
{
    atomic_fetch_sub(&worker->posting, 1);
}

struct post {
    struct message message;
    struct postern_worker *worker;
    void (*run)(struct postern_worker *w, void *arg);
    void *arg;
};

static void on_post(struct message *message)
{
    struct post *post = (struct post *)message;
    uint64_t ticks = watchdog_ticks();
    post->run(post->worker, post->arg);
    watchdog_behind_code((const void *)post->run, "posted function", ticks);
    mem_free(post);
}

static void drop_post(struct message *message)
{
    mem_free(message);
}

static bool api_post(unsigned index, void (*run)(struct postern_worker *w, void *arg),
                     void *arg)
{
    struct postern_worker *worker = at(index);
    struct post *post = worker ? mem_alloc(sizeof(*post)) : NULL;
    if (!post)
        return false;
    *post = (struct post){{.run = on_post, .drop = drop_post}, worker, run, arg};
    if (!enter(worker)) {
        mem_free(post);
        return false;
    }
    loop_post(worker->loop, &post->message);
    leave(worker);
    return true;
}

/* ---- waiting ---- */

/* key: the generation of who waits, shifted by one; the lowest bit is set by the one thread
 * that resumes it; 0: nobody waits. */
struct wait_place {
    struct message message;
    struct postern_worker *worker;
    _Atomic uint64_t key;
    void *waiter; /* NULL: has left */
    void *result;
    void (*drop)(void *result);
    struct wait_place *next_free;
    unsigned index;
};

struct wait_chunk {
    struct wait_place places[WAIT_CHUNK];
};

static void give_place(struct wait_place *place)
{
    atomic_store_explicit(&place->key, 0, memory_order_relaxed);
    place->next_free = place->worker->free_wait;
    place->worker->free_wait = place;
}

static void on_resumed(struct message *message)
{
    struct wait_place *place = (struct wait_place *)message;
    struct postern_worker *worker = place->worker;
    void *waiter = place->waiter, *result = place->result, (*drop)(void *) = place->drop;
    give_place(place);
    if (waiter)
        worker->on_resume(waiter, result);
    else if (drop)
        drop(result);
}

static void drop_resumed(struct message *message)
{
    struct wait_place *place = (struct wait_place *)message;
    if (place->drop)
        place->drop(place->result);
}

static bool add_chunk(struct postern_worker *worker)
{
    unsigned index = worker->wait_count / WAIT_CHUNK;
    struct wait_chunk *chunk = index < WAIT_CHUNKS ? mem_zalloc(sizeof(*chunk)) : NULL;
    if (!chunk)
        return false;
    for (unsigned i = WAIT_CHUNK; i-- > 0;) {
        chunk->places[i].worker = worker;
        chunk->places[i].index = worker->wait_count + i;
        give_place(&chunk->places[i]);
    }
    worker->wait_count += WAIT_CHUNK;
    atomic_store_explicit(&worker->waits[index], chunk, memory_order_release);
    return true;
}

bool station_wait(struct postern_worker *worker, void *waiter, struct postern_token *ret_token)
{
    if (!worker->free_wait && !add_chunk(worker))
        return false;
    struct wait_place *place = worker->free_wait;
    worker->free_wait = place->next_free;
    place->waiter = waiter;
    place->message = (struct message){.run = on_resumed, .drop = drop_resumed};
    *ret_token = (struct postern_token){
        {(uint64_t)(worker->index + 1) << 32 | place->index, ++worker->generation}};
    atomic_store_explicit(&place->key, worker->generation << 1, memory_order_release);
    return true;
}

static struct wait_place *place_of(struct postern_worker *worker, struct postern_token token)
{
    uint32_t index = (uint32_t)token.id[0];
    struct wait_chunk *chunk =
        index < WAIT_CHUNK * WAIT_CHUNKS
            ? atomic_load_explicit(&worker->waits[index / WAIT_CHUNK], memory_order_acquire)
            : NULL;
    return chunk ? &chunk->places[index % WAIT_CHUNK] : NULL;
}

void station_leave(struct postern_worker *worker, struct postern_token token)
{
    struct wait_place *place = place_of(worker, token);
    uint64_t key = token.id[1] << 1;
    if (atomic_compare_exchange_strong(&place->key, &key, 0))
        give_place(place);
    else if (key == (token.id[1] << 1 | 1))
        place->waiter = NULL; /* its letter is on the way */
}

/* True: the letter is on its way. */
static bool resume(struct postern_token token, void *result, void (*drop)(void *result))
{
    struct postern_worker *worker = at((unsigned)(token.id[0] >> 32) - 1);
    if (!worker || !enter(worker))
        return false;
    struct wait_place *place = place_of(worker, token);
    uint64_t key = token.id[1] << 1;
    bool ok = place && key && atomic_compare_exchange_strong(&place->key, &key, key | 1);
    if (ok) {
        place->result = result;
        place->drop = drop;
        loop_post(worker->loop, &place->message);
    }
    leave(worker);
    return ok;
}

static void api_resume(struct postern_token token, void *result, void (*drop)(void *result))
{
    if (!resume(token, result, drop) && drop)
        drop(result);
}

/* ---- memory that hooks may still look at ---- */

struct retired;
struct retired_letter {
    struct message message;
    struct retired *retired;
};

/* Every worker has a letter about it; whoever reads the last one frees it. */
struct retired {
    void *p;
    void (*free_it)(void *p);
    _Atomic unsigned left;
    struct retired_letter letters[];
};

static void passed(struct retired *retired)
{
    if (atomic_fetch_sub(&retired->left, 1) != 1)
        return;
    retired->free_it(retired->p);
    mem_free(retired);
}

static void on_passed(struct message *message)
{
    passed(((struct retired_letter *)message)->retired);
}

static void api_retire(void *p, void (*free_it)(void *p))
{
    unsigned count = 0;
    while (at(count))
        count++;
    struct retired *retired =
        mem_alloc(sizeof(*retired) + count * sizeof(struct retired_letter));
    if (!retired) {
        log_error("out of memory: something that a plugin needs no more is kept");
        return;
    }
    retired->p = p;
    retired->free_it = free_it;
    atomic_init(&retired->left, count + 1); /* ourselves, until all letters are out */
    for (unsigned i = 0; i < count; i++) {
        struct postern_worker *worker = at(i);
        retired->letters[i] =
            (struct retired_letter){{.run = on_passed, .drop = on_passed}, retired};
        if (!enter(worker)) {
            passed(retired); /* it runs no hooks any more */
            continue;
        }
        loop_post(worker->loop, &retired->letters[i].message);
        leave(worker);
    }
    passed(retired);
}

/* ---- timers ---- */

#define TIMERS_MAX (1u << 20)

struct station_timer {
    struct deadline deadline;
    struct postern_worker *worker;
    uint64_t id; /* the slot in its low bits, and a generation */
    void (*run)(struct postern_worker *w, void *arg);
    void *arg;
};

struct timer_slot {
    struct station_timer *timer; /* NULL: free */
    uint32_t next_free;
};

static bool add_timer_slots(struct postern_worker *w)
{
    uint32_t count = w->timer_count ? w->timer_count * 2 : 16;
    struct timer_slot *slots =
        count <= TIMERS_MAX ? mem_realloc(w->timers, count * sizeof(*slots)) : NULL;
    if (!slots)
        return false;
    for (uint32_t i = count; i-- > w->timer_count;) {
        slots[i] = (struct timer_slot){NULL, w->free_timer};
        w->free_timer = i + 1;
    }
    w->timers = slots;
    w->timer_count = count;
    return true;
}

static void end_timer(struct station_timer *timer)
{
    struct postern_worker *w = timer->worker;
    uint32_t slot = timer->id % TIMERS_MAX;
    w->timers[slot] = (struct timer_slot){NULL, w->free_timer};
    w->free_timer = slot + 1;
    deadline_end(&w->loop->wheel, &timer->deadline);
    mem_free(timer);
}

static void on_timer_due(struct deadline *deadline)
{
    struct station_timer *timer = (struct station_timer *)deadline;
    struct postern_worker *worker = timer->worker;
    void (*run)(struct postern_worker * w, void *arg) = timer->run;
    void *arg = timer->arg;
    end_timer(timer);
    uint64_t ticks = watchdog_ticks();
    run(worker, arg);
    watchdog_behind_code((const void *)run, "timer", ticks);
}

static uint64_t api_timer(struct postern_worker *w, uint32_t ms,
                          void (*run)(struct postern_worker *w, void *arg), void *arg)
{
    if (!atomic_load_explicit(&w->open, memory_order_relaxed) ||
        (!w->free_timer && !add_timer_slots(w)))
        return 0;
    struct station_timer *timer = mem_zalloc(sizeof(*timer));
    if (!timer)
        return 0;
    uint32_t slot = w->free_timer - 1;
    w->free_timer = w->timers[slot].next_free;
    w->timers[slot] = (struct timer_slot){timer, 0};
    timer->worker = w;
    timer->id = ++w->generation * TIMERS_MAX + slot;
    timer->run = run;
    timer->arg = arg;
    deadline_init(&timer->deadline, on_timer_due);
    loop_deadline(w->loop, &timer->deadline, ms ? ms : 1);
    return timer->id;
}

static void api_cancel(struct postern_worker *w, uint64_t id)
{
    uint32_t slot = id % TIMERS_MAX;
    struct station_timer *timer = slot < w->timer_count ? w->timers[slot].timer : NULL;
    if (timer && timer->id == id)
        end_timer(timer);
}

static void end_timers(struct postern_worker *w)
{
    for (uint32_t i = 0; i < w->timer_count; i++)
        if (w->timers[i].timer)
            end_timer(w->timers[i].timer);
    mem_free(w->timers);
    w->timers = NULL;
    w->timer_count = w->free_timer = 0;
}

/* ---- descriptors ---- */

struct station_watch {
    struct fdwatch watch;
    struct station_watch *next;
    struct postern_worker *worker;
    int fd;
    void (*ready)(struct postern_worker *w, unsigned events, void *arg);
    void *arg;
    struct grave grave;
};

static void on_ready(struct fdwatch *watch, unsigned events)
{
    struct station_watch *own = (struct station_watch *)watch;
    postern_ready *ready = own->ready;
    uint64_t ticks = watchdog_ticks();
    ready(own->worker, events, own->arg);
    watchdog_behind_code((const void *)ready, "watch of a descriptor", ticks);
}

static void bury_watch(struct grave *grave)
{
    mem_free((char *)grave - offsetof(struct station_watch, grave));
}

/* At the end of the turn: it may be the one that calls. */
static void end_watch(struct station_watch **place)
{
    struct station_watch *own = *place;
    *place = own->next;
    fdwatch_set(&own->watch, own->fd, 0);
    loop_bury(own->worker->loop, &own->grave, bury_watch);
}

static bool api_watch(struct postern_worker *w, int fd, unsigned events,
                      void (*ready)(struct postern_worker *w, unsigned events, void *arg),
                      void *arg)
{
    struct station_watch **place = &w->watches, *own;
    while (*place && (*place)->fd != fd)
        place = &(*place)->next;
    if (!events) {
        if (*place)
            end_watch(place);
        return true;
    }
    own = *place;
    if (!own) {
        own = atomic_load_explicit(&w->open, memory_order_relaxed) ? mem_zalloc(sizeof(*own))
                                                                   : NULL;
        if (!own)
            return false;
        own->watch.loop = w->loop;
        own->watch.on_ready = on_ready;
        own->worker = w;
        own->fd = fd;
        own->next = w->watches;
        w->watches = own;
        place = &w->watches;
    }
    own->ready = ready;
    own->arg = arg;
    if (fdwatch_set(&own->watch, fd, events) == 0)
        return true;
    end_watch(place);
    return false;
}

/* ---- the station itself ---- */

struct postern_worker *station_open(struct loop *loop, unsigned index, unsigned count,
                                    void *owner)
{
    struct postern_worker *worker =
        index < STATIONS_MAX && !at(index) ? mem_zalloc(sizeof(*worker)) : NULL;
    if (!worker)
        return NULL;
    worker->loop = loop;
    worker->index = index;
    worker->count = count;
    worker->owner = owner;
    atomic_init(&worker->open, true);
    atomic_store_explicit(&stations[index], worker, memory_order_release);
    return worker;
}

void station_close(struct postern_worker *worker)
{
    atomic_store(&worker->open, false);
    while (atomic_load(&worker->posting)) /* whoever is inside is about to leave */
        sched_yield();
    end_timers(worker);
    while (worker->watches)
        end_watch(&worker->watches);
}

size_t station_counters(struct counters *ret[STATIONS_MAX])
{
    size_t count = 0;
    while (at((unsigned)count)) {
        ret[count] = &at((unsigned)count)->counters;
        count++;
    }
    return count;
}

void stations_free(void)
{
    for (unsigned i = 0; i < STATIONS_MAX; i++) {
        struct postern_worker *worker = at(i);
        if (!worker)
            continue;
        for (unsigned k = 0; k < WAIT_CHUNKS; k++)
            mem_free(atomic_load_explicit(&worker->waits[k], memory_order_relaxed));
        counters_done(&worker->counters);
        mem_free(worker);
        atomic_store_explicit(&stations[i], NULL, memory_order_relaxed);
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
    api->resume = api_resume;
    api->post = api_post;
    api->retire = api_retire;
    api->worker_index = api_worker_index;
    api->worker_count = api_worker_count;
    api->count = api_count;
    api->timer = api_timer;
    api->cancel = api_cancel;
    api->watch = api_watch;
}
