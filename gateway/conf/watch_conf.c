/* health, outlier, panic, slow_start: how an upstream's servers are watched. */
#include "conf/load.h"
#include "http/head.h"
#include "up/grpc_health.h"

/* What a probe asks for: an absolute path, with a query if need be (RFC 9112 3.2.1). */
static bool is_target(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] <= ' ' || text.p[i] >= 0x7f || text.p[i] == '#')
            return false;
    return text.n && text.n <= 4096 && text.p[0] == '/';
}

/* "200" or "200-399". */
static bool parse_status(struct str text, struct status_range *ret)
{
    const char *dash = memchr(text.p, '-', text.n);
    struct str low = {text.p, dash ? (size_t)(dash - text.p) : text.n}, high = low;
    uint64_t a, b;
    if (dash)
        high = (struct str){dash + 1, text.n - low.n - 1};
    if (low.n != 3 || high.n != 3 || str_to_u64(low, 599, &a) || str_to_u64(high, 599, &b) ||
        a < 200 || a > b)
        return false;
    *ret = (struct status_range){(uint16_t)a, (uint16_t)b};
    return true;
}

static void status_compile(struct load *load, cfg_t *sec, struct health_policy *ret)
{
    size_t count = value_count(sec, "status");
    if (!(cfg_getopt(sec, "status")->flags & CFGF_MODIFIED))
        return;
    ret->status_count = 0;
    if (count == 0 || count > STATUS_RANGES) {
        load_fault(load, value_line(sec), "health.status has %zu entries, expected 1 to %d",
                   count, STATUS_RANGES);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const struct value *value = value_at(sec, "status", i);
        if (parse_status(str_of(value->text), &ret->status[ret->status_count]))
            ret->status_count++;
        else
            load_fault(load, value->line,
                       "health.status has \"%s\", expected a status or a range of them from "
                       "200 to 599, as in \"200-399\"",
                       value->text);
    }
}

/* Options that mean nothing to a probe of that type. */
static void refuse_options(struct load *load, cfg_t *sec, enum health_type type)
{
    static const struct {
        const char *name;
        bool http, grpc;
    } options[] = {{"path", true, false},
                   {"body", true, false},
                   {"status", true, false},
                   {"host", true, true},
                   {"service", false, true}};
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        bool known =
            type == HEALTH_HTTP ? options[i].http : type == HEALTH_GRPC && options[i].grpc;
        if (known || !value_count(sec, options[i].name))
            continue;
        int line = value_at(sec, options[i].name, 0)->line;
        if (type == HEALTH_GRPC || !options[i].http)
            load_fault(load, line, "health.%s has no effect with type = %s", options[i].name,
                       type == HEALTH_GRPC   ? "grpc"
                       : type == HEALTH_HTTP ? "http"
                                             : "tcp");
        else
            load_fault(load, line,
                       i ? "health.%s has no effect without health.path"
                         : "health.%s has no effect with type = tcp",
                       options[i].name);
    }
}

static void probe_host_compile(struct load *load, cfg_t *sec, struct health_policy *ret)
{
    const struct value *host = value_get(sec, "host");
    if (host && !head_is_authority(str_of(host->text)))
        load_fault(load, host->line, "health.host is %s, expected a HOST or HOST:PORT",
                   host->text[0] ? host->text : "empty");
    else if (host)
        ret->host = load_copy(load, str_of(host->text));
}

/* "package.Service", as it stands in the request's message. */
static void service_compile(struct load *load, cfg_t *sec, struct health_policy *ret)
{
    const struct value *service = value_get(sec, "service");
    size_t n = service ? strlen(service->text) : 0;
    bool sound = n <= GRPC_HEALTH_SERVICE;
    for (size_t i = 0; i < n; i++)
        sound &= service->text[i] > ' ' && service->text[i] < 0x7f;
    if (!sound)
        load_fault(load, service->line,
                   "health.service is \"%s\", expected the name of a gRPC service of at most "
                   "%d visible characters, as in \"users.v1.Users\"",
                   service->text, GRPC_HEALTH_SERVICE);
    else if (n)
        ret->service = load_copy(load, str_of(service->text));
}

