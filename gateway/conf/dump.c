/* -T: the configuration as it is in force, as a file that loads to the same. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "conf/load.h"

void dump_quoted(FILE *out, struct str text)
{
    fputc('"', out);
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c == '\n')
            fputs("\\n", out);
        else if (c < ' ' || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else if (c == '"' || c == '\\' || c == '$')
            fprintf(out, "\\%c", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void dump_option(FILE *out, const char *name, const char *text)
{
    if (!text)
        return;
    fprintf(out, "%s = ", name);
    dump_quoted(out, str_of(text));
    fputc('\n', out);
}

static void put_list(FILE *out, const char *name, const struct conf_strs *list)
{
    if (list->count == 0)
        return;
    fprintf(out, "%s = {", name);
    for (size_t i = 0; i < list->count; i++) {
        fputs(i ? ", " : "", out);
        dump_quoted(out, str_of(list->list[i]));
    }
    fputs("}\n", out);
}

static void put_time(FILE *out, const char *name, uint32_t ms)
{
    char text[VALUE_TEXT];
    fprintf(out, "%s = %s\n", name, value_put_time(text, ms));
}

static void put_size(FILE *out, const char *name, uint64_t bytes)
{
    char text[VALUE_TEXT];
    fprintf(out, "%s = %s\n", name, value_put_size(text, bytes));
}

void dump_title(FILE *out, const char *indent, const char *kind, const char *title)
{
    fprintf(out, "%s%s ", indent, kind);
    dump_quoted(out, str_of(title));
    fputs(" {\n", out);
}

/* A template, after `before`; out of memory writes an empty text. */
static void put_template(FILE *out, const char *before, const struct template *template,
                         const struct conf_route *route)
{
    char *text = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    if (memory) {
        fputs(before, memory);
        template_put(template, route, memory);
        fclose(memory);
    }
    dump_quoted(out, (struct str){text, n});
    free(text);
}

static void put_addrs(FILE *out, const struct addr *addrs, size_t count)
{
    char text[ADDR_TEXT];
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ", " : "", out);
        dump_quoted(out, (struct str){text, addr_put(text, &addrs[i])});
    }
}

static void dump_process(const struct conf *conf, FILE *out)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    char text[ADDR_TEXT];
    if (conf->workers_auto)
        fprintf(out, "workers = auto # %u\n", conf->workers);
    else
        fprintf(out, "workers = %u\n", conf->workers);
    dump_option(out, "user", conf->user);
    dump_option(out, "pid_file", conf->pid_file);
    put_time(out, "drain_timeout", conf->drain_timeout);
    if (conf->resolver_count) {
        fputs("resolver = {", out);
        put_addrs(out, conf->resolvers, conf->resolver_count);
        fputs("}\n", out);
    }
    if (conf->has_admin) {
        addr_put(text, &conf->admin);
        fputs("\nadmin {\n  ", out);
        dump_option(out, "listen", text);
        fputs("}\n", out);
    }
    fputs("\naccess_log {\n  ", out);
    dump_option(out, "path", conf->access_log.path);
    fprintf(out, "  format = %s\n  sample = \"1/%u\"\n  ",
            conf->access_log.combined ? "combined" : "json", conf->access_log.sample);
    put_time(out, "slower_than", conf->access_log.slower_than);
    fputs("}\n\nerror_log {\n  ", out);
    dump_option(out, "path", conf->error_log.path);
    fprintf(out, "  level = %s\n}\n", levels[conf->error_log.level]);
}

static void dump_plugins(const struct conf *conf, FILE *out)
{
    if (conf->plugin_directory || conf->plugin_files.count) {
        fputs("\nplugins {\n", out);
        dump_option(out, "  directory", conf->plugin_directory);
        put_list(out, "  load", &conf->plugin_files);
        fputs("}\n", out);
    }
    plugins_dump(&conf->plugins, "", out);
}

static void put_range(FILE *out, const struct addr_range *range)
{
    char text[INET6_ADDRSTRLEN];
    if (range->family == AF_UNIX)
        fputs("\"unix:\"", out);
    else
        fprintf(out, "\"%s/%u\"", inet_ntop(range->family, range->bytes, text, sizeof(text)),
                range->bits);
}

