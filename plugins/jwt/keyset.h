/* Keys that belong together: a file's, or what a URL gave. Immutable once others can see it;
 * replaced as a whole. */
#ifndef JWT_KEYSET_H
#define JWT_KEYSET_H

#include "jwk.h"

#define KEYSET_MAX   64 /* keys; more are not looked at, and the set is refused */
#define KEYSET_TRIES 8  /* keys that one token is tried with at most */

struct keyset {
    uint64_t generation; /* no two sets of one owner have the same */
    size_t count;
    struct jwk keys[];
};

/* `wrong` says why NULL is returned, as the end of a sentence. */
struct keyset *keyset_from_key(struct jwk *key); /* takes the key; NULL: no memory */
/* A JWKS or one JWK. Keys that cannot be used are left out and counted in *ret_skipped (RFC
 * 7517 5); a set without any that can is refused. With `public_only` secrets are left out. */
struct keyset *keyset_from_json(struct postern_str text, bool public_only, size_t *ret_skipped,
                                const char **ret_wrong);
void keyset_free(void *object); /* NULL is fine */

/* `fresh` and besides the keys of `old` that it has not, until `until_ms`, or until earlier if
 * they are on their way out already. NULL: no memory. Both stay the caller's. */
struct keyset *keyset_merge(const struct keyset *fresh, const struct keyset *old,
                            uint64_t now_ms, uint64_t until_ms);

/* The keys that a token of this kid (.p NULL: without) and algorithm may be signed with: those
 * of the same kid, else those that have none; every one for a token without. Returns how many.
 */
size_t keyset_find(const struct keyset *set, struct postern_str kid, enum alg alg,
                   uint64_t now_ms, const struct jwk *ret[KEYSET_TRIES]);

#endif
