/* The options of the whole process: the top level, admin and the two logs. */
#include <pwd.h>
#include <sched.h>

#include "conf/load.h"
#include "up/dns.h"

#define WORKERS_MAX 256

static uint32_t usable_cores(void)
{
    cpu_set_t set;
    /* more cores than the set has room for: the call fails, and one worker always works */
    int n = sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
    return n < 1 ? 1 : n > WORKERS_MAX ? WORKERS_MAX : (uint32_t)n;
}

static void workers_compile(struct load *load, cfg_t *top)
{
    struct conf *conf = load->conf;
    const struct value *value = value_get(top, "workers");
    conf->workers_auto = !value || strcmp(value->text, "auto") == 0;
    conf->workers = usable_cores();
    uint64_t number;
    if (conf->workers_auto)
        return;
    if (str_to_u64(str_of(value->text), WORKERS_MAX, &number) || number < 1)
        load_fault(load, value->line, "workers is %s, expected auto or 1 to %d",
                   value->text[0] ? value->text : "empty", WORKERS_MAX);
    else
        conf->workers = (uint32_t)number;
}

/* Not a fault: a file may be checked elsewhere than where it will be used, and only a start as
 * root needs the user. */
static void user_compile(struct load *load, cfg_t *top)
{
    struct conf *conf = load->conf;
    value_text_at(load, top, "user", &conf->user, &conf->user_at);
    if (conf->user && !getpwnam(conf->user))
        conf_fault(&conf->warnings, conf->user_at,
                   "user \"%s\" does not exist here: a start as root would fail", conf->user);
}

/* An address and port of a DNS server; those of a file that is refused may be fewer. */
static void resolver_compile(struct load *load, cfg_t *top)
{
    struct conf *conf = load->conf;
    size_t count = value_count(top, "resolver");
    if (count > DNS_SERVERS_MAX) {
        load_fault(load, value_at(top, "resolver", DNS_SERVERS_MAX)->line,
                   "resolver has %zu servers, expected at most %d", count, DNS_SERVERS_MAX);
        return;
    }
    conf->resolvers = load_alloc(load, count, sizeof(*conf->resolvers));
    for (size_t i = 0; conf->resolvers && i < count; i++) {
        const struct value *value = value_at(top, "resolver", i);
        struct addr *addr = &conf->resolvers[conf->resolver_count];
        bool ok = addr_parse(str_of(value->text), addr) == 0 &&
                  ((addr->sa.sa_family == AF_INET && addr->in4.sin_port) ||
                   (addr->sa.sa_family == AF_INET6 && addr->in6.sin6_port));
        for (size_t k = 0; ok && k < conf->resolver_count; k++)
            ok = !addr_eq(&conf->resolvers[k], addr);
        if (ok)
            conf->resolver_count++;
        else
            load_fault(load, value->line,
                       "resolver has \"%s\", expected the IP address and port of a DNS server "
                       "(127.0.0.1:53, [::1]:53), each only once",
                       value->text);
    }
}

static void admin_compile(struct load *load, cfg_t *sec)
{
    struct conf *conf = load->conf;
    const struct value *value = value_get(sec, "listen");
    conf->admin_where = load_where(load, value_line(sec));
    if (!value && load->broken)
        return;
    if (!value)
        load_fault(load, value_line(sec), "admin has no listen, expected an address");
    else if (address_compile(load, "admin.listen", value, &conf->admin))
        conf->has_admin = true;
}

static void sample_compile(struct load *load, cfg_t *sec)
{
    const struct value *value = value_get(sec, "sample");
    uint64_t number;
    if (!value)
        return;
    if (strncmp(value->text, "1/", 2) != 0 ||
        str_to_u64(str_of(value->text + 2), 1000000, &number) || number < 1)
        load_fault(load, value->line,
                   "access_log.sample is %s, expected \"1/N\" with N from 1 to 1000000",
                   value->text[0] ? value->text : "empty");
    else
        load->conf->access_log.sample = (uint32_t)number;
}

static void access_log_compile(struct load *load, cfg_t *sec)
{
    static const char *const formats[] = {"json", "combined", NULL};
    struct conf *conf = load->conf;
    unsigned format = 0;
    value_text_at(load, sec, "path", &conf->access_log.path, &conf->access_log.path_at);
    value_word(load, sec, "format", formats, &format);
    conf->access_log.combined = format == 1;
    sample_compile(load, sec);
    value_time(load, sec, "slower_than", 0, DAY_MS, &conf->access_log.slower_than);
}

static void error_log_compile(struct load *load, cfg_t *sec)
{
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    struct conf *conf = load->conf;
    unsigned level = conf->error_log.level;
    value_text_at(load, sec, "path", &conf->error_log.path, &conf->error_log.path_at);
    value_word(load, sec, "level", levels, &level);
    conf->error_log.level = (enum log_level)level;
    if (conf->error_log.path && strcmp(conf->error_log.path, "off") == 0)
        load_fault(load, value_get(sec, "path")->line,
                   "error_log.path is off, expected \"-\" or a file: faults must be told");
}

void globals_compile(struct load *load, cfg_t *top)
{
    struct conf *conf = load->conf;
    cfg_t *sec;
    conf->drain_timeout = 30000;
    conf->access_log.path = load_copy(load, STR("-"));
    conf->access_log.sample = 1;
    conf->error_log.path = load_copy(load, STR("-"));
    conf->error_log.level = LOG_INFO;
    workers_compile(load, top);
    user_compile(load, top);
    value_text_at(load, top, "pid_file", &conf->pid_file, &conf->pid_file_at);
    value_time(load, top, "drain_timeout", 0, DAY_MS, &conf->drain_timeout);
    resolver_compile(load, top);
    if ((sec = value_section(top, "admin")))
        admin_compile(load, sec);
    if ((sec = value_section(top, "access_log")))
        access_log_compile(load, sec);
    if ((sec = value_section(top, "error_log")))
        error_log_compile(load, sec);
}
