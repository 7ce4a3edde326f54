/* Plugins in a configuration: which there are, their sections, and what counts where. */
#include <errno.h>
#include <stdlib.h>

#include "conf/load.h"
#include "http/head.h"

/* ---- finding them ---- */

static bool is_among(const struct plugin *const *list, size_t count,
                     const struct plugin *plugin)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == plugin)
            return true;
    return false;
}

static void add_named(struct load *load, int line, const char *path)
{
    struct grammar *grammar = &load->grammar;
    char err[HOST_ERROR];
    const struct plugin *plugin = host_load(path, err);
    if (!plugin)
        load_fault(load, line, "plugins.load: %s", err);
    else if (grammar->named_count == LOAD_PLUGINS)
        load_fault(load, line, "plugins.load names more than %d plugins", LOAD_PLUGINS);
    else if (!is_among(grammar->named, grammar->named_count, plugin))
        grammar->named[grammar->named_count++] = plugin;
}

static void read_settings(struct load *load, cfg_t *sec, size_t place)
{
    struct conf *conf = load->conf;
    const struct value *value = value_get(sec, "directory");
    size_t count = value_count(sec, "load");
    /* lines of the section's own text, from those of all of it */
    int offset = (int)place;
    if (value)
        conf->plugin_directory = include_absolute(
            load, load_where(load, value->line + offset).file, str_of(value->text));
    conf->plugin_files.list = load_alloc(load, count, sizeof(char *));
    for (size_t i = 0; conf->plugin_files.list && i < count; i++) {
        value = value_at(sec, "load", i);
        int line = value->line + offset;
        /* absolute: the dynamic linker looks for a name without "/" where libraries are */
        char *path = include_absolute(load, load_where(load, line).file, str_of(value->text));
        if (!path)
            return;
        conf->plugin_files.list[conf->plugin_files.count++] = path;
        add_named(load, line, path);
    }
}

void plugins_settings(struct load *load, const char *text, size_t place)
{
    if (load->grammar.sought) {
        conf_fault(load->faults, load->places[place],
                   "plugins stands behind sections of plugins, expected it before them");
        return;
    }
    cfg_t *tree = grammar_plugins(text);
    if (!tree) {
        load->no_memory = true;
        return;
    }
    read_settings(load, cfg_getnsec(tree, "plugins", 0), place);
    cfg_free(tree);
}

static const struct plugin *find(struct load *load, struct conf_where where, struct str name,
                                 bool *ret_bad)
{
    const struct grammar *grammar = &load->grammar;
    char path[PATH_MAX], err[HOST_ERROR];
    for (size_t i = 0; i < grammar->named_count; i++)
        if (str_eq(name, str_of(grammar->named[i]->def.name)))
            return grammar->named[i];
    if (!host_search(load->conf->plugin_directory, name, path))
        return NULL;
    const struct plugin *plugin = host_load(path, err);
    *ret_bad = !plugin;
    if (!plugin)
        conf_fault(load->faults, where, "%s", err);
    return plugin;
}

bool plugins_find(struct load *load, struct conf_where where, struct str name, bool *ret_bad)
{
    const struct plugin *plugin = find(load, where, name, ret_bad);
    if (!plugin)
        return false;
    load->grammar.sought = true;
    if (grammar_add(load, plugin))
        return true;
    if (!load->no_memory)
        conf_fault(load->faults, where, "there are more than %d plugins, expected at most that",
                   LOAD_PLUGINS);
    *ret_bad = true;
    return false;
}

void plugins_sought(const struct load *load, struct str name, char ret_path[PATH_MAX])
{
    host_search(load->conf->plugin_directory, name, ret_path);
}

struct search {
    const char *name;
    char *room;
};

static void on_name(void *arg, const char *name)
{
    struct search *search = arg;
    if (!search->room[0] && value_nearest(search->name, &name, 1))
        snprintf(search->room, 64, "%s", name);
}

const char *plugins_nearest(struct load *load, const char *name, char room[64])
{
    struct search search = {name, room};
    const struct grammar *grammar = &load->grammar;
    room[0] = '\0';
    for (size_t i = 0; i < grammar->named_count; i++)
        on_name(&search, grammar->named[i]->def.name);
    host_each(load->conf->plugin_directory, on_name, &search);
    return room[0] ? room : NULL;
}

/* ---- their sections ---- */

void plugins_compile(struct load *load, cfg_t *sec, struct conf_plugins *ret)
{
    const struct grammar *grammar = &load->grammar;
    size_t count = 0;
    for (size_t i = 0; i < grammar->plugin_count; i++)
        count += cfg_size(sec, grammar->plugins[i]->def.name);
    if (!count)
        return;
    ret->list = load_alloc(load, count, sizeof(*ret->list));
    for (size_t i = 0; ret->list && i < grammar->plugin_count; i++) {
        const struct plugin *plugin = grammar->plugins[i];
        cfg_t *own = value_section(sec, plugin->def.name);
        if (!own)
            continue;
        struct conf_plugin *section = &ret->list[ret->count++];
        section->where = load_where(load, value_line(own));
        section->plugin = plugin;
        if (!plugin_values(load, own, section))
            section->values = NULL; /* it is of no use to the plugin */
    }
}

