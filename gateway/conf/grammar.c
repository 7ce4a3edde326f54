/* Which options there are, and where. libconfuse keeps no line with a value and refuses a
 * bad number with its own words, so every option is a text with its line here; values.c
 * makes numbers of them. Sections may be repeated as far as libconfuse is concerned:
 * scan.c refuses the second one of those that may stand only once, with both places. */
#include "conf/load.h"

static int on_value(cfg_t *cfg, cfg_opt_t *opt, const char *text, void *result)
{
    (void)opt;
    size_t n = strlen(text) + 1;
    struct value *value = mem_alloc(sizeof(*value) + n);
    if (!value)
        return -1;
    value->line = cfg->line;
    memcpy(value->text, text, n);
    *(struct value **)result = value;
    return 0;
}

#define ONE(name)          CFG_PTR_CB(name, NULL, CFGF_NONE, on_value, mem_free)
#define LIST(name)         CFG_PTR_LIST_CB(name, NULL, CFGF_NONE, on_value, mem_free)
#define SECTION(name, sub) CFG_SEC(name, sub, CFGF_MULTI)

static cfg_opt_t admin[] = {ONE(GRAMMAR_PLACE), ONE("listen"), CFG_END()};

static cfg_opt_t access_log[] = {
    ONE(GRAMMAR_PLACE), ONE("path"),        ONE("format"),
    ONE("sample"),      ONE("slower_than"), CFG_END(),
};

static cfg_opt_t error_log[] = {ONE(GRAMMAR_PLACE), ONE("path"), ONE("level"), CFG_END()};

static cfg_opt_t listener_limits[] = {
    ONE(GRAMMAR_PLACE),
    ONE("header_bytes"),
    ONE("headers"),
    ONE("target_bytes"),
    ONE("body_bytes"),
    ONE("connections"),
    ONE("requests_per_connection"),
    ONE("streams"),
    CFG_END(),
};

static cfg_opt_t listener_timeouts[] = {
    ONE(GRAMMAR_PLACE), ONE("header"), ONE("body"),        ONE("idle"),
    ONE("write"),       ONE("rate"),   ONE("rate_window"), CFG_END(),
};

static cfg_opt_t paths[] = {
    ONE(GRAMMAR_PLACE),
    ONE("encoded_slash"),
    ONE("backslash"),
    ONE("encoded_nul"),
    ONE("encoded_control"),
    ONE("encoded_dot"),
    ONE("encoded_delimiter"),
    ONE("bad_utf8"),
    ONE("overlong_utf8"),
    ONE("dot_segment"),
    ONE("dots_behind_double_slash"),
    ONE("double_slash"),
    ONE("parameter"),
    CFG_END(),
};

static cfg_opt_t certificate[] = {
    ONE(GRAMMAR_TITLE), ONE("chain"), ONE("key"), ONE("ocsp"), CFG_END(),
};

static cfg_opt_t listener_tls[] = {
    ONE(GRAMMAR_PLACE), SECTION("certificate", certificate),
    ONE("min_version"), ONE("ciphers"),
    ONE("early_data"),  ONE("ciphersuites"),
    ONE("client_ca"),   ONE("client_auth"),
    ONE("ticket_keys"), CFG_END(),
};

static cfg_opt_t upstream_tls[] = {
    ONE(GRAMMAR_PLACE), ONE("ca"),  ONE("verify"), ONE("server_name"),
    ONE("certificate"), ONE("key"), CFG_END(),
};

static const cfg_opt_t listener[] = {
    ONE(GRAMMAR_TITLE),
    LIST("listen"),
    LIST("trusted_proxies"),
    ONE("forwarded"),
    ONE("proxy_protocol"),
    ONE("http2"),
    SECTION("tls", listener_tls),
    SECTION("limits", listener_limits),
    SECTION("timeouts", listener_timeouts),
    SECTION("paths", paths),
    CFG_END(),
};

static cfg_opt_t server[] = {ONE(GRAMMAR_TITLE), ONE("weight"), ONE("backup"), CFG_END()};

