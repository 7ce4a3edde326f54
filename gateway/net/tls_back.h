/* What the connections to one upstream share: whom we trust, and who we say we are.
 *
 * Made on the main thread, immutable afterwards but for tls_back_renew. Counted by reference,
 * any thread. */
#ifndef POSTERN_NET_TLS_BACK_H
#define POSTERN_NET_TLS_BACK_H

#include "net/tls.h"

struct tls_back_spec {
    struct str ca;         /* PEM of whom we trust; .p NULL: the system's authorities */
    bool verify;           /* the server's certificate and its name */
    struct str chain, key; /* PEM of our own certificate; .p NULL: none */
    bool http2;            /* insist on it (ALPN) */
};

struct tls_back_fault {
    const char *option; /* "ca", "certificate", "key"; NULL: none */
    const char *text;   /* what is wrong, lives for ever */
};

/* NULL when there is a fault, each of which `on_fault` has heard. */
struct tls_back *tls_back_new(const struct tls_back_spec *spec,
                              void (*on_fault)(void *arg, const struct tls_back_fault *fault),
                              void *arg);
/* Connections that begin from now on have what `from` was made of, and go on with no session of
 * before: it would say who we were. Those that stand are outdated (tls_is_outdated). Takes over
 * `from`. Main thread. */
void tls_back_renew(struct tls_back *back, struct tls_back *from);
struct tls_back *tls_back_ref(struct tls_back *back);
void tls_back_unref(struct tls_back *back); /* NULL is fine */

#endif
