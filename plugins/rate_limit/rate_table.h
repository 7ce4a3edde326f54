/* Limits of many keys within this process: a table of slots with the words of gcra in them.
 *
 * Any thread. */
#ifndef POSTERN_RATE_LIMIT_RATE_TABLE_H
#define POSTERN_RATE_LIMIT_RATE_TABLE_H

#include "limit/slots.h"
#include "rate_limit/gcra.h"

/* gcra_take for the key. SLOTS_DISPLACED: another key's state was forgotten for it. */
enum slots_result rate_table_take(struct slots *table, const struct gcra *g, uint64_t hash,
                                  uint64_t now, struct gcra_verdict *ret);

#endif
