/* A host for plugins that wait and call: workers, time that passes when told, timers, calls
 * that are answered when told, letters between workers. All on one thread. Include behind
 * cmocka.h. */
#ifndef POSTERN_TESTS_PLAY_HOST_H
#define POSTERN_TESTS_PLAY_HOST_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "postern_plugin.h"

#define PLAY_MAX     64
#define PLAY_WORKERS 2

struct play_field {
    enum postern_part part; /* 0: removed */
    char name[64];
    char *value;
};

struct postern_worker {
    unsigned index;
};

struct postern_request {
    struct play_field fields[PLAY_MAX], facts[PLAY_MAX];
    size_t count, fact_count, alloc_count;
    char credential[256];
    void *slot, *allocs[PLAY_MAX];
    struct postern_worker *worker;
    bool out_of_memory;
    unsigned id; /* of its wait; 0: it does not wait */
    /* what came of it */
    unsigned status;
    char reason[64], detail[256], challenge[768], body[256];
    uint64_t limit, actual;
    const struct postern_plugin *plugin;
    void *instance;
    enum postern_verdict verdict; /* the last one */
    /* what get() says */
    const char *gets[32];
};

struct postern_setup {
    unsigned faults, warnings, origins, followed;
    char text[4096];
    bool out_of_memory;
};

struct postern_origin {
    char where[256];
};

struct play_timer {
    uint64_t id, at_ns;
    unsigned worker;
    void (*run)(struct postern_worker *w, void *arg);
    void *arg;
};

struct play_call {
    bool open;
    unsigned worker;
    struct postern_origin *origin;
    char target[4096], method[16], headers[2048], body[256];
    size_t max_bytes;
    uint32_t deadline_ms;
    void (*done)(struct postern_worker *w, const struct postern_reply *reply, void *arg);
    void *arg;
};

struct play_letter {
    unsigned worker;
    void (*run)(struct postern_worker *w, void *arg);
    void *arg;
};

static struct {
    uint64_t now_ns, wall_ms, last_id;
    struct postern_worker workers[PLAY_WORKERS];
    struct play_timer timers[PLAY_MAX];
    struct play_call calls[PLAY_MAX];
    struct play_letter letters[PLAY_MAX];
    size_t timer_count, call_count, letter_count;
    struct postern_request *waiting[PLAY_MAX];
    size_t waiting_count;
    struct postern_origin origins[PLAY_MAX];
    size_t origin_count;
    void *shared[8];
    char shared_names[8][512];
    void (*shared_free[8])(void *object);
    size_t shared_count;
    unsigned logs, warns, retired;
    char log[4096];
    bool no_letters; /* post() fails */
    /* NULL, or what happens once, when the time is asked for: another thread's doing */
    void (*meanwhile)(void);
} play;

static inline struct postern_str play_str(const char *z)
{
    return (struct postern_str){z, z ? strlen(z) : 0};
}

static uint64_t play_now_ns(void)
{
    void (*meanwhile)(void) = play.meanwhile;
    play.meanwhile = NULL;
    if (meanwhile)
        meanwhile();
    return play.now_ns;
}

static uint64_t play_wall_ms(void)
{
    return play.wall_ms;
}

__attribute__((format(printf, 3, 4))) static void
play_log(const struct postern_plugin *plugin, enum postern_level level, const char *fmt, ...)
{
    va_list args;
    (void)plugin;
    play.logs++;
    play.warns += level >= POSTERN_WARN;
    va_start(args, fmt);
    vsnprintf(play.log, sizeof(play.log), fmt, args);
    va_end(args);
}

static void play_retire(void *p, void (*free_it)(void *p))
{
    play.retired++;
    free_it(p);
}

static void play_say(struct postern_setup *s, const char *fmt, va_list args)
{
    size_t n = strlen(s->text);
    vsnprintf(s->text + n, sizeof(s->text) - n, fmt, args);
    strncat(s->text, "\n", sizeof(s->text) - strlen(s->text) - 1);
}

__attribute__((format(printf, 4, 5))) static void
play_fault(struct postern_setup *s, int option, size_t i, const char *fmt, ...)
{
    va_list args;
    (void)option;
    (void)i;
    s->faults++;
    va_start(args, fmt);
    play_say(s, fmt, args);
    va_end(args);
}

