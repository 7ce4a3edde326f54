/* Does to a request what its options say, and says in headers what it saw. */
#include <postern_plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct postern_api *api;

enum {
    SET,
    ADD,
    REMOVE,
    REMOVE_PARAMETER,
    REMOVE_COOKIE,
    ANSWER,
    REASON,
    BODY,
    CREDENTIAL,
    SEE,
    FACT,
    ANSWER_SET,
    NUMBER,
    RATE,
    SIZE,
    TIME,
    SHARE,
    WORD,
    FILE_NAME,
    SECRET,
    TOKEN,
    REFUSE,
    WARN,
    STATE,
    OPTIONS
};

static const char *const words[] = {"red", "green", "blue", NULL};

static const struct postern_option options[OPTIONS] = {
    [SET] = {"set", POSTERN_TEXT, true, false, NULL, 0, 0, NULL,
             "NAME: VALUE for the upstream."},
    [ADD] = {"add", POSTERN_TEXT, true, false, NULL, 0, 0, NULL,
             "NAME: VALUE for the upstream."},
    [REMOVE] = {"remove", POSTERN_TOKEN, true, false, NULL, 0, 0, NULL, "Headers taken away."},
    [REMOVE_PARAMETER] = {"remove_parameter", POSTERN_TEXT, true, false, NULL, 0, 0, NULL,
                          "Parameters taken away."},
    [REMOVE_COOKIE] = {"remove_cookie", POSTERN_TOKEN, true, false, NULL, 0, 0, NULL,
                       "Cookies taken away."},
    [ANSWER] = {"answer", POSTERN_NUMBER, false, false, NULL, 200, 599, NULL, "The status."},
    [REASON] = {"reason", POSTERN_TEXT, false, false, NULL, 0, 0, NULL, "With answer."},
    [BODY] = {"body", POSTERN_TEXT, false, false, NULL, 0, 0, NULL, "With answer."},
    [CREDENTIAL] = {"credential", POSTERN_TEXT, false, false, NULL, 0, 0, NULL, "Who asks."},
    [SEE] = {"see", POSTERN_TEXT, true, false, NULL, 0, 0, NULL,
             "KIND NAME INDEX: seen values go into X-Seen headers of the answer."},
    [FACT] = {"fact", POSTERN_TEXT, false, false, NULL, 0, 0, NULL,
              "Value of the fact \"probe\"."},
    [ANSWER_SET] = {"answer_set", POSTERN_TEXT, true, false, NULL, 0, 0, NULL,
                    "NAME: VALUE for any answer."},
    [NUMBER] = {"number", POSTERN_NUMBER, false, false, "7", 1, 10, NULL, "A number."},
    [RATE] = {"rate", POSTERN_RATE, false, false, "5/s", 1, 1000, NULL, "A rate."},
    [SIZE] = {"size", POSTERN_SIZE, false, false, "16k", 0, 1 << 20, NULL, "A size."},
    [TIME] = {"time", POSTERN_TIME, false, false, "250ms", 0, 60000, NULL, "A time."},
    [SHARE] = {"share", POSTERN_SHARE, false, false, "20%", 0, 0, NULL, "A share."},
    [WORD] = {"word", POSTERN_WORD, false, false, "green", 0, 0, words, "A word."},
    [FILE_NAME] = {"file", POSTERN_FILE, false, false, NULL, 0, 0, NULL, "A file."},
    [SECRET] = {"secret", POSTERN_SECRET, false, false, NULL, 0, 0, NULL, "A secret."},
    [TOKEN] = {"token", POSTERN_TOKEN, false, false, NULL, 0, 0, NULL, "A token."},
    [REFUSE] = {"refuse", POSTERN_BOOL, false, false, "false", 0, 0, NULL,
                "Fails to configure."},
    [WARN] = {"warn", POSTERN_BOOL, false, false, "false", 0, 0, NULL, "Warns."},
    [STATE] = {"state", POSTERN_TEXT, false, false, "state", 0, 0, NULL,
               "Name of shared state."},
};

