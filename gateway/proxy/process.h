/* The process_* metrics, named and counted as Prometheus's own clients do. Any thread. */
#ifndef POSTERN_PROXY_PROCESS_H
#define POSTERN_PROXY_PROCESS_H

#include <stdio.h>

void process_write(FILE *out);

#endif