/* A section that the plugin is asked about. */
struct asking {
    struct postern_setup setup;
    struct load *load;
    cfg_t *sec;
    const struct conf_plugin *section;
};

static int line_of(const struct asking *asking, int option, size_t i)
{
    const struct plugin *plugin = asking->section->plugin;
    const struct value *value = NULL;
    if (option >= 0 && (size_t)option < plugin->def.option_count)
        value = value_at(asking->sec, plugin_option(plugin, (size_t)option)->name, i);
    return value ? value->line : value_line(asking->sec);
}

static void on_say(struct postern_setup *s, bool fault, int option, size_t i, const char *text)
{
    struct asking *asking = (struct asking *)s;
    struct load *load = asking->load;
    const struct plugin *plugin = asking->section->plugin;
    int line = line_of(asking, option, i);
    conf_fault(fault ? load->faults : &load->conf->warnings, load_where(load, line), "%s: %s",
               plugin->def.name, text);
}

static struct postern_origin *new_origin(struct load *load, size_t index)
{
    struct postern_origin *origin = load_alloc(load, 1, sizeof(*origin));
    if (origin)
        *origin = (struct postern_origin){load->conf, index};
    return origin;
}

/* "http://HOST[:PORT]" or https as the text of an upstream; "": it is none. */
static void put_upstream(struct str where, char out[1024])
{
    bool tls = where.n > 8 && memcmp(where.p, "https://", 8) == 0;
    size_t skip = tls ? 8 : 7;
    out[0] = '\0';
    if (!tls && (where.n <= 7 || memcmp(where.p, "http://", 7) != 0))
        return;
    struct str host = {where.p + skip, where.n - skip};
    const char *colon = memrchr(host.p, ':', host.n);
    bool port = colon && !memchr(colon, ']', (size_t)(host.p + host.n - colon));
    if (!head_is_authority(host) || host.n > 255)
        return;
    snprintf(out, 1024, /* the name stands twice in it */
             "upstream { " GRAMMAR_TITLE " = '%.*s' server { " GRAMMAR_TITLE
             " = '%.*s%s' } pool { " GRAMMAR_PLACE " = '' warm = 0 } %s }",
             (int)where.n, where.p, (int)host.n, host.p,
             port  ? ""
             : tls ? ":443"
                   : ":80",
             tls ? "tls { " GRAMMAR_PLACE " = '' }" : "");
}

/* The upstream that `text` says, behind the others. False: there were faults. */
static bool add_upstream(struct load *load, const char *text, struct str name)
{
    struct conf *conf = load->conf;
    struct conf_faults faults = {0}, *before = load->faults;
    struct conf_upstream *list = load_alloc(load, conf->upstream_count + 1, sizeof(*list));
    cfg_t *tree = list ? cfg_init(load->grammar.top, CFGF_NONE) : NULL;
    if (!tree || cfg_parse_buf(tree, text) != CFG_SUCCESS) {
        load->no_memory = true;
        if (tree)
            cfg_free(tree);
        return false;
    }
    if (conf->upstream_count)
        memcpy(list, conf->upstreams, conf->upstream_count * sizeof(*list));
    struct conf_upstream *upstream = &list[conf->upstream_count];
    upstream->where = (struct conf_where){conf->file, 0};
    upstream->name = load_copy(load, name);
    upstream->implicit = true;
    load->faults = &faults;
    upstream_compile(load, cfg_getnsec(tree, "upstream", 0), upstream);
    load->faults = before;
    cfg_free(tree);
    bool ok = !faults.count && !load->no_memory;
    conf_faults_done(&faults);
    if (ok) {
        conf->upstreams = list;
        conf->upstream_count++;
    }
    return ok;
}

static struct postern_origin *on_origin(struct postern_setup *s, int option, size_t i,
                                        struct str where)
{
    struct asking *asking = (struct asking *)s;
    struct load *load = asking->load;
    struct conf *conf = load->conf;
    char text[1024] = "";
    for (size_t k = 0; k < conf->upstream_count; k++)
        if (str_eq(where, str_of(conf->upstreams[k].name)))
            return new_origin(load, k);
    put_upstream(where, text);
    if (text[0] && add_upstream(load, text, where))
        return new_origin(load, conf->upstream_count - 1);
    char said[600];
    snprintf(said, sizeof(said),
             "\"%.*s\" is nothing that can be called, expected http://HOST[:PORT], "
             "https://HOST[:PORT] or the name of an upstream",
             where.n > 256 ? 256 : (int)where.n, where.p);
    on_say(s, true, option, i, said);
    return NULL;
}

