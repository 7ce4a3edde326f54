/* The admin listener: what operators and their tools ask the process over HTTP.
 *
 * Runs on the main thread's event_base, beside traffic and never in its way. It knows nothing
 * of workers: what it tells it gets from its owner's functions, called on the main thread. */
#ifndef POSTERN_PROXY_ADMIN_H
#define POSTERN_PROXY_ADMIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct event_base;

#define ADMIN_DETAIL 512

struct admin_ops {
    bool (*is_ready)(void *owner);
    json_t *(*config)(void *owner);    /* a new reference, or NULL: no memory */
    json_t *(*upstreams)(void *owner); /* likewise */
    void (*metrics)(void *owner, FILE *out);
    /* Takes a server of an upstream out, or puts it back; the upstream's servers as they are
     * then. NULL: there is no such server, and `detail` says what there is; or no memory, and
     * `detail` stays empty. */
    json_t *(*drain)(void *owner, const char *upstream, const char *server, bool drain,
                     char detail[ADMIN_DETAIL]);
};

struct admin;
/* `ops` and `owner` must outlive it. NULL: no memory. */
struct admin *admin_new(struct event_base *base, const struct admin_ops *ops, void *owner);
void admin_free(struct admin *admin); /* closes its connections too; NULL is fine */
/* Accepts on `fd`, a bound stream socket of any family, from now on; may be called for several.
 * `fd` is the admin's to close, also when this fails. 0 or -errno. */
int admin_listen(struct admin *admin, int fd);
/* Closes all that admin_listen got. Connections live on. */
void admin_unlisten(struct admin *admin);

#endif