static void dump_listener(const struct conf_listener *listener, FILE *out)
{
    static const char *const forwarded[] = {"x_forwarded", "rfc7239", "both"};
    fputc('\n', out);
    dump_title(out, "", "listener", listener->name);
    fputs("  listen = {", out);
    put_addrs(out, listener->addrs, listener->addr_count);
    fputs("}\n  trusted_proxies = {", out);
    for (size_t i = 0; i < listener->trusted_count; i++) {
        fputs(i ? ", " : "", out);
        put_range(out, &listener->trusted[i]);
    }
    fprintf(out, "}\n  forwarded = %s\n  proxy_protocol = %s\n  http2 = %s",
            forwarded[listener->forwarded - 1], listener->proxy_protocol ? "true" : "false",
            listener->http2 ? "true" : "false");
    fputs("\n  limits {\n    ", out);
    put_size(out, "header_bytes", listener->limits.header_bytes);
    fprintf(out, "    headers = %u\n    ", listener->limits.headers);
    put_size(out, "target_bytes", listener->limits.target_bytes);
    put_size(out, "    body_bytes", listener->limits.body_bytes);
    fprintf(out, "    connections = %u\n    requests_per_connection = %u\n    streams = %u\n",
            listener->limits.connections, listener->limits.requests_per_connection,
            listener->limits.streams);
    fputs("  }\n  timeouts {\n", out);
    put_time(out, "    header", listener->timeouts.header);
    put_time(out, "    body", listener->timeouts.body);
    put_time(out, "    idle", listener->timeouts.idle);
    put_time(out, "    write", listener->timeouts.write);
    put_size(out, "    rate", listener->timeouts.rate);
    put_time(out, "    rate_window", listener->timeouts.rate_window);
    fputs("  }\n", out);
    if (listener->tls)
        tls_front_put(listener->tls, out);
    paths_put(listener->path_allow, out);
    plugins_dump(&listener->plugins, "  ", out);
    fputs("}\n", out);
}

static void put_hash_on(FILE *out, const char *name, enum conf_hash_on on, const char *key)
{
    static const char *const words[] = {"client_ip", "header:", "cookie:", "path"};
    fprintf(out, "%s = \"%s%s\"\n", name, words[on], key ? key : "");
}

static void put_share(FILE *out, const char *name, uint32_t permille)
{
    fprintf(out, "%s = %u", name, permille / 10);
    if (permille % 10)
        fprintf(out, ".%u", permille % 10);
    fputs("%\n", out);
}

static void dump_sticky(const struct conf_upstream *upstream, FILE *out)
{
    static const char *const sites[] = {"lax", "strict", "none"};
    static const char *const secures[] = {"auto", "always", "never"};
    if (!upstream->sticky.name)
        return;
    fputs("  sticky_cookie {\n", out);
    dump_option(out, "    name", upstream->sticky.name);
    dump_option(out, "    path", upstream->sticky.path);
    put_time(out, "    max_age", upstream->sticky.max_age);
    fprintf(out, "    same_site = %s\n    secure = %s\n", sites[upstream->sticky.same_site],
            secures[upstream->sticky.secure]);
    dump_option(out, "    secret", upstream->sticky.secret ? DUMP_MASK : NULL);
    fputs("  }\n", out);
}

static void dump_choice(const struct conf_upstream *upstream, FILE *out)
{
    static const char *const balances[] = {"round_robin", "least_requests", "two_choices",
                                           "hash"};
    static const char *const hosts[] = {"pass", "upstream"};
    static const char *const versions[] = {"off", "v1", "v2"};
    fprintf(out, "  balance = %s\n", balances[upstream->balance]);
    put_hash_on(out, "  hash_on", upstream->hash_on, upstream->hash_name);
    put_share(out, "  hash_bound", upstream->hash_bound);
    dump_sticky(upstream, out);
    dump_option(out, "  host",
                upstream->host == HOST_NAME ? upstream->host_name : hosts[upstream->host]);
    fprintf(out, "  protocol = %s\n  proxy_protocol = %s\n", upstream->http2 ? "h2" : "http1",
            versions[upstream->proxy_protocol]);
    if (upstream->tls)
        tls_back_put(upstream->tls, out);
}

static void dump_retry(const struct conf_upstream *upstream, FILE *out)
{
    static const char *const on[] = {"connect", "reset", "timeout", "502", "503", "504"};
    bool some = false;
    fprintf(out, "  retry {\n    attempts = %u\n", upstream->retry.attempts);
    put_share(out, "    budget", upstream->retry.budget_permille);
    fputs("    on = {", out);
    for (unsigned i = 0; i < sizeof(on) / sizeof(*on); i++) {
        if (!(upstream->retry.on & 1u << i))
            continue;
        fprintf(out, "%s%s", some ? ", " : "", on[i]);
        some = true;
    }
    fputs("}\n", out);
    put_time(out, "    try_timeout", upstream->retry.try_timeout);
    put_size(out, "    body_bytes", upstream->retry.body_bytes);
    fputs("  }\n}\n", out);
}

