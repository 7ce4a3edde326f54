#include <errno.h>
#include <stdlib.h>

#include "conf/load.h"

/* Access to libconfuse's tree */

const struct value *value_at(cfg_t *sec, const char *name, size_t i)
{
    return cfg_opt_getnptr(cfg_getopt(sec, name), (unsigned)i);
}

const struct value *value_get(cfg_t *sec, const char *name)
{
    return value_at(sec, name, 0);
}

size_t value_count(cfg_t *sec, const char *name)
{
    return cfg_size(sec, name);
}

cfg_t *value_section(cfg_t *sec, const char *name)
{
    return cfg_size(sec, name) ? cfg_getnsec(sec, name, 0) : NULL;
}

const char *value_title(cfg_t *sec)
{
    return value_get(sec, GRAMMAR_TITLE)->text;
}

int value_line(cfg_t *sec)
{
    return value_at(sec, sec->opts[0].name, 0)->line;
}

/* Texts */

static const struct {
    const char *suffix;
    uint64_t factor;
} sizes[] = {{"g", 1u << 30}, {"m", 1u << 20}, {"k", 1u << 10}, {"", 1}},
  times[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

static size_t digit_count(struct str text)
{
    size_t n = 0;
    while (n < text.n && text.p[n] >= '0' && text.p[n] <= '9')
        n++;
    return n;
}

int value_parse_size(struct str text, uint64_t *ret)
{
    size_t n = digit_count(text);
    uint64_t number;
    struct str suffix = {text.p + n, text.n - n};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        if (!str_eq(suffix, str_of(sizes[i].suffix)))
            continue;
        int err = str_to_u64((struct str){text.p, n}, INT64_MAX / sizes[i].factor, &number);
        if (err == 0)
            *ret = number * sizes[i].factor;
        return err;
    }
    return -EINVAL;
}

int value_parse_time(struct str text, uint32_t *ret)
{
    size_t n = digit_count(text);
    uint64_t number;
    struct str suffix = {text.p + n, text.n - n};
    if (str_eq(text, STR("0"))) {
        *ret = 0;
        return 0;
    }
    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
        if (!str_eq(suffix, str_of(times[i].suffix)))
            continue;
        int err = str_to_u64((struct str){text.p, n}, UINT32_MAX / times[i].factor, &number);
        if (err == 0)
            *ret = (uint32_t)(number * times[i].factor);
        return err;
    }
    return -EINVAL;
}

/* "20%", "2.5%": permille, so at most one digit behind the point. */
int value_parse_share(struct str text, uint32_t most, uint32_t *ret_permille)
{
    size_t n = digit_count(text);
    uint64_t whole, tenth = 0;
    if (text.n == 0 || text.p[text.n - 1] != '%')
        return -EINVAL;
    if (n + 3 == text.n && text.p[n] == '.' && text.p[n + 1] >= '0' && text.p[n + 1] <= '9')
        tenth = (uint64_t)(text.p[n + 1] - '0');
    else if (n + 1 != text.n)
        return -EINVAL;
    int err = str_to_u64((struct str){text.p, n}, most, &whole);
    if (err)
        return err;
    if (whole * 10 + tenth > most * 10)
        return -ERANGE;
    *ret_permille = (uint32_t)(whole * 10 + tenth);
    return 0;
}

const char *value_put_size(char out[VALUE_TEXT], uint64_t bytes)
{
    size_t i = 0;
    while (bytes % sizes[i].factor || (bytes == 0 && sizes[i].factor > 1))
        i++;
    snprintf(out, VALUE_TEXT, "%llu%s", (unsigned long long)(bytes / sizes[i].factor),
             sizes[i].suffix);
    return out;
}

const char *value_put_time(char out[VALUE_TEXT], uint32_t ms)
{
    size_t i = ms ? 0 : 2;
    while (ms % times[i].factor)
        i++;
    snprintf(out, VALUE_TEXT, "%llu%s", (unsigned long long)(ms / times[i].factor),
             times[i].suffix);
    return out;
}

bool value_is_plain(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < ' ' || text.p[i] == 0x7f)
            return false;
    return true;
}

/* How many single-byte edits (a byte more, less, other) make `b` of `a`. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[65];
    size_t na = strlen(a), nb = strlen(b);
    if (na > 64 || nb > 64)
        return 64;
    for (unsigned j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            unsigned less = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < less ? change : less;
        }
    }
    return row[nb];
}

const char *value_nearest(const char *text, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    /* a third of the word may be wrong, at most two bytes of it */
    unsigned limit = (unsigned)strlen(text) / 3 + 1;
    unsigned best_distance = limit > 3 ? 3 : limit;
    for (size_t i = 0; i < n; i++) {
        unsigned distance = edit_distance(text, candidates[i]);
        if (distance < best_distance) {
            best = candidates[i];
            best_distance = distance;
        }
    }
    return best;
}

