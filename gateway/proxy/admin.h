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

struct admin_ops {
    bool (*is_ready)(void *owner);
    json_t *(*config)(void *owner);    /* a new reference, or NULL: no memory */
    json_t *(*upstreams)(void *owner); /* likewise */
    void (*metrics)(void *owner, FILE *out);
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
