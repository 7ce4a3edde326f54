#include "conf_test.h"

static void names_the_file_that_cannot_be_read(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    assert_null(conf_load("/nonexistent/gateway.conf", &faults));
    assert_null(conf_load("/", &faults));
    assert_int_equal(faults.count, 2);
    assert_string_equal(faults.list[0].message,
                        "cannot read /nonexistent/gateway.conf: No such file or directory");
    assert_string_equal(faults.list[1].message,
                        "cannot read /: it is a directory, expected a file");
    conf_faults_done(&faults);
}

static const char bad[] =
    "wrokers = 3\n"
    "workers = 0\n"
    "listener \"a\" { listen = {\"127.0.0.1:80\", nonsense} quic = true\n"
    "  limits { header_bytes = 512 body_byts = 10m }\n"
    "}\n"
    "listener \"a\" { listen = \"127.0.0.1:80\" }\n"
    "upstream \"v\" { balance = rr }\n"
    "route \"r\" { upstream = uu path = \"/a{b}\" methods = get }\n"
    "route \"t\" { path = /t redirect { status = 304 to = \"/{nope}\" } }\n"
    "route \"y\" { upstream = v request_headers { set = {\"Content-Length: 3\", nocolon} } }\n";

static void reports_all_faults_in_one_go(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "t:1: unknown option \"wrokers\" in the top level, did you mean \"workers\"?",
        "t:2: workers is 0,",
        "t:3: unknown option \"quic\" in listener",
        "t:3: listener.listen is nonsense,",
        "t:4: unknown option \"body_byts\" in limits, did you mean \"body_bytes\"?",
        "t:4: limits.header_bytes is 512,",
        "t:6: listener \"a\" stands twice, first at t:3",
        "t:6: listen address \"127.0.0.1:80\" of a stands twice, first at t:3",
        "t:7: upstream \"v\" has no server,",
        "t:7: upstream.balance is rr,",
        "t:8: route.path is \"/a{b}\":",
        "t:8: route.methods has \"get\", did you mean GET?",
        "t:8: route \"r\" names upstream \"uu\", which there is not",
        "t:9: redirect.status is 304,",
        "t:9: redirect.to uses {nope},",
        "t:10: request_headers.set: Content-Length cannot be edited,",
        "t:10: request_headers.set has \"nocolon\",",
    };
    char *said = faults_of(bad), *line = said;
    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
        if (strncmp(line, expected[i], strlen(expected[i])) != 0)
            fail_msg("expected %s, got %s", expected[i], line);
        line = strchr(line, '\n') + 1;
    }
    assert_string_equal(line, "");
    free(said);
}

static void adds_to_the_faults_that_are_there(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    conf_fault(&faults, (struct conf_where){"x", 1}, "before");
    struct conf *conf = conf_load_text("t", STR(LISTENER), &faults);
    assert_non_null(conf);
    assert_int_equal(faults.count, 1);
    conf_free(conf);
    assert_null(conf_load_text("t", STR("workers = 0\n" LISTENER), &faults));
    assert_int_equal(faults.count, 2);
    conf_faults_done(&faults);
}

static void loads_after_a_broken_file(void **state)
{
    (void)state;
    free(faults_of("user = \"open"));
    free(faults_of("/* open"));
    free(faults_of("route \"x\" {"));
    conf_free(conf_of(LISTENER));
}

static void loads_from_a_span_without_nul(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    size_t n = sizeof(LISTENER) - 1;
    char *text = malloc(n);
    memcpy(text, LISTENER, n);
    struct conf *conf = conf_load_text("t", (struct str){text, n}, &faults);
    free(text);
    assert_non_null(conf);
    assert_string_equal(conf->listeners[0].name, "l");
    conf_free(conf);
}

