/* Plugins as the process has them: shared objects, loaded once and for good.
 *
 * The main thread looks for them, loads them and makes instances of them, one for each section
 * of a configuration; workers only call their hooks. This room knows neither configuration nor
 * requests: who does gives what it needs through struct setup_ops and by filling host_api. */
#ifndef POSTERN_PLUGIN_HOST_H
#define POSTERN_PLUGIN_HOST_H

#include <limits.h>
#include <stdatomic.h>

#include "base/str.h"
#include "http/reason.h"
#include "net/loop.h"
#include "plugin/postern_plugin.h"

/* A loaded plugin. Lives as long as the process: what a worker runs is never unmapped. */
struct plugin {
    const struct plugin *next;
    char *path;
    struct postern_plugin def;  /* the plugin's own, as far as it goes; NULL behind that */
    enum reason *reasons;       /* what each of its reasons is to us */
    _Atomic uint64_t told_slow; /* when the watchdog spoke of it last, ns */
};

/* What plugins call. Each room fills its part before the first plugin is loaded. */
extern struct postern_api host_api;
void host_fill(void); /* this room's part */

#define HOST_ERROR 512
/* The plugin of that file, loaded at the first time. The file's name is NAME.so. NULL: `err`
 * has a sentence. */
const struct plugin *host_load(const char *path, char err[HOST_ERROR]);
/* The plugin that was loaded from that path, or NULL. Any thread: a list only grows. */
const struct plugin *host_loaded(const char *path);
/* Where NAME.so would be: in `directory` (NULL: of the environment, else beside the program,
 * else where plugins are installed); "": no plugin can have that name. False: there is none. */
bool host_search(const char *directory, struct str name, char ret_path[PATH_MAX]);
/* Calls each(arg, name) for the plugins that host_search would find. */
void host_each(const char *directory, void (*each)(void *arg, const char *name), void *arg);

/* A started gateway: workers will follow, and dead instances come home to this loop. NULL: it
 * has ended, all is done where it is asked. */
void host_run(struct loop *main_loop);
/* Nothing will run (-t): plugins can ask. */
void host_set_check(bool check);
bool host_is_check(void);

/* The i-th option of a plugin, whose struct may be larger than ours. */
static inline const struct postern_option *plugin_option(const struct plugin *plugin, size_t i)
{
    return (const struct postern_option *)((const char *)plugin->def.options +
                                           i * plugin->def.option_size);
}
#define PLUGIN_OPTIONS 64 /* the most of one plugin */

/* ---- instances (instance.c) ---- */

struct share;
struct follow;

/* What a plugin made of one section. Hooks get `self`. */
struct instance {
    const struct plugin *plugin;
    void *self;
    bool fail_open;
    uint32_t deadline; /* ms, for waits */
    char *place;       /* "", "listener NAME" or "route NAME" */
    struct share **shares;
    size_t share_count;
    struct follow *follows;
    struct instance *next_dead;
};

struct setup_ops {
    /* `fault` false: a warning. */
    void (*say)(struct postern_setup *s, bool fault, int option, size_t i, const char *text);
    /* NULL: a fault was reported. */
    struct postern_origin *(*origin)(struct postern_setup *s, int option, size_t i,
                                     struct str where);
    /* False: no memory. */
    bool (*secret)(struct postern_setup *s, struct str parameter);
};

/* A section being read: made by who reads it. */
struct postern_setup {
    const struct setup_ops *ops;
    struct instance *instance;
    bool faulty; /* a fault was reported */
};

/* Makes an instance; `setup` has its ops. NULL: no memory, or a fault was reported. */
struct instance *instance_new(const struct plugin *plugin, struct postern_setup *setup,
                              const char *place, const struct postern_values *values);
/* Any thread; the plugin hears of it on the main thread. NULL is fine. */
void instance_free(struct instance *instance);
void instance_fill(struct postern_api *api);
/* Where instances that end in other threads, and followed files, are looked after. */
void instance_run(struct loop *main_loop);

static inline struct str str_from(struct postern_str s)
{
    return (struct str){s.p, s.n};
}
static inline struct postern_str str_to(struct str s)
{
    return (struct postern_str){s.p, s.n};
}

#endif
