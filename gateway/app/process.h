/* What the process is to the system: its limits, its pid file, its user. Main thread, before
 * the workers start. */
#ifndef POSTERN_APP_PROCESS_H
#define POSTERN_APP_PROCESS_H

#include "conf/conf.h"

/* Raises the limit of open files to the hard limit and checks that it carries what the
 * configuration opens by itself. 0, or -1 with a fault. */
int process_limits(const struct conf *conf, struct conf_faults *faults);
/* Logs go where the configuration says. 0, or -1 with a fault: they go where they went. */
int process_open_logs(const struct conf *conf, struct conf_faults *faults);
/* 0, or -1 with a fault. A pid file of a process that is gone is taken over. */
int process_write_pid(const struct conf *conf, struct conf_faults *faults);
void process_remove_pid(const char *path); /* NULL is fine */
/* Gives up root for `user`, when started as root. 0, or -1 with a fault. */
int process_drop_root(const struct conf *conf, struct conf_faults *faults);

#endif
