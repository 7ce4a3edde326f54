/* --help-plugin: what a plugin says about itself. */
#ifndef POSTERN_APP_HELP_PLUGIN_H
#define POSTERN_APP_HELP_PLUGIN_H

/* `name`: of a plugin, or the path of one. Prints; the exit status of the program. */
int help_plugin(const char *name);

#endif
