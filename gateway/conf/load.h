/* What the files of this room share while a configuration is being read. Not for others.
 *
 * One load goes through three steps, on the main thread:
 *   scan     the files, in one flat text for libconfuse without includes, comments and
 *            unknown options, and a table from its lines to the places they came from;
 *   parse    libconfuse makes a tree of it, each value with its line;
 *   compile  one function per kind of section turns the tree into struct conf.
 * Each step reports what is wrong and goes on, so that all faults come out in one go. */
#ifndef POSTERN_CONF_LOAD_H
#define POSTERN_CONF_LOAD_H

#include <confuse.h>

#include "conf/conf.h"
#include "conf/pattern.h"
#include "conf/plugin_text.h"

#define LOAD_PLUGINS PHASES_INSTANCES /* the most of one configuration */

/* Options of the places where plugins can stand, those that have been found behind ours. */
struct grammar {
    cfg_opt_t *top, *listener, *route;
    const struct plugin *plugins[LOAD_PLUGINS];
    size_t plugin_count;
    const struct plugin *named[LOAD_PLUGINS]; /* by plugins.load */
    size_t named_count;
    bool sought; /* a plugin was found: it is too late to say where they are */
};

struct load {
    struct conf *conf; /* under way; its arena holds all that lasts */
    struct conf_faults *faults;
    char *text; /* the flat text */
    size_t text_len, text_cap;
    struct conf_where *places; /* of each of its lines */
    size_t place_count, place_cap;
    struct conf_strs files; /* read, in order */
    struct grammar grammar;
    bool no_memory;
    bool broken; /* by syntax: what refers to what cannot be judged */
};

/* A value as libconfuse hands it over. */
struct value {
    int line; /* in the flat text */
    char text[];
};

/* grammar.c: the options of each section. The first of every section is hidden and carries
 * its title (GRAMMAR_TITLE) or only its place (GRAMMAR_PLACE). */
#define GRAMMAR_TITLE "@title"
#define GRAMMAR_PLACE "@place"
/* Stands last in a section where any name may get a value: each comes as two values of this
 * list, the name and its value. */
#define GRAMMAR_PAIRS   "@pairs"
#define GRAMMAR_OPTIONS 96 /* the most of one section */
void grammar_init(struct load *load);
void grammar_done(struct load *load);
/* Where plugins can stand. */
bool grammar_takes_plugins(const struct load *load, const cfg_opt_t *options);
/* The plugin's section is one from here on. False: too many, or no memory. */
bool grammar_add(struct load *load, const struct plugin *plugin);
/* A tree with the section `plugins` alone, of the flat text of one. NULL: no memory. */
cfg_t *grammar_plugins(const char *text);

/* lex.c: the words of one file. */
enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,   /* a word or a quoted text */
    TOKEN_APPEND, /* += */
    TOKEN_MARK,   /* one of { } ( ) = , */
    TOKEN_BAD,    /* reported already */
};

struct token {
    enum token_kind kind;
    char mark;      /* with TOKEN_MARK */
    char quote;     /* with TOKEN_TEXT: ' or ", 0 for a bare word */
    int line;       /* where it begins */
    struct str raw; /* as it stands in the file, without quotes */
};

struct lexer {
    struct load *load;
    const char *file;
    const char *p, *end;
    int line;
    bool peeked, cut; /* cut: the file ends inside a text or a comment */
    struct token token;
};

void lex_init(struct lexer *lexer, struct load *load, const char *file, struct str text);
const struct token *lex_peek(struct lexer *lexer);
struct token lex_take(struct lexer *lexer);
/* For messages: the token, shortened, in `out`. */
#define LEX_SHOW 48
const char *lex_show(const struct token *token, char out[LEX_SHOW]);

/* include.c: reading files. `text` is malloc'ed (mem_free). 0 or -errno. */
#define INCLUDE_BYTES_MAX (64u << 20)
int include_read(const char *path, size_t max, struct str *ret_text);
const char *include_why(int err); /* the -errno of include_read in words */
/* The path that `name`, written in `file`, means. In the load's arena; NULL: no memory. */
char *include_path(struct load *load, const char *file, struct str name);
/* The same from the root on, for those who read it later or elsewhere. */
char *include_absolute(struct load *load, const char *file, struct str name);
/* Calls on_file for each file that the pattern `name` (NUL-terminated), written in
 * where.file, stands for, in C-locale order. What is wrong with it is reported. */
