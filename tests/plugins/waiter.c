/* Waits in every way that there is: for another thread, a timer, a call, nobody. */
#include <postern_plugin.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct postern_api *api;

enum { HOW, AFTER, THEN, ORIGIN, TARGET, MAX, METHOD, BODY, TIMES, OPTIONS };
enum { THREAD, TIMER, NOBODY, NOW, CALL, LATE, BLOCK, UNTOLD, ABROAD };
enum { GO_ON, ANSWER, FAIL };

static const char *const hows[] = {"thread", "timer", "nobody", "now",    "call",
                                   "late",   "block", "untold", "abroad", NULL};
static const char *const thens[] = {"go_on", "answer", "fail", NULL};

static const struct postern_option options[OPTIONS] = {
    [HOW] = {"how", POSTERN_WORD, false, true, NULL, 0, 0, hows, "For whom it waits."},
    [AFTER] = {"after", POSTERN_TIME, false, false, "10ms", 0, 60000, NULL, "How long."},
    [THEN] = {"then", POSTERN_WORD, false, false, "go_on", 0, 0, thens, "What it says then."},
    [ORIGIN] = {"origin", POSTERN_TEXT, false, false, NULL, 0, 0, NULL, "Where calls go."},
    [TARGET] = {"target", POSTERN_TEXT, false, false, "/check", 0, 0, NULL, "What is called."},
    [MAX] = {"max", POSTERN_SIZE, false, false, "64k", 0, 1 << 24, NULL, "Of a call's answer."},
    [METHOD] = {"method", POSTERN_TOKEN, false, false, "GET", 0, 0, NULL, "Of a call."},
    [BODY] = {"body", POSTERN_SIZE, false, false, "0", 0, 1 << 24, NULL,
              "Bytes sent by a call."},
    [TIMES] = {"times", POSTERN_NUMBER, false, false, "1", 1, 100, NULL, "How often it waits."},
};

static const struct postern_reason reasons[] = {{"waiter.refused", "The waiter refuses"}};

struct waiter {
    int64_t numbers[OPTIONS];
    char *target, *method, *body;
    struct postern_origin *origin;
    atomic_int threads; /* at work */
};

/* One word that is on its way. */
struct word {
    struct waiter *waiter;
    struct postern_token token;
    unsigned worker;
    int64_t after;
};

static struct postern_str str(const char *z)
{
    return (struct postern_str){z, z ? strlen(z) : 0};
}

static bool load(const struct postern_api *a)
{
    api = a;
    return true;
}

static bool configure(struct postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    for (size_t i = 0; i < OPTIONS; i++)
        if (values[i].count)
            waiter->numbers[i] = values[i].list[0].number;
    waiter->target = strdup(values[TARGET].list[0].text.p);
    waiter->method = strdup(values[METHOD].list[0].text.p);
    waiter->body = malloc((size_t)waiter->numbers[BODY] + 1);
    memset(waiter->body, 'b', (size_t)waiter->numbers[BODY]);
    *ret_instance = waiter;
    if (values[ORIGIN].count)
        waiter->origin = api->origin(s, ORIGIN, 0, values[ORIGIN].list[0].text);
    return true;
}

static void discard(void *instance)
{
    struct waiter *waiter = instance;
    struct timespec ms = {0, 1000000};
    while (atomic_load(&waiter->threads))
        nanosleep(&ms, NULL);
    free(waiter->target);
    free(waiter->method);
    free(waiter->body);
    free(waiter);
}

static void dropped(void *result)
{
    free(result);
    api->log(&postern_plugin, POSTERN_INFO, "dropped");
}