static cfg_opt_t pool[] = {
    ONE(GRAMMAR_PLACE),  ONE("warm"),     ONE("idle"),     ONE("connections"),
    ONE("idle_timeout"), ONE("lifetime"), ONE("requests"), CFG_END(),
};

static cfg_opt_t upstream_timeouts[] = {
    ONE(GRAMMAR_PLACE), ONE("connect"), ONE("response"), ONE("idle"),
    ONE("total"),       ONE("queue"),   CFG_END(),
};

static cfg_opt_t breaker[] = {
    ONE(GRAMMAR_PLACE),
    ONE("pending"),
    ONE("requests"),
    CFG_END(),
};

static cfg_opt_t retry[] = {
    ONE(GRAMMAR_PLACE), ONE("attempts"),   ONE("budget"), LIST("on"),
    ONE("try_timeout"), ONE("body_bytes"), CFG_END(),
};

static cfg_opt_t sticky_cookie[] = {
    ONE(GRAMMAR_PLACE), ONE("name"),   ONE("path"),   ONE("max_age"),
    ONE("same_site"),   ONE("secure"), ONE("secret"), CFG_END(),
};

static cfg_opt_t health[] = {
    ONE(GRAMMAR_PLACE), ONE("type"),    ONE("path"),    ONE("host"),
    ONE("body"),        LIST("status"), ONE("service"), ONE("interval"),
    ONE("timeout"),     ONE("rise"),    ONE("fall"),    CFG_END(),
};

static cfg_opt_t outlier[] = {
    ONE(GRAMMAR_PLACE), ONE("failures"),  ONE("share"),       ONE("requests"), ONE("window"),
    ONE("eject"),       ONE("max_eject"), ONE("max_ejected"), LIST("on"),      CFG_END(),
};

static cfg_opt_t upstream[] = {
    ONE(GRAMMAR_TITLE),
    SECTION("server", server),
    ONE("balance"),
    ONE("hash_on"),
    ONE("hash_bound"),
    SECTION("sticky_cookie", sticky_cookie),
    ONE("host"),
    ONE("protocol"),
    ONE("proxy_protocol"),
    SECTION("tls", upstream_tls),
    SECTION("pool", pool),
    SECTION("timeouts", upstream_timeouts),
    ONE("tell_deadline"),
    SECTION("retry", retry),
    SECTION("breaker", breaker),
    SECTION("health", health),
    SECTION("outlier", outlier),
    ONE("panic"),
    ONE("slow_start"),
    CFG_END(),
};

static cfg_opt_t edit[] = {
    ONE(GRAMMAR_PLACE), LIST("set"), LIST("add"), LIST("remove"), CFG_END(),
};

static cfg_opt_t respond[] = {
    ONE(GRAMMAR_PLACE), ONE("status"),   ONE("type"), ONE("body"),
    ONE("file"),        ONE("template"), CFG_END(),
};

static cfg_opt_t redirect[] = {ONE(GRAMMAR_PLACE), ONE("status"), ONE("to"), CFG_END()};

static cfg_opt_t split[] = {
    ONE(GRAMMAR_PLACE),
    ONE("sticky"),
    LIST(GRAMMAR_PAIRS),
    CFG_END(),
};

static cfg_opt_t condition[] = {
    ONE(GRAMMAR_TITLE), ONE("equals"), ONE("present"), ONE("regex"), CFG_END(),
};

static const cfg_opt_t route[] = {
    ONE(GRAMMAR_TITLE),
    LIST("listener"),
    LIST("host"),
    ONE("path"),
    LIST("methods"),
    SECTION("match_header", condition),
    SECTION("match_query", condition),
    ONE("upstream"),
    SECTION("split", split),
    ONE("sticky"),
    SECTION("respond", respond),
    SECTION("redirect", redirect),
    ONE("strip_prefix"),
    ONE("rewrite"),
    SECTION("request_headers", edit),
    SECTION("response_headers", edit),
    ONE("timeout"),
    ONE("retry"),
    ONE("body_bytes"),
    ONE("access_log"),
    CFG_END(),
};

