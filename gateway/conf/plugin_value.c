/* The options of plugins: texts checked by what the plugin's table says about them. */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "conf/load.h"
#include "http/head.h"

static int parse_rate(struct str text, struct postern_value *ret)
{
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}};
    uint64_t number;
    if (text.n < 3 || text.p[text.n - 2] != '/')
        return -EINVAL;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (text.p[text.n - 1] != units[i].unit)
            continue;
        int err = str_to_u64((struct str){text.p, text.n - 2}, INT64_MAX, &number);
        if (err)
            return err;
        ret->number = (int64_t)number;
        ret->per_ms = units[i].ms;
        return 0;
    }
    return -EINVAL;
}

static int parse_word(const char *const *words, struct str text, struct postern_value *ret)
{
    for (size_t i = 0; words[i]; i++)
        if (str_eq(text, str_of(words[i]))) {
            ret->number = (int64_t)i;
            return 0;
        }
    return -EINVAL;
}

/* What is no number of something. */
static int parse_text(enum postern_type type, struct str text)
{
    if (text.n == 0 || text.n > 4096 || !value_is_plain(text) ||
        (type == POSTERN_TOKEN && !head_is_token(text)))
        return -EINVAL;
    return 0;
}

/* Fills number and per_ms. 0, or an errno. */
static int parse(const struct postern_option *option, struct str text,
                 struct postern_value *ret)
{
    static const char *const bools[] = {"false", "true", NULL};
    uint64_t number = 0;
    uint32_t small = 0;
    int err;
    switch (option->type) {
    case POSTERN_BOOL:
        return parse_word(bools, text, ret);
    case POSTERN_WORD:
        return parse_word(option->words, text, ret);
    case POSTERN_NUMBER:
        err = str_to_u64(text, INT64_MAX, &number);
        break;
    case POSTERN_SIZE:
        err = value_parse_size(text, &number);
        break;
    case POSTERN_TIME:
        err = value_parse_time(text, &small);
        number = small;
        break;
    case POSTERN_SHARE:
        err = value_parse_share(text, 100, &small);
        ret->number = small;
        return err;
    case POSTERN_RATE:
        err = parse_rate(text, ret);
        number = err ? 0 : (uint64_t)ret->number;
        break;
    default:
        return parse_text(option->type, text);
    }
    if (err)
        return err;
    ret->number = (int64_t)number;
    bool any = option->min == 0 && option->max == 0;
    return any || (ret->number >= option->min && ret->number <= option->max) ? 0 : -ERANGE;
}

static const char *put_bound(const struct postern_option *option, int64_t bound,
                             char out[VALUE_TEXT])
{
    if (option->type == POSTERN_SIZE)
        return value_put_size(out, (uint64_t)bound);
    if (option->type == POSTERN_TIME)
        return value_put_time(out, (uint32_t)bound);
    snprintf(out, VALUE_TEXT, "%lld", (long long)bound);
    return out;
}

static void put_words(const char *const *words, char out[PLUGIN_EXPECTED])
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; words[i] && n + 1 < PLUGIN_EXPECTED; i++)
        n += (size_t)snprintf(out + n, PLUGIN_EXPECTED - n, "%s%s",
                              !i             ? ""
                              : words[i + 1] ? ", "
                                             : " or ",
                              words[i]);
}

const char *plugin_expected(const struct postern_option *option, char out[PLUGIN_EXPECTED])
{
    static const char *const kinds[] = {
        [POSTERN_BOOL] = "true or false",
        [POSTERN_NUMBER] = "a number",
        [POSTERN_SIZE] = "a size (512, 16k, 10m)",
        [POSTERN_TIME] = "a time (250ms, 5s, 2m)",
        [POSTERN_SHARE] = "a share from 0% to 100%",
        [POSTERN_RATE] = "a rate (100/s, 6000/m, 10/h, 5/d)",
        [POSTERN_TEXT] = "1 to 4096 bytes without control characters",
        [POSTERN_FILE] = "the name of a file",
        [POSTERN_SECRET] = "1 to 4096 bytes without control characters",
        [POSTERN_TOKEN] = "a name of letters, digits and dashes",
    };
    char low[VALUE_TEXT], high[VALUE_TEXT];
    if (option->type == POSTERN_WORD) {
        put_words(option->words, out);
        return out;
    }
    snprintf(out, PLUGIN_EXPECTED, "%s", kinds[option->type]);
    size_t n = strlen(out);
    if (option->type == POSTERN_SHARE || (option->min == 0 && option->max == 0))
        return out;
    snprintf(out + n, PLUGIN_EXPECTED - n, " from %s to %s",
             put_bound(option, option->min, low), put_bound(option, option->max, high));
    return out;
}