__attribute__((format(printf, 4, 5))) static void play_warn(struct postern_setup *s, int option,
                                                            size_t i, const char *fmt, ...)
{
    va_list args;
    (void)option;
    (void)i;
    s->warnings++;
    va_start(args, fmt);
    play_say(s, fmt, args);
    va_end(args);
}

static void *play_shared(struct postern_setup *s, const char *name, void *(*make)(void *arg),
                         void *arg, void (*free_it)(void *object))
{
    (void)s;
    for (size_t i = 0; i < play.shared_count; i++)
        if (strcmp(play.shared_names[i], name) == 0)
            return play.shared[i];
    size_t at = play.shared_count++;
    snprintf(play.shared_names[at], sizeof(play.shared_names[at]), "%s", name);
    play.shared_free[at] = free_it;
    return play.shared[at] = make(arg);
}

static struct postern_origin *play_origin(struct postern_setup *s, int option, size_t i,
                                          struct postern_str where)
{
    (void)option;
    (void)i;
    s->origins++;
    struct postern_origin *origin = &play.origins[play.origin_count++];
    snprintf(origin->where, sizeof(origin->where), "%.*s", (int)where.n, where.p);
    return origin;
}

static void play_follow(struct postern_setup *s, const char *path)
{
    (void)path;
    s->followed++;
}

static int play_counter(struct postern_setup *s, const char *name, const char *help)
{
    (void)s;
    (void)name;
    (void)help;
    return 0;
}

static void play_count(struct postern_worker *w, int counter, uint64_t n)
{
    (void)w;
    (void)counter;
    (void)n;
}

static unsigned play_worker_index(const struct postern_worker *w)
{
    return w->index;
}

static unsigned play_worker_count(const struct postern_worker *w)
{
    (void)w;
    return PLAY_WORKERS;
}

static uint64_t play_timer_set(struct postern_worker *w, uint32_t ms,
                               void (*run)(struct postern_worker *w, void *arg), void *arg)
{
    assert_true(play.timer_count < PLAY_MAX);
    play.timers[play.timer_count++] = (struct play_timer){
        ++play.last_id, play.now_ns + ms * UINT64_C(1000000), w->index, run, arg};
    return play.last_id;
}

static void play_cancel(struct postern_worker *w, uint64_t timer)
{
    (void)w;
    for (size_t i = 0; i < play.timer_count; i++)
        if (play.timers[i].id == timer)
            play.timers[i] = play.timers[--play.timer_count];
}

static void play_call(struct postern_worker *w, const struct postern_call *call,
                      void (*done)(struct postern_worker *w, const struct postern_reply *reply,
                                   void *arg),
                      void *arg)
{
    assert_true(play.call_count < PLAY_MAX);
    struct play_call *c = &play.calls[play.call_count++];
    *c = (struct play_call){.open = true,
                            .worker = w->index,
                            .origin = call->origin,
                            .max_bytes = call->max_bytes,
                            .deadline_ms = call->deadline_ms,
                            .done = done,
                            .arg = arg};
    snprintf(c->target, sizeof(c->target), "%.*s", (int)call->target.n, call->target.p);
    snprintf(c->method, sizeof(c->method), "%.*s", (int)call->method.n, call->method.p);
    for (size_t i = 0; i < call->header_count; i++) {
        size_t n = strlen(c->headers);
        snprintf(c->headers + n, sizeof(c->headers) - n, "%.*s: %.*s\n",
                 (int)call->headers[i].name.n, call->headers[i].name.p,
                 (int)call->headers[i].value.n, call->headers[i].value.p);
    }
}

static bool play_post(unsigned index, void (*run)(struct postern_worker *w, void *arg),
                      void *arg)
{
    if (play.no_letters)
        return false;
    play.letters[play.letter_count++] = (struct play_letter){index, run, arg};
    return true;
}

static struct postern_worker *play_worker(struct postern_request *r)
{
    return r->worker;
}

static struct postern_str play_get(struct postern_request *r, enum postern_field field)
{
    return play_str(r->gets[field]);
}

static bool play_is(const struct play_field *field, enum postern_part part,
                    struct postern_str name)
{
    return field->part == part && strlen(field->name) == name.n &&
           strncasecmp(field->name, name.p, name.n) == 0;
}