/* Kept as the access log compares them. */
static bool on_secret(struct postern_setup *s, struct str parameter)
{
    struct load *load = ((struct asking *)s)->load;
    struct conf_strs *secrets = &load->conf->secret_parameters;
    char **list = load_alloc(load, secrets->count + 1, sizeof(char *));
    char *name = load_copy(load, parameter);
    if (!list || !name)
        return false;
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : ascii_lower(*c);
    for (size_t i = 0; i < secrets->count; i++)
        list[i] = secrets->list[i];
    list[secrets->count] = name;
    *secrets = (struct conf_strs){list, secrets->count + 1};
    return true;
}

static const struct setup_ops setup_ops = {
    .say = on_say, .origin = on_origin, .secret = on_secret};

static void configure(struct load *load, cfg_t *sec, struct conf_plugins *plugins,
                      const char *kind, const char *name)
{
    char place[160];
    snprintf(place, sizeof(place), "%s%s%s", kind, *kind ? " " : "", name);
    for (size_t i = 0; i < plugins->count && !load->no_memory; i++) {
        struct conf_plugin *section = &plugins->list[i];
        if (!section->enabled || !section->values)
            continue;
        struct asking asking = {
            .setup.ops = &setup_ops,
            .load = load,
            .sec = value_section(sec, section->plugin->def.name),
            .section = section,
        };
        section->instance =
            instance_new(section->plugin, &asking.setup, place, section->values);
        if (!section->instance)
            continue;
        section->instance->fail_open = section->fail_open;
        section->instance->deadline = section->deadline;
    }
}

/* ---- what counts where ---- */

static const struct conf_plugin *own(const struct conf_plugins *plugins,
                                     const struct plugin *plugin)
{
    for (size_t i = 0; plugins && i < plugins->count; i++)
        if (plugins->list[i].plugin == plugin)
            return &plugins->list[i];
    return NULL;
}

/* The innermost section of each plugin. NULL: none, or no memory. */
static struct phases *flatten(struct load *load, const struct conf_plugins *listener,
                              const struct conf_plugins *route)
{
    const struct grammar *grammar = &load->grammar;
    const struct instance *list[LOAD_PLUGINS];
    unsigned count = 0;
    for (size_t i = 0; i < grammar->plugin_count; i++) {
        const struct plugin *plugin = grammar->plugins[i];
        const struct conf_plugin *section = own(route, plugin);
        if (!section)
            section = own(listener, plugin);
        if (!section)
            section = own(&load->conf->plugins, plugin);
        if (section && section->instance)
            list[count++] = section->instance;
    }
    struct phases *phases = count ? phases_new(list, count) : NULL;
    load->no_memory |= count && !phases;
    return phases;
}

static void flatten_all(struct load *load, size_t route_classes)
{
    struct conf *conf = load->conf;
    conf->phases_count = route_classes * conf->listener_classes;
    conf->phases = mem_zalloc(conf->phases_count * sizeof(struct phases *));
    if (!conf->phases) {
        load->no_memory = true;
        return;
    }
    for (size_t r = 0; r <= conf->route_count && !load->no_memory; r++) {
        const struct conf_plugins *route =
            r < conf->route_count ? &conf->routes[r].plugins : NULL;
        if (route && !route->class)
            continue; /* as with no route */
        struct phases **row =
            conf->phases + (route ? route->class : 0) * conf->listener_classes;
        for (size_t l = 0; l < conf->listener_count; l++) {
            const struct conf_plugins *listener = &conf->listeners[l].plugins;
            if (!row[listener->class])
                row[listener->class] = flatten(load, listener, route);
        }
    }
}

void plugins_configure(struct load *load, cfg_t *tree)
{
    struct conf *conf = load->conf;
    size_t route_classes = 1;
    conf->listener_classes = 1;
    if (!load->grammar.plugin_count)
        return;
    configure(load, tree, &conf->plugins, "", "");
    for (size_t i = 0; i < conf->listener_count; i++) {
        struct conf_listener *listener = &conf->listeners[i];
        configure(load, cfg_getnsec(tree, "listener", (unsigned)i), &listener->plugins,
                  "listener", listener->name);
        if (listener->plugins.count)
            listener->plugins.class = (unsigned)conf->listener_classes++;
    }
    for (size_t i = 0; i < conf->route_count; i++) {
        struct conf_route *route = &conf->routes[i];
        configure(load, cfg_getnsec(tree, "route", (unsigned)i), &route->plugins, "route",
                  route->name);
        if (route->plugins.count)
            route->plugins.class = (unsigned)route_classes++;
    }
    if (!load->faults->count && !load->no_memory)
        flatten_all(load, route_classes);
}

static void free_instances(const struct conf_plugins *plugins)
{
    for (size_t i = 0; i < plugins->count; i++)
        instance_free(plugins->list[i].instance);
}

void plugins_free(struct conf *conf)
{
    for (size_t i = 0; conf->phases && i < conf->phases_count; i++)
        phases_free(conf->phases[i]);
    mem_free(conf->phases);
    free_instances(&conf->plugins);
    for (size_t i = 0; i < conf->listener_count; i++)
        free_instances(&conf->listeners[i].plugins);
    for (size_t i = 0; i < conf->route_count; i++)
        free_instances(&conf->routes[i].plugins);
}
