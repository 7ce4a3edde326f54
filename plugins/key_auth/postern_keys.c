/* postern-keys: adds, lists and revokes the keys of a keys file. A new key is printed once,
 * when it is made; the file holds its hash. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "key_edit.h"
#include "key_store.h"
#include "key_table.h"

struct request {
    const char *command, *file, *argument;
    const char *id, *expires, *comment;
    json_t *scopes, *metadata;
    bool from_stdin, by_consumer;
};

struct work {
    const struct request *request;
    struct key_store store;
    json_t *root;
    bool is_open; /* keys in plain text that everyone can read */
};

static const char usage[] =
    "usage: postern-keys add FILE CONSUMER [--scope SCOPE]... [--expires TIME] [--id ID]\n"
    "                        [--meta NAME=VALUE]... [--comment TEXT] [--stdin]\n"
    "           makes a key, prints it once, and writes its hash into FILE; with --stdin it\n"
    "           takes a key that is there already from the first line of standard input\n"
    "       postern-keys list FILE\n"
    "       postern-keys revoke|disable|enable FILE ID\n"
    "       postern-keys revoke|disable|enable FILE --consumer CONSUMER\n"
    "       postern-keys hash FILE\n"
    "           replaces keys in plain text by their hashes\n"
    "TIME is 2027-01-31 or 2027-01-31T12:00:00Z. postern follows the file: a change takes\n"
    "effect at once.\n";

static int complain(const char *file, const char *what)
{
    fprintf(stderr, "postern-keys: %s: %s\n", file, what);
    return EXIT_FAILURE;
}

static void say(void *arg, unsigned line, const char *text)
{
    const struct request *request = arg;
    if (line)
        fprintf(stderr, "%s:%u: %s\n", request->file, line, text);
    else
        fprintf(stderr, "%s: %s\n", request->file, text);
}

/* Whether postern would take this text, with what is wrong said. */
static struct key_table *check(const struct request *request, const char *text, size_t n)
{
    struct key_report report = {.say = say, .arg = (void *)request};
    struct key_file *file = key_file_parse(text, n, &report);
    return file ? key_table_new(file, &report) : NULL;
}

/* ---- reading ---- */

static int load_text(struct work *work)
{
    const struct request *request = work->request;
    char *text;
    size_t n;
    struct stat st;
    int err = key_file_read(work->store.path, &text, &n, &st);
    if (err)
        return complain(request->file, strerror(-err));
    struct key_table *table = check(request, text, n);
    if (table) {
        work->is_open = key_table_file(table)->plain_count && (st.st_mode & S_IROTH);
        work->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    }
    key_table_free(table);
    OPENSSL_cleanse(text, n);
    free(text);
    return work->root ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int load(struct work *work)
{
    const struct request *request = work->request;
    bool is_new = strcmp(request->command, "add") == 0;
    int err = key_store_open(&work->store, request->file);
    if (err)
        return complain(request->file, strerror(-err));
    if (work->store.fd < 0) {
        work->root = is_new ? key_edit_new() : NULL;
        return work->root
                   ? EXIT_SUCCESS
                   : complain(request->file, is_new ? "out of memory" : strerror(ENOENT));
    }
    if (work->store.st.st_mode & S_IWOTH)
        return complain(request->file,
                        "every user of this machine may write it; chmod o-w first");
    int status = load_text(work);
    if (status == EXIT_SUCCESS && work->is_open)
        fprintf(stderr,
                "postern-keys: %s: every user of this machine can read keys in it that stand "
                "in plain text; chmod o-r, and think of replacing them\n",
                request->file);
    return status;
}

static int save(struct work *work)
{
    const struct request *request = work->request;
    char *text = json_dumps(work->root, JSON_INDENT(2)), *whole = NULL;
    if (!text || asprintf(&whole, "%s\n", text) < 0) {
        free(text);
        return complain(request->file, "out of memory");
    }
    free(text);
    /* What postern would refuse is not written. */
    struct key_table *table = check(request, whole, strlen(whole));
    int err = table ? key_store_replace(&work->store, whole, strlen(whole)) : 0;
    int status = table ? EXIT_SUCCESS : EXIT_FAILURE;
    if (err)
        status = complain(request->file, strerror(-err));
    key_table_free(table);
    OPENSSL_cleanse(whole, strlen(whole));
    free(whole);
    return status;
}

/* ---- commands ---- */

/* The key to add: made, or from standard input. */
static bool get_key(const struct request *request, char *key, size_t size)
{
    char fresh[KEY_NEW_BYTES];
    if (!request->from_stdin) {
        bool done = key_edit_random("postern_", fresh);
        snprintf(key, size, "%s", done ? fresh : "");
        OPENSSL_cleanse(fresh, sizeof(fresh));
        return done;
    }
    if (!fgets(key, (int)size, stdin))
        return false;
    key[strcspn(key, "\r\n")] = '\0';
    for (const char *p = key; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f)
            return false;
    return *key && strlen(key) <= KEY_BYTES;
}

static bool is_taken(json_t *entries, const char *id)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(entries, i, entry)
    {
        char name[300];
        key_edit_name(entry, i, name, sizeof(name));
        if (strcmp(name, id) == 0)
            return true;
    }
    return false;
}