static struct postern_str play_value(struct postern_request *r, enum postern_part part,
                                     struct postern_str name, size_t i)
{
    for (size_t k = 0; k < r->count; k++)
        if (play_is(&r->fields[k], part, name) && i-- == 0)
            return play_str(r->fields[k].value);
    return play_str(NULL);
}

static bool play_header_at(struct postern_request *r, enum postern_part part, size_t i,
                           struct postern_header *ret)
{
    for (size_t k = 0; k < r->count; k++) {
        if (r->fields[k].part != part || i-- > 0)
            continue;
        *ret =
            (struct postern_header){play_str(r->fields[k].name), play_str(r->fields[k].value)};
        return true;
    }
    return false;
}

static void play_remove(struct postern_request *r, enum postern_part part,
                        struct postern_str name)
{
    for (size_t k = 0; k < r->count; k++)
        if (play_is(&r->fields[k], part, name))
            r->fields[k].part = 0;
}

static bool play_add(struct postern_request *r, enum postern_part part, struct postern_str name,
                     struct postern_str value)
{
    if (r->out_of_memory)
        return false;
    assert_true(r->count < PLAY_MAX);
    struct play_field *field = &r->fields[r->count++];
    field->part = part;
    snprintf(field->name, sizeof(field->name), "%.*s", (int)name.n, name.p);
    field->value = strndup(value.p ? value.p : "", value.n);
    return true;
}

static bool play_set(struct postern_request *r, enum postern_part part, struct postern_str name,
                     struct postern_str value)
{
    if (r->out_of_memory)
        return false;
    play_remove(r, part, name);
    return play_add(r, part, name, value);
}

static bool play_credential(struct postern_request *r, struct postern_str name)
{
    snprintf(r->credential, sizeof(r->credential), "%.*s", (int)name.n, name.p);
    return !r->out_of_memory;
}

static bool play_fact_set(struct postern_request *r, struct postern_str name,
                          struct postern_str value)
{
    assert_true(r->fact_count < PLAY_MAX);
    struct play_field *fact = &r->facts[r->fact_count++];
    snprintf(fact->name, sizeof(fact->name), "%.*s", (int)name.n, name.p);
    fact->value = strndup(value.p ? value.p : "", value.n);
    return !r->out_of_memory;
}

static void *play_alloc(struct postern_request *r, size_t n)
{
    assert_true(r->alloc_count < PLAY_MAX);
    return r->out_of_memory ? NULL : (r->allocs[r->alloc_count++] = malloc(n ? n : 1));
}

static void **play_slot(struct postern_request *r)
{
    return &r->slot;
}

static void play_answer(struct postern_request *r, const struct postern_answer *answer)
{
    r->status = answer->status;
    r->limit = answer->limit;
    r->actual = answer->actual;
    snprintf(r->reason, sizeof(r->reason), "%s", answer->reason ? answer->reason : "");
    snprintf(r->detail, sizeof(r->detail), "%.*s", (int)answer->detail.n,
             answer->detail.p ? answer->detail.p : "");
    snprintf(r->body, sizeof(r->body), "%.*s", (int)answer->body.n,
             answer->body.p ? answer->body.p : "");
    for (size_t i = 0; i < answer->header_count; i++) {
        play_add(r, POSTERN_ANSWER_HEADER, answer->headers[i].name, answer->headers[i].value);
        if (strncasecmp(answer->headers[i].name.p, "WWW-Authenticate", 16) == 0)
            snprintf(r->challenge, sizeof(r->challenge), "%.*s",
                     (int)answer->headers[i].value.n, answer->headers[i].value.p);
    }
}

static struct postern_token play_wait(struct postern_request *r)
{
    r->id = (unsigned)++play.last_id;
    play.waiting[play.waiting_count++] = r;
    return (struct postern_token){{r->id, 0}};
}

static void play_resume(struct postern_token token, void *result, void (*drop)(void *result))
{
    for (size_t i = 0; i < play.waiting_count; i++) {
        struct postern_request *r = play.waiting[i];
        if (r->id != token.id[0])
            continue;
        play.waiting[i] = play.waiting[--play.waiting_count];
        r->id = 0;
        r->verdict = r->plugin->on_resume(r->instance, r, result);
        return;
    }
    if (drop)
        drop(result);
}