static void dump_pool(const struct conf_upstream *upstream, FILE *out)
{
    fprintf(out, "  pool {\n    connections = %u\n", upstream->pool.connections);
    if (!upstream->proxy_protocol) { /* with it there is nothing else to say */
        fprintf(out, "    warm = %u\n    idle = %u\n    requests = %u\n", upstream->pool.warm,
                upstream->pool.idle, upstream->pool.requests);
        put_time(out, "    idle_timeout", upstream->pool.idle_timeout);
        put_time(out, "    lifetime", upstream->pool.lifetime);
    }
    fputs("  }\n", out);
}

static void dump_health(const struct health_policy *health, FILE *out)
{
    if (health->type == HEALTH_OFF)
        return;
    static const char *const types[] = {
        [HEALTH_TCP] = "tcp", [HEALTH_HTTP] = "http", [HEALTH_GRPC] = "grpc"};
    fprintf(out, "  health {\n    type = %s\n", types[health->type]);
    dump_option(out, "    service", health->service);
    if (health->type == HEALTH_HTTP) {
        dump_option(out, "    path", health->path);
        dump_option(out, "    host", health->host);
        dump_option(out, "    body", health->body);
        fputs("    status = {", out);
        for (uint32_t i = 0; i < health->status_count; i++)
            fprintf(out, "%s\"%u-%u\"", i ? ", " : "", health->status[i].low,
                    health->status[i].high);
        fputs("}\n", out);
    }
    put_time(out, "    interval", health->interval);
    put_time(out, "    timeout", health->timeout);
    fprintf(out, "    rise = %u\n    fall = %u\n  }\n", health->rise, health->fall);
}

static void dump_outlier(const struct outlier_policy *outlier, FILE *out)
{
    bool some = false;
    if (!outlier->on)
        return;
    fprintf(out, "  outlier {\n    failures = %u\n", outlier->failures);
    put_share(out, "    share", outlier->share_permille);
    fprintf(out, "    requests = %u\n", outlier->requests);
    put_time(out, "    window", outlier->window);
    put_time(out, "    eject", outlier->eject);
    put_time(out, "    max_eject", outlier->max_eject);
    put_share(out, "    max_ejected", outlier->max_ejected_permille);
    fputs("    on = {", out);
    for (unsigned i = 0; i < OUTLIER_WORDS; i++) {
        if (!(outlier->counts & 1u << i))
            continue;
        fprintf(out, "%s%s", some ? ", " : "", outlier_words[i]);
        some = true;
    }
    fputs("}\n  }\n", out);
}

static void dump_watch(const struct watch *watch, FILE *out)
{
    fprintf(out, "  panic = %s\n", watch->panic == PANIC_FAIL ? "fail" : "use_all");
    put_time(out, "  slow_start", watch->slow_start);
    dump_health(&watch->health, out);
    dump_outlier(&watch->outlier, out);
}

static void dump_upstream(const struct conf_upstream *upstream, FILE *out)
{
    fputc('\n', out);
    dump_title(out, "", "upstream", upstream->name);
    for (size_t i = 0; i < upstream->server_count; i++) {
        const struct conf_server *server = &upstream->servers[i];
        dump_title(out, "  ", "server", server->text);
        if (!server->service)
            fprintf(out, "    weight = %u\n", server->weight);
        fprintf(out, "    backup = %s\n  }\n", server->backup ? "true" : "false");
    }
    dump_choice(upstream, out);
    dump_watch(&upstream->watch, out);
    dump_pool(upstream, out);
    fputs("  timeouts {\n", out);
    put_time(out, "    connect", upstream->timeouts.connect);
    put_time(out, "    response", upstream->timeouts.response);
    put_time(out, "    idle", upstream->timeouts.idle);
    put_time(out, "    total", upstream->timeouts.total);
    put_time(out, "    queue", upstream->timeouts.queue);
    fprintf(
        out,
        "  }\n  tell_deadline = %s\n  breaker {\n    pending = %u\n    requests = %u\n  }\n",
        upstream->tell_deadline ? "true" : "false", upstream->breaker.pending,
        upstream->breaker.requests);
    dump_retry(upstream, out);
}

static void put_fields(FILE *out, const char *name, const struct conf_field *fields, size_t n,
                       const struct conf_route *route)
{
    fprintf(out, "    %s = {", name);
    for (size_t i = 0; i < n; i++) {
        char before[300];
        snprintf(before, sizeof(before), "%s: ", fields[i].name);
        fputs(i ? ", " : "", out);
        put_template(out, before, &fields[i].value, route);
    }
    fputs("}\n", out);
}