/* A short name that is not taken, of letters and digits: a shell reads it as it stands. */
static bool new_id(json_t *entries, char id[9])
{
    char text[KEY_NEW_BYTES];
    do {
        size_t n = 0;
        if (!key_edit_random("", text))
            return false;
        for (const char *p = text; *p && n < 8; p++)
            if (isalnum((unsigned char)*p))
                id[n++] = *p;
        id[n] = '\0';
    } while (strlen(id) < 8 || is_taken(entries, id));
    return true;
}

static json_t *new_entry(const struct work *work, const char *key)
{
    const struct request *request = work->request;
    char created[32], id[9];
    time_t now = time(NULL);
    struct tm tm;
    if (!gmtime_r(&now, &tm) || !strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &tm))
        return NULL;
    if (!new_id(key_edit_entries(work->root), id))
        return NULL;
    json_t *entry = json_pack(
        "{s:s, s:s, s:s*, s:s, s:s*, s:O*, s:O*}", "id", request->id ? request->id : id,
        "consumer", request->argument, "comment", request->comment, "created", created,
        "expires", request->expires, "scopes", request->scopes, "metadata", request->metadata);
    if (entry && key_edit_set_hash(work->root, entry, key) == 0)
        return entry;
    json_decref(entry);
    return NULL;
}

static int run_add(struct work *work)
{
    const struct request *request = work->request;
    char key[KEY_BYTES + 2];
    json_t *entries = key_edit_entries(work->root);
    if (request->id && is_taken(entries, request->id))
        return complain(request->file, "there is a key with that id already");
    if (!get_key(request, key, sizeof(key)))
        return complain(request->file, request->from_stdin
                                           ? "expected a key of 1 to 1024 visible ASCII "
                                             "characters on standard input"
                                           : "the system gives no random numbers");
    json_t *entry = new_entry(work, key);
    int status = EXIT_FAILURE;
    if (!entry || json_array_append_new(entries, entry))
        complain(request->file, "out of memory");
    else
        status = save(work);
    if (status == EXIT_SUCCESS && !request->from_stdin &&
        (puts(key) == EOF || fflush(stdout) == EOF))
        status = complain("standard output", "the key could not be printed; revoke it");
    if (status == EXIT_SUCCESS)
        fprintf(stderr, "added key %s for %s%s\n",
                json_string_value(json_object_get(entry, "id")), request->argument,
                request->from_stdin ? "" : "; the key is shown only this once");
    OPENSSL_cleanse(key, sizeof(key));
    return status;
}

static const char *state_of(const struct key_entry *entry)
{
    if (!entry->enabled)
        return "disabled";
    return entry->expires_ms <= (int64_t)time(NULL) * 1000 ? "expired" : "active";
}

static void list_entry(const struct key_entry *entry, size_t i)
{
    char id[32], expires[32] = "never";
    struct tm tm;
    time_t at = (time_t)(entry->expires_ms / 1000);
    snprintf(id, sizeof(id), "#%zu", i + 1);
    if (entry->expires_ms != KEY_NEVER && gmtime_r(&at, &tm))
        strftime(expires, sizeof(expires), "%Y-%m-%dT%H:%M:%SZ", &tm);
    printf("%-12s %-24s %-8s %-20s %-6s %s\n", entry->id ? entry->id : id, entry->consumer,
           state_of(entry), expires, entry->key ? "plain" : "hashed",
           entry->scope ? entry->scope : "-");
}

/* Parsed once more, for the table that was made of it has no plain keys any longer. */
static int run_list(struct work *work)
{
    struct key_report report = {.say = say, .arg = (void *)work->request};
    char *text = json_dumps(work->root, 0);
    struct key_file *file = text ? key_file_parse(text, strlen(text), &report) : NULL;
    if (text)
        OPENSSL_cleanse(text, strlen(text));
    free(text);
    if (!file)
        return complain(work->request->file, "out of memory");
    printf("%-12s %-24s %-8s %-20s %-6s %s\n", "ID", "CONSUMER", "STATE", "EXPIRES", "FORM",
           "SCOPES");
    for (size_t i = 0; i < file->count; i++)
        list_entry(&file->entries[i], i);
    key_file_free(file);
    return fflush(stdout) == EOF ? complain("standard output", strerror(errno)) : EXIT_SUCCESS;
}

