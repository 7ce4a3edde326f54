/* The process_* metrics, named and counted as Prometheus's own clients do. Any thread. */
#ifndef POSTERN_PROXY_PROC_H
#define POSTERN_PROXY_PROC_H

#include <stdio.h>

void proc_write(FILE *out);

#endif
