#include "conf_plugins_test.h"

static struct conf *conf;

static int tear_down(void **state)
{
    (void)state;
    conf_free(conf);
    conf = NULL;
    return 0;
}

static const struct postern_value *value(const char *name, size_t i)
{
    const struct postern_values *values = values_of(&conf->plugins.list[0], name);
    assert_true(i < values->count);
    return &values->list[i];
}

static void load(const char *options)
{
    char text[1024];
    snprintf(text, sizeof(text), "%sprobe { %s }\n", LISTENER, options);
    tear_down(NULL);
    conf = plugged(OF_TESTS, text);
    assert_int_equal(conf->plugins.count, 1);
}

static void defaults_are_the_plugins_own(void **state)
{
    (void)state;
    load("");
    assert_int_equal(value("number", 0)->number, 7);
    assert_int_equal(value("rate", 0)->number, 5);
    assert_int_equal(value("rate", 0)->per_ms, 1000);
    assert_int_equal(value("size", 0)->number, 16384);
    assert_int_equal(value("time", 0)->number, 250);
    assert_int_equal(value("share", 0)->number, 200);
    assert_int_equal(value("refuse", 0)->number, 0);
    assert_string_equal(value("word", 0)->text.p, "green");
    assert_false(value("word", 0)->given);
    assert_int_equal(values_of(&conf->plugins.list[0], "file")->count, 0);
    assert_int_equal(values_of(&conf->plugins.list[0], "set")->count, 0);
    assert_true(conf->plugins.list[0].enabled);
    assert_false(conf->plugins.list[0].fail_open);
    assert_int_equal(conf->plugins.list[0].deadline, 1000);
}

static void values_are_what_stands_there(void **state)
{
    static const struct {
        const char *rate;
        int64_t number, per_ms;
    } rates[] = {
        {"1/s", 1, 1000}, {"1000/m", 1000, 60000}, {"10/h", 10, 3600000}, {"5/d", 5, 86400000}};
    (void)state;
    load("number = 10 size = 1m time = 1m share = 2.5% word = red secret = 'x y' token = X-A "
         "credential = me set = {\"A: 1\", \"B: 2\"} deadline = 5ms fail = open");
    assert_int_equal(value("number", 0)->number, 10);
    assert_true(value("number", 0)->given);
    assert_int_equal(value("size", 0)->number, 1 << 20);
    assert_int_equal(value("time", 0)->number, 60000);
    assert_int_equal(value("share", 0)->number, 25);
    assert_string_equal(value("word", 0)->text.p, "red");
    assert_string_equal(value("secret", 0)->text.p, "x y");
    assert_int_equal(value("token", 0)->text.n, 3);
    assert_string_equal(value("set", 1)->text.p, "B: 2");
    assert_true(conf->plugins.list[0].fail_open);
    assert_int_equal(conf->plugins.list[0].deadline, 5);
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        char option[64];
        snprintf(option, sizeof(option), "rate = \"%s\"", rates[i].rate);
        load(option);
        assert_int_equal(value("rate", 0)->number, rates[i].number);
        assert_int_equal(value("rate", 0)->per_ms, rates[i].per_ms);
    }
}

/* From here on it is the file, wherever the gateway is started. */
static void files_are_taken_from_the_file_that_names_them(void **state)
{
    char cwd[PATH_MAX], expected[PATH_MAX + 16];
    (void)state;
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    snprintf(expected, sizeof(expected), "%s/keys.json", cwd);
    load("file = keys.json");
    assert_string_equal(value("file", 0)->text.p, expected);
    load("file = /etc/keys.json");
    assert_string_equal(value("file", 0)->text.p, "/etc/keys.json");
}

