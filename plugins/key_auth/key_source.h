/* A keys file that is followed: the table of what it held when it was last right.
 *
 * Sections that name one file share its source, also over a reload, so it is read once. Main
 * thread, but for key_source_table, which any thread may call within a hook. */
#ifndef POSTERN_KEY_AUTH_KEY_SOURCE_H
#define POSTERN_KEY_AUTH_KEY_SOURCE_H

#include "key_table.h"

struct key_source;

struct key_source *key_source_new(const char *path); /* NULL: no memory */
void key_source_free(struct key_source *source);

/* Reads the file. 1: a new table is in force, and *ret_old (NULL: none) is to be freed when no
 * hook can see it; 0: the file is what it was the last time; -1: the old table stays, and
 * faults were reported. With `again` a file that was wrong the last time is wrong again, not 0.
 */
int key_source_refresh(struct key_source *source, bool again, struct key_report *report,
                       struct key_table **ret_old);

/* NULL: it was never right. */
struct key_table *key_source_table(const struct key_source *source);
const char *key_source_path(const struct key_source *source);
/* Whether all users of the machine may read the file. */
bool key_source_is_open(const struct key_source *source);

#endif
