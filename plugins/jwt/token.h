/* A token in the compact form of RFC 7515: where its parts are, and what its header says.
 * Nothing here trusts it: the signature is checked elsewhere. */
#ifndef JWT_TOKEN_H
#define JWT_TOKEN_H

#include "alg.h"
#include "bounded.h"
#include "refusal.h"

struct token {
    struct postern_str header, payload, signature; /* in base64url */
    struct postern_str input;                      /* what is signed: header "." payload */
};

struct token_header {
    json_t *json;                 /* owns the texts; for json_decref() */
    enum alg alg;                 /* ALG_COUNT: one that is not known, "none" for instance */
    struct postern_str kid, type; /* .p NULL: not there */
};

/* False: not three parts with a dot between each two, none of them empty. */
bool token_split(struct postern_str text, struct token *ret);

/* REFUSAL_NONE, HEADER, CRITICAL or MEMORY. On REFUSAL_NONE the caller frees ret->json. */
enum refusal token_read_header(const struct token *token, struct token_header *ret);
/* The claims. NULL: no JSON object within the bounds, or no memory. For json_decref(). */
json_t *token_read_payload(const struct token *token);

#endif
