/* One section of the plugin forward_auth: what configure made of it. */
#ifndef FORWARD_AUTH_H
#define FORWARD_AUTH_H

#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "memo/memo.h"

#define TEXT(literal) ((struct postern_str){(literal), sizeof(literal) - 1})

struct names {
    struct postern_str *list;
    size_t count;
};

enum asked_method { METHOD_GET, METHOD_HEAD, METHOD_SAME };

enum key_part {
    KEY_METHOD,
    KEY_HOST,
    KEY_PATH,
    KEY_TARGET,
    KEY_CLIENT_IP,
    KEY_HEADER,
    KEY_SCHEME, /* these two only as part of all that is passed on */
    KEY_AUTHORITY,
};
struct key_item {
    enum key_part part;
    struct postern_str header; /* KEY_HEADER */
};

/* What the workers have. */
struct desks {
    unsigned count;
    struct memo *caches[]; /* of decisions; NULL: none */
};

struct forward_auth {
    struct postern_origin *origin;
    struct postern_str path;
    enum asked_method method;
    bool all_headers;                     /* request_headers = {"*"} */
    struct names request_headers;         /* from the client to who decides */
    struct names response_headers;        /* from a yes to the backend */
    struct names client_headers;          /* from a yes to the client */
    struct names refusal_headers;         /* from a no to the client */
    struct postern_str credential_header; /* .p NULL: none */
    uint32_t timeout_ms;
    size_t max_bytes, cache_entries;
    uint64_t cache_ms; /* 0: no cache */
    struct key_item *key;
    size_t key_count;
    int failed; /* counter */
    _Atomic(struct desks *) desks;
    struct note *notes; /* owns the texts */
};

static inline bool text_is(struct postern_str a, struct postern_str b)
{
    return a.n == b.n && (a.n == 0 || strncasecmp(a.p, b.p, a.n) == 0);
}

static inline bool names_have(const struct names *names, struct postern_str name)
{
    for (size_t i = 0; i < names->count; i++)
        if (text_is(names->list[i], name))
            return true;
    return false;
}

/* forward_options.c */
#define FORWARD_OPTIONS 13
extern const struct postern_option forward_options[FORWARD_OPTIONS];
void forward_options_use(const struct postern_api *api);
bool forward_configure(struct postern_setup *s, const struct postern_values *values,
                       void **ret_instance);
void forward_discard(void *instance);

#endif
