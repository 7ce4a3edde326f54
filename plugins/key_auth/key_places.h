/* Where in a request a key may stand, and how a client is told so.
 *
 * Made within configure, immutable afterwards, any thread. Everything it points to is its own.
 */
#ifndef POSTERN_KEY_AUTH_KEY_PLACES_H
#define POSTERN_KEY_AUTH_KEY_PLACES_H

#include "postern_plugin.h"

struct key_place {
    enum postern_part part;
    bool is_scheme; /* the header is Authorization, the name a scheme's */
    struct postern_str name;
};

struct key_places {
    struct key_place *list;
    size_t count;
    char *expected; /* "header X-Api-Key or parameter key", for people */
    /* WWW-Authenticate, one for each scheme, then one for all other places together: for a
     * request without a key, for one with a wrong one, and for one with several. */
    struct postern_header *challenges, *refusals, *multiples;
    size_t challenge_count;
};

/* Adds the names of one option. False: no memory. */
bool key_places_add(struct key_places *places, enum postern_part part, bool is_scheme,
                    const struct postern_values *names);
/* When all are there. False: no memory. */
bool key_places_finish(struct key_places *places, struct postern_str realm);
void key_places_done(struct key_places *places);

/* How many keys the request carries, and the first of them. They are taken out of the request,
 * unless `keep`: what the upstream gets and what is logged has none. An empty field is one that
 * carries an empty key. */
unsigned key_places_find(const struct key_places *places, const struct postern_api *api,
                         struct postern_request *r, bool keep, struct postern_str *ret_key);

#endif
