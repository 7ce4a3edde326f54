#include "access_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The texts of one kind and verdict; consumers and methods are sorted. */
struct set {
    char **list;
    size_t count;
};

struct access_rules {
    struct access_range *ranges; /* until they are finished */
    size_t range_count;
    struct access_ranges *table;
    enum access_verdict unix_peers, all_peers;
    struct set sets[ACCESS_KINDS][ACCESS_DENY + 1];
    bool has[ACCESS_KINDS][ACCESS_DENY + 1];
};

static const char no_memory[] = "more memory";

struct access_rules *access_rules_new(void)
{
    return calloc(1, sizeof(struct access_rules));
}

void access_rules_free(struct access_rules *rules)
{
    if (!rules)
        return;
    for (int kind = 0; kind < ACCESS_KINDS; kind++) {
        for (int verdict = 0; verdict <= ACCESS_DENY; verdict++) {
            struct set *set = &rules->sets[kind][verdict];
            for (size_t i = 0; i < set->count; i++)
                free(set->list[i]);
            free((void *)set->list);
        }
    }
    access_ranges_free(rules->table);
    free(rules->ranges);
    free(rules);
}

/* ---- rules as text ---- */

static const char *add_range(struct access_rules *rules, struct access_range range)
{
    size_t size = (rules->range_count + 1) * sizeof(range);
    struct access_range *list = realloc(rules->ranges, size);
    if (!list)
        return no_memory;
    rules->ranges = list;
    list[rules->range_count++] = range;
    return NULL;
}

static const char *add_address(struct access_rules *rules, enum access_verdict verdict,
                               const char *text, const char **ret_warning)
{
    struct access_range range = {.verdict = verdict};
    rules->has[ACCESS_ADDRESS][verdict] = true;
    if (strcmp(text, "all") == 0) {
        struct access_range v6 = {.verdict = verdict};
        if (rules->all_peers != ACCESS_DENY)
            rules->all_peers = verdict;
        access_range_parse("0.0.0.0/0", &range);
        access_range_parse("::/0", &v6);
        const char *failed = add_range(rules, range);
        return failed ? failed : add_range(rules, v6);
    }
    if (strcmp(text, "unix:") == 0) {
        if (rules->unix_peers != ACCESS_DENY)
            rules->unix_peers = verdict;
        return NULL;
    }
    int result = access_range_parse(text, &range);
    if (result < 0)
        return "an address, a range such as 10.0.0.0/8, all, unix:, consumer:NAME, "
               "scope:SCOPE, method:METHOD or subject:NAME";
    if (result > 0)
        *ret_warning = "has bits behind its length, which do not count";
    return add_range(rules, range);
}

static bool is_token(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", *p))
            return false;
    return *text;
}

static const char *add_text(struct access_rules *rules, enum access_kind kind,
                            enum access_verdict verdict, const char *text,
                            const char **ret_warning)
{
    struct set *set = &rules->sets[kind][verdict];
    if (!text[strspn(text, " ")])
        return "something behind the colon";
    if (kind == ACCESS_METHOD && !is_token(text))
        return "method: and a method";
    if (kind == ACCESS_METHOD && strpbrk(text, "abcdefghijklmnopqrstuvwxyz"))
        *ret_warning = "is in lower case, as no method is that HTTP defines";
    char **list = realloc((void *)set->list, (set->count + 1) * sizeof(*list));
    if (!list)
        return no_memory;
    set->list = list;
    list[set->count] = strdup(text);
    if (!list[set->count])
        return no_memory;
    set->count++;
    rules->has[kind][verdict] = true;
    return NULL;
}

const char *access_rules_add(struct access_rules *rules, enum access_verdict verdict,
                             const char *text, const char **ret_warning)
{
    static const struct {
        const char *prefix;
        size_t n;
        enum access_kind kind;
    } prefixes[] = {
        {"consumer:", 9, ACCESS_CONSUMER}, {"scope:", 6, ACCESS_SCOPE},
        {"method:", 7, ACCESS_METHOD},     {"subject:", 8, ACCESS_SUBJECT},
        {"address:", 8, ACCESS_ADDRESS},
    };
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(text, prefixes[i].prefix, prefixes[i].n) != 0)
            continue;
        if (prefixes[i].kind == ACCESS_ADDRESS)
            return add_address(rules, verdict, text + prefixes[i].n, ret_warning);
        return add_text(rules, prefixes[i].kind, verdict, text + prefixes[i].n, ret_warning);
    }
    return add_address(rules, verdict, text, ret_warning);
}