static bool play_secret_parameter(postern_setup *s, postern_str name)
{
    (void)s, (void)name;
    return true;
}

/* As the gateway, of whose own fields two will do. */
static bool play_may_put(enum postern_part part, postern_str name)
{
    (void)part;
    return !(name.n == 4 && strncasecmp(name.p, "Host", 4) == 0) &&
           !(name.n == 14 && strncasecmp(name.p, "Content-Length", 14) == 0);
}

static const struct postern_api play_api = {
    .size = sizeof(struct postern_api),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .version = "test",
    .now_ns = play_now_ns,
    .wall_ms = play_wall_ms,
    .log = play_log,
    .resume = play_resume,
    .post = play_post,
    .retire = play_retire,
    .fault = play_fault,
    .warn = play_warn,
    .shared = play_shared,
    .origin = play_origin,
    .follow = play_follow,
    .counter = play_counter,
    .secret_parameter = play_secret_parameter,
    .may_put = play_may_put,
    .count = play_count,
    .worker_index = play_worker_index,
    .worker_count = play_worker_count,
    .timer = play_timer_set,
    .cancel = play_cancel,
    .call = play_call,
    .worker = play_worker,
    .get = play_get,
    .value = play_value,
    .header_at = play_header_at,
    .set = play_set,
    .add = play_add,
    .remove = play_remove,
    .credential = play_credential,
    .fact_set = play_fact_set,
    .alloc = play_alloc,
    .slot = play_slot,
    .answer = play_answer,
    .wait = play_wait,
};

static inline void play_begin(void)
{
    memset(&play, 0, sizeof(play));
    play.wall_ms = UINT64_C(1800000000000); /* 2027-01-15 */
    play.now_ns = UINT64_C(1000000000);
    for (unsigned i = 0; i < PLAY_WORKERS; i++)
        play.workers[i].index = i;
}

/* Frees what is shared, with nobody waiting and nothing under way. */
static inline void play_end(void)
{
    for (size_t i = 0; i < play.shared_count; i++)
        play.shared_free[i](play.shared[i]);
    play.shared_count = 0;
}

/* Letters reach their workers. */
static inline void play_deliver(void)
{
    while (play.letter_count > 0) {
        struct play_letter letter = play.letters[0];
        memmove(play.letters, play.letters + 1, --play.letter_count * sizeof(letter));
        letter.run(&play.workers[letter.worker], letter.arg);
    }
}

/* Time passes, and timers run when theirs comes. */
static inline void play_pass(uint64_t ms)
{
    uint64_t end = play.now_ns + ms * UINT64_C(1000000);
    for (;;) {
        size_t first = play.timer_count;
        play_deliver();
        for (size_t i = 0; i < play.timer_count; i++)
            if (play.timers[i].at_ns <= end &&
                (first == play.timer_count || play.timers[i].at_ns < play.timers[first].at_ns))
                first = i;
        if (first >= play.timer_count)
            break;
        struct play_timer timer = play.timers[first];
        play.timers[first] = play.timers[--play.timer_count];
        if (timer.at_ns > play.now_ns) {
            play.wall_ms += (timer.at_ns - play.now_ns) / 1000000;
            play.now_ns = timer.at_ns;
        }
        timer.run(&play.workers[timer.worker], timer.arg);
    }
    play.wall_ms += (end - play.now_ns) / 1000000;
    play.now_ns = end;
}

static inline size_t play_open_calls(void)
{
    size_t n = 0;
    for (size_t i = 0; i < play.call_count; i++)
        n += play.calls[i].open;
    return n;
}

/* The oldest call that has no answer yet. */
static inline struct play_call *play_next_call(void)
{
    for (size_t i = 0; i < play.call_count; i++)
        if (play.calls[i].open)
            return &play.calls[i];
    fail_msg("no call is open");
    return NULL;
}

static inline void play_reply(const struct postern_reply *reply)
{
    struct play_call *call = play_next_call();
    call->open = false;
    call->done(&play.workers[call->worker], reply, call->arg);
    play_deliver();
}

