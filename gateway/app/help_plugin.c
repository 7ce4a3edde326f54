#include "app/help_plugin.h"

#include <stdio.h>

#include "conf/plugin_text.h"
#include "plugin/host.h"

static void print_option(const struct postern_option *option)
{
    char expected[PLUGIN_EXPECTED];
    printf("\n  %s = %s%s\n      %s\n      ", option->name, option->list ? "{...}" : "...",
           option->required ? "   (required)" : "", option->help);
    printf("%s%s", option->list ? "a list, each " : "", plugin_expected(option, expected));
    if (option->default_text)
        printf("; default %s", option->default_text);
    fputc('\n', stdout);
}

static void print_plugin(const struct plugin *plugin)
{
    const struct postern_plugin *def = &plugin->def;
    printf("%s %s (%s, interface %u.%u)\n%s\n\noptions:\n", def->name, def->version,
           plugin->path, def->abi_major, def->abi_minor, def->summary);
    for (size_t i = 0; i < def->option_count; i++)
        print_option(plugin_option(plugin, i));
    fputs(
        "\n  enabled = ...\n      Whether this section does anything.\n"
        "      true or false; default true\n"
        "\n  fail = ...\n      What becomes of a request when the plugin cannot do its work.\n"
        "      closed (it is refused with 503) or open (it goes on); default closed\n"
        "\n  deadline = ...\n      How long a request waits for the plugin at most.\n"
        "      a time (250ms, 5s, 2m) from 1ms to 24h; default 1s\n",
        stdout);
    if (def->reasons && def->reason_count)
        fputs("\nreasons:\n", stdout);
    for (size_t i = 0; def->reasons && i < def->reason_count; i++)
        printf("  %-24s %s\n", def->reasons[i].name, def->reasons[i].title);
}

int help_plugin(const char *name)
{
    char path[PATH_MAX], err[HOST_ERROR];
    const struct plugin *plugin = NULL;
    if (strchr(name, '/'))
        plugin = host_load(name, err);
    else if (host_search(NULL, str_of(name), path))
        plugin = host_load(path, err);
    else
        snprintf(err, sizeof(err),
                 "there is no plugin \"%s\"; POSTERN_PLUGINS may name their "
                 "directory",
                 name);
    if (!plugin) {
        fprintf(stderr, "postern: %s\n", err);
        return 1;
    }
    print_plugin(plugin);
    return 0;
}