static const char good[] =
    "workers = 2 pid_file = \"/run/p\"\nadmin { listen = \"127.0.0.1:9\" }\n"
    "listener \"l\" { listen = {\"127.0.0.1:1\", \"[::1]:2\"} trusted_proxies = "
    "{\"10.0.0.0/8\"}\n"
    "  limits { headers = 10 } timeouts { idle = 1s } }\n"
    "upstream \"u\" { server \"a.b:1\" { weight = 2 } server \"unix:/s\" { backup = true }\n"
    "  balance = hash hash_on = \"cookie:x\" retry { on = {502} } }\n"
    "route \"r\" { listener = {l} host = {\"*.a.b\"} path = \"/{x}/{y...}\" methods = {GET}\n"
    "  upstream = u rewrite = \"/v/{x}\" request_headers { set = {\"A: {y}\"} remove = {B} } "
    "}\n"
    "route \"s\" { path = '/s' respond { body = \"{\\\"a\\\":1}\\n\" } }\n";

/* Each allocation fails in turn: a fault, no crash, and (sanitizers) no leak. */
static void survives_want_of_memory_anywhere(void **state)
{
    (void)state;
    const char *const texts[] = {good, bad};
    for (size_t t = 0; t < 2; t++) {
        unsigned loaded = 0;
        for (unsigned long n = 1; n <= 250; n++) {
            struct conf_faults faults = {0};
            mem_fail_at(n);
            struct conf *conf = conf_load_text("t", str_of(texts[t]), &faults);
            mem_fail_at(0);
            assert_true((conf != NULL) == (faults.count == 0));
            loaded += conf != NULL;
            conf_free(conf);
            conf_faults_done(&faults);
        }
        if (t == 0)
            assert_in_range(loaded, 20, 230); /* those that fail later than it needs memory */
        else
            assert_int_equal(loaded, 0);
    }
}

static void change(char *text, size_t *n, size_t room)
{
    static const char bytes[] = "{}()=,\"'#/*+$\\\n\r\t ax0.%~\x01\xff";
    size_t at = (size_t)rand() % *n, len = (size_t)rand() % 12, to = (size_t)rand() % *n;
    switch (rand() % 5) {
    case 0: /* another byte */
        text[at] = bytes[(size_t)rand() % sizeof(bytes)];
        break;
    case 1: /* bytes lost */
        len = len < *n - at ? len : *n - at - (*n - at == *n);
        memmove(text + at, text + at + len, *n - at - len);
        *n -= len;
        break;
    case 2: /* bytes more */
        if (*n + 1 > room)
            break;
        memmove(text + at + 1, text + at, *n - at);
        text[at] = bytes[(size_t)rand() % sizeof(bytes)];
        ++*n;
        break;
    case 3: /* bytes moved */
        len = at + len > *n || to + len > *n ? 0 : len;
        memmove(text + to, text + at, len);
        break;
    default: /* cut short */
        if (rand() % 8 == 0)
            *n = at + 1;
    }
}

/* Whatever a file holds, it is a configuration or has a fault. */
static void takes_or_refuses_mutated_files(void **state)
{
    (void)state;
    srand(20240607);
    unsigned loaded = 0;
    for (int i = 0; i < 500; i++) {
        char text[2048];
        size_t n = sizeof(good) - 1;
        memcpy(text, good, n);
        for (int changes = 1 + rand() % 4; changes; changes--)
            change(text, &n, sizeof(text));
        struct conf_faults faults = {0};
        struct conf *conf = conf_load_text("t", (struct str){text, n}, &faults);
        assert_true((conf != NULL) == (faults.count == 0));
        for (size_t f = 0; f < faults.count; f++) {
            assert_true(faults.list[f].message[0] != '\0');
            /* the scan leaves nothing for libconfuse to refuse in words of its own */
            assert_null(strstr(faults.list[f].message, "memory"));
            assert_true(faults.list[f].where.line > 0);
        }
        loaded += conf != NULL;
        conf_free(conf);
        conf_faults_done(&faults);
    }
    assert_in_range(loaded, 20, 480);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_file_that_cannot_be_read),
        cmocka_unit_test(reports_all_faults_in_one_go),
        cmocka_unit_test(adds_to_the_faults_that_are_there),
        cmocka_unit_test(loads_after_a_broken_file),
        cmocka_unit_test(loads_from_a_span_without_nul),
        cmocka_unit_test(survives_want_of_memory_anywhere),
        cmocka_unit_test(takes_or_refuses_mutated_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
