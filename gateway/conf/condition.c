#include "conf/condition.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "conf/load.h"

/* Steps of one match, after which a condition does not hold: what a client sends must not
 * keep a worker busy. Milliseconds at most; honest expressions need some dozens. */
#define MATCH_LIMIT 20000
#define HEAP_KIB    256  /* without JIT: memory for backtracking */
#define TEXT_MAX    4096 /* of a value or an expression in the file */
#define DECODED_MAX (64u * 1024)

/* ---- regular expressions ---- */

/* What a match needs besides the expression is of one size, and used by one thread at a time
 * until it returns: it has its place here. Only a machine without JIT takes more. */
static _Thread_local struct {
    _Alignas(16) char bytes[1024];
    bool used;
} match_memory;

static void *match_alloc(size_t n, void *arg)
{
    (void)arg;
    if (match_memory.used || n > sizeof(match_memory.bytes))
        return mem_alloc(n);
    match_memory.used = true;
    return match_memory.bytes;
}

static void match_free(void *p, void *arg)
{
    (void)arg;
    if (p == match_memory.bytes)
        match_memory.used = false;
    else
        mem_free(p);
}

/* An expression and the limits that it is matched under. */
struct regex {
    pcre2_code *code;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
};

static void regex_free(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    pcre2_match_context_free(regex->limits);
    pcre2_general_context_free(regex->memory);
    mem_free(regex);
}

