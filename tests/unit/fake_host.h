/* A host for a plugin under test: one request in memory, one setup, and what was said. Include
 * behind cmocka.h; the plugin's file is linked, and reached as `postern_plugin`. */
#ifndef POSTERN_TESTS_FAKE_HOST_H
#define POSTERN_TESTS_FAKE_HOST_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "postern_plugin.h"

#define FAKE_MAX     32
#define FAKE_OPTIONS 16

struct fake_field {
    enum postern_part part;
    char name[64], value[1100];
};

struct postern_request {
    struct fake_field fields[FAKE_MAX];
    size_t count;
    struct fake_field facts[FAKE_MAX];
    size_t fact_count;
    char credential[300], method[32], subject[128], path[128], route[32], listener[32];
    uint8_t address[16];
    unsigned address_width;
    void *slot;
    bool out_of_memory; /* set, add and facts fail */
    /* what came of it */
    unsigned answers, status;
    uint64_t limit, actual;
    char reason[64], detail[512], challenge[512];
    size_t answer_headers;
};

struct postern_worker {
    unsigned index;
};

struct postern_setup {
    unsigned faults, warnings;
    int option; /* of the last fault or warning */
    size_t at;
    char text[4096];
    void *shared;
    char followed[256];
};

static struct {
    uint64_t wall_ms;
    struct postern_worker worker;
    unsigned logs, retired;
    char log[4096];
    uint64_t now_ns, counts[FAKE_MAX];
    char counters[FAKE_MAX][32];
    unsigned counter_count;
    void *shared; /* lives on between setups */
    void (*free_shared)(void *object);
} fake;

static inline struct postern_str fake_str(const char *text)
{
    return (struct postern_str){text, text ? strlen(text) : 0};
}

static uint64_t fake_now_ns(void)
{
    return fake.now_ns;
}

static int fake_counter(struct postern_setup *s, const char *name, const char *help)
{
    unsigned i = 0;
    (void)s;
    assert_true(strlen(help) > 0);
    while (i < fake.counter_count && strcmp(fake.counters[i], name) != 0)
        i++;
    assert_true(i < FAKE_MAX);
    fake.counter_count = i < fake.counter_count ? fake.counter_count : i + 1;
    snprintf(fake.counters[i], sizeof(fake.counters[i]), "%s", name);
    return (int)i;
}

static void fake_count(struct postern_worker *w, int counter, uint64_t n)
{
    (void)w;
    assert_true(counter >= 0 && (unsigned)counter < fake.counter_count);
    fake.counts[counter] += n;
}

static inline uint64_t fake_counted(const char *name)
{
    for (unsigned i = 0; i < fake.counter_count; i++)
        if (strcmp(fake.counters[i], name) == 0)
            return fake.counts[i];
    fail_msg("no counter %s", name);
    return 0;
}

static struct postern_str fake_place(const struct postern_setup *s)
{
    (void)s;
    return fake_str("route test");
}

static uint64_t fake_wall_ms(void)
{
    return fake.wall_ms;
}

static void fake_append(char *to, size_t size, const char *fmt, va_list args)
{
    size_t n = strlen(to);
    vsnprintf(to + n, size - n, fmt, args);
    n = strlen(to);
    snprintf(to + n, size - n, "\n");
}

__attribute__((format(printf, 3, 4))) static void
fake_log(const struct postern_plugin *plugin, enum postern_level level, const char *fmt, ...)
{
    va_list args;
    (void)plugin;
    (void)level;
    fake.logs++;
    va_start(args, fmt);
    fake_append(fake.log, sizeof(fake.log), fmt, args);
    va_end(args);
}

static void fake_retire(void *p, void (*free_it)(void *p))
{
    fake.retired++;
    free_it(p);
}

__attribute__((format(printf, 4, 5))) static void
fake_fault(struct postern_setup *s, int option, size_t i, const char *fmt, ...)
{
    va_list args;
    s->faults++;
    s->option = option;
    s->at = i;
    va_start(args, fmt);
    fake_append(s->text, sizeof(s->text), fmt, args);
    va_end(args);
}

__attribute__((format(printf, 4, 5))) static void fake_warn(struct postern_setup *s, int option,
                                                            size_t i, const char *fmt, ...)
{
    va_list args;
    s->warnings++;
    s->option = option;
    s->at = i;
    va_start(args, fmt);
    fake_append(s->text, sizeof(s->text), fmt, args);
    va_end(args);
}

static void *fake_shared(struct postern_setup *s, const char *name, void *(*make)(void *arg),
                         void *arg, void (*free_it)(void *object))
{
    (void)s;
    (void)name;
    fake.shared = fake.shared ? fake.shared : make(arg);
    fake.free_shared = free_it;
    return fake.shared;
}

