/* Faults on demand: what goes wrong only when somebody asks for it, so that tests meet what a
 * quiet machine never shows. POSTERN_FAULT is a list of words, some with a number:
 *
 *   alloc:N        the N-th allocation of the process fails (base/mem)
 *   alloc-every:N  every N-th of a worker fails, free lists' counted in (base/mem)
 *   alloc-once:N   the N-th of each worker fails, counted as for alloc-every
 *   short-read     nearly all reads and writes are one byte (net/io)
 *   short-read:N   every N-th is a few bytes, the others are whole (net/io)
 *   eagain         every other read or write finds the kernel not ready (net/io)
 *   connect:N      every N-th connect is refused (net/sock)
 *   dns:N          each question to a DNS server is asked N ms later (up/dns)
 *
 * Release builds know none of them. */
#ifndef POSTERN_BASE_DEMAND_H
#define POSTERN_BASE_DEMAND_H

#include <stdint.h>

/* The number behind `word` in the list, 1 when it has none; 0: the word is not there. Reads the
 * environment: for a hot path once, and kept. Any thread. */
uint64_t demand(const char *word);

#endif
