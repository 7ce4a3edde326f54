#include "plugin/host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

#define PLUGINS_MAX 256
#define NAME_LEN    48
/* A plugin of the first version has all of it up to here. */
#define SIZE_1_0                                                                               \
    (offsetof(struct postern_plugin, on_response_body) +                                       \
     sizeof(((struct postern_plugin *)NULL)->on_response_body))

struct postern_api host_api;

static struct {
    const struct plugin *_Atomic plugins;
    unsigned count;
    bool check;
} host;

void host_set_check(bool check)
{
    host.check = check;
}

bool host_is_check(void)
{
    return host.check;
}

void host_run(struct loop *main_loop)
{
    instance_run(main_loop);
}

/* ---- what any thread may call ---- */

static void api_log(const struct postern_plugin *plugin, enum postern_level level,
                    const char *fmt, ...)
{
    static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR};
    char text[512];
    enum log_level to = (unsigned)level < 4 ? levels[level] : LOG_ERROR;
    va_list args;
    if (!log_is_on(to))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    log_write(to, "plugin %s: %s", plugin->name, text);
}

static uint64_t api_now_ns(void)
{
    return clock_ns();
}

static uint64_t api_wall_ms(void)
{
    return clock_wall_ms();
}

void host_fill(void)
{
    host_api.size = sizeof(host_api);
    host_api.abi_major = POSTERN_ABI_MAJOR;
    host_api.abi_minor = POSTERN_ABI_MINOR;
    host_api.version = POSTERN_VERSION;
    host_api.now_ns = api_now_ns;
    host_api.wall_ms = api_wall_ms;
    host_api.log = api_log;
    instance_fill(&host_api);
}

/* ---- is it one ---- */

/* Names of options and plugins: what the grammar can take. */
static bool is_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    return n > 0 && n <= NAME_LEN && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

static bool is_option(const struct postern_option *option)
{
    static const char *const ours[] = {"enabled", "fail", "deadline"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        if (option->name && strcmp(option->name, ours[i]) == 0)
            return false;
    return is_name(option->name) && option->type >= POSTERN_BOOL &&
           option->type <= POSTERN_TOKEN && option->help &&
           (option->type != POSTERN_WORD || (option->words && option->words[0])) &&
           option->min <= option->max;
}

static bool fail(char err[HOST_ERROR], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(char err[HOST_ERROR], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(err, HOST_ERROR, fmt, args);
    va_end(args);
    return false;
}

/* "/a/b/NAME.so" */
static struct str name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct str name = str_of(slash ? slash + 1 : path);
    if (name.n > 3 && memcmp(name.p + name.n - 3, ".so", 3) == 0)
        name.n -= 3;
    return name;
}

static bool check_options(const struct plugin *plugin, char err[HOST_ERROR])
{
    const struct postern_plugin *def = &plugin->def;
    if (def->option_count > PLUGIN_OPTIONS)
        return fail(err, "%s has %zu options, expected at most %d", plugin->path,
                    def->option_count, PLUGIN_OPTIONS);
    if (def->option_count && (!def->options || def->option_size < sizeof(*def->options)))
        return fail(err, "%s has options of %zu bytes, expected %zu or more", plugin->path,
                    def->option_size, sizeof(*def->options));
    for (size_t i = 0; i < def->option_count; i++) {
        if (!is_option(plugin_option(plugin, i)))
            return fail(err,
                        "%s: its option number %zu is none: expected a name of its own "
                        "([a-z][a-z0-9_]*), a type, min and max, words where it is one, and "
                        "help",
                        plugin->path, i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(plugin_option(plugin, k)->name, plugin_option(plugin, i)->name) == 0)
                return fail(err, "%s has two options with the name %s", plugin->path,
                            plugin_option(plugin, i)->name);
    }
    return true;
}

static bool check(const struct plugin *plugin, char err[HOST_ERROR])
{
    const struct postern_plugin *def = &plugin->def;
    struct str name = name_of(plugin->path);
    if (!is_name(def->name))
        return fail(err, "%s has no name, expected [a-z][a-z0-9_]*", plugin->path);
    if (!str_eq(name, str_of(def->name)))
        return fail(err, "%s has the plugin \"%s\", expected its file to be %s.so",
                    plugin->path, def->name, def->name);
    if (!def->configure || !def->summary || !def->version)
        return fail(err, "%s has no %s, expected one", plugin->path,
                    !def->configure ? "configure"
                    : !def->summary ? "summary"
                                    : "version");
    return check_options(plugin, err);
}

static bool add_reasons(struct plugin *plugin, char err[HOST_ERROR])
{
    size_t count = plugin->def.reasons ? plugin->def.reason_count : 0;
    plugin->reasons = mem_zalloc((count + 1) * sizeof(*plugin->reasons));
    for (size_t i = 0; plugin->reasons && i < count; i++) {
        const struct postern_reason *reason = &plugin->def.reasons[i];
        plugin->reasons[i] =
            reason->name && reason->title ? reason_add(reason->name, reason->title) : R_NONE;
        if (!plugin->reasons[i])
            return fail(err,
                        "%s: its reason number %zu is none: expected a name ([a-z0-9_.], at "
                        "most 63 bytes), a title without quotation marks, and no more than %d "
                        "reasons of all plugins",
                        plugin->path, i, REASON_MAX - REASON_COUNT);
    }
    return plugin->reasons || fail(err, "%s: out of memory", plugin->path);
}

/* ---- loading ---- */

/* The symbol, when it is of a version that we speak. */
static bool copy_def(struct plugin *plugin, const struct postern_plugin *own,
                     char err[HOST_ERROR])
{
    size_t size = own->size;
    if (size < offsetof(struct postern_plugin, name))
        return fail(err, "%s: its postern_plugin begins with the size %zu, which is none",
                    plugin->path, size);
    if (own->abi_major != POSTERN_ABI_MAJOR)
        return fail(err,
                    "%s is built for version %u.%u of the plugin interface, this gateway has "
                    "%d.%d: build it anew with the header of this gateway",
                    plugin->path, own->abi_major, own->abi_minor, POSTERN_ABI_MAJOR,
                    POSTERN_ABI_MINOR);
    if (size < SIZE_1_0)
        return fail(err, "%s: its postern_plugin has %zu bytes, expected %zu or more",
                    plugin->path, size, SIZE_1_0);
    memcpy(&plugin->def, own, size < sizeof(plugin->def) ? size : sizeof(plugin->def));
    return true;
}

static bool open_object(struct plugin *plugin, const char *path, char err[HOST_ERROR])
{
    plugin->path = strdup(path);
    void *object = plugin->path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!object) {
        const char *why = plugin->path ? dlerror() : "out of memory";
        size_t n = strlen(path);
        if (strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0)
            why += n + 2; /* the path once is enough */
        return fail(err, "cannot load %s: %s", path, why);
    }
    const struct postern_plugin *own = dlsym(object, "postern_plugin");
    bool ok = own ? copy_def(plugin, own, err) && check(plugin, err) && add_reasons(plugin, err)
                  : fail(err, "%s has no symbol postern_plugin, so it is no plugin", path);
    if (!ok) {
        dlclose(object);
        return false;
    }
    /* From here on its code may have left something behind: it stays mapped. */
    if (plugin->def.load && !plugin->def.load(&host_api))
        return fail(err, "%s says that it cannot work; the error log says why", path);
    return true;
}