static int change(struct work *work, void (*act)(json_t *entries, size_t i), const char *done)
{
    const struct request *request = work->request;
    size_t count = key_edit_each(key_edit_entries(work->root), request->argument,
                                 request->by_consumer, act);
    if (!count)
        return complain(request->file, request->by_consumer
                                           ? "no key of that consumer; list shows them"
                                           : "no key with that id; list shows them");
    int status = save(work);
    if (status == EXIT_SUCCESS)
        fprintf(stderr, "%s %zu %s\n", done, count, count == 1 ? "key" : "keys");
    return status;
}

static int run_revoke(struct work *work)
{
    return change(work, key_edit_revoke, "revoked");
}

static int run_disable(struct work *work)
{
    return change(work, key_edit_disable, "disabled");
}

static int run_enable(struct work *work)
{
    return change(work, key_edit_enable, "enabled");
}

static int run_hash(struct work *work)
{
    int count = key_edit_hash_all(work->root);
    if (count < 0)
        return complain(work->request->file, strerror(-count));
    int status = count ? save(work) : EXIT_SUCCESS;
    if (status == EXIT_SUCCESS)
        fprintf(stderr, "hashed %d %s\n", count, count == 1 ? "key" : "keys");
    return status;
}

static const struct {
    const char *name;
    int (*run)(struct work *work);
    bool has_argument;
} commands[] = {
    {"add", run_add, true},         {"list", run_list, false},    {"revoke", run_revoke, true},
    {"disable", run_disable, true}, {"enable", run_enable, true}, {"hash", run_hash, false},
};

/* ---- the command line ---- */

static bool take_meta(struct request *request, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return false;
    char *name = strndup(text, (size_t)(equals - text));
    if (!request->metadata)
        request->metadata = json_object();
    bool done =
        name && json_object_set_new(request->metadata, name, json_string(equals + 1)) == 0;
    free(name);
    return done;
}

static bool take_scope(struct request *request, const char *text)
{
    if (!request->scopes)
        request->scopes = json_array();
    return json_array_append_new(request->scopes, json_string(text)) == 0;
}

static bool take_option(struct request *request, int option)
{
    switch (option) {
    case 's':
        return take_scope(request, optarg);
    case 'm':
        return take_meta(request, optarg);
    case 'e':
        request->expires = optarg;
        return true;
    case 'i':
        request->id = optarg;
        return true;
    case 't':
        request->comment = optarg;
        return true;
    case 'c':
        request->by_consumer = true;
        request->argument = optarg;
        return true;
    case 'k':
        request->from_stdin = true;
        return true;
    default:
        return false;
    }
}

static bool parse(struct request *request, int argc, char **argv)
{
    static const struct option longs[] = {
        {"scope", required_argument, NULL, 's'},    {"meta", required_argument, NULL, 'm'},
        {"expires", required_argument, NULL, 'e'},  {"id", required_argument, NULL, 'i'},
        {"comment", required_argument, NULL, 't'},  {"stdin", no_argument, NULL, 'k'},
        {"consumer", required_argument, NULL, 'c'}, {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        if (!take_option(request, option))
            return false;
    bool is_add = argc > optind && strcmp(argv[optind], "add") == 0;
    bool adds = request->scopes || request->metadata || request->expires || request->id ||
                request->comment || request->from_stdin;
    if (argc - optind < 2 || argc - optind > 3 || (adds && !is_add) ||
        (request->by_consumer && (is_add || argc - optind == 3)))
        return false;
    request->command = argv[optind];
    request->file = argv[optind + 1];
    if (argc - optind == 3)
        request->argument = argv[optind + 2];
    return true;
}

static int run(const struct request *request)
{
    struct work work = {.request = request, .store.fd = -1};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].name, request->command) != 0)
            continue;
        if (commands[i].has_argument != (request->argument != NULL))
            break;
        int status = load(&work);
        if (status == EXIT_SUCCESS)
            status = commands[i].run(&work);
        json_decref(work.root);
        key_store_close(&work.store);
        return status;
    }
    fputs(usage, stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct request request = {0};
    int status = 2;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (parse(&request, argc, argv))
        status = run(&request);
    else
        fputs(usage, stderr);
    json_decref(request.scopes);
    json_decref(request.metadata);
    return status;
}
