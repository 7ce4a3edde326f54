#include "conf_test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/postern-include-XXXXXX";

static void put_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void run(const char *format)
{
    char command[512];
    snprintf(command, sizeof(command), format, dir);
    assert_int_equal(system(command), 0);
}

static int make_dir(void **unused)
{
    (void)unused;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **unused)
{
    (void)unused;
    run("rm -rf %s");
    return 0;
}

static struct conf *load_main(const char *name, struct conf_faults *faults)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return conf_load(path, faults);
}

/* Loads with NULL, else has faults, `part` among them. */
static void expect_said(const char *text, const char *part)
{
    struct conf_faults faults = {0};
    put_file("main.conf", text);
    conf_free(load_main("main.conf", &faults));
    char *said = faults_text(&faults);
    conf_faults_done(&faults);
    if (part ? !strstr(said, part) : said[0])
        fail_msg("%s: expected %s, got %s", text, part ? part : "nothing", said);
    free(said);
}

static void takes_files_in_the_order_of_their_bytes(void **state)
{
    (void)state;
    run("mkdir -p %s/conf.d");
    put_file("conf.d/b.conf", "route \"b\" { path = /b respond {} }");
    put_file("conf.d/a.conf", "\nroute \"a\" { path = /a respond {} }");
    put_file("conf.d/Z.conf", "route \"Z\" { path = /Z respond {} }");
    put_file("conf.d/a.txt", "no configuration");
    put_file("main.conf", LISTENER "include(\"conf.d/*.conf\") route \"l\" { respond {} }");
    struct conf_faults faults = {0};
    struct conf *conf = load_main("main.conf", &faults);
    assert_non_null(conf);
    assert_int_equal(conf->route_count, 4);
    assert_string_equal(conf->routes[0].name, "Z");
    assert_string_equal(conf->routes[1].name, "a");
    assert_string_equal(conf->routes[2].name, "b");
    assert_string_equal(conf->routes[3].name, "l");
    assert_non_null(strstr(conf->routes[1].where.file, "conf.d/a.conf"));
    assert_int_equal(conf->routes[1].where.line, 2);
    conf_free(conf);
}

static void a_pattern_may_find_nothing_but_a_file_must_be_there(void **state)
{
    (void)state;
    expect_said(LISTENER "include(\"none*.conf\")", NULL);
    expect_said(LISTENER "include(\"none.conf\")", "main.conf:2: cannot read ");
    expect_said(LISTENER "include(\"none.conf\")", "No such file or directory");
    expect_said(LISTENER "include(\"nodir/*.conf\")", "cannot look for ");
    expect_said(LISTENER "include(\".\")", "it is a directory");
}

static void an_include_closes_what_it_opens(void **state)
{
    (void)state;
    put_file("timeouts.inc", "timeouts { header = 1s }");
    put_file("open.inc", "\ntimeouts { header = 1s");
    put_file("close.inc", "}");
    expect_said("listener \"l\" { listen = \"127.0.0.1:1\" include(timeouts.inc) }", NULL);
    expect_said("listener \"l\" { listen = \"127.0.0.1:1\" include(open.inc) }",
                "open.inc:2: this timeouts is never closed");
    expect_said("listener \"l\" { listen = \"127.0.0.1:1\" include(close.inc) }",
                "close.inc:1: unexpected \"}\"");
}

static void a_cycle_is_a_fault(void **state)
{
    (void)state;
    put_file("x.inc", "include(y.inc)");
    put_file("y.inc", "\n\ninclude(x.inc)");
    expect_said(LISTENER "include(x.inc)", "y.inc:3: cannot include ");
    expect_said(LISTENER "include(main.conf)", "main.conf:2: cannot include ");
    expect_said(LISTENER "include(\"./main.conf\")", "it includes itself");
}

static void depth_is_limited(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        char name[32], text[64];
        snprintf(name, sizeof(name), "d%d.inc", i);
        snprintf(text, sizeof(text), "include(d%d.inc)", i + 1);
        put_file(name, i < 19 ? text : "");
    }
    expect_said(LISTENER "include(d5.inc)", NULL);
    expect_said(LISTENER "include(d0.inc)", "d14.inc:1: cannot include ");
}

static void faults_of_several_files_come_in_their_order(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    put_file("1.inc", "\nworkers = 0");
    put_file("2.inc", "bananas = 1");
    put_file("main.conf", LISTENER "include(1.inc)\ninclude(2.inc)\nuser = \"\"\n");
    assert_null(load_main("main.conf", &faults));
    assert_int_equal(faults.count, 3);
    assert_int_equal(faults.list[0].where.line, 4);
    assert_non_null(strstr(faults.list[0].where.file, "main.conf"));
    assert_int_equal(faults.list[1].where.line, 2);
    assert_non_null(strstr(faults.list[1].where.file, "1.inc"));
    assert_non_null(strstr(faults.list[2].where.file, "2.inc"));
    conf_faults_done(&faults);
}

static void the_directory_has_no_wildcards(void **state)
{
    (void)state;
    struct conf_faults faults = {0};
    run("mkdir -p '%s/[a]*'");
    put_file("[a]*/one.inc", "workers = 7");
    put_file("[a]*/main.conf", LISTENER "include(\"*.inc\")");
    struct conf *conf = load_main("[a]*/main.conf", &faults);
    assert_non_null(conf);
    assert_int_equal(conf->workers, 7);
    conf_free(conf);
}

static void reads_only_plain_files_up_to_a_size(void **state)
{
    (void)state;
    struct str text;
    char path[256];
    put_file("ten", "0123456789");
    snprintf(path, sizeof(path), "%s/ten", dir);
    assert_int_equal(include_read(path, 10, &text), 0);
    assert_true(str_eq(text, STR("0123456789")));
    mem_free((char *)text.p);
    assert_int_equal(include_read(path, 9, &text), -EFBIG);
    assert_int_equal(include_read(dir, 9, &text), -EISDIR);
    assert_int_equal(include_read("/dev/zero", 9, &text), -EINVAL);
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(include_read(path, 9, &text), -EINVAL); /* and waits for no writer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_files_in_the_order_of_their_bytes),
        cmocka_unit_test(a_pattern_may_find_nothing_but_a_file_must_be_there),
        cmocka_unit_test(an_include_closes_what_it_opens),
        cmocka_unit_test(a_cycle_is_a_fault),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(faults_of_several_files_come_in_their_order),
        cmocka_unit_test(the_directory_has_no_wildcards),
        cmocka_unit_test(reads_only_plain_files_up_to_a_size),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
