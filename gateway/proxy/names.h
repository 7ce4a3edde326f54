/* Names that label metrics, as numbers. What a configuration names keeps its number for ever;
 * addresses of names come and go, and their numbers with them, so that the table is as large as
 * what there is at a time. Main thread only. */
#ifndef POSTERN_PROXY_NAMES_H
#define POSTERN_PROXY_NAMES_H

#include "base/str.h"

/* The number of a name, for one more user: the same name, the same number. 0: the empty name,
 * or no memory. */
unsigned names_take(struct str name);
/* One user less; when it was the last, the number may come to stand for another name. 0 is
 * fine. */
void names_give(unsigned number);
/* .p NULL: nobody's at the moment. */
struct str names_text(unsigned number);

#endif