/* NULL: no memory, or *ret_why says what is wrong with it. */
static struct regex *regex_new(struct str text, char ret_why[160])
{
    int err;
    PCRE2_SIZE at;
    struct regex *regex = mem_zalloc(sizeof(*regex));
    if (!regex)
        return NULL;
    regex->code =
        pcre2_compile((PCRE2_SPTR)text.p, text.n, PCRE2_NEVER_BACKSLASH_C, &err, &at, NULL);
    if (!regex->code) {
        PCRE2_UCHAR why[120];
        pcre2_get_error_message(err, why, sizeof(why));
        snprintf(ret_why, 160, "%s at byte %zu", (const char *)why, (size_t)at);
        regex_free(regex);
        return NULL;
    }
    /* Where memory may not be written and run, it is interpreted: slower, and the same. */
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    match_memory.used = true; /* not for the context itself, which stays */
    regex->memory = pcre2_general_context_create(match_alloc, match_free, NULL);
    match_memory.used = false;
    regex->limits = pcre2_match_context_create(NULL);
    if (!regex->memory || !regex->limits) {
        regex_free(regex);
        return NULL;
    }
    pcre2_set_match_limit(regex->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(regex->limits, HEAP_KIB);
    return regex;
}

static bool regex_matches(const struct regex *regex, struct str s)
{
    pcre2_match_data *data = pcre2_match_data_create(1, regex->memory);
    if (!data)
        return false;
    int rc =
        pcre2_match(regex->code, (PCRE2_SPTR)(s.n ? s.p : ""), s.n, 0, 0, data, regex->limits);
    pcre2_match_data_free(data);
    return rc >= 0;
}

/* ---- asking ---- */

static bool value_holds(const struct conf_condition *condition, struct str value)
{
    switch (condition->test) {
    case CONDITION_EQUALS:
        return str_eq(value, str_of(condition->text));
    case CONDITION_REGEX:
        return regex_matches(condition->code, value);
    case CONDITION_PRESENT:
    case CONDITION_ABSENT:
        return true;
    }
    return false;
}

/* Fields that are not among the head's when routes are looked for, or do not count there. */
static bool is_kept_apart(unsigned field)
{
    return field == F_HOST || field == F_UPGRADE || field == F_CONTENT_LENGTH;
}

static bool apart_holds(const struct conf_condition *condition, const struct head *head)
{
    char digits[20];
    struct str value = condition->field == F_HOST      ? head->authority
                       : condition->field == F_UPGRADE ? head->upgrade
                                                       : (struct str){NULL, 0};
    if (condition->field == F_CONTENT_LENGTH && head->has_length)
        value = (struct str){digits, str_put_u64(digits, head->length)};
    return value.p && value_holds(condition, value);
}

static bool header_holds(const struct conf_condition *condition, const struct head *head)
{
    struct str name = str_of(condition->name);
    bool apart = is_kept_apart(condition->field),
         some = head && apart && apart_holds(condition, head);
    for (uint32_t i = 0; head && !apart && i < head->count && !some; i++)
        some = str_eq_nocase(head->fields[i].name, name) &&
               value_holds(condition, head->fields[i].value);
    return some != (condition->test == CONDITION_ABSENT);
}

/* One byte of a query: %XX is decoded, "+" is a space, a broken escape is itself. */
static char next_byte(struct str *s)
{
    uint64_t byte;
    char c = s->p[0];
    size_t n = 1;
    if (c == '+') {
        c = ' ';
    } else if (c == '%' && s->n >= 3 &&
               str_hex_to_u64((struct str){s->p + 1, 2}, 255, &byte) == 0) {
        c = (char)byte;
        n = 3;
    }
    *s = (struct str){s->p + n, s->n - n};
    return c;
}

static bool decodes_to(struct str s, struct str text)
{
    while (s.n && text.n && next_byte(&s) == text.p[0])
        text = (struct str){text.p + 1, text.n - 1};
    return !s.n && !text.n;
}

/* A function of its own: nobody else pays for its stack. */
static __attribute__((noinline)) bool decoded_matches(const struct regex *regex, struct str s)
{
    char bytes[DECODED_MAX];
    size_t n = 0;
    if (s.n > sizeof(bytes))
        return false;
    while (s.n)
        bytes[n++] = next_byte(&s);
    return regex_matches(regex, (struct str){bytes, n});
}

static bool is_encoded(struct str s)
{
    return s.n && (memchr(s.p, '%', s.n) || memchr(s.p, '+', s.n));
}

static bool parameter_holds(const struct conf_condition *condition, struct str value)
{
    if (!is_encoded(value))
        return value_holds(condition, value);
    if (condition->test == CONDITION_EQUALS)
        return decodes_to(value, str_of(condition->text));
    return condition->test != CONDITION_REGEX || decoded_matches(condition->code, value);
}

static bool query_holds(const struct conf_condition *condition, const struct head *head)
{
    struct str rest = head ? head->query : STR(""), name = str_of(condition->name);
    bool some = false;
    while (rest.n && !some) {
        const char *end = memchr(rest.p, '&', rest.n);
        struct str pair = {rest.p, end ? (size_t)(end - rest.p) : rest.n};
        rest = (struct str){rest.p + pair.n + (end != NULL), rest.n - pair.n - (end != NULL)};
        const char *equals = pair.n ? memchr(pair.p, '=', pair.n) : NULL;
        struct str key = {pair.p, equals ? (size_t)(equals - pair.p) : pair.n};
        struct str value = {pair.p + key.n + (equals != NULL),
                            pair.n - key.n - (equals != NULL)};
        some = decodes_to(key, name) && parameter_holds(condition, value);
    }
    return some != (condition->test == CONDITION_ABSENT);
}

const struct conf_condition *conditions_failed(const struct conf_route *route,
                                               const struct head *head)
{
    for (size_t i = 0; i < route->condition_count; i++) {
        const struct conf_condition *condition = &route->conditions[i];
        if (!(condition->query ? query_holds(condition, head) : header_holds(condition, head)))
            return condition;
    }
    return NULL;
}

bool conditions_hold(const struct conf_route *route, const struct head *head)
{
    return !conditions_failed(route, head);
}

/* ---- comparing and showing ---- */

static bool is_same_name(const struct conf_condition *a, const struct conf_condition *b)
{
    struct str x = str_of(a->name), y = str_of(b->name);
    return a->query == b->query && (a->query ? str_eq(x, y) : str_eq_nocase(x, y));
}

/* Whether b cannot hold without a. */
static bool follows(const struct conf_condition *a, const struct conf_condition *b)
{
    if (!is_same_name(a, b))
        return false;
    if (a->test == CONDITION_PRESENT)
        return b->test != CONDITION_ABSENT;
    return a->test == b->test && (!a->text || strcmp(a->text, b->text) == 0);
}

bool conditions_include(const struct conf_route *a, const struct conf_route *b)
{
    for (size_t i = 0; i < a->condition_count; i++) {
        size_t j = 0;
        while (j < b->condition_count && !follows(&a->conditions[i], &b->conditions[j]))
            j++;
        if (j == b->condition_count)
            return false;
    }
    return true;
}

void condition_put(const struct conf_condition *condition, FILE *out)
{
    fprintf(out, "match_%s \"%s\" { ", condition->query ? "query" : "header", condition->name);
    switch (condition->test) {
    case CONDITION_EQUALS:
        fprintf(out, "equals = \"%s\" }", condition->text);
        break;
    case CONDITION_REGEX:
        fprintf(out, "regex = '%s' }", condition->text);
        break;
    case CONDITION_PRESENT:
        fputs("present = true }", out);
        break;
    case CONDITION_ABSENT:
        fputs("present = false }", out);
        break;
    }
}

/* ---- compiling ---- */

static void name_compile(struct load *load, cfg_t *sec, const struct conf_route *route,
                         struct conf_condition *ret)
{
    struct str name = str_of(value_title(sec));
    ret->name = load_copy(load, name);
    if (ret->query ? !name.n || name.n > 256 || !value_is_plain(name) : !head_is_token(name))
        load_fault(load, value_line(sec), "%s \"%s\" is no name of a %s, expected %s",
                   sec->name, name.p, ret->query ? "parameter" : "header",
                   ret->query ? "1 to 256 bytes without control characters, not encoded"
                              : "letters, digits and !#$%&'*+-.^_`|~");
    ret->field = ret->query ? F_OTHER : field_id_of(name);
    if (!is_kept_apart(ret->field) &&
        (head_is_hop(ret->field) || ret->field == F_TRANSFER_ENCODING))
        load_fault(load, value_line(sec),
                   "%s \"%s\" would never hold: the field belongs to the client's connection, "
                   "expected one of its requests",
                   sec->name, name.p);
    for (const struct conf_condition *c = route->conditions; ret->name && c < ret; c++)
        if (c->name && is_same_name(c, ret))
            load_fault(load, value_line(sec),
                       "%s \"%s\" stands twice in route \"%s\", expected once", sec->name,
                       name.p, route->name);
}

static void regex_compile(struct load *load, cfg_t *sec, const struct value *value,
                          struct conf_condition *ret)
{
    char why[160] = "";
    ret->test = CONDITION_REGEX;
    ret->code = regex_new(str_of(ret->text), why);
    if (!ret->code && why[0])
        load_fault(load, value->line, "%s.regex is \"%s\", which does not compile: %s",
                   sec->name, ret->text, why);
    else
        load->no_memory |= !ret->code;
}

static void test_compile(struct load *load, cfg_t *sec, struct conf_condition *ret)
{
    const struct value *equals = value_get(sec, "equals"), *regex = value_get(sec, "regex"),
                       *present = value_get(sec, "present"), *text = equals ? equals : regex;
    int tests = (equals != NULL) + (regex != NULL) + (present != NULL);
    bool is_present = true;
    if (tests != 1) {
        if (tests || !load->broken)
            load_fault(load, value_line(sec),
                       "%s \"%s\" has %s of equals, present and regex, expected exactly one",
                       sec->name, value_title(sec), tests ? "several" : "none");
        ret->test = CONDITION_PRESENT;
        return;
    }
    value_bool(load, sec, "present", &is_present);
    ret->test = text ? CONDITION_EQUALS : is_present ? CONDITION_PRESENT : CONDITION_ABSENT;
    if (!text)
        return;
    struct str s = str_of(text->text);
    ret->text = load_copy(load, s);
    bool ok = ret->query || head_is_field_value(s) || regex;
    if (s.n > TEXT_MAX || !ok || (regex && !s.n) ||
        (!ret->query && equals && str_trim(s).n != s.n))
        load_fault(load, text->line, "%s.%s: the text is %s, expected %s%d bytes%s", sec->name,
                   regex ? "regex" : "equals",
                   s.n > TEXT_MAX ? "too long"
                   : !s.n         ? "empty"
                                  : "one that no header has",
                   regex ? "1 to " : "at most ", TEXT_MAX,
                   ret->query || regex ? "" : " without control characters or spaces around");
    else if (regex && ret->text)
        regex_compile(load, sec, regex, ret);
}

void conditions_compile(struct load *load, cfg_t *sec, struct conf_route *route)
{
    static const char *const kinds[] = {"match_header", "match_query"};
    size_t counts[2] = {cfg_size(sec, kinds[0]), cfg_size(sec, kinds[1])};
    if (counts[0] + counts[1] == 0)
        return;
    if (counts[0] + counts[1] > CONDITIONS) {
        load_fault(load, value_line(sec),
                   "route \"%s\" has %zu conditions, expected at most %d", route->name,
                   counts[0] + counts[1], CONDITIONS);
        return;
    }
    route->conditions = load_alloc(load, counts[0] + counts[1], sizeof(*route->conditions));
    if (!route->conditions)
        return;
    for (unsigned query = 0; query < 2; query++)
        for (size_t i = 0; i < counts[query]; i++) {
            cfg_t *sub = cfg_getnsec(sec, kinds[query], (unsigned)i);
            struct conf_condition *condition = &route->conditions[route->condition_count];
            condition->query = query;
            name_compile(load, sub, route, condition);
            test_compile(load, sub, condition);
            route->condition_count++;
        }
}

void conditions_done(struct conf_route *route)
{
    for (size_t i = 0; i < route->condition_count; i++)
        regex_free(route->conditions[i].code);
}