static void pause_for(int64_t ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static void *in_thread(void *arg)
{
    struct word *word = arg;
    pause_for(word->after);
    api->resume(word->token, strdup("thread"), dropped);
    atomic_fetch_sub(&word->waiter->threads, 1);
    free(word);
    return NULL;
}

static void in_worker(struct postern_worker *w, void *arg)
{
    struct word *word = arg;
    (void)w;
    api->resume(word->token, strdup("posted"), dropped);
    free(word);
}

/* Posts to the worker whose request it is. */
static void *abroad(void *arg)
{
    struct word *word = arg;
    struct waiter *waiter = word->waiter;
    pause_for(word->after);
    if (!api->post(word->worker, in_worker, word))
        free(word);
    atomic_fetch_sub(&waiter->threads, 1);
    return NULL;
}

static void start_thread(struct waiter *waiter, struct postern_token token, int64_t after,
                         unsigned worker, void *(*run)(void *))
{
    struct word *word = malloc(sizeof(*word));
    pthread_t thread;
    *word = (struct word){waiter, token, worker, after};
    atomic_fetch_add(&waiter->threads, 1);
    if (pthread_create(&thread, NULL, run, word) != 0)
        abort();
    pthread_detach(thread);
}

static void on_timer(struct postern_worker *w, void *arg)
{
    (void)w;
    struct word *word = arg;
    api->resume(word->token, strdup("timer"), dropped);
    free(word);
}

static void on_reply(struct postern_worker *w, const struct postern_reply *reply, void *arg)
{
    (void)w;
    struct word *word = arg;
    char text[200];
    if (reply->status)
        snprintf(text, sizeof(text), "%u %zu %.*s %.*s", reply->status, reply->body.n,
                 (int)(reply->body.n > 40 ? 40 : reply->body.n), reply->body.p,
                 (int)(reply->header_count ? reply->headers[0].name.n : 0),
                 reply->header_count ? reply->headers[0].name.p : "");
    else
        snprintf(text, sizeof(text), "failed: %s", reply->failure);
    api->resume(word->token, strdup(text), dropped);
    free(word);
}

static void call(struct waiter *waiter, struct postern_request *r, struct postern_token token)
{
    struct word *word = malloc(sizeof(*word));
    struct postern_header header = {str("X-Call"), api->get(r, POSTERN_PATH)};
    *word = (struct word){waiter, token, 0, 0};
    api->call(api->worker(r),
              &(struct postern_call){
                  .size = sizeof(struct postern_call),
                  .origin = waiter->origin,
                  .method = str(waiter->method),
                  .target = str(waiter->target),
                  .headers = &header,
                  .header_count = 1,
                  .body = {waiter->body, (size_t)waiter->numbers[BODY]},
                  .deadline_ms = (uint32_t)waiter->numbers[AFTER],
                  .max_bytes = (size_t)waiter->numbers[MAX],
              },
              on_reply, word);
}

static enum postern_verdict wait_again(struct waiter *waiter, struct postern_request *r)
{
    struct postern_token token = {{0, 0}};
    int64_t after = waiter->numbers[AFTER];
    struct word *word;
    unsigned worker = api->worker_index(api->worker(r));
    if (waiter->numbers[HOW] != UNTOLD)
        token = api->wait(r);
    switch (waiter->numbers[HOW]) {
    case THREAD:
    case LATE:
        start_thread(waiter, token, after, worker, in_thread);
        break;
    case ABROAD:
        start_thread(waiter, token, after, worker, abroad);
        break;
    case TIMER:
        word = malloc(sizeof(*word));
        *word = (struct word){waiter, token, 0, 0};
        if (!api->timer(api->worker(r), (uint32_t)after, on_timer, word))
            abort();
        break;
    case NOW:
        api->resume(token, strdup("now"), dropped);
        break;
    case CALL:
        call(waiter, r, token);
        break;
    case BLOCK:
        pause_for(after);
        return POSTERN_GO_ON;
    default:
        break;
    }
    return POSTERN_WAIT;
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    int *waits = api->alloc(r, sizeof(*waits));
    *waits = 1;
    *api->slot(r) = waits;
    return wait_again(instance, r);
}

static enum postern_verdict on_resume(void *instance, struct postern_request *r, void *result)
{
    struct waiter *waiter = instance;
    int *waits = *api->slot(r);
    api->add(r, POSTERN_ANSWER_HEADER, str("X-Waited"), str(result));
    free(result);
    if ((*waits)++ < waiter->numbers[TIMES])
        return wait_again(waiter, r);
    if (waiter->numbers[THEN] == FAIL)
        return POSTERN_FAILED;
    if (waiter->numbers[THEN] == GO_ON)
        return POSTERN_GO_ON;
    api->answer(r, &(struct postern_answer){.size = sizeof(struct postern_answer),
                                            .status = 403,
                                            .reason = "waiter.refused",
                                            .detail = str("No.")});
    return POSTERN_ANSWERED;
}

static void on_cancel(void *instance, struct postern_request *r)
{
    (void)instance;
    struct postern_str path = api->get(r, POSTERN_PATH);
    api->log(&postern_plugin, POSTERN_INFO, "cancelled %.*s", (int)path.n, path.p);
}

static void on_log(void *instance, struct postern_request *r)
{
    (void)instance;
    struct postern_str path = api->get(r, POSTERN_PATH);
    api->log(&postern_plugin, POSTERN_INFO, "over %.*s %u", (int)path.n, path.p,
             api->status(r));
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "waiter",
    .version = "1",
    .summary = "Waits in every way that there is.",
    .options = options,
    .option_count = OPTIONS,
    .option_size = sizeof(struct postern_option),
    .reasons = reasons,
    .reason_count = 1,
    .order = POSTERN_ORDER_ACCESS,
    .load = load,
    .configure = configure,
    .discard = discard,
    .on_request = on_request,
    .on_resume = on_resume,
    .on_cancel = on_cancel,
    .on_log = on_log,
};
