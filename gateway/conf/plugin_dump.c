/* -T: the sections of plugins, with what nobody wrote filled in. */
#include "conf/load.h"

static void put_value(const struct postern_option *option, const struct postern_value *value,
                      FILE *out)
{
    if (option->type == POSTERN_SECRET)
        fputs("\"" DUMP_MASK "\"", out);
    else if (option->type == POSTERN_TEXT || option->type == POSTERN_FILE ||
             option->type == POSTERN_TOKEN || option->type == POSTERN_RATE)
        dump_quoted(out, str_from(value->text));
    else
        fputs(value->text.p, out);
}

static void put_option(const struct postern_option *option, const struct postern_values *values,
                       FILE *out)
{
    fprintf(out, "%s = %s", option->name, option->list ? "{" : "");
    for (size_t i = 0; i < values->count; i++) {
        fputs(i ? ", " : "", out);
        put_value(option, &values->list[i], out);
    }
    fputs(option->list ? "}\n" : "\n", out);
}

void plugins_dump(const struct conf_plugins *plugins, const char *indent, FILE *out)
{
    for (size_t i = 0; i < plugins->count; i++) {
        const struct conf_plugin *section = &plugins->list[i];
        const struct postern_plugin *def = &section->plugin->def;
        char deadline[VALUE_TEXT];
        fprintf(out, "%s%s {\n%s  enabled = %s\n%s  fail = %s\n%s  deadline = %s\n", indent,
                def->name, indent, section->enabled ? "true" : "false", indent,
                section->fail_open ? "open" : "closed", indent,
                value_put_time(deadline, section->deadline));
        for (size_t k = 0; k < def->option_count; k++) {
            if (!section->values[k].count && !plugin_option(section->plugin, k)->list)
                continue;
            fprintf(out, "%s  ", indent);
            put_option(plugin_option(section->plugin, k), &section->values[k], out);
        }
        fprintf(out, "%s}\n", indent);
    }
}
