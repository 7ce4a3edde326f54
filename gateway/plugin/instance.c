/* Instances, and what lives longer than one: shared state and followed files. */
#include "plugin/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "plugin/counter.h"

#define FOLLOW_MS 500 /* between looks at followed files */

/* State of a plugin that sections of several configurations use. */
struct share {
    struct share *next;
    const struct plugin *plugin;
    char *name;
    void *object;
    void (*free_it)(void *object);
    size_t users;
};

/* What tells one version of a file from another. */
struct mark {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed, modified;
};

struct follow {
    struct follow *next, *next_of_instance;
    struct instance *instance;
    char *path;
    struct mark told, last; /* as the plugin knows it; as it was at the last look */
};

static struct {
    struct loop *loop; /* the main thread's; NULL: no gateway runs */
    pthread_t thread;
    struct share *shares;
    struct follow *follows;
    struct deadline look;
    pthread_mutex_t lock; /* of the two below */
    struct instance *dead;
    bool posted;
    struct message message;
} home = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the end of an instance ---- */

static void release(struct share *share)
{
    if (--share->users)
        return;
    struct share **at = &home.shares;
    while (*at != share)
        at = &(*at)->next;
    *at = share->next;
    if (share->free_it)
        share->free_it(share->object);
    mem_free(share->name);
    mem_free(share);
}

static void unfollow(struct follow *follow)
{
    struct follow **at = &home.follows;
    while (*at != follow)
        at = &(*at)->next;
    *at = follow->next;
    mem_free(follow->path);
    mem_free(follow);
}

static void bury(struct instance *instance)
{
    while (instance->follows) {
        struct follow *follow = instance->follows;
        instance->follows = follow->next_of_instance;
        unfollow(follow);
    }
    if (instance->self && instance->plugin->def.discard)
        instance->plugin->def.discard(instance->self);
    for (size_t i = 0; i < instance->share_count; i++)
        release(instance->shares[i]);
    mem_free(instance->shares);
    mem_free(instance->place);
    mem_free(instance);
}

static void bury_dead(void)
{
    pthread_mutex_lock(&home.lock);
    struct instance *list = home.dead;
    home.dead = NULL;
    home.posted = false;
    pthread_mutex_unlock(&home.lock);
    while (list) {
        struct instance *instance = list;
        list = instance->next_dead;
        bury(instance);
    }
}

static void on_dead(struct message *message)
{
    (void)message;
    bury_dead();
}

static void drop_letter(struct message *message)
{
    (void)message; /* instance_run(NULL) looks itself */
}

void instance_free(struct instance *instance)
{
    if (!instance)
        return;
    if (!home.loop || pthread_equal(pthread_self(), home.thread)) {
        bury(instance);
        return;
    }
    pthread_mutex_lock(&home.lock);
    bool post = !home.posted;
    home.posted = true;
    instance->next_dead = home.dead;
    home.dead = instance;
    pthread_mutex_unlock(&home.lock);
    if (post) {
        home.message = (struct message){.run = on_dead, .drop = drop_letter};
        loop_post(home.loop, &home.message);
    }
}

/* ---- followed files ---- */