static void take(struct load *load, const struct postern_option *option, struct str text,
                 const char *file, struct postern_value *ret)
{
    char *copy = option->type == POSTERN_FILE ? include_absolute(load, file, text)
                                              : load_copy(load, text);
    if (copy)
        ret->text = str_to(str_of(copy));
}

static void fault(struct load *load, const char *section, const struct postern_option *option,
                  const struct value *value)
{
    char expected[PLUGIN_EXPECTED];
    bool secret = option->type == POSTERN_SECRET;
    load_fault(load, value->line, "%s.%s %s %s, expected %s", section, option->name,
               option->list ? "has" : "is",
               secret           ? "unusable"
               : value->text[0] ? value->text
                                : "empty",
               plugin_expected(option, expected));
}

/* What stands in the file. */
static bool take_given(struct load *load, cfg_t *sec, const struct postern_option *option,
                       struct postern_value *list, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        const struct value *value = value_at(sec, option->name, i);
        list[i].given = true;
        if (parse(option, str_of(value->text), &list[i]) == 0) {
            take(load, option, str_of(value->text), load_where(load, value->line).file,
                 &list[i]);
            continue;
        }
        fault(load, sec->name, option, value);
        ok = false;
    }
    return ok;
}

static bool take_option(struct load *load, cfg_t *sec, const struct conf_plugin *section,
                        const struct postern_option *option, struct postern_values *ret)
{
    size_t count = value_count(sec, option->name);
    bool given = cfg_getopt(sec, option->name)->flags & CFGF_MODIFIED;
    bool missing = !count && option->required && section->enabled;
    if (missing && !load->broken) {
        char expected[PLUGIN_EXPECTED];
        load_fault(load, value_line(sec), "%s has no %s, expected %s", sec->name, option->name,
                   plugin_expected(option, expected));
    }
    if (missing)
        return false;
    size_t room = count ? count : 1;
    struct postern_value *list = load_alloc(load, room, sizeof(*list));
    *ret = (struct postern_values){.size = sizeof(*ret), .list = list, .count = count};
    if (!list)
        return false;
    if (count || given || !option->default_text)
        return take_given(load, sec, option, list, count);
    if (parse(option, str_of(option->default_text), list) < 0) {
        load_fault(load, value_line(sec), "%s: the plugin's own default of %s is none",
                   sec->name, option->name);
        return false;
    }
    ret->count = 1;
    take(load, option, str_of(option->default_text), load->conf->file, list);
    return true;
}

bool plugin_values(struct load *load, cfg_t *sec, struct conf_plugin *ret)
{
    static const char *const fails[] = {"closed", "open", NULL};
    const struct plugin *plugin = ret->plugin;
    size_t before = load->faults->count;
    unsigned fail = 0;
    bool ok = true;
    ret->enabled = true;
    ret->deadline = 1000;
    value_bool(load, sec, "enabled", &ret->enabled);
    value_word(load, sec, "fail", fails, &fail);
    ret->fail_open = fail == 1;
    value_time(load, sec, "deadline", 1, DAY_MS, &ret->deadline);
    ret->values = load_alloc(load, plugin->def.option_count, sizeof(*ret->values));
    for (size_t i = 0; ret->values && i < plugin->def.option_count; i++)
        ok &= take_option(load, sec, ret, plugin_option(plugin, i), &ret->values[i]);
    return ok && load->faults->count == before && !load->no_memory;
}
