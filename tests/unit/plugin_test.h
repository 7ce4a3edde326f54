/* For the tests of plugin/: plugins that are no shared objects, and sections without a file. */
#ifndef PLUGIN_TEST_H
#define PLUGIN_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/host.h"

static char said[1024]; /* by faults and warnings, one a line */

static inline void on_say(struct postern_setup *s, bool fault, int option, size_t i,
                          const char *text)
{
    size_t n = strlen(said);
    (void)s;
    snprintf(said + n, sizeof(said) - n, "%s %d %zu %s\n", fault ? "fault" : "warning", option,
             i, text);
}

static inline struct postern_origin *on_origin(struct postern_setup *s, int option, size_t i,
                                               struct str where)
{
    on_say(s, true, option, i, "no origin");
    (void)where;
    return NULL;
}

static const struct setup_ops ops = {.say = on_say, .origin = on_origin};

static inline struct instance *instance_of(const struct plugin *plugin, const char *place)
{
    struct postern_setup setup = {.ops = &ops};
    said[0] = '\0';
    return instance_new(plugin, &setup, place, NULL);
}

#endif
