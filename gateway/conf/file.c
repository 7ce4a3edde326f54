#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "conf/load.h"
#include "conf/route.h"
#include "conf/tls_make.h"

/* libconfuse gives its error function no pointer of ours, and its lexer is one for the whole
 * process: one load at a time. */
static struct load *parsing;

struct conf_where load_where(const struct load *load, int line)
{
    if (line < 1 || (size_t)line > load->place_count)
        return (struct conf_where){load->conf->file, 0};
    return load->places[line - 1];
}

void load_fault(struct load *load, int line, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    conf_fault(load->faults, load_where(load, line), "%s", text);
}

void *load_alloc(struct load *load, size_t n, size_t size)
{
    void *p = arena_alloc(&load->conf->arena, n && size ? n * size : 1);
    if (!p) {
        load->no_memory = true;
        return NULL;
    }
    return memset(p, 0, n * size);
}

char *load_copy(struct load *load, struct str text)
{
    char *copy = arena_copyz(&load->conf->arena, text);
    load->no_memory |= !copy;
    return copy;
}

char *load_file(struct load *load, const char *path)
{
    char *copy = load_copy(load, str_of(path));
    char **list = mem_realloc(load->files.list, (load->files.count + 1) * sizeof(*list));
    if (!list) {
        load->no_memory = true;
        return NULL;
    }
    load->files.list = list;
    if (copy)
        list[load->files.count++] = copy;
    return copy;
}

static void on_error(cfg_t *cfg, const char *fmt, va_list ap)
{
    char text[512];
    vsnprintf(text, sizeof(text), fmt, ap);
    load_fault(parsing, cfg->line, "%s", text);
}

static cfg_t *parse(struct load *load)
{
    cfg_t *tree = cfg_init(load->grammar.top, CFGF_NONE);
    if (!tree) {
        load->no_memory = true;
        return NULL;
    }
    size_t before = load->faults->count;
    parsing = load;
    cfg_set_error_function(tree, on_error);
    int err = cfg_parse_buf(tree, load->text);
    parsing = NULL;
    if (err == CFG_SUCCESS)
        return tree;
    /* The scan lets nothing through that libconfuse could refuse. What it has no words for
     * is want of memory; half a tree is of no use. */
    load->no_memory |= load->faults->count == before;
    cfg_free(tree);
    return NULL;
}

/* A section's title: what other sections, logs and metrics call it. */
static char *compile_name(struct load *load, cfg_t *sec)
{
    struct str name = str_of(value_title(sec));
    if (name.n < 1 || name.n > 128 || !value_is_plain(name))
        load_fault(
            load, value_line(sec),
            "a %s has the name \"%.*s\", expected 1 to 128 bytes without control characters",
            sec->name, name.n > 128 ? 128 : (int)name.n, name.p);
    return load_copy(load, name);
}

static void compile_sections(struct load *load, cfg_t *tree)
{
    struct conf *conf = load->conf;
    size_t listeners = cfg_size(tree, "listener"), upstreams = cfg_size(tree, "upstream"),
           routes = cfg_size(tree, "route");
    conf->listeners = load_alloc(load, listeners, sizeof(*conf->listeners));
    conf->upstreams = load_alloc(load, upstreams, sizeof(*conf->upstreams));
    conf->routes = load_alloc(load, routes, sizeof(*conf->routes));
    for (size_t i = 0; i < listeners && !load->no_memory; i++) {
        cfg_t *sec = cfg_getnsec(tree, "listener", (unsigned)i);
        struct conf_listener *listener = &conf->listeners[conf->listener_count++];
        listener->where = load_where(load, value_line(sec));
        listener->name = compile_name(load, sec);
        listener_compile(load, sec, listener);
        plugins_compile(load, sec, &listener->plugins);
    }
    for (size_t i = 0; i < upstreams && !load->no_memory; i++) {
        cfg_t *sec = cfg_getnsec(tree, "upstream", (unsigned)i);
        struct conf_upstream *upstream = &conf->upstreams[conf->upstream_count++];
        upstream->where = load_where(load, value_line(sec));
        upstream->name = compile_name(load, sec);
        upstream_compile(load, sec, upstream);
    }
    for (size_t i = 0; i < routes && !load->no_memory; i++) {
        cfg_t *sec = cfg_getnsec(tree, "route", (unsigned)i);
        struct conf_route *route = &conf->routes[conf->route_count++];
        route->where = load_where(load, value_line(sec));
        size_t before = load->faults->count;
        route->name = compile_name(load, sec);
        route_compile(load, sec, route);
        route->faulty = load->faults->count > before;
        plugins_compile(load, sec, &route->plugins);
    }
}

static void load_run(struct load *load, struct str text)
{
    struct conf *conf = load->conf;
    size_t before = load->faults->count;
    grammar_init(load);
    if (!load->no_memory)
        scan_main(load, conf->file, text);
    cfg_t *tree = load->no_memory ? NULL : parse(load);
    if (tree && !load->no_memory) {
        globals_compile(load, tree);
        plugins_compile(load, tree, &conf->plugins);
        compile_sections(load, tree);
        if (!load->no_memory && !load->broken)
            check_all(load);
        if (!load->no_memory && !load->broken)
            plugins_configure(load, tree);
        /* of a file without other faults whoever makes its router reports these */
        if (!load->no_memory && !load->broken && load->faults->count > before)
            router_check(conf, load->faults);
    }
    if (tree)
        cfg_free(tree);
}

struct conf *conf_load_text(const char *path, struct str text, struct conf_faults *faults)
{
    struct conf *conf = mem_zalloc(sizeof(*conf));
    struct load load = {.conf = conf, .faults = faults};
    size_t before = faults->count;
    if (conf) {
        slab_init(&conf->chunks, ARENA_CHUNK, 0);
        arena_init(&conf->arena, &conf->chunks);
        conf->file = load_file(&load, path);
        if (conf->file)
            load_run(&load, text);
    }
    if (!conf || load.no_memory)
        conf_fault(faults, (struct conf_where){path, 0}, "out of memory");
    conf_faults_sort(faults, &load.files);
    mem_free(load.text);
    mem_free(load.places);
    mem_free(load.files.list);
    grammar_done(&load);
    if (faults->count == before)
        return conf;
    conf_free(conf);
    return NULL;
}

struct conf *conf_load(const char *path, struct conf_faults *faults)
{
    struct str text;
    int err = include_read(path, INCLUDE_BYTES_MAX, &text);
    if (err) {
        conf_fault(faults, (struct conf_where){path, 0}, "cannot read %s: %s", path,
                   include_why(err));
        return NULL;
    }
    struct conf *conf = conf_load_text(path, text, faults);
    mem_free((char *)text.p);
    return conf;
}

void conf_free(struct conf *conf)
{
    if (!conf)
        return;
    for (size_t i = 0; i < conf->route_count; i++)
        conditions_done(&conf->routes[i]);
    tls_forget(conf);
    plugins_free(conf);
    conf_faults_done(&conf->warnings);
    arena_done(&conf->arena);
    slab_done(&conf->chunks);
    mem_free(conf);
}
