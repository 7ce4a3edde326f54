/* Keeps things going on each worker: a timer, a watched descriptor, and what a file says. */
#include <postern_plugin.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const struct postern_api *api;

enum { FILE_NAME, EVERY, BLOCK, OPTIONS };

static const struct postern_option options[OPTIONS] = {
    [FILE_NAME] = {"file", POSTERN_FILE, false, true, NULL, 0, 0, NULL, "What is followed."},
    [EVERY] = {"every", POSTERN_TIME, false, false, "20ms", 1, 60000, NULL, "Of the timer."},
    [BLOCK] = {"block", POSTERN_TIME, false, false, "0", 0, 60000, NULL, "In its timer."},
};

#define WORKERS 8

struct at_worker {
    struct keeper *keeper;
    uint64_t timer;
    int fd;
};

struct keeper {
    char *_Atomic text;
    uint32_t every, block;
    atomic_uint ticks, ready, freed;
    struct at_worker at[WORKERS];
};

static postern_str str(const char *z)
{
    return (postern_str){z, strlen(z)};
}

static bool load(const struct postern_api *a)
{
    api = a;
    return true;
}

static char *read_line(const char *path)
{
    char line[256] = "";
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    if (!fgets(line, sizeof(line), file))
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return strdup(line);
}

static bool configure(postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    const char *path = values[FILE_NAME].list[0].text.p;
    api->follow(s, path);
    char *text = read_line(path);
    if (!text) {
        api->fault(s, FILE_NAME, 0, "cannot read %s", path);
        return false;
    }
    struct keeper *keeper = calloc(1, sizeof(*keeper));
    atomic_init(&keeper->text, text);
    keeper->every = (uint32_t)values[EVERY].list[0].number;
    keeper->block = (uint32_t)values[BLOCK].list[0].number;
    *ret_instance = keeper;
    return true;
}

static void discard(void *instance)
{
    struct keeper *keeper = instance;
    api->log(&postern_plugin, POSTERN_INFO, "discarded %s", atomic_load(&keeper->text));
    free(atomic_load(&keeper->text));
    free(keeper);
}

static void on_change(void *instance, const char *path)
{
    struct keeper *keeper = instance;
    char *text = read_line(path);
    if (text)
        api->retire(atomic_exchange(&keeper->text, text), free);
}

static void on_timer(postern_worker *w, void *arg)
{
    static const uint64_t one = 1;
    struct at_worker *at = arg;
    atomic_fetch_add(&at->keeper->ticks, 1);
    if (write(at->fd, &one, sizeof(one)) != sizeof(one))
        abort();
    if (at->keeper->block)
        usleep(at->keeper->block * 1000);
    at->timer = api->timer(w, at->keeper->every, on_timer, at);
}

static void on_ready(postern_worker *w, unsigned events, void *arg)
{
    struct at_worker *at = arg;
    uint64_t count;
    (void)w;
    if (events != POSTERN_READ || read(at->fd, &count, sizeof(count)) != sizeof(count))
        abort();
    atomic_fetch_add(&at->keeper->ready, 1);
}

static void start(void *instance, postern_worker *w)
{
    struct keeper *keeper = instance;
    unsigned index = api->worker_index(w);
    struct at_worker *at = &keeper->at[index];
    at->keeper = keeper;
    at->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (at->fd < 0 || !api->watch(w, at->fd, POSTERN_READ | POSTERN_WRITE, on_ready, at) ||
        !api->watch(w, at->fd, POSTERN_READ, on_ready, at))
        abort();
    at->timer = api->timer(w, keeper->every, on_timer, at);
    api->log(&postern_plugin, POSTERN_INFO, "start %u of %u", index, api->worker_count(w));
}

static void stop(void *instance, postern_worker *w)
{
    struct keeper *keeper = instance;
    unsigned index = api->worker_index(w);
    struct at_worker *at = &keeper->at[index];
    api->cancel(w, at->timer);
    api->cancel(w, at->timer);
    api->watch(w, at->fd, 0, NULL, NULL);
    close(at->fd);
    api->log(&postern_plugin, POSTERN_INFO, "stop %u", index);
}

static enum postern_verdict on_request(void *instance, postern_request *r)
{
    struct keeper *keeper = instance;
    char text[64];
    snprintf(text, sizeof(text), "%u %u", atomic_load(&keeper->ticks),
             atomic_load(&keeper->ready));
    api->set(r, POSTERN_ANSWER_HEADER, str("X-File"), str(atomic_load(&keeper->text)));
    api->set(r, POSTERN_ANSWER_HEADER, str("X-Ticks"), str(text));
    return POSTERN_GO_ON;
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "keeper",
    .version = "1",
    .summary = "Keeps things going on each worker.",
    .options = options,
    .option_count = OPTIONS,
    .option_size = sizeof(struct postern_option),
    .load = load,
    .configure = configure,
    .discard = discard,
    .on_change = on_change,
    .start = start,
    .stop = stop,
    .on_request = on_request,
};