static cfg_opt_t plugins[] = {
    ONE(GRAMMAR_PLACE),
    ONE("directory"),
    LIST("load"),
    CFG_END(),
};

static const cfg_opt_t top[] = {
    ONE(GRAMMAR_PLACE),
    ONE("workers"),
    ONE("user"),
    ONE("pid_file"),
    ONE("drain_timeout"),
    LIST("resolver"),
    SECTION("admin", admin),
    SECTION("access_log", access_log),
    SECTION("error_log", error_log),
    SECTION("plugins", plugins),
    SECTION("listener", NULL), /* see grammar_init */
    SECTION("upstream", upstream),
    SECTION("route", NULL),
    CFG_END(),
};

/* ---- what plugins add ---- */

#define COPY(load, table) copy(load, table, sizeof(table) / sizeof(*(table)))

static cfg_opt_t *copy(struct load *load, const cfg_opt_t *options, size_t count)
{
    cfg_opt_t *list = mem_zalloc((count + LOAD_PLUGINS) * sizeof(*list));
    if (list)
        memcpy(list, options, count * sizeof(*list));
    else
        load->no_memory = true;
    return list;
}

static cfg_opt_t *end_of(cfg_opt_t *options)
{
    while (options->name)
        options++;
    return options;
}

void grammar_init(struct load *load)
{
    struct grammar *grammar = &load->grammar;
    grammar->top = COPY(load, top);
    grammar->listener = COPY(load, listener);
    grammar->route = COPY(load, route);
    for (cfg_opt_t *o = grammar->top; !load->no_memory && o->name; o++) {
        if (strcmp(o->name, "listener") == 0)
            o->subopts = grammar->listener;
        if (strcmp(o->name, "route") == 0)
            o->subopts = grammar->route;
    }
}

void grammar_done(struct load *load)
{
    mem_free(load->grammar.top);
    mem_free(load->grammar.listener);
    mem_free(load->grammar.route);
}

bool grammar_takes_plugins(const struct load *load, const cfg_opt_t *options)
{
    const struct grammar *grammar = &load->grammar;
    return options == grammar->top || options == grammar->listener || options == grammar->route;
}

static cfg_opt_t *plugin_options(struct load *load, const struct plugin *plugin)
{
    static const cfg_opt_t common[] = {ONE(GRAMMAR_PLACE), ONE("enabled"), ONE("fail"),
                                       ONE("deadline")};
    const size_t n = sizeof(common) / sizeof(*common);
    cfg_opt_t *options = load_alloc(load, n + plugin->def.option_count + 1, sizeof(*options));
    if (!options)
        return NULL;
    memcpy(options, common, sizeof(common));
    for (size_t i = 0; i < plugin->def.option_count; i++) {
        const struct postern_option *option = plugin_option(plugin, i);
        options[n + i] =
            option->list ? (cfg_opt_t)LIST(option->name) : (cfg_opt_t)ONE(option->name);
    }
    options[n + plugin->def.option_count] = (cfg_opt_t)CFG_END();
    return options;
}

bool grammar_add(struct load *load, const struct plugin *plugin)
{
    struct grammar *grammar = &load->grammar;
    cfg_opt_t *const places[] = {grammar->top, grammar->listener, grammar->route};
    cfg_opt_t *options =
        grammar->plugin_count < LOAD_PLUGINS ? plugin_options(load, plugin) : NULL;
    if (!options)
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        cfg_opt_t *end = end_of(places[i]);
        end[1] = *end;
        *end = (cfg_opt_t)SECTION(plugin->def.name, options);
    }
    grammar->plugins[grammar->plugin_count++] = plugin;
    return true;
}

cfg_t *grammar_plugins(const char *text)
{
    static cfg_opt_t only[] = {SECTION("plugins", plugins), CFG_END()};
    cfg_t *tree = cfg_init(only, CFGF_NONE);
    if (tree && cfg_parse_buf(tree, text) == CFG_SUCCESS)
        return tree;
    if (tree)
        cfg_free(tree);
    return NULL;
}