static void dump_edit(FILE *out, const char *name, const struct conf_edit *edit,
                      const struct conf_route *route)
{
    if (!edit->set_count && !edit->add_count && !edit->remove.count)
        return;
    fprintf(out, "  %s {\n", name);
    put_fields(out, "set", edit->set, edit->set_count, route);
    put_fields(out, "add", edit->add, edit->add_count, route);
    put_list(out, "    remove", &edit->remove);
    fputs("  }\n", out);
}

static void dump_conditions(const struct conf_route *route, FILE *out)
{
    for (size_t i = 0; i < route->condition_count; i++) {
        const struct conf_condition *condition = &route->conditions[i];
        dump_title(out, "  ", condition->query ? "match_query" : "match_header",
                   condition->name);
        if (condition->text)
            dump_option(out, condition->test == CONDITION_REGEX ? "    regex" : "    equals",
                        condition->text);
        else
            fprintf(out, "    present = %s\n",
                    condition->test == CONDITION_PRESENT ? "true" : "false");
        fputs("  }\n", out);
    }
}

static void dump_split(const struct conf_route *route, FILE *out)
{
    fputs("  split {\n", out);
    for (size_t i = 0; i < route->split.count; i++) {
        fputs("    ", out);
        dump_quoted(out, str_of(route->split.shares[i].upstream));
        fprintf(out, " = %u\n", route->split.shares[i].weight);
    }
    if (route->split.sticky != HASH_NONE)
        put_hash_on(out, "    sticky", route->split.sticky, route->split.sticky_name);
    fputs("  }\n", out);
}

static void dump_action(const struct conf_route *route, FILE *out)
{
    switch (route->action) {
    case ACTION_UPSTREAM:
        dump_option(out, "  upstream", route->upstream);
        break;
    case ACTION_SPLIT:
        dump_split(route, out);
        break;
    case ACTION_RESPOND:
        fprintf(out, "  respond {\n    status = %u\n", route->respond.status);
        dump_option(out, "    type", route->respond.type);
        dump_option(out, "    file", route->respond.file);
        if (!route->respond.file && route->respond.body.count) {
            fputs("    body = ", out);
            if (route->respond.filled)
                put_template(out, "", &route->respond.body, route);
            else
                dump_quoted(out, route->respond.body.parts[0].text);
            fputc('\n', out);
        }
        if (route->respond.file || route->respond.body.count)
            fprintf(out, "    template = %s\n", route->respond.filled ? "true" : "false");
        fputs("  }\n", out);
        break;
    case ACTION_REDIRECT:
        fprintf(out, "  redirect {\n    status = %u\n    to = ", route->redirect.status);
        put_template(out, "", &route->redirect.to, route);
        fputs("\n  }\n", out);
        break;
    }
}

static void dump_route(const struct conf_route *route, FILE *out)
{
    static const char *const retries[] = {[ROUTE_RETRY_IDEMPOTENT] = "idempotent",
                                          [ROUTE_RETRY_ANY] = "any",
                                          [ROUTE_RETRY_NEVER] = "never"};
    fputc('\n', out);
    dump_title(out, "", "route", route->name);
    put_list(out, "  listener", &route->listeners);
    put_list(out, "  host", &route->hosts);
    dump_option(out, "  path", route->path);
    put_list(out, "  methods", &route->methods);
    dump_conditions(route, out);
    dump_action(route, out);
    dump_option(out, "  strip_prefix", route->strip_prefix);
    if (route->rewrite.count) {
        fputs("  rewrite = ", out);
        put_template(out, "", &route->rewrite, route);
        fputc('\n', out);
    }
    dump_edit(out, "request_headers", &route->request_headers, route);
    dump_edit(out, "response_headers", &route->response_headers, route);
    if (route->action == ACTION_UPSTREAM || route->action == ACTION_SPLIT) {
        put_time(out, "  timeout", route->timeout);
        fprintf(out, "  retry = %s\n", retries[route->retry]);
    }
    if (route->body_bytes != UINT64_MAX)
        put_size(out, "  body_bytes", route->body_bytes);
    fprintf(out, "  access_log = %s\n", route->access_log ? "true" : "false");
    plugins_dump(&route->plugins, "  ", out);
    fputs("}\n", out);
}

void conf_dump(const struct conf *conf, FILE *out)
{
    dump_process(conf, out);
    dump_plugins(conf, out);
    for (size_t i = 0; i < conf->listener_count; i++)
        dump_listener(&conf->listeners[i], out);
    for (size_t i = 0; i < conf->upstream_count; i++)
        if (!conf->upstreams[i].implicit)
            dump_upstream(&conf->upstreams[i], out);
    for (size_t i = 0; i < conf->route_count; i++)
        dump_route(&conf->routes[i], out);
}