static const struct postern_reason reasons[] = {{"probe.refused", "The probe refuses"},
                                                {"probe.other", "Another one"}};

struct probe {
    const struct postern_values *values; /* those of the configuration, copied */
    struct postern_values own[OPTIONS];
    uint64_t *shared;
    int counter;
};

static struct postern_str str(const char *z)
{
    return (struct postern_str){z, z ? strlen(z) : 0};
}

static bool load(const struct postern_api *a)
{
    api = a;
    return true;
}

static void *make(void *arg)
{
    (void)arg;
    return calloc(1, sizeof(uint64_t));
}

static bool copy_values(struct probe *probe, const struct postern_values *values)
{
    for (size_t i = 0; i < OPTIONS; i++) {
        struct postern_value *list = calloc(values[i].count + 1, sizeof(*list));
        if (!list)
            return false;
        for (size_t k = 0; k < values[i].count; k++) {
            list[k] = values[i].list[k];
            list[k].text.p = strdup(values[i].list[k].text.p);
        }
        probe->own[i] =
            (struct postern_values){sizeof(struct postern_values), list, values[i].count};
    }
    return true;
}

static void discard(void *instance)
{
    struct probe *probe = instance;
    for (size_t i = 0; i < OPTIONS; i++) {
        for (size_t k = 0; k < probe->own[i].count; k++)
            free((char *)probe->own[i].list[k].text.p);
        free((void *)probe->own[i].list);
    }
    free(probe);
}

static bool configure(struct postern_setup *s, const struct postern_values *values,
                      void **ret_instance)
{
    if (values[REFUSE].list[0].number) {
        api->fault(s, REFUSE, 0, "refuse is true, expected false at %.*s", (int)api->place(s).n,
                   api->place(s).p);
        return false;
    }
    if (values[WARN].list[0].number)
        api->warn(s, WARN, 0, "warned");
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe || !copy_values(probe, values)) {
        api->fault(s, -1, 0, "out of memory");
        free(probe);
        return false;
    }
    probe->shared = api->shared(s, values[STATE].list[0].text.p, make, NULL, free);
    probe->counter = api->counter(s, "probe", "Requests that the probe saw.");
    *ret_instance = probe;
    return true;
}

/* "NAME: VALUE" */
static void put(struct postern_request *r, enum postern_part part,
                const struct postern_values *values, bool set)
{
    for (size_t i = 0; i < values->count; i++) {
        const char *p = values->list[i].text.p, *colon = strstr(p, ": ");
        struct postern_str name = {p, colon ? (size_t)(colon - p) : strlen(p)};
        struct postern_str value = str(colon ? colon + 2 : "");
        if (!(set ? api->set : api->add)(r, part, name, value))
            api->add(r, POSTERN_ANSWER_HEADER, str("X-Refused"), name);
    }
}

static void take(struct postern_request *r, enum postern_part part,
                 const struct postern_values *values)
{
    for (size_t i = 0; i < values->count; i++)
        api->remove(r, part, values->list[i].text);
}

/* "field 3", "header Accept 0", "parameter x 0", "cookie c 0", "address", "fact probe" */
static void see(struct postern_request *r, const char *what)
{
    char kind[32] = "", name[64] = "", out[512];
    unsigned i = 0;
    struct postern_str seen = {NULL, 0};
    char text[40];
    sscanf(what, "%31s %63s %u", kind, name, &i);
    if (strcmp(kind, "field") == 0)
        seen = api->get(r, (enum postern_field)atoi(name));
    if (strcmp(kind, "header") == 0)
        seen = api->value(r, POSTERN_HEADER, str(name), i);
    if (strcmp(kind, "parameter") == 0)
        seen = api->value(r, POSTERN_PARAMETER, str(name), i);
    if (strcmp(kind, "cookie") == 0)
        seen = api->value(r, POSTERN_COOKIE, str(name), i);
    if (strcmp(kind, "fact") == 0)
        seen = api->fact(r, str(name));
    if (strcmp(kind, "address") == 0) {
        uint8_t bytes[16];
        unsigned n = api->address(r, bytes);
        snprintf(text, sizeof(text), "%u %u.%u", n, bytes[0], bytes[n ? n - 1 : 0]);
        seen = str(text);
    }
    snprintf(out, sizeof(out), "%s = %.*s", what, (int)(seen.p ? seen.n : 4),
             seen.p ? seen.p : "none");
    api->add(r, POSTERN_ANSWER_HEADER, str("X-Seen"), str(out));
}

