/* Where the entries of a keys file stand, which the JSON library does not tell.
 *
 * `text` is JSON that has been parsed already: an array of entries, or an object whose member
 * "keys" is one. Writes the line of each of the first `count` entries; what is not found keeps
 * what it was. Pure, any thread. */
#ifndef POSTERN_KEY_AUTH_KEY_LINES_H
#define POSTERN_KEY_AUTH_KEY_LINES_H

#include <stddef.h>

void key_lines(const char *text, size_t n, unsigned *lines, size_t count);

#endif