/* status 0: the call fails, and `body` says why. `cache`: Cache-Control, or NULL. */
static inline void play_reply_text(unsigned status, const char *body, const char *cache)
{
    struct postern_header header = {play_str("cache-control"), play_str(cache)};
    struct postern_reply reply = {.size = sizeof(reply),
                                  .status = status,
                                  .failure = status ? NULL : body,
                                  .headers = &header,
                                  .header_count = cache ? 1 : 0,
                                  .body = play_str(status ? body : NULL)};
    play_reply(&reply);
}

static inline void play_done(struct postern_request *r)
{
    if (r->id) {
        for (size_t i = 0; i < play.waiting_count; i++)
            if (play.waiting[i] == r)
                play.waiting[i] = play.waiting[--play.waiting_count];
        r->plugin->on_cancel(r->instance, r);
    }
    if (r->plugin && r->plugin->on_log)
        r->plugin->on_log(r->instance, r);
    for (size_t i = 0; i < r->count; i++)
        free(r->fields[i].value);
    for (size_t i = 0; i < r->fact_count; i++)
        free(r->facts[i].value);
    for (size_t i = 0; i < r->alloc_count; i++)
        free(r->allocs[i]);
    memset(r, 0, sizeof(*r));
}

static inline void play_put(struct postern_request *r, enum postern_part part, const char *name,
                            const char *value)
{
    assert_true(play_add(r, part, play_str(name), play_str(value)));
}

static inline const char *play_has(struct postern_request *r, enum postern_part part,
                                   const char *name)
{
    return play_value(r, part, play_str(name), 0).p;
}

static inline const char *play_fact(struct postern_request *r, const char *name)
{
    for (size_t i = 0; i < r->fact_count; i++)
        if (strcmp(r->facts[i].name, name) == 0)
            return r->facts[i].value;
    return NULL;
}

/* Runs the request hook on that worker. */
static inline enum postern_verdict play_ask(const struct postern_plugin *plugin, void *instance,
                                            struct postern_request *r, unsigned worker)
{
    r->plugin = plugin;
    r->instance = instance;
    r->worker = &play.workers[worker];
    return r->verdict = plugin->on_request(instance, r);
}

/* "name", "value" pairs, ended by NULL; the same name again makes a list. Words are given as in
 * a file, numbers as they are checked. Defaults are filled in. NULL: a fault. */
static inline void *play_configure(const struct postern_plugin *plugin, struct postern_setup *s,
                                   ...)
{
    static struct postern_value list[PLAY_MAX][16];
    struct postern_values values[PLAY_MAX];
    void *instance = NULL;
    va_list args;
    memset(s, 0, sizeof(*s));
    memset(list, 0, sizeof(list));
    for (size_t i = 0; i < plugin->option_count; i++) {
        const struct postern_option *option = &plugin->options[i];
        values[i] = (struct postern_values){sizeof(values[i]), list[i], 0};
        va_start(args, s);
        for (const char *name; (name = va_arg(args, const char *));) {
            const char *text = va_arg(args, const char *);
            if (strcmp(name, option->name) == 0)
                list[i][values[i].count++] =
                    (struct postern_value){.given = true, .text = play_str(text)};
        }
        va_end(args);
        if (values[i].count == 0 && option->default_text)
            list[i][values[i].count++] =
                (struct postern_value){.text = play_str(option->default_text)};
        for (size_t k = 0; k < values[i].count; k++) {
            struct postern_value *value = &list[i][k];
            char *unit = NULL;
            value->number = strtoll(value->text.p, &unit, 10);
            if (option->type == POSTERN_BOOL)
                value->number = strcmp(value->text.p, "true") == 0;
            else if (option->type == POSTERN_WORD)
                for (value->number = 0; option->words[value->number]; value->number++)
                    if (strcmp(option->words[value->number], value->text.p) == 0)
                        break;
            if (option->type == POSTERN_TIME && strcmp(unit, "ms") != 0)
                value->number *= *unit == 's' ? 1000 : *unit == 'm' ? 60000 : 1;
            if (option->type == POSTERN_SIZE && *unit == 'k')
                value->number *= 1024;
        }
    }
    bool made = plugin->configure(s, values, &instance);
    assert_true(made == (s->faults == 0));
    assert_true(made == (instance != NULL));
    return instance;
}

#endif