static struct mark look_at(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return (struct mark){0};
    return (struct mark){st.st_dev, st.st_ino, st.st_size, st.st_ctim, st.st_mtim};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same(const struct mark *a, const struct mark *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           same_time(a->changed, b->changed) && same_time(a->modified, b->modified);
}

/* Told when it has not changed between two looks: whoever writes it is done. A file that is
 * away is on its way to be replaced. */
static void on_look(struct deadline *deadline)
{
    struct follow *next;
    for (struct follow *f = home.follows; f; f = next) {
        next = f->next;
        struct mark now = look_at(f->path);
        bool quiet = same(&now, &f->last), news = !same(&now, &f->told);
        f->last = now;
        if (!quiet || !news || !now.ino)
            continue;
        f->told = now;
        f->instance->plugin->def.on_change(f->instance->self, f->path);
    }
    loop_deadline(home.loop, deadline, FOLLOW_MS);
}

void instance_run(struct loop *main_loop)
{
    if (!main_loop && home.loop)
        deadline_end(&home.loop->wheel, &home.look);
    home.loop = main_loop;
    home.thread = pthread_self();
    bury_dead();
    if (!main_loop)
        return;
    deadline_init(&home.look, on_look);
    loop_deadline(main_loop, &home.look, FOLLOW_MS);
}

static void api_follow(struct postern_setup *s, const char *path)
{
    struct instance *instance = s->instance;
    if (!instance->plugin->def.on_change) {
        s->faulty = true;
        s->ops->say(s, true, -1, 0, "it follows a file and has no on_change");
        return;
    }
    struct follow *follow = mem_zalloc(sizeof(*follow));
    size_t n = strlen(path) + 1;
    char *copy = follow ? mem_alloc(n) : NULL;
    if (!copy) {
        mem_free(follow);
        s->faulty = true;
        s->ops->say(s, true, -1, 0, "out of memory");
        return;
    }
    follow->path = memcpy(copy, path, n);
    follow->told = follow->last = look_at(path);
    follow->instance = instance;
    follow->next = home.follows;
    home.follows = follow;
    follow->next_of_instance = instance->follows;
    instance->follows = follow;
}

/* ---- shared state ---- */

static struct share *find_share(const struct plugin *plugin, const char *name)
{
    struct share *share = home.shares;
    while (share && (share->plugin != plugin || strcmp(share->name, name) != 0))
        share = share->next;
    return share;
}

static struct share *new_share(const struct plugin *plugin, const char *name)
{
    struct share *share = mem_zalloc(sizeof(*share));
    size_t n = strlen(name) + 1;
    if (!share || !(share->name = mem_alloc(n))) {
        mem_free(share);
        return NULL;
    }
    memcpy(share->name, name, n);
    share->plugin = plugin;
    share->next = home.shares;
    home.shares = share;
    return share;
}

static void *api_shared(struct postern_setup *s, const char *name, void *(*make)(void *arg),
                        void *arg, void (*free_it)(void *object))
{
    struct instance *instance = s->instance;
    struct share *share = find_share(instance->plugin, name);
    struct share **list =
        mem_realloc(instance->shares, (instance->share_count + 1) * sizeof(struct share *));
    if (!list)
        return NULL;
    instance->shares = list;
    bool fresh = !share;
    if (fresh && !(share = new_share(instance->plugin, name)))
        return NULL;
    share->users++;
    if (fresh)
        share->object = make(arg);
    if (!share->object) { /* nothing to free */
        release(share);
        return NULL;
    }
    share->free_it = free_it;
    list[instance->share_count++] = share;
    return share->object;
}

/* ---- configure ---- */

static void say(struct postern_setup *s, bool fault, int option, size_t i, const char *fmt,
                va_list args)
{
    char text[512];
    vsnprintf(text, sizeof(text), fmt, args);
    s->faulty |= fault;
    s->ops->say(s, fault, option, i, text);
}

static void api_fault(struct postern_setup *s, int option, size_t i, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(s, true, option, i, fmt, args);
    va_end(args);
}

static void api_warn(struct postern_setup *s, int option, size_t i, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(s, false, option, i, fmt, args);
    va_end(args);
}

static struct postern_str api_place(const struct postern_setup *s)
{
    return str_to(str_of(s->instance->place));
}

static struct postern_origin *api_origin(struct postern_setup *s, int option, size_t i,
                                         struct postern_str where)
{
    struct postern_origin *origin = s->ops->origin(s, option, i, str_from(where));
    s->faulty |= !origin;
    return origin;
}

static int api_counter(struct postern_setup *s, const char *name, const char *help)
{
    return counter_id(s->instance->plugin->def.name, s->instance->place, name, help);
}

static bool api_secret_parameter(struct postern_setup *s, struct postern_str name)
{
    return s->ops->secret(s, str_from(name));
}

static bool api_is_check(const struct postern_setup *s)
{
    (void)s;
    return host_is_check();
}

void instance_fill(struct postern_api *api)
{
    api->fault = api_fault;
    api->warn = api_warn;
    api->place = api_place;
    api->shared = api_shared;
    api->origin = api_origin;
    api->follow = api_follow;
    api->counter = api_counter;
    api->is_check = api_is_check;
    api->secret_parameter = api_secret_parameter;
}

struct instance *instance_new(const struct plugin *plugin, struct postern_setup *setup,
                              const char *place, const struct postern_values *values)
{
    struct instance *instance = mem_zalloc(sizeof(*instance));
    size_t n = strlen(place) + 1;
    char *copy = instance ? mem_alloc(n) : NULL;
    if (!copy) {
        mem_free(instance);
        setup->ops->say(setup, true, -1, 0, "out of memory");
        return NULL;
    }
    instance->plugin = plugin;
    instance->place = memcpy(copy, place, n);
    setup->instance = instance;
    void *self = NULL;
    bool ok = plugin->def.configure(setup, values, &self);
    /* Whose fault it is, its file tells best. */
    if (!ok && !setup->faulty)
        api_fault(setup, -1, 0, "%s refuses this section without a word", plugin->path);
    if (ok && !self)
        api_fault(setup, -1, 0, "%s made nothing of this section", plugin->path);
    if (ok)
        instance->self = self; /* also with a fault: the plugin discards it */
    if (ok && self && !setup->faulty)
        return instance;
    bury(instance);
    return NULL;
}
