/* For the tests of plugins' sections: plugins that are built beside the tests. */
#ifndef CONF_PLUGINS_TEST_H
#define CONF_PLUGINS_TEST_H

#include <libgen.h>
#include <limits.h>
#include <unistd.h>

#include "conf_test.h"

/* "plugins { directory = ... }\n": those of `folder`, as seen from the test's own. */
static inline const char *plugins_of(const char *folder)
{
    static char text[PATH_MAX + 64], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    assert_true(n > 0);
    path[n] = '\0';
    snprintf(text, sizeof(text), "plugins { directory = \"%s/%s\" }\n", dirname(path), folder);
    return text;
}

#define OF_TESTS plugins_of("plugins")
#define OF_OURS  plugins_of("../plugins")

/* A configuration with plugins of that folder; line 1 is theirs. malloc'ed. */
static inline char *with_plugins(const char *plugins, const char *text)
{
    char *all = NULL;
    assert_true(asprintf(&all, "%s%s", plugins, text) > 0);
    return all;
}

static inline struct conf *plugged(const char *plugins, const char *text)
{
    char *all = with_plugins(plugins, text);
    struct conf *conf = conf_of(all);
    free(all);
    return conf;
}

static inline void expect_plugged_faults(const char *plugins, const char *text,
                                         const char *expected)
{
    char *all = with_plugins(plugins, text);
    expect_faults(all, expected);
    free(all);
}

/* What the section has for that option. */
static inline const struct postern_values *values_of(const struct conf_plugin *section,
                                                     const char *name)
{
    for (size_t i = 0; i < section->plugin->def.option_count; i++)
        if (strcmp(plugin_option(section->plugin, i)->name, name) == 0)
            return &section->values[i];
    fail_msg("there is no option %s", name);
    return NULL;
}

static inline int set_up_plugins(void **state)
{
    (void)state;
    unsetenv("POSTERN_PLUGINS"); /* then those beside the test are found */
    host_fill();
    host_set_check(true);
    return 0;
}

#endif