static void fake_follow(struct postern_setup *s, const char *path)
{
    snprintf(s->followed, sizeof(s->followed), "%s", path);
}

static unsigned fake_worker_index(const struct postern_worker *w)
{
    return w->index;
}

static struct postern_worker *fake_worker(struct postern_request *r)
{
    (void)r;
    return &fake.worker;
}

static struct postern_str fake_get(struct postern_request *r, enum postern_field field)
{
    const char *text = field == POSTERN_METHOD        ? r->method
                       : field == POSTERN_CREDENTIAL  ? r->credential
                       : field == POSTERN_TLS_SUBJECT ? r->subject
                       : field == POSTERN_PATH        ? r->path
                       : field == POSTERN_ROUTE       ? r->route
                       : field == POSTERN_LISTENER    ? r->listener
                                                      : "";
    return fake_str(*text ? text : NULL);
}

static unsigned fake_address(struct postern_request *r, uint8_t out[16])
{
    memcpy(out, r->address, r->address_width);
    return r->address_width;
}

static bool fake_is(const struct fake_field *field, enum postern_part part,
                    struct postern_str name)
{
    bool any_case = part == POSTERN_HEADER || part == POSTERN_ANSWER_HEADER;
    return field->part == part && strlen(field->name) == name.n &&
           (any_case ? strncasecmp(field->name, name.p, name.n)
                     : memcmp(field->name, name.p, name.n)) == 0;
}

static struct postern_str fake_value(struct postern_request *r, enum postern_part part,
                                     struct postern_str name, size_t i)
{
    for (size_t k = 0; k < r->count; k++)
        if (fake_is(&r->fields[k], part, name) && i-- == 0)
            return fake_str(r->fields[k].value);
    return fake_str(NULL);
}

static bool fake_header_at(struct postern_request *r, enum postern_part part, size_t i,
                           struct postern_header *ret)
{
    for (size_t k = 0; k < r->count; k++) {
        if (r->fields[k].part == part && i-- == 0) {
            *ret = (struct postern_header){fake_str(r->fields[k].name),
                                           fake_str(r->fields[k].value)};
            return true;
        }
    }
    return false;
}

/* What is removed lives on, for views of it do. */
static void fake_remove(struct postern_request *r, enum postern_part part,
                        struct postern_str name)
{
    for (size_t k = 0; k < r->count; k++)
        if (fake_is(&r->fields[k], part, name))
            r->fields[k].part = 0;
}

static bool fake_add(struct postern_request *r, enum postern_part part, struct postern_str name,
                     struct postern_str value)
{
    if (r->out_of_memory || r->count == FAKE_MAX)
        return false;
    struct fake_field *field = &r->fields[r->count++];
    field->part = part;
    snprintf(field->name, sizeof(field->name), "%.*s", (int)name.n, name.p);
    snprintf(field->value, sizeof(field->value), "%.*s", (int)value.n, value.p);
    return true;
}

static bool fake_set(struct postern_request *r, enum postern_part part, struct postern_str name,
                     struct postern_str value)
{
    if (r->out_of_memory)
        return false;
    fake_remove(r, part, name);
    return fake_add(r, part, name, value);
}

static bool fake_credential(struct postern_request *r, struct postern_str name)
{
    snprintf(r->credential, sizeof(r->credential), "%.*s", (int)name.n, name.p);
    return !r->out_of_memory;
}

static bool fake_fact_set(struct postern_request *r, struct postern_str name,
                          struct postern_str value)
{
    if (r->out_of_memory || r->fact_count == FAKE_MAX)
        return false;
    struct fake_field *fact = &r->facts[r->fact_count++];
    snprintf(fact->name, sizeof(fact->name), "%.*s", (int)name.n, name.p);
    snprintf(fact->value, sizeof(fact->value), "%.*s", (int)value.n, value.p);
    return true;
}

static struct postern_str fake_fact(struct postern_request *r, struct postern_str name)
{
    for (size_t k = 0; k < r->fact_count; k++)
        if (fake_is(&r->facts[k], 0, name))
            return fake_str(r->facts[k].value);
    return fake_str(NULL);
}

static void *fake_alloc(struct postern_request *r, size_t n)
{
    static char memory[4096];
    return r->out_of_memory || n > sizeof(memory) ? NULL : memory;
}

static void **fake_slot(struct postern_request *r)
{
    return &r->slot;
}

