#include "conf_plugins_test.h"

/* malloc'ed. */
static char *dumped(const struct conf *conf)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    conf_dump(conf, out);
    fclose(out);
    return text;
}

static void what_nobody_wrote_is_filled_in(void **state)
{
    static const char *const lines[] = {
        "probe {\n  enabled = true\n  fail = open\n  deadline = 1s\n",
        "  set = {\"A: \\\"1\\\"\", \"B: 2\"}\n",
        "  add = {}\n",
        "  number = 7\n",
        "  rate = \"5/s\"\n",
        "  size = 16k\n",
        "  time = 250ms\n",
        "  share = 20%\n",
        "  word = blue\n",
        "  secret = \"********************************\"\n",
    };
    (void)state;
    struct conf *conf =
        plugged(OF_TESTS, LISTENER "probe { set = {\"A: \\\"1\\\"\", \"B: 2\"} word = blue "
                                   "fail = open secret = hush }\n");
    char *text = dumped(conf);
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        if (!strstr(text, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], text);
    assert_null(strstr(text, "hush"));
    assert_null(strstr(text, "  token = ")); /* it has none, and no default */
    free(text);
    conf_free(conf);
}

static void it_is_a_configuration_that_says_the_same(void **state)
{
    (void)state;
    struct conf *conf = plugged(
        OF_TESTS,
        "probe { file = keys.json }\n"
        "listener \"l\" { listen = \"127.0.0.1:1\" probe { enabled = false } }\n"
        "route \"r\" { respond { } probe { see = {\"field 1\"} time = 1m rate = \"9/m\" } }\n");
    char *text = dumped(conf);
    struct conf *again = conf_of(text);
    char *second = dumped(again);
    assert_string_equal(second, text);
    assert_false(again->listeners[0].plugins.list[0].enabled);
    free(text);
    free(second);
    conf_free(again);
    conf_free(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_wrote_is_filled_in),
        cmocka_unit_test(it_is_a_configuration_that_says_the_same),
    };
    return cmocka_run_group_tests(tests, set_up_plugins, NULL);
}