static enum postern_verdict on_request(void *instance, struct postern_request *r)
{
    const struct probe *probe = instance;
    const struct postern_values *v = probe->own;
    *api->slot(r) = (void *)probe;
    api->count(api->worker(r), probe->counter, 1);
    __atomic_add_fetch(probe->shared, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < v[SEE].count; i++)
        see(r, v[SEE].list[i].text.p);
    put(r, POSTERN_HEADER, &v[SET], true);
    put(r, POSTERN_HEADER, &v[ADD], false);
    put(r, POSTERN_ANSWER_HEADER, &v[ANSWER_SET], true);
    take(r, POSTERN_HEADER, &v[REMOVE]);
    take(r, POSTERN_PARAMETER, &v[REMOVE_PARAMETER]);
    take(r, POSTERN_COOKIE, &v[REMOVE_COOKIE]);
    if (v[CREDENTIAL].count)
        api->credential(r, v[CREDENTIAL].list[0].text);
    if (v[FACT].count)
        api->fact_set(r, str("probe"), v[FACT].list[0].text);
    if (!v[ANSWER].count)
        return POSTERN_GO_ON;
    struct postern_header header = {str("X-Probe"), str("answered")};
    struct postern_answer answer = {
        .size = sizeof(answer),
        .status = (unsigned)v[ANSWER].list[0].number,
        .reason = v[REASON].count ? v[REASON].list[0].text.p : NULL,
        .detail = str("Because \"it\" says so."),
        .type = str("text/x-probe"),
        .body = v[BODY].count ? v[BODY].list[0].text : str(NULL),
        .limit = 5,
        .actual = 6,
        .headers = &header,
        .header_count = 1,
    };
    api->answer(r, &answer);
    return POSTERN_ANSWERED;
}

static void on_response(void *instance, struct postern_request *r)
{
    const struct probe *probe = instance;
    char text[64];
    if (*api->slot(r) != probe)
        abort();
    snprintf(text, sizeof(text), "%u %llu", api->status(r),
             (unsigned long long)__atomic_load_n(probe->shared, __ATOMIC_RELAXED));
    api->set(r, POSTERN_ANSWER_HEADER, str("X-Probe-Response"), str(text));
}

static void on_log(void *instance, struct postern_request *r)
{
    struct postern_str reason = api->get(r, POSTERN_REASON), path = api->get(r, POSTERN_PATH);
    if (*api->slot(r) != instance)
        abort();
    api->log(&postern_plugin, POSTERN_INFO, "log %.*s %u %.*s", (int)path.n, path.p,
             api->status(r), (int)(reason.p ? reason.n : 1), reason.p ? reason.p : "-");
}

const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin),
    .abi_major = POSTERN_ABI_MAJOR,
    .abi_minor = POSTERN_ABI_MINOR,
    .name = "probe",
    .version = "1",
    .summary = "Does to a request what its options say.",
    .options = options,
    .option_count = OPTIONS,
    .option_size = sizeof(struct postern_option),
    .reasons = reasons,
    .reason_count = 2,
    .order = POSTERN_ORDER_AUTH,
    .load = load,
    .configure = configure,
    .discard = discard,
    .on_request = on_request,
    .on_response = on_response,
    .on_log = on_log,
};