static void what_is_wrong_is_said_with_what_was_expected(void **state)
{
    static const struct {
        const char *option, *said;
    } cases[] = {
        {"number = 0", "probe.number is 0, expected a number from 1 to 10"},
        {"number = 11", "probe.number is 11, expected a number from 1 to 10"},
        {"number = -1", "probe.number is -1, expected a number from 1 to 10"},
        {"rate = 5",
         "probe.rate is 5, expected a rate (100/s, 6000/m, 10/h, 5/d) from 1 to 1000"},
        {"rate = \"5/w\"",
         "probe.rate is 5/w, expected a rate (100/s, 6000/m, 10/h, 5/d) from 1 to 1000"},
        {"rate = \"1001/s\"",
         "probe.rate is 1001/s, expected a rate (100/s, 6000/m, 10/h, 5/d) from 1 to 1000"},
        {"rate = \"/s\"",
         "probe.rate is /s, expected a rate (100/s, 6000/m, 10/h, 5/d) from 1 to 1000"},
        {"size = 2m", "probe.size is 2m, expected a size (512, 16k, 10m) from 0 to 1m"},
        {"time = 61s", "probe.time is 61s, expected a time (250ms, 5s, 2m) from 0s to 1m"},
        {"share = 101%", "probe.share is 101%, expected a share from 0% to 100%"},
        {"word = grey", "probe.word is grey, expected red, green or blue"},
        {"refuse = yes", "probe.refuse is yes, expected true or false"},
        {"token = 'a b'", "probe.token is a b, expected a name of letters, digits and dashes"},
        {"file = ''", "probe.file is empty, expected the name of a file"},
        {"set = {''}",
         "probe.set has empty, expected 1 to 4096 bytes without control characters"},
        /* a secret is nobody's to read in a log */
        {"secret = \"a\\x01\"",
         "probe.secret is unusable, expected 1 to 4096 bytes without control characters"},
        {"fail = ajar", "probe.fail is ajar, expected closed or open"},
        {"deadline = 0s",
         "probe.deadline is 0s, expected a time (250ms, 5s, 2m) from 1ms to 24h"},
        {"nmber = 1", "unknown option \"nmber\" in probe, did you mean \"number\"?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[256], said[256];
        snprintf(text, sizeof(text), "%sprobe {\n%s }\n", LISTENER, cases[i].option);
        snprintf(said, sizeof(said), "t:4: %s\n", cases[i].said);
        expect_plugged_faults(OF_TESTS, text, said);
    }
}

static void what_is_required_is_missed_only_where_it_counts(void **state)
{
    (void)state;
    expect_plugged_faults(
        OF_OURS, LISTENER "rate_limit { }\n",
        "t:3: rate_limit has no rate, expected a rate (100/s, 6000/m, 10/h, 5/d) "
        "from 1 to 10000000\n");
    conf = plugged(OF_OURS, LISTENER "rate_limit { enabled = false }\n");
    assert_false(conf->plugins.list[0].enabled);
    assert_null(conf->plugins.list[0].instance);
}

static void says_what_each_type_takes(void **state)
{
    static const char *const words[] = {"a", "b", "c", NULL};
    static const struct {
        struct postern_option option;
        const char *said;
    } cases[] = {
        {{.type = POSTERN_WORD, .words = words}, "a, b or c"},
        {{.type = POSTERN_NUMBER}, "a number"},
        {{.type = POSTERN_NUMBER, .min = 1, .max = 9}, "a number from 1 to 9"},
        {{.type = POSTERN_TIME, .max = 1000}, "a time (250ms, 5s, 2m) from 0s to 1s"},
        {{.type = POSTERN_SHARE, .max = 9}, "a share from 0% to 100%"},
        {{.type = POSTERN_BOOL}, "true or false"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char out[PLUGIN_EXPECTED];
        assert_string_equal(plugin_expected(&cases[i].option, out), cases[i].said);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, tear_down)
    const struct CMUnitTest tests[] = {
        T(defaults_are_the_plugins_own),
        T(values_are_what_stands_there),
        T(files_are_taken_from_the_file_that_names_them),
        T(what_is_wrong_is_said_with_what_was_expected),
        T(what_is_required_is_missed_only_where_it_counts),
        T(says_what_each_type_takes),
    };
    return cmocka_run_group_tests(tests, set_up_plugins, NULL);
}