static void health_compile(struct load *load, cfg_t *sec, struct health_policy *ret)
{
    static const char *const types[] = {"tcp", "http", "grpc", NULL};
    static const enum health_type meant[] = {HEALTH_TCP, HEALTH_HTTP, HEALTH_GRPC};
    const struct value *path = value_get(sec, "path");
    unsigned type = path != NULL;
    value_word(load, sec, "type", types, &type);
    ret->type = meant[type];
    ret->interval = 5000;
    ret->timeout = 1000;
    ret->rise = 2;
    ret->fall = 3;
    value_time(load, sec, "interval", 10, DAY_MS, &ret->interval);
    value_time(load, sec, "timeout", 1, DAY_MS, &ret->timeout);
    value_number(load, sec, "rise", 1, 1000, &ret->rise);
    value_number(load, sec, "fall", 1, 1000, &ret->fall);
    refuse_options(load, sec, ret->type);
    if (ret->type != HEALTH_TCP)
        probe_host_compile(load, sec, ret);
    if (ret->type == HEALTH_GRPC)
        service_compile(load, sec, ret);
    if (ret->type != HEALTH_HTTP)
        return;
    ret->status[0] = (struct status_range){200, 399};
    ret->status_count = 1;
    status_compile(load, sec, ret);
    value_text(load, sec, "body", &ret->body);
    if (!path)
        load_fault(load, value_get(sec, "type")->line,
                   "health has no path, expected one with type = http, as in \"/healthz\"");
    else if (!is_target(str_of(path->text)))
        load_fault(load, path->line,
                   "health.path is %s, expected a path of visible characters that begins with "
                   "a slash, without #",
                   path->text[0] ? path->text : "empty");
    else
        ret->path = load_copy(load, str_of(path->text));
}

const char *const outlier_words[OUTLIER_WORDS] = {
    "connect", "reset", "timeout", "protocol", "500", "502", "503", "504", "5xx"};

static void counts_compile(struct load *load, cfg_t *sec, struct outlier_policy *ret)
{
    if (cfg_getopt(sec, "on")->flags & CFGF_MODIFIED)
        ret->counts = 0;
    for (size_t i = 0; i < value_count(sec, "on"); i++) {
        const struct value *value = value_at(sec, "on", i);
        unsigned bit = 0;
        for (unsigned w = 0; w < OUTLIER_WORDS; w++)
            if (strcmp(value->text, outlier_words[w]) == 0)
                bit = 1u << w;
        if (!bit)
            load_fault(load, value->line,
                       "outlier.on has \"%s\", expected connect, reset, timeout, protocol, "
                       "500, 502, 503, 504 or 5xx",
                       value->text);
        ret->counts |= bit;
    }
    if (!ret->counts && !value_count(sec, "on"))
        load_fault(load, value_line(sec),
                   "outlier.on is empty, expected at least one kind of failure");
}

static void outlier_compile(struct load *load, cfg_t *sec, struct outlier_policy *ret)
{
    *ret = (struct outlier_policy){
        .on = true,
        .failures = 5,
        .requests = 20,
        .window = 10000,
        .eject = 30000,
        .max_eject = 300000,
        .max_ejected_permille = 500,
        .counts = OUTLIER_CONNECT | OUTLIER_RESET | OUTLIER_TIMEOUT | OUTLIER_502 |
                  OUTLIER_503 | OUTLIER_504,
    };
    value_number(load, sec, "failures", 0, 1000000, &ret->failures);
    value_share(load, sec, "share", &ret->share_permille);
    value_number(load, sec, "requests", 1, 1000000, &ret->requests);
    value_time(load, sec, "window", 100, 60 * 60 * 1000, &ret->window);
    value_time(load, sec, "eject", 1, DAY_MS, &ret->eject);
    if (ret->max_eject < ret->eject)
        ret->max_eject = ret->eject;
    value_time(load, sec, "max_eject", ret->eject, DAY_MS, &ret->max_eject);
    value_share(load, sec, "max_ejected", &ret->max_ejected_permille);
    counts_compile(load, sec, ret);
    if (!ret->failures && !ret->share_permille)
        load_fault(load, value_line(sec),
                   "outlier has neither failures nor share, expected one of them");
}

/* Behind host_compile: probes ask for the host that requests do, where that is a fixed one. */
void watch_compile(struct load *load, cfg_t *sec, struct conf_upstream *upstream)
{
    struct watch *ret = &upstream->watch;
    static const char *const panics[] = {"fail", "use_all", NULL};
    unsigned panic = PANIC_FAIL;
    cfg_t *sub;
    value_word(load, sec, "panic", panics, &panic);
    ret->panic = (enum panic)panic;
    value_time(load, sec, "slow_start", 0, DAY_MS, &ret->slow_start);
    if ((sub = value_section(sec, "health")))
        health_compile(load, sub, &ret->health);
    if (sub && !upstream->http2 && ret->health.type == HEALTH_GRPC)
        load_fault(load, value_line(sub),
                   "health.type is grpc, which is spoken over HTTP/2; expected protocol = h2");
    if ((ret->health.type == HEALTH_HTTP || ret->health.type == HEALTH_GRPC) &&
        !ret->health.host)
        ret->health.host = upstream->host_name;
    if ((sub = value_section(sec, "outlier")))
        outlier_compile(load, sub, &ret->outlier);
}
