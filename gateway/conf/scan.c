/* From gateway.conf and what it includes to one flat text for libconfuse.
 *
 * libconfuse by itself stops at the first unknown option without saying which lines are
 * wrong behind it, keeps no place with an option, takes one of two sections with the same
 * title away in silence, and includes no patterns. So each statement is read here first:
 * known ones are written out, one a line, with the place of that line beside it; the others
 * are reported and left out, and reading goes on behind them. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "conf/load.h"

#define DEPTH_MAX 16   /* includes in includes */
#define FILES_MAX 4096 /* read in all */

/* An open section. */
struct frame {
    struct frame *up;
    const char *name;
    cfg_opt_t *options;
    int line;                                /* of its opening brace */
    size_t text, place;                      /* where it begins in the flat text */
    struct conf_where seen[GRAMMAR_OPTIONS]; /* where each option was set first */
};

/* A file under way. */
struct source {
    struct source *up;
    dev_t dev;
    ino_t ino;
    unsigned depth;
};

struct scan {
    struct load *load;
    struct source *source;
    struct frame *frame;
    struct lexer *lexer;
    unsigned files;
    size_t bytes;
};

static void scan_file(struct scan *scan, struct conf_where where, const char *path);

static void fault_at(struct scan *scan, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void fault_at(struct scan *scan, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    conf_fault(scan->load->faults, (struct conf_where){scan->lexer->file, line}, "%s", text);
}

/* Writing the flat text */

static void put(struct scan *scan, const char *p, size_t n)
{
    struct load *load = scan->load;
    if (n > load->text_cap - load->text_len) {
        size_t cap = (load->text_len + n) * 2;
        char *text = load->no_memory ? NULL : mem_realloc(load->text, cap);
        if (!text) {
            load->no_memory = true;
            return;
        }
        load->text = text;
        load->text_cap = cap;
    }
    memcpy(load->text + load->text_len, p, n);
    load->text_len += n;
}

static void putz(struct scan *scan, const char *text)
{
    put(scan, text, strlen(text));
}

/* A new line, which stands for `line` of the file under way. */
static void put_line(struct scan *scan, int line)
{
    struct load *load = scan->load;
    if (load->place_count == load->place_cap) {
        size_t cap = load->place_cap ? load->place_cap * 2 : 256;
        struct conf_where *places =
            load->no_memory ? NULL : mem_realloc(load->places, cap * sizeof(*places));
        if (!places) {
            load->no_memory = true;
            return;
        }
        load->places = places;
        load->place_cap = cap;
    }
    if (load->place_count)
        putz(scan, "\n");
    load->places[load->place_count++] = (struct conf_where){scan->lexer->file, line};
}

/* Where a text holds ${NAME} or ${NAME:-default}, its length, else 0. */
static size_t variable_length(struct str raw)
{
    size_t n = 2;
    if (raw.n < 4 || raw.p[1] != '{')
        return 0;
    while (n < raw.n &&
           (raw.p[n] == '_' || (ascii_lower(raw.p[n]) >= 'a' && ascii_lower(raw.p[n]) <= 'z') ||
            (n > 2 && raw.p[n] >= '0' && raw.p[n] <= '9')))
        n++;
    if (n == 2)
        return 0;
    if (n + 1 < raw.n && raw.p[n] == ':' && raw.p[n + 1] == '-')
        while (n < raw.n && raw.p[n] != '}' && raw.p[n] != '"' && raw.p[n] != '\n')
            n++;
    return n < raw.n && raw.p[n] == '}' ? n + 1 : 0;
}

static void check_variable(struct scan *scan, int line, struct str variable)
{
    char name[128];
    size_t n = strcspn(variable.p + 2, ":}");
    if (variable.p[2 + n] == ':')
        return; /* it has a default */
    snprintf(name, sizeof(name), "%.*s", (int)n, variable.p + 2);
    if (!getenv(name))
        fault_at(scan, line, "the environment has no %s, set it or write ${%s:-default}", name,
                 name);
}

/* A text between double quotes, for libconfuse's lexer to decode. */
static void put_text(struct scan *scan, const struct token *token)
{
    struct str raw = token->raw;
    int line = token->line;
    const char *quote = token->quote == '\'' ? "'" : "\"";
    putz(scan, quote);
    for (size_t i = 0; i < raw.n; i++) {
        struct str rest = {raw.p + i, raw.n - i};
        size_t variable = raw.p[i] == '$' && token->quote != '\'' ? variable_length(rest) : 0;
        if (variable) {
            check_variable(scan, line, (struct str){rest.p, variable});
            put(scan, rest.p, variable);
            i += variable - 1;
        } else if (raw.p[i] == '\n') {
            put_line(scan, ++line);
        } else if (token->quote != '\'' &&
                   (raw.p[i] == '$' || (raw.p[i] == '\\' && !token->quote))) {
            putz(scan, raw.p[i] == '$' ? "\\$" : "\\\\");
        } else if (raw.p[i] == '"' && !token->quote) {
            putz(scan, "\\\"");
        } else if (raw.p[i] == '\\' && i + 1 < raw.n && raw.p[i + 1] != '\n') {
            put(scan, rest.p, 2);
            i++;
        } else {
            put(scan, rest.p, 1);
        }
    }
    putz(scan, quote);
}

/* Stepping over what cannot be used */

/* `depth` braces are open. */
static void skip_braces(struct scan *scan, unsigned depth)
{
    while (depth && lex_peek(scan->lexer)->kind != TOKEN_END) {
        struct token token = lex_take(scan->lexer);
        if (token.kind == TOKEN_MARK && token.mark == '{')
            depth++;
        else if (token.kind == TOKEN_MARK && token.mark == '}')
            depth--;
    }
}

static bool take_mark(struct scan *scan, char mark)
{
    const struct token *next = lex_peek(scan->lexer);
    if (next->kind != TOKEN_MARK || next->mark != mark)
        return false;
    lex_take(scan->lexer);
    return true;
}

/* The name is taken: an assignment, a section or a call follows. */
static void skip_statement(struct scan *scan)
{
    if (take_mark(scan, '(')) {
        while (lex_peek(scan->lexer)->kind == TOKEN_TEXT || take_mark(scan, ','))
            if (lex_peek(scan->lexer)->kind == TOKEN_TEXT)
                lex_take(scan->lexer);
        take_mark(scan, ')');
        return;
    }
    if (lex_peek(scan->lexer)->kind == TOKEN_APPEND)
        lex_take(scan->lexer);
    else
        take_mark(scan, '=');
    if (lex_peek(scan->lexer)->kind == TOKEN_TEXT) {
        /* a value, unless a brace behind it makes it a title */
        lex_take(scan->lexer);
    }
    if (take_mark(scan, '{'))
        skip_braces(scan, 1);
}

/* After a syntax fault: goes on with the next line, out of what was opened meanwhile. */
static void resync(struct scan *scan)
{
    int line = lex_peek(scan->lexer)->line;
    const struct token *next;
    scan->load->broken = true;
    while ((next = lex_peek(scan->lexer))->kind != TOKEN_END && next->line == line) {
        if (next->kind == TOKEN_MARK && next->mark == '}')
            return;
        struct token token = lex_take(scan->lexer);
        if (token.kind == TOKEN_MARK && token.mark == '{')
            skip_braces(scan, 1);
    }
}

static void syntax_fault(struct scan *scan, const char *expected, const char *of)
{
    char shown[LEX_SHOW];
    const struct token *next = lex_peek(scan->lexer);
    if (next->kind != TOKEN_BAD && !(next->kind == TOKEN_END && scan->lexer->cut))
        fault_at(scan, next->line, "unexpected %s, expected %s %s", lex_show(next, shown),
                 expected, of);
    resync(scan);
}

/* Statements */

static bool is_section(struct scan *scan, const struct token *name)
{
    const struct token *next = lex_peek(scan->lexer);
    return !name->quote && next->kind == TOKEN_MARK && next->mark == '{';
}

/* Not an option, but what could be the section of a plugin: where that was looked for. */
static void unknown_section(struct scan *scan, const struct token *name)
{
    char shown[LEX_SHOW], path[PATH_MAX];
    plugins_sought(scan->load, name->raw, path);
    const char *file = strrchr(path, '/');
    if (file)
        fault_at(scan, name->line, "unknown option %s in %s, and there is no plugin %s in %.*s",
                 lex_show(name, shown), scan->frame->name, file + 1, (int)(file - path), path);
    else
        fault_at(scan, name->line, "unknown option %s in %s", lex_show(name, shown),
                 scan->frame->name);
}

static void unknown_option(struct scan *scan, const struct token *name)
{
    char text[64], shown[LEX_SHOW], room[64];
    const char *names[GRAMMAR_OPTIONS + 1];
    size_t n = 0;
    for (cfg_opt_t *o = scan->frame->options + 1; o->name; o++)
        names[n++] = o->name;
    names[n++] = "include";
    snprintf(text, sizeof(text), "%.*s", (int)(name->raw.n < 63 ? name->raw.n : 63),
             name->raw.p);
    const char *nearest = value_nearest(text, names, n);
    if (!nearest && grammar_takes_plugins(scan->load, scan->frame->options))
        nearest = plugins_nearest(scan->load, text, room);
    if (!nearest && is_section(scan, name) &&
        grammar_takes_plugins(scan->load, scan->frame->options))
        unknown_section(scan, name);
    else
        fault_at(scan, name->line, "unknown option %s in %s%s%s%s", lex_show(name, shown),
                 scan->frame->name, nearest ? ", did you mean \"" : "", nearest ? nearest : "",
                 nearest ? "\"?" : "");
    skip_statement(scan);
}

static void on_included(void *arg, const char *path)
{
    struct scan *scan = arg;
    scan_file(scan, (struct conf_where){scan->lexer->file, scan->lexer->token.line}, path);
}

static void include_statement(struct scan *scan)
{
    if (!take_mark(scan, '(')) {
        syntax_fault(scan, "\"(\" after", "include");
        return;
    }
    if (lex_peek(scan->lexer)->kind != TOKEN_TEXT || lex_peek(scan->lexer)->raw.n == 0) {
        syntax_fault(scan, "a file or a pattern in", "include(...)");
        return;
    }
    struct token name = lex_take(scan->lexer);
    if (!take_mark(scan, ')')) {
        syntax_fault(scan, "\")\" at the end of", "include(...)");
        return;
    }
    char *pattern = load_copy(scan->load, name.raw);
    if (pattern)
        include_each(scan->load, (struct conf_where){scan->lexer->file, name.line},
                     (struct str){pattern, name.raw.n}, on_included, scan);
}

/* A path with {name} in it, without quotation marks. */
static bool is_cut_by_brace(struct scan *scan, const struct token *word)
{
    const struct token *next = lex_peek(scan->lexer);
    return !word->quote && next->kind == TOKEN_MARK && next->mark == '{' &&
           word->raw.p + word->raw.n + 1 == scan->lexer->p; /* which is behind the brace */
}

static bool take_value(struct scan *scan, const cfg_opt_t *option)
{
    if (lex_peek(scan->lexer)->kind != TOKEN_TEXT) {
        syntax_fault(scan, "a value for", option->name);
        return false;
    }
    struct token token = lex_take(scan->lexer);
    if (is_cut_by_brace(scan, &token)) {
        fault_at(scan, token.line,
                 "unexpected \"{\" in the value of %s, expected quotation "
                 "marks around it",
                 option->name);
        resync(scan);
        return false;
    }
    put_text(scan, &token);
    return true;
}

/* What comes next has its own line in faults. */
static void keep_line(struct scan *scan)
{
    const struct load *load = scan->load;
    int line = lex_peek(scan->lexer)->line;
    if (load->place_count && load->places[load->place_count - 1].line != line)
        put_line(scan, line);
}

static void take_list(struct scan *scan, const cfg_opt_t *option)
{
    putz(scan, "{");
    while (!take_mark(scan, '}')) {
        keep_line(scan);
        if (!take_value(scan, option)) {
            take_mark(scan, '}'); /* of this list, where the fault left off */
            break;
        }
        if (take_mark(scan, '}'))
            break;
        if (!take_mark(scan, ',')) {
            syntax_fault(scan, "\",\" or \"}\" in", option->name);
            take_mark(scan, '}');
            break;
        }
        putz(scan, ",");
    }
    putz(scan, "}");
}

static void assignment(struct scan *scan, const cfg_opt_t *option, int line)
{
    bool list = option->flags & CFGF_LIST;
    bool append = lex_peek(scan->lexer)->kind == TOKEN_APPEND;
    if (append ? !list : !take_mark(scan, '=')) {
        syntax_fault(scan, "\"=\" after", option->name);
        return;
    }
    if (append)
        lex_take(scan->lexer);
    size_t text_len = scan->load->text_len, place_count = scan->load->place_count;
    put_line(scan, line);
    putz(scan, option->name);
    putz(scan, append ? "+=" : "=");
    if (list && take_mark(scan, '{'))
        take_list(scan, option);
    else if (!take_value(scan, option)) {
        scan->load->text_len = text_len;
        scan->load->place_count = place_count;
    }
}

/* "NAME = VALUE" where any name may stand. */
static void pair(struct scan *scan, const struct token *name)
{
    if (!take_mark(scan, '=')) {
        syntax_fault(scan, "\"=\" and a value after each name in", scan->frame->name);
        return;
    }
    size_t text_len = scan->load->text_len, place_count = scan->load->place_count;
    put_line(scan, name->line);
    putz(scan, GRAMMAR_PAIRS "+={");
    put_text(scan, name);
    putz(scan, ",");
    if (take_value(scan, &(cfg_opt_t){.name = scan->frame->name})) {
        putz(scan, "}");
        return;
    }
    scan->load->text_len = text_len;
    scan->load->place_count = place_count;
}

static void open_section(struct scan *scan, cfg_opt_t *option, int line)
{
    bool titled = strcmp(option->subopts[0].name, GRAMMAR_TITLE) == 0;
    struct token title = {.kind = TOKEN_TEXT, .quote = '"', .line = line};
    if (titled && lex_peek(scan->lexer)->kind != TOKEN_TEXT) {
        syntax_fault(scan, "a name in quotation marks after", option->name);
        return;
    }
    if (titled)
        title = lex_take(scan->lexer);
    if (!take_mark(scan, '{')) {
        syntax_fault(scan, titled ? "\"{\" after the name of" : "\"{\" after", option->name);
        return;
    }
    struct frame *frame = mem_zalloc(sizeof(*frame));
    if (!frame) {
        scan->load->no_memory = true;
        skip_braces(scan, 1);
        return;
    }
    *frame = (struct frame){
        .up = scan->frame, .name = option->name, .options = option->subopts, .line = line};
    scan->frame = frame;
    put_line(scan, line);
    frame->text = scan->load->text_len;
    frame->place = scan->load->place_count - 1;
    putz(scan, option->name);
    putz(scan, " { ");
    putz(scan, option->subopts[0].name);
    putz(scan, " = ");
    put_text(scan, &title);
}

static void close_section(struct scan *scan)
{
    struct frame *frame = scan->frame;
    struct load *load = scan->load;
    putz(scan, " }");
    scan->frame = frame->up;
    if (!frame->up->up && strcmp(frame->name, "plugins") == 0 && !load->no_memory) {
        put(scan, "", 1); /* what follows may be sections of plugins: they must be known now */
        if (!load->no_memory)
            plugins_settings(load, load->text + frame->text, frame->place);
        load->text_len--;
    }
    mem_free(frame);
}

/* Whether the option stands where it may stand only once for the second time. */
static bool is_repeated(struct scan *scan, const cfg_opt_t *option, int line)
{
    struct conf_where *seen = &scan->frame->seen[option - scan->frame->options];
    bool many = option->type == CFGT_SEC ? strcmp(option->subopts[0].name, GRAMMAR_TITLE) == 0
                                         : lex_peek(scan->lexer)->kind == TOKEN_APPEND;
    if (!seen->file || many) {
        *seen = (struct conf_where){scan->lexer->file, line};
        return false;
    }
    fault_at(scan, line, "%s stands twice in this %s, first at %s:%d", option->name,
             scan->frame->up ? scan->frame->name : "file", seen->file, seen->line);
    skip_statement(scan);
    return true;
}

/* The option of that name; the end of the list when there is none. Where any name may stand,
 * one in quotation marks is never an option. */
static cfg_opt_t *find_option(const struct scan *scan, const struct token *name)
{
    cfg_opt_t *option = scan->frame->options + 1, *end = option; /* the first is hidden */
    while (end->name && strcmp(end->name, GRAMMAR_PAIRS) != 0)
        end++;
    while (option != end && !str_eq(name->raw, str_of(option->name)))
        option++;
    return end->name && name->quote ? end : option;
}

/* Whether a section begins that a plugin answers for. */
static bool is_plugin(struct scan *scan, const struct token *name, bool *ret_bad)
{
    return is_section(scan, name) && grammar_takes_plugins(scan->load, scan->frame->options) &&
           plugins_find(scan->load, (struct conf_where){scan->lexer->file, name->line},
                        name->raw, ret_bad);
}

static void statement(struct scan *scan)
{
    struct token name = lex_take(scan->lexer);
    bool bad = false;
    if (!name.quote && str_eq(name.raw, STR("include"))) {
        include_statement(scan);
        return;
    }
    cfg_opt_t *option = find_option(scan, &name);
    if (!option->name && is_plugin(scan, &name, &bad))
        option = find_option(scan, &name);
    if (bad)
        skip_statement(scan);
    else if (option->name && strcmp(option->name, GRAMMAR_PAIRS) == 0)
        pair(scan, &name);
    else if (!option->name)
        unknown_option(scan, &name);
    else if (!is_repeated(scan, option, name.line)) {
        if (option->type == CFGT_SEC)
            open_section(scan, option, name.line);
        else
            assignment(scan, option, name.line);
    }
}

static void stray_token(struct scan *scan)
{
    struct token token = lex_take(scan->lexer);
    char shown[LEX_SHOW];
    bool brace = token.kind == TOKEN_MARK && token.mark == '}';
    scan->load->broken = true;
    if (brace)
        fault_at(scan, token.line, "unexpected \"}\", no section is open here");
    else if (token.kind != TOKEN_BAD)
        fault_at(scan, token.line, "unexpected %s, expected an option in %s",
                 lex_show(&token, shown), scan->frame->name);
    if (token.kind == TOKEN_MARK && token.mark == '{')
        skip_braces(scan, 1);
    else if (!brace && lex_peek(scan->lexer)->line == token.line)
        resync(scan);
}

static void scan_statements(struct scan *scan)
{
    struct frame *base = scan->frame;
    const struct token *next;
    while ((next = lex_peek(scan->lexer))->kind != TOKEN_END) {
        if (next->kind == TOKEN_TEXT)
            statement(scan);
        else if (scan->frame != base && take_mark(scan, '}'))
            close_section(scan);
        else
            stray_token(scan);
    }
    while (scan->frame != base) {
        scan->load->broken = true;
        if (!scan->lexer->cut)
            fault_at(scan, scan->frame->line, "this %s is never closed, expected \"}\"",
                     scan->frame->name);
        close_section(scan);
    }
}

static void scan_text(struct scan *scan, const char *path, struct str text)
{
    struct lexer lexer, *outer = scan->lexer;
    lex_init(&lexer, scan->load, path, text);
    scan->lexer = &lexer;
    scan_statements(scan);
    scan->load->broken |= lexer.cut;
    scan->lexer = outer;
}

static bool may_read(struct scan *scan, struct conf_where where, const char *path,
                     struct source *source)
{
    struct stat st;
    const char *why = NULL;
    if (stat(path, &st) == 0) {
        source->dev = st.st_dev;
        source->ino = st.st_ino;
    }
    for (struct source *s = scan->source; s && source->ino; s = s->up)
        if (s->dev == source->dev && s->ino == source->ino)
            why = "it includes itself";
    assert(scan->source); /* the file that includes it */
    source->depth = scan->source->depth + 1;
    if (!why && source->depth >= DEPTH_MAX)
        why = "includes go too deep, expected at most 16 levels";
    if (!why && scan->files >= FILES_MAX)
        why = "too many includes, expected at most 4096 files in all";
    if (why) {
        scan->load->broken = true;
        conf_fault(scan->load->faults, where, "cannot include %s: %s", path, why);
    }
    return !why;
}

static void scan_file(struct scan *scan, struct conf_where where, const char *path)
{
    struct source source = {.up = scan->source};
    if (!may_read(scan, where, path, &source))
        return;
    scan->files++;
    struct str text;
    int err = include_read(path, INCLUDE_BYTES_MAX - scan->bytes, &text);
    if (err) {
        scan->load->broken = true;
        conf_fault(scan->load->faults, where, "cannot read %s: %s", path, include_why(err));
        return;
    }
    scan->bytes += text.n;
    char *name = load_file(scan->load, path);
    if (name) {
        scan->source = &source;
        scan_text(scan, name, text);
        scan->source = source.up;
    }
    mem_free((char *)text.p);
}

void scan_main(struct load *load, const char *path, struct str text)
{
    struct frame top = {.name = "the top level", .options = load->grammar.top};
    struct source source = {0};
    struct stat st;
    if (stat(path, &st) == 0) {
        source.dev = st.st_dev;
        source.ino = st.st_ino;
    }
    struct scan scan = {.load = load, .frame = &top, .source = &source, .bytes = text.n};
    scan_text(&scan, path, text);
    put(&scan, "\n", 2); /* with its NUL */
}
