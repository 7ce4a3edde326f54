/* The command line. See `postern -h`. */
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include <ares.h>
#include <event2/event.h>
#include <jansson.h>
#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>

#include "app/explain.h"
#include "app/gateway.h"
#include "app/help_plugin.h"
#include "proxy/plugins.h"

#define DEFAULT_FILE "/etc/postern/gateway.conf"

enum action { ACT_RUN, ACT_TEST, ACT_DUMP, ACT_EXPLAIN, ACT_PLUGIN };

struct options {
    const char *file, *request;
    enum action action;
    bool quiet;
    const char *said; /* the flag that chose `action`; NULL: none has */
};

static const char usage[] =
    "usage: postern [-c FILE] [-t | -T] [-q] [-v | -V] [-h] [--explain \"METHOD URL\"]\n"
    "               [--help-plugin NAME]\n"
    "\n"
    "  -c FILE    configuration file; default " DEFAULT_FILE "\n"
    "  -t         check the configuration completely, print every fault, exit 0 or 1\n"
    "  -T         as -t, then print the effective configuration, defaults filled in\n"
    "  -q         with -t or -T: print only faults and warnings\n"
    "  -v, -V     version; version with those of compiler and libraries\n"
    "  -h         this text\n"
    "  --explain \"GET http://host/path\"\n"
    "             which listener, route, plugins and upstream that request would get, and why\n"
    "  --help-plugin NAME\n"
    "             what a plugin is for and its options; NAME may be the path of one\n"
    "\n"
    "signals: HUP loads the configuration anew, USR1 reopens log files, TERM, QUIT and INT\n"
    "drain and stop (a second one stops at once).\n"
    "exit status: 0 clean stop, 1 configuration or start-up fault, 2 usage\n";

static void print_version(bool all)
{
    printf("postern %s\n", POSTERN_VERSION);
    if (!all)
        return;
#ifdef __clang__
    printf("compiler clang %s\n", __clang_version__);
#else
    printf("compiler gcc %s\n", __VERSION__);
#endif
    printf(
        "libevent %s\nc-ares %s\nOpenSSL %s\nlibconfuse %s\njansson %s\nnghttp2 %s\npcre2 %s\n",
        event_get_version(), ares_version(NULL), OpenSSL_version(OPENSSL_VERSION_STRING),
        POSTERN_CONFUSE, jansson_version_str(), nghttp2_version(0)->version_str, POSTERN_PCRE2);
    printf("plugin ABI %d.%d\n", POSTERN_ABI_MAJOR, POSTERN_ABI_MINOR);
}

static void print_faults(const struct conf_faults *faults, const char *kind)
{
    for (size_t i = 0; i < faults->count; i++)
        fprintf(stderr, "%s:%d: %s%s\n", faults->list[i].where.file, faults->list[i].where.line,
                kind, faults->list[i].message);
}

/* The file, complete with routes and names resolved, as a start would see it. */
static struct snapshot *load(const char *file)
{
    struct conf_faults faults = {0}, warnings = {0};
    struct conf *conf = conf_load(file, &faults);
    if (conf)
        print_faults(&conf->warnings, "warning: ");
    struct resolver *names = conf ? snapshot_names(conf, NULL) : NULL;
    struct snapshot *snapshot =
        conf ? snapshot_new(conf, NULL, names, &faults, &warnings) : NULL;
    resolver_free(names);
    if (snapshot)
        snapshot_check_dates(snapshot, NULL, &faults, &warnings);
    if (faults.count) {
        snapshot_unref(snapshot);
        snapshot = NULL;
    }
    print_faults(&faults, "");
    print_faults(&warnings, "warning: ");
    conf_faults_done(&faults);
    conf_faults_done(&warnings);
    return snapshot;
}

static int check(const struct options *options)
{
    struct snapshot *snapshot = load(options->file);
    int status = 0;
    if (!snapshot) {
        if (!options->quiet)
            fprintf(stderr, "postern: %s has faults\n", options->file);
        return 1;
    }
    if (options->action == ACT_DUMP)
        conf_dump(snapshot->conf, stdout);
    else if (options->action == ACT_EXPLAIN)
        status = explain(snapshot->conf, options->request);
    else if (!options->quiet)
        fprintf(stderr, "postern: %s is good\n", options->file);
    snapshot_unref(snapshot);
    return status;
}

static int run(const char *file)
{
    struct conf_faults faults = {0};
    gateway_hold_signals(false);
    struct conf *conf = conf_load(file, &faults);
    print_faults(&faults, "");
    conf_faults_done(&faults);
    if (conf)
        print_faults(&conf->warnings, "warning: ");
    return conf ? gateway_run(file, conf) : 1;
}

/* One thing at a time; but -T is -t and more. False: two were asked for. */
static bool choose(struct options *options, int c)
{
    static const struct {
        int c;
        enum action action;
        const char *flag;
    } flags[] = {{'t', ACT_TEST, "-t"},
                 {'T', ACT_DUMP, "-T"},
                 {'e', ACT_EXPLAIN, "--explain"},
                 {'p', ACT_PLUGIN, "--help-plugin"}};
    size_t i = 0;
    while (flags[i].c != c)
        i++;
    enum action now = options->action, wanted = flags[i].action;
    bool checks =
        (now == ACT_TEST || now == ACT_DUMP) && (wanted == ACT_TEST || wanted == ACT_DUMP);
    if (options->said && !checks) {
        fprintf(stderr, "postern: %s does not go with %s\n%s", flags[i].flag, options->said,
                usage);
        return false;
    }
    options->said = flags[i].flag;
    options->action = checks && now == ACT_DUMP ? now : wanted;
    options->request = optarg;
    return true;
}

/* Fills `options`; returns -1 to go on, or an exit status. */
static int parse(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {{"explain", required_argument, NULL, 'e'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"help-plugin", required_argument, NULL, 'p'},
                                          {"version", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "c:tTqvVh", longs, NULL)) != -1) {
        switch (c) {
        case 'c':
            options->file = optarg;
            break;
        case 't':
        case 'T':
        case 'e':
        case 'p':
            if (!choose(options, c))
                return 2;
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'v':
        case 'V':
            print_version(c == 'V');
            return 0;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "postern: unexpected argument \"%s\"\n%s", argv[optind], usage);
        return 2;
    }
    if (options->quiet && options->action != ACT_TEST && options->action != ACT_DUMP) {
        fprintf(stderr,
                "postern: -q goes with -t and -T; how much a running gateway tells is said in "
                "its configuration (error_log, access_log)\n%s",
                usage);
        return 2;
    }
    return -1;
}

int main(int argc, char **argv)
{
    /* Workers take memory from malloc only when a configuration changes: a heap for each
     * thread would only scatter it. */
    mallopt(M_ARENA_MAX, 1);
    struct options options = {.file = DEFAULT_FILE};
    int status = parse(argc, argv, &options);
    if (status >= 0)
        return status;
    plugins_init();
    host_set_check(options.action != ACT_RUN);
    if (options.action == ACT_PLUGIN)
        return help_plugin(options.request);
    return options.action == ACT_RUN ? run(options.file) : check(&options);
}