static void fake_answer(struct postern_request *r, const struct postern_answer *answer)
{
    r->answers++;
    r->status = answer->status;
    r->limit = answer->limit;
    r->actual = answer->actual;
    r->answer_headers = answer->header_count;
    snprintf(r->reason, sizeof(r->reason), "%s", answer->reason ? answer->reason : "");
    snprintf(r->detail, sizeof(r->detail), "%.*s", (int)answer->detail.n, answer->detail.p);
    for (size_t i = 0; i < answer->header_count; i++) {
        const struct postern_header *header = &answer->headers[i];
        if (strncasecmp(header->name.p, "WWW-Authenticate", header->name.n) == 0)
            snprintf(r->challenge + strlen(r->challenge),
                     sizeof(r->challenge) - strlen(r->challenge), "%s%.*s",
                     *r->challenge ? " | " : "", (int)header->value.n, header->value.p);
        fake_add(r, POSTERN_ANSWER_HEADER, header->name, header->value);
    }
}

static bool fake_secret_parameter(postern_setup *s, postern_str name)
{
    (void)s, (void)name;
    return true;
}

/* As the gateway, of whose own fields two will do. */
static bool fake_may_put(enum postern_part part, postern_str name)
{
    (void)part;
    return !(name.n == 4 && strncasecmp(name.p, "Host", 4) == 0) &&
           !(name.n == 14 && strncasecmp(name.p, "Content-Length", 14) == 0);
}

static const struct postern_api fake_api = {
    .size = sizeof(struct postern_api),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .version = "test",
    .now_ns = fake_now_ns,
    .wall_ms = fake_wall_ms,
    .log = fake_log,
    .retire = fake_retire,
    .fault = fake_fault,
    .warn = fake_warn,
    .shared = fake_shared,
    .follow = fake_follow,
    .counter = fake_counter,
    .secret_parameter = fake_secret_parameter,
    .may_put = fake_may_put,
    .place = fake_place,
    .count = fake_count,
    .worker_index = fake_worker_index,
    .worker = fake_worker,
    .get = fake_get,
    .address = fake_address,
    .value = fake_value,
    .header_at = fake_header_at,
    .set = fake_set,
    .add = fake_add,
    .remove = fake_remove,
    .credential = fake_credential,
    .fact_set = fake_fact_set,
    .fact = fake_fact,
    .alloc = fake_alloc,
    .slot = fake_slot,
    .answer = fake_answer,
};

static inline void fake_load(void)
{
    memset(&fake, 0, sizeof(fake));
    fake.wall_ms = 1800000000000; /* 2027-01-15 */
    assert_true(postern_plugin.load(&fake_api));
}

/* Frees what sections share. */
static inline void fake_end(void)
{
    if (fake.shared)
        fake.free_shared(fake.shared);
    fake.shared = NULL;
}

static struct postern_value fake_value_of(const struct postern_option *option, const char *text,
                                          bool given)
{
    struct postern_value value = {given, strtoll(text, NULL, 10), 0, fake_str(text)};
    const char *unit = strchr(text, '/');
    if (option->type == POSTERN_RATE)
        value.per_ms = unit[1] == 's' ? 1000 : unit[1] == 'm' ? 60000 : 3600000;
    if (strcmp(text, "true") == 0)
        value.number = 1;
    for (int i = 0; option->type == POSTERN_WORD && option->words[i]; i++)
        if (strcmp(text, option->words[i]) == 0)
            value.number = i;
    return value;
}

/* "name", "value" pairs, ended by NULL; the same name again makes a list. Values are as one
 * writes them; numbers of words may be given for words. Defaults are filled in. */
static void *fake_configure(struct postern_setup *s, ...)
{
    static struct postern_value list[FAKE_OPTIONS][FAKE_MAX];
    struct postern_values values[FAKE_OPTIONS];
    va_list args;
    void *instance = NULL;
    memset(list, 0, sizeof(list));
    for (size_t i = 0; i < postern_plugin.option_count; i++) {
        const struct postern_option *option = &postern_plugin.options[i];
        values[i] = (struct postern_values){sizeof(values[i]), list[i], 0};
        va_start(args, s);
        for (const char *name; (name = va_arg(args, const char *));) {
            const char *text = va_arg(args, const char *);
            if (strcmp(name, option->name) == 0)
                list[i][values[i].count++] = fake_value_of(option, text, true);
        }
        va_end(args);
        if (!values[i].count && option->default_text) {
            values[i].count = 1;
            list[i][0] = fake_value_of(option, option->default_text, false);
        }
    }
    memset(s, 0, sizeof(*s));
    bool made = postern_plugin.configure(s, values, &instance);
    assert_true(made == (s->faults == 0));
    assert_true(made == (instance != NULL));
    return instance;
}

static inline void fake_put(struct postern_request *r, enum postern_part part, const char *name,
                            const char *value)
{
    assert_true(fake_add(r, part, fake_str(name), fake_str(value)));
}

/* The value that a request or answer has in the end, or NULL. */
static inline const char *fake_has(struct postern_request *r, enum postern_part part,
                                   const char *name)
{
    return fake_value(r, part, fake_str(name), 0).p;
}

#endif
