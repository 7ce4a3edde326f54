/* For the tests of plugins at work: an exchange without connections, whose plugins are actors
 * of the test. What they hear is written down, and so is the answer. */
#ifndef PLUGGED_TEST_H
#define PLUGGED_TEST_H

#include "forward_test.h"

#include "proxy/plugins.h"

#define ACTORS 4

enum deed { GO, ANSWER, FAIL, WAIT, WAIT_UNTOLD, WAIT_RESUMED };

struct actor {
    const char *name;
    enum deed does, then; /* in on_request; in on_resume */
    bool fail_open, deaf; /* deaf: it has no on_request */
    uint32_t deadline;    /* 0: 60 s */
    void (*inside)(postern_request *r);
    postern_pass *request_body, *response_body;
    struct postern_answer answer; /* .status 0: 403 with a reason */
    struct plugin plugin;
    struct instance instance;
    struct postern_token token;
};

static struct loop loop;
static struct actor actors[ACTORS];
static unsigned actor_count;
static struct phases *phases;
static char heard[2048], answered[2048]; /* a word for each hook; the answer */

static inline void hear(struct actor *actor, const char *what)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof(heard) - n, "%s%s.%s", n ? " " : "", actor->name, what);
}

static enum postern_verdict actor_does(struct actor *actor, postern_request *r, enum deed deed)
{
    static const struct postern_answer refusal = {
        .size = sizeof(refusal), .status = 403, .reason = "test.no", .detail = {"No.", 3}};
    switch (deed) {
    case GO:
        return POSTERN_GO_ON;
    case ANSWER:
        host_api.answer(r, actor->answer.status ? &actor->answer : &refusal);
        return POSTERN_ANSWERED;
    case FAIL:
        return POSTERN_FAILED;
    case WAIT:
        actor->token = host_api.wait(r);
        return POSTERN_WAIT;
    case WAIT_UNTOLD:
        return POSTERN_WAIT;
    case WAIT_RESUMED:
        actor->token = host_api.wait(r);
        host_api.resume(actor->token, "inside", NULL);
        return POSTERN_WAIT;
    }
    return POSTERN_FAILED;
}

static enum postern_verdict actor_request(void *self, postern_request *r)
{
    struct actor *actor = self;
    hear(actor, "request");
    if (actor->inside)
        actor->inside(r);
    return actor_does(actor, r, actor->does);
}

static enum postern_verdict actor_resume(void *self, postern_request *r, void *result)
{
    struct actor *actor = self;
    hear(actor, result ? result : "resume");
    return actor_does(actor, r, actor->then);
}

static void actor_cancel(void *self, postern_request *r)
{
    (void)r;
    hear(self, "cancel");
}

static void actor_response(void *self, postern_request *r)
{
    (void)r;
    hear(self, "response");
}

static void actor_log(void *self, postern_request *r)
{
    (void)r;
    hear(self, "log");
}

static const struct postern_reason actor_reasons[] = {{"test.no", "Refused by a test"},
                                                      {"test.odd", "Odd"}};

static inline void send_head_down(struct leg *leg, const struct head *answer)
{
    size_t n = (size_t)snprintf(answered, sizeof(answered), "%u", answer->status);
    (void)leg;
    for (uint32_t i = 0; i < answer->count; i++)
        if (answer->fields[i].id != F_DATE)
            n += (size_t)snprintf(answered + n, sizeof(answered) - n, " %.*s=%.*s",
                                  (int)answer->fields[i].name.n, answer->fields[i].name.p,
                                  (int)answer->fields[i].value.n, answer->fields[i].value.p);
}

static inline void send_body_down(struct leg *leg, struct slice slice)
{
    size_t n = strlen(answered);
    (void)leg;
    snprintf(answered + n, sizeof(answered) - n, " [%.*s]", (int)slice.n, slice.p);
    slice_drop(&slice);
}

static inline void send_end_down(struct leg *leg, const struct head *trailers)
{
    (void)leg, (void)trailers;
}

static const struct leg_ops down_ops = {
    .send_head = send_head_down, .send_body = send_body_down, .send_end = send_end_down};
static struct leg down = {.ops = &down_ops};

/* An actor more, behind those there are. */
static inline struct actor *add_actor(const char *name, enum deed does)
{
    static enum reason reasons[2];
    struct actor *actor = &actors[actor_count];
    for (size_t i = 0; i < 2 && !reasons[i]; i++)
        reasons[i] = reason_add(actor_reasons[i].name, actor_reasons[i].title);
    *actor = (struct actor){.name = name, .does = does};
    actor->plugin = (struct plugin){.path = (char *)"test", .reasons = reasons};
    actor->plugin.def = (struct postern_plugin){
        .size = sizeof(struct postern_plugin),
        .name = name,
        .order = (int)++actor_count,
        .reasons = actor_reasons,
        .reason_count = 2,
        .on_request = actor_request,
        .on_resume = actor_resume,
        .on_cancel = actor_cancel,
        .on_response = actor_response,
        .on_log = actor_log,
    };
    actor->instance = (struct instance){.plugin = &actor->plugin, .self = actor};
    return actor;
}

static inline void prepare(const char *request)
{
    const struct instance *list[ACTORS];
    assert_int_equal(identify(request), R_NONE);
    for (unsigned i = 0; i < actor_count; i++) {
        struct actor *actor = &actors[i];
        actor->instance.fail_open = actor->fail_open;
        actor->instance.deadline = actor->deadline ? actor->deadline : 60000;
        if (actor->deaf)
            actor->plugin.def.on_request = NULL;
        actor->plugin.def.on_request_body = actor->request_body;
        actor->plugin.def.on_response_body = actor->response_body;
        list[i] = &actor->instance;
    }
    phases = phases_new(list, actor_count);
    assert_non_null(phases);
}

/* The request meets the actors. Who lets it through gets "200 [on]". */
static inline void go(void)
{
    loop_enter(&loop);
    plugins_request(&ex, phases);
    loop_leave(&loop);
}

static inline void ask(const char *request)
{
    prepare(request);
    go();
}

#define GET "GET /a?b=c HTTP/1.1\r\nHost: h:81\r\n\r\n"

static inline int set_up_plugged(void **state)
{
    (void)state;
    plugins_init();
    heard[0] = answered[0] = '\0';
    actor_count = 0;
    phases = NULL;
    assert_int_equal(loop_init(&loop), 0);
    begin_text(
        "listener \"l\" { listen = \"127.0.0.1:1\" trusted_proxies = {\"10.0.0.0/8\"} }\n"
        "route \"r\" { respond { status = 200 body = \"on\" } }\n",
        "192.0.2.7");
    cx.loop = &loop;
    cx.station = station_open(&loop, 0, 1, &cx);
    assert_non_null(cx.station);
    cx.station->on_resume = plugins_resume;
    ex.down = &down;
    return 0;
}

static inline int tear_down_plugged(void **state)
{
    (void)state;
    mem_fail_at(0);
    if (ex.plugged)
        plugins_cancel(&ex);
    phases_free(phases);
    end();
    station_close(cx.station);
    loop_discard(&loop, NULL);
    stations_free();
    loop_done(&loop);
    return 0;
}

/* As exchange_finish does. */
static inline void finish(void)
{
    plugins_cancel(&ex);
    plugins_log(&ex);
}

#endif
