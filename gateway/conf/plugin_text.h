/* What a plugin's option takes, in words: for faults and for --help-plugin. */
#ifndef POSTERN_CONF_PLUGIN_TEXT_H
#define POSTERN_CONF_PLUGIN_TEXT_H

#include "plugin/host.h"

#define PLUGIN_EXPECTED 320
const char *plugin_expected(const struct postern_option *option, char out[PLUGIN_EXPECTED]);

#endif