const struct plugin *host_loaded(const char *path)
{
    const struct plugin *plugin = atomic_load_explicit(&host.plugins, memory_order_acquire);
    while (plugin && strcmp(plugin->path, path) != 0)
        plugin = plugin->next;
    return plugin;
}

const struct plugin *host_load(const char *path, char err[HOST_ERROR])
{
    const struct plugin *loaded = host_loaded(path);
    if (loaded)
        return loaded;
    if (host.count == PLUGINS_MAX) {
        fail(err, "cannot load %s: %d plugins are loaded already, at most that", path,
             PLUGINS_MAX);
        return NULL;
    }
    struct plugin *plugin = mem_zalloc(sizeof(*plugin));
    if (!plugin || !open_object(plugin, path, err)) {
        if (!plugin)
            fail(err, "cannot load %s: out of memory", path);
        else
            free(plugin->path), mem_free(plugin->reasons);
        mem_free(plugin);
        return NULL;
    }
    plugin->next = atomic_load_explicit(&host.plugins, memory_order_relaxed);
    atomic_store_explicit(&host.plugins, plugin, memory_order_release);
    host.count++;
    return plugin;
}

/* ---- finding ---- */

/* plugins/ beside the running program: a build tree. False: it has none. */
static bool beside(char out[PATH_MAX])
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n <= 0)
        return false;
    program[n] = '\0';
    *(strrchr(program, '/') + 1) = '\0'; /* the kernel gives an absolute path */
    return snprintf(out, PATH_MAX, "%splugins", program) < PATH_MAX && access(out, X_OK) == 0;
}

static const char *directory_of(const char *directory, char room[PATH_MAX])
{
    if (!directory)
        directory = getenv("POSTERN_PLUGINS");
    if (directory && *directory)
        return directory;
    return beside(room) ? room : POSTERN_PLUGIN_DIR;
}

bool host_search(const char *directory, struct str name, char ret_path[PATH_MAX])
{
    char room[PATH_MAX], text[NAME_LEN + 1];
    ret_path[0] = '\0';
    if (name.n == 0 || name.n > NAME_LEN)
        return false;
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    int n = is_name(text)
                ? snprintf(ret_path, PATH_MAX, "%s/%s.so", directory_of(directory, room), text)
                : PATH_MAX;
    return n < PATH_MAX && access(ret_path, F_OK) == 0;
}

void host_each(const char *directory, void (*each)(void *arg, const char *name), void *arg)
{
    char room[PATH_MAX];
    DIR *dir = opendir(directory_of(directory, room));
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        struct str name = name_of(entry->d_name);
        char text[NAME_LEN + 1];
        if (name.n == strlen(entry->d_name) || name.n > NAME_LEN)
            continue;
        memcpy(text, name.p, name.n);
        text[name.n] = '\0';
        if (is_name(text))
            each(arg, text);
    }
    if (dir)
        closedir(dir);
}
