/* Names that label metrics, as numbers. They come and go with the configurations that have
 * them, and addresses with what names stand for, so that the table is as large as what there is
 * at a time; only listeners' are kept for ever. Main thread only. */
#ifndef POSTERN_PROXY_NAMES_H
#define POSTERN_PROXY_NAMES_H

#include "base/str.h"

/* The number of a name, for one more user: the same name, the same number. 0: the empty name,
 * or no memory. */
unsigned names_take(struct str name);
/* One user less. True: it was the last, and the number may come to stand for another name. 0 is
 * fine, and never the last. */
bool names_give(unsigned number);
/* .p NULL: nobody's at the moment. */
struct str names_text(unsigned number);

#endif