static int by_text(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

bool access_rules_finish(struct access_rules *rules)
{
    static const enum access_kind sorted[] = {ACCESS_CONSUMER, ACCESS_METHOD};
    for (size_t i = 0; i < 2; i++) {
        for (int verdict = ACCESS_ALLOW; verdict <= ACCESS_DENY; verdict++) {
            struct set *set = &rules->sets[sorted[i]][verdict];
            if (set->count)
                qsort((void *)set->list, set->count, sizeof(*set->list), by_text);
        }
    }
    rules->table = access_ranges_new(rules->ranges, rules->range_count);
    free(rules->ranges);
    rules->ranges = NULL;
    return rules->table;
}

/* ---- one request ---- */

static bool holds_word(const struct set *set, struct postern_str word)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *text = set->list[middle];
        int order = strncmp(text, word.p, word.n);
        if (order == 0 && !text[word.n])
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Whether `words` (with spaces between) has this one. */
static bool has_scope(struct postern_str words, const char *scope, size_t n)
{
    for (size_t i = 0; i < words.n;) {
        const char *end = memchr(words.p + i, ' ', words.n - i);
        size_t length = end ? (size_t)(end - words.p) - i : words.n - i;
        if (length == n && memcmp(words.p + i, scope, n) == 0)
            return true;
        i += length + 1;
    }
    return false;
}

/* A rule may name several, all of which are needed. */
static bool has_scopes(struct postern_str words, const char *rule)
{
    while (*rule) {
        size_t n = strcspn(rule, " ");
        if (n > 0 && !has_scope(words, rule, n))
            return false;
        rule += n;
        rule += *rule == ' ';
    }
    return true;
}

/* `*` stands for any run of bytes inside one part of the name (RFC 4514): up to a comma or plus
 * that is not escaped. */
static bool is_like(const char *pattern, const char *p, const char *stop)
{
    const char *star = NULL, *from = NULL;
    while (p < stop || *pattern) {
        if (*pattern == '*') {
            star = ++pattern;
            from = p;
        } else if (p < stop && *pattern == *p) {
            pattern++;
            p++;
        } else {
            /* the last star takes one more; an earlier one could only end in the same part */
            if (!star || from >= stop || *from == ',' || *from == '+')
                return false;
            from += *from == '\\' && from + 1 < stop ? 2 : 1;
            pattern = star;
            p = from;
        }
    }
    return true;
}

static bool holds(const struct access_rules *rules, enum access_kind kind,
                  enum access_verdict verdict, struct postern_str value)
{
    const struct set *set = &rules->sets[kind][verdict];
    bool is_sorted = kind == ACCESS_METHOD || kind == ACCESS_CONSUMER;
    if (!value.p)
        return false;
    if (is_sorted && holds_word(set, value))
        return true;
    if (kind == ACCESS_CONSUMER && holds_word(set, (struct postern_str){"*", 1}))
        return true;
    for (size_t i = 0; !is_sorted && i < set->count; i++)
        if (kind == ACCESS_SCOPE ? has_scopes(value, set->list[i])
                                 : is_like(set->list[i], value.p, value.p + value.n))
            return true;
    return false;
}

static enum access_verdict verdict_on(const struct access_rules *rules, enum access_kind kind,
                                      const struct access_who *who)
{
    const struct postern_str values[] = {
        [ACCESS_SUBJECT] = who->subject,
        [ACCESS_METHOD] = who->method,
        [ACCESS_CONSUMER] = who->consumer,
        [ACCESS_SCOPE] = who->scope,
    };
    if (kind == ACCESS_ADDRESS && who->address_width)
        return access_ranges_find(rules->table, who->address, who->address_width);
    if (kind == ACCESS_ADDRESS)
        return rules->unix_peers ? rules->unix_peers : rules->all_peers;
    if (holds(rules, kind, ACCESS_DENY, values[kind]))
        return ACCESS_DENY;
    return holds(rules, kind, ACCESS_ALLOW, values[kind]) ? ACCESS_ALLOW : ACCESS_UNKNOWN;
}

enum access_result access_rules_check(const struct access_rules *rules,
                                      const struct access_who *who, enum access_kind *ret_kind)
{
    for (int kind = 0; kind < ACCESS_KINDS; kind++) {
        if (!rules->has[kind][ACCESS_ALLOW] && !rules->has[kind][ACCESS_DENY])
            continue;
        enum access_verdict verdict = verdict_on(rules, kind, who);
        if (verdict == ACCESS_ALLOW)
            continue;
        if (verdict == ACCESS_UNKNOWN && !rules->has[kind][ACCESS_ALLOW])
            continue;
        *ret_kind = kind;
        bool is_known = who->consumer.p || (kind != ACCESS_CONSUMER && kind != ACCESS_SCOPE);
        return is_known ? ACCESS_REFUSED : ACCESS_UNIDENTIFIED;
    }
    return ACCESS_PASS;
}

const char *access_rules_scope(const struct access_rules *rules)
{
    const struct set *set = &rules->sets[ACCESS_SCOPE][ACCESS_ALLOW];
    return set->count ? set->list[0] : NULL;
}

bool access_rules_need(const struct access_rules *rules, enum access_kind kind)
{
    return rules->has[kind][ACCESS_ALLOW] || rules->has[kind][ACCESS_DENY];
}