void include_each(struct load *load, struct conf_where where, struct str name,
                  void (*on_file)(void *arg, const char *path), void *arg);

/* fault.c: by file, in the order of `files`, and line. */
void conf_faults_sort(struct conf_faults *faults, const struct conf_strs *files);

/* scan.c: from files to the flat text. */
void scan_main(struct load *load, const char *path, struct str text);

/* file.c */
struct conf_where load_where(const struct load *load, int line);
void load_fault(struct load *load, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Zeroed memory of the conf; NULL notes the want of memory in load->no_memory. */
void *load_alloc(struct load *load, size_t n, size_t size);
char *load_copy(struct load *load, struct str text);
char *load_file(struct load *load, const char *path); /* a copy, noted in load->files */

/* values.c: options by name from a section. The default stays when it is not given. */
const struct value *value_get(cfg_t *sec, const char *name); /* NULL: not given */
const struct value *value_at(cfg_t *sec, const char *name, size_t i);
size_t value_count(cfg_t *sec, const char *name);
cfg_t *value_section(cfg_t *sec, const char *name); /* the one of that name, or NULL */
const char *value_title(cfg_t *sec);
int value_line(cfg_t *sec); /* where the section begins */

void value_number(struct load *load, cfg_t *sec, const char *name, uint32_t min, uint32_t max,
                  uint32_t *ret);
void value_size(struct load *load, cfg_t *sec, const char *name, uint64_t min, uint64_t max,
                uint64_t *ret);
void value_size32(struct load *load, cfg_t *sec, const char *name, uint32_t min, uint32_t max,
                  uint32_t *ret);
void value_time(struct load *load, cfg_t *sec, const char *name, uint32_t min, uint32_t max,
                uint32_t *ret);
void value_share(struct load *load, cfg_t *sec, const char *name, uint32_t *ret);
void value_bool(struct load *load, cfg_t *sec, const char *name, bool *ret);
/* `words`: NULL-terminated; the index of the one given. */
void value_word(struct load *load, cfg_t *sec, const char *name, const char *const *words,
                unsigned *ret);
/* A text that is not empty and has no control bytes. */
void value_text(struct load *load, cfg_t *sec, const char *name, char **ret);
/* For what is tried out later: its faults name the line too. */
void value_text_at(struct load *load, cfg_t *sec, const char *name, char **ret,
                   struct conf_where *ret_at);
bool value_is_plain(struct str text); /* no control bytes */

/* The texts themselves. 0, -EINVAL or -ERANGE. */
int value_parse_size(struct str text, uint64_t *ret);
int value_parse_time(struct str text, uint32_t *ret);
int value_parse_share(struct str text, uint32_t most, uint32_t *ret_permille); /* most: % */
#define VALUE_TEXT 32
const char *value_put_size(char out[VALUE_TEXT], uint64_t bytes);
const char *value_put_time(char out[VALUE_TEXT], uint32_t ms);
/* The candidate nearest to `text`, or NULL when none is near. */
const char *value_nearest(const char *text, const char *const *candidates, size_t n);

#define DAY_MS         (24u * 60 * 60 * 1000)
#define BODY_BYTES_MAX (1ull << 50)

/* check.c: what refers to what, once all sections are compiled. */
void check_all(struct load *load);

/* One kind of section each. */
void globals_compile(struct load *load, cfg_t *top);
/* A numeric address with a port, or unix:PATH; else a fault and false. */
bool address_compile(struct load *load, const char *what, const struct value *value,
                     struct addr *ret);
void listener_compile(struct load *load, cfg_t *sec, struct conf_listener *ret);
/* paths.c. What a listener lets pass: `allow` without what the section says otherwise. */
unsigned paths_compile(struct load *load, cfg_t *sec, unsigned allow);
void paths_put(unsigned allow, FILE *out); /* as a section, indented by two */
void upstream_compile(struct load *load, cfg_t *sec, struct conf_upstream *ret);
/* watch_conf.c: panic, slow_start, health and outlier of an upstream's section. */
void watch_compile(struct load *load, cfg_t *sec, struct conf_upstream *upstream);
#define OUTLIER_WORDS 9
extern const char *const outlier_words[OUTLIER_WORDS]; /* by enum outlier_on bit */
/* tls_conf.c: the tls sections; NULL only without memory. Dumped as a section, indented by
 * two. */
struct conf_front *tls_front_compile(struct load *load, cfg_t *sec);
struct conf_back *tls_back_compile(struct load *load, cfg_t *sec,
                                   const struct conf_upstream *upstream);
void tls_front_put(const struct conf_front *tls, FILE *out);
void tls_back_put(const struct conf_back *tls, FILE *out);
/* dump.c */
void dump_option(FILE *out, const char *name, const char *text); /* nothing when it is NULL */
void dump_title(FILE *out, const char *indent, const char *kind, const char *title);
/* client_ip, header:NAME, cookie:NAME, or path where `path` says so. */
void hash_on_compile(struct load *load, cfg_t *sec, const char *name, bool path,
                     enum conf_hash_on *ret_on, char **ret_name);
void route_compile(struct load *load, cfg_t *sec, struct conf_route *ret);
/* plugin_conf.c. A section `plugins` has ended, in the flat text from `text` on, whose first
 * line is that of places[place]. */
void plugins_settings(struct load *load, const char *text, size_t place);
/* A name that is no option: whether it is a plugin's, whose section is one from here on.
 * Reports a plugin that cannot be used; then *ret_bad is true. */
bool plugins_find(struct load *load, struct conf_where where, struct str name, bool *ret_bad);
/* Where a plugin of that name was looked for, "": no plugin can have it. */
void plugins_sought(const struct load *load, struct str name, char ret_path[PATH_MAX]);
const char *plugins_nearest(struct load *load, const char *name, char room[64]);
/* The sections of plugins in `sec`. */
void plugins_compile(struct load *load, cfg_t *sec, struct conf_plugins *ret);
/* All sections are compiled: makes instances and what counts where. */
void plugins_configure(struct load *load, cfg_t *tree);
void plugins_free(struct conf *conf);
/* plugin_value.c. What a section says for the plugin's options, checked. False: there were
 * faults. */
bool plugin_values(struct load *load, cfg_t *sec, struct conf_plugin *ret);
/* dump.c: between double quotes, such that libconfuse's lexer gives the same bytes back. */
void dump_quoted(FILE *out, struct str text);
/* What stands for a secret: as long as the longest that an option asks for, so that what -T
 * says can be loaded. */
#define DUMP_MASK "********************************"
void plugins_dump(const struct conf_plugins *plugins, const char *indent, FILE *out);
/* shares.c: split. */
void shares_compile(struct load *load, cfg_t *sec, struct conf_route *route);
/* condition.c: match_header and match_query. */
void conditions_compile(struct load *load, cfg_t *sec, struct conf_route *route);
void conditions_done(struct conf_route *route);
/* respond, redirect, request_headers, response_headers; the route's path is compiled. */
void answer_compile(struct load *load, cfg_t *sec, struct conf_route *route);
void edit_compile(struct load *load, cfg_t *sec, struct conf_route *route);

/* template.c: where a text stands. */
struct template_place {
    const char *what; /* begins messages */
    unsigned allow;   /* set of 1u << enum template_var */
    enum escape escape;
};
#define TEMPLATE_ALL (~0u)
void template_compile(struct load *load, int line, const struct template_place *place,
                      struct str text, const struct conf_route *route, struct template *ret);
/* The same text with nothing filled in. */
void template_plain(struct load *load, struct str text, struct template *ret);
/* As one writes it. */
void template_put(const struct template *template, const struct conf_route *route, FILE *out);

/* pattern.c. Checks route->path and fills its captures. */
void pattern_compile(struct load *load, int line, struct conf_route *route);

#endif
