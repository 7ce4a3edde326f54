/* The keys of one file, made to be looked up in.
 *
 * A key that was verified once is known again by a 128-bit SipHash of it, under a secret of the
 * table's own: about 100 ns cheaper than SHA-256 through OpenSSL, and nothing of the key is
 * kept. Each entry has at most one such tag, so their memory is bounded by the file. Keys that
 * the file has in plain text have their tag from the beginning, and are wiped.
 *
 * Immutable but for the tags, which workers add without a lock. Any thread may look up; who
 * made the table frees it when nobody can. */
#ifndef POSTERN_KEY_AUTH_KEY_TABLE_H
#define POSTERN_KEY_AUTH_KEY_TABLE_H

#include "key_file.h"

struct key_table;
struct key_hasher; /* what one thread needs for a SHA-256 */

/* Takes the file, also when it fails. NULL: a fault was reported: two entries with one key, or
 * no memory. */
struct key_table *key_table_new(struct key_file *file, struct key_report *report);
void key_table_free(struct key_table *table); /* NULL is fine */

struct key_hasher *key_hasher_new(void); /* NULL: no memory */
void key_hasher_free(struct key_hasher *hasher);

/* The entry of a key that was verified before, or stood in plain text; NULL: not known so. */
const struct key_entry *key_table_known(const struct key_table *table, const char *key,
                                        size_t n);
/* The entry of any key, by its hash under each salt of the file; known from then on. NULL:
 * there is none. */
const struct key_entry *key_table_verify(struct key_table *table, struct key_hasher *hasher,
                                         const char *key, size_t n);

const struct key_file *key_table_file(const struct key_table *table);

#endif