/* Options */

/* "timeouts.connect" for messages: the section is part of the name below the top level. */
#define NAME_TEXT 96
static const char *full_name(cfg_t *sec, const char *name, char out[NAME_TEXT])
{
    bool top = strcmp(sec->name, "root") == 0;
    snprintf(out, NAME_TEXT, "%s%s%s", top ? "" : sec->name, top ? "" : ".", name);
    return out;
}

/* "NAME is TEXT, expected ..." */
static void fault_value(struct load *load, cfg_t *sec, const char *name,
                        const struct value *value, const char *expected)
{
    char full[NAME_TEXT];
    load_fault(load, value->line, "%s is %s, expected %s", full_name(sec, name, full),
               value->text[0] ? value->text : "empty", expected);
}

void value_number(struct load *load, cfg_t *sec, const char *name, uint32_t min, uint32_t max,
                  uint32_t *ret)
{
    const struct value *value = value_get(sec, name);
    char expected[64];
    uint64_t number;
    if (!value)
        return;
    snprintf(expected, sizeof(expected), "%u to %u", min, max);
    if (str_to_u64(str_of(value->text), max, &number) || number < min)
        fault_value(load, sec, name, value, expected);
    else
        *ret = (uint32_t)number;
}

void value_size(struct load *load, cfg_t *sec, const char *name, uint64_t min, uint64_t max,
                uint64_t *ret)
{
    const struct value *value = value_get(sec, name);
    char expected[128], low[VALUE_TEXT], high[VALUE_TEXT];
    uint64_t bytes;
    if (!value)
        return;
    snprintf(expected, sizeof(expected), "a size (512, 16k, 10m) from %s to %s",
             value_put_size(low, min), value_put_size(high, max));
    if (value_parse_size(str_of(value->text), &bytes) || bytes < min || bytes > max)
        fault_value(load, sec, name, value, expected);
    else
        *ret = bytes;
}

void value_size32(struct load *load, cfg_t *sec, const char *name, uint32_t min, uint32_t max,
                  uint32_t *ret)
{
    uint64_t bytes = *ret;
    value_size(load, sec, name, min, max, &bytes);
    *ret = (uint32_t)bytes;
}

void value_time(struct load *load, cfg_t *sec, const char *name, uint32_t min, uint32_t max,
                uint32_t *ret)
{
    const struct value *value = value_get(sec, name);
    char expected[128], low[VALUE_TEXT], high[VALUE_TEXT];
    uint32_t ms;
    if (!value)
        return;
    snprintf(expected, sizeof(expected), "a time (250ms, 5s, 2m) from %s to %s",
             value_put_time(low, min), value_put_time(high, max));
    if (value_parse_time(str_of(value->text), &ms) || ms < min || ms > max)
        fault_value(load, sec, name, value, expected);
    else
        *ret = ms;
}

void value_share(struct load *load, cfg_t *sec, const char *name, uint32_t *ret)
{
    const struct value *value = value_get(sec, name);
    if (value && value_parse_share(str_of(value->text), 100, ret))
        fault_value(load, sec, name, value, "a share from 0% to 100%");
}

void value_bool(struct load *load, cfg_t *sec, const char *name, bool *ret)
{
    static const char *const words[] = {"false", "true", NULL};
    unsigned index = *ret;
    value_word(load, sec, name, words, &index);
    *ret = index;
}

void value_word(struct load *load, cfg_t *sec, const char *name, const char *const *words,
                unsigned *ret)
{
    const struct value *value = value_get(sec, name);
    char expected[128] = "";
    if (!value)
        return;
    for (unsigned i = 0; words[i]; i++) {
        if (strcmp(value->text, words[i]) == 0) {
            *ret = i;
            return;
        }
        size_t n = strlen(expected);
        snprintf(expected + n, sizeof(expected) - n, "%s%s",
                 !n             ? ""
                 : words[i + 1] ? ", "
                                : " or ",
                 words[i]);
    }
    fault_value(load, sec, name, value, expected);
}

void value_text(struct load *load, cfg_t *sec, const char *name, char **ret)
{
    const struct value *value = value_get(sec, name);
    if (!value)
        return;
    struct str text = str_of(value->text);
    if (text.n == 0 || text.n > 4096 || !value_is_plain(text))
        fault_value(load, sec, name, value, "1 to 4096 bytes without control characters");
    else
        *ret = load_copy(load, text);
}

void value_text_at(struct load *load, cfg_t *sec, const char *name, char **ret,
                   struct conf_where *ret_at)
{
    const struct value *value = value_get(sec, name);
    if (value)
        *ret_at = load_where(load, value->line);
    value_text(load, sec, name, ret);
}
